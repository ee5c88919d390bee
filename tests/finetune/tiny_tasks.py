"""Tiny models and tokenizers, and simple tasks that they can learn."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import NoReturn

import torch
from transformers import (
    BertConfig,
    BertModel,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    XLMRobertaConfig,
    XLMRobertaModel,
)

from crossling.model.config import CrosslingConfig
from crossling.model.encoder_model import CrosslingModel
from tests.tiny_encoder import LETTERS, make_word_tokenizer

WORDS = ["red", "blue", "green", "dog", "cat", "bird", "runs", "sleeps", "sings", "where", "what", "the", "old"]


def make_tokenizer(doubled: bool = False) -> PreTrainedTokenizerFast:
    """Return a tokenizer with one token per known word, and letters for others.

    `doubled` separates a pair with two tokens, as XLM-R does.
    """
    letters = [*LETTERS, *(f"##{letter}" for letter in LETTERS)]
    pair = "<s> $A </s> </s> $B </s>" if doubled else "<s>:0 $A:0 </s>:0 $B:1 </s>:1"
    return make_word_tokenizer([*WORDS, *letters, "0", "1", "."], pair, bos_token="<s>", eos_token="</s>")


def make_model(kind: str = "crossling", seed: int = 0, positions: int = 64) -> PreTrainedModel:
    torch.manual_seed(seed)
    shape = {
        "vocab_size": 80,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 64,
        "pad_token_id": 1,
        "initializer_range": 0.1,
    }
    if kind in ("crossling", "veco"):
        config = CrosslingConfig(**shape, max_position_embeddings=positions, dropout=0.1)
        return CrosslingModel(config.replace(cross_attention=kind == "veco")).eval()
    if kind == "bert":
        return BertModel(BertConfig(**shape, max_position_embeddings=positions)).eval()
    return XLMRobertaModel(XLMRobertaConfig(**shape, max_position_embeddings=positions + 2, type_vocab_size=1)).eval()


def model_folder(folder: Path, kind: str = "crossling") -> Path:
    make_model(kind).save_pretrained(folder)
    tokenizer = make_tokenizer()  # it has token types, which XLM-R does not use
    tokenizer.model_max_length = 64
    tokenizer.save_pretrained(folder)
    return folder


# ---- data folders in the published layouts ---------------------------------------------------------------------

COLOURS, ANIMALS, DEEDS = WORDS[:3], WORDS[3:6], WORDS[6:9]
CLASSES = ("contradiction", "entailment", "neutral")


def write_xnli(data: Path, splits: dict[str, int], languages: dict[str, list[str]]) -> Path:
    """Write examples whose class depends on the first word of the hypothesis."""
    for split, size in splits.items():
        for language in languages[split]:
            rng = random.Random(f"{split}{language}")
            rows = []
            for _ in range(size):
                label = rng.randrange(3)
                premise = f"the {rng.choice(ANIMALS)} {rng.choice(DEEDS)}"
                rows.append(f"{premise}\t{COLOURS[label]} {rng.choice(ANIMALS)}\t{CLASSES[label]}")
            _write(data / "xnli" / f"{split}-{language}.tsv", rows)
    return data


def write_udpos(data: Path, splits: dict[str, int], languages: dict[str, list[str]], tagged: bool = True) -> Path:
    tags = {**dict.fromkeys(COLOURS, "ADJ"), **dict.fromkeys(ANIMALS, "NOUN"), **dict.fromkeys(DEEDS, "VERB")}
    for split, size in splits.items():
        for language in languages[split]:
            rng = random.Random(f"{split}{language}")
            rows = []
            for _ in range(size):
                words = [rng.choice([*tags]) for _ in range(rng.randrange(2, 7))]
                rows += [*(f"{word}\t{tags[word]}" if tagged else word for word in words), ""]
            _write(data / "udpos" / f"{split}-{language}.tsv", rows)
    return data


def write_squad(file: Path, size: int, seed: str, impossible: bool = False) -> Path:
    """Write questions: `what` is about the animal, `where` about the colour.

    With `impossible`, every second question has no answer.
    """
    rng = random.Random(seed)
    paragraphs = []
    for number in range(size):
        colour, animal = rng.choice(COLOURS), rng.choice(ANIMALS)
        words = ["the", "old", colour, rng.choice(DEEDS), animal]
        rng.shuffle(words)
        context = " ".join(words)
        word, answer = rng.choice([("what", animal), ("where", colour)])
        absent = impossible and number % 2 == 1
        if absent:
            context = context.replace(answer, "old")
        answers = [] if absent else [{"text": answer, "answer_start": context.index(answer)}]
        question = {"id": str(number), "question": word, "answers": answers}
        if impossible:
            question["is_impossible"] = absent
        paragraphs.append({"context": context, "qas": [question]})
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"version": "1.1", "data": [{"title": "toy", "paragraphs": paragraphs}]}))
    return file


def no_teacher(_: object) -> NoReturn:
    """Stand-in for a teacher of data in which all examples have labels."""
    raise AssertionError("all examples have labels")


def _write(file: Path, rows: list[str]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
