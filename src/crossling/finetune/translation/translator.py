"""Translators: an encoder-decoder with its tokenizer, and its folder, which Hugging Face libraries read.

MT/seed-N/  config.json  model.safetensors  tokenizer.json  generation_config.json     the model
            translator.json                                   directions, training settings and dev scores
"""
# B source sentences of a batch, L positions

from __future__ import annotations

import copy
import json
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xxhash
from tokenizers import AddedToken
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoModelForSeq2SeqLM, PreTrainedTokenizerFast

from crossling.core.errors import BadInput
from crossling.core.hub import quiet_transformers
from crossling.data.packing import batch_by_length
from crossling.finetune.features import SequenceBuilder
from crossling.finetune.translation.parallel_text import Direction, language_tag, parse_directions
from crossling.finetune.tuned_model import InfoFile, save_pretrained
from crossling.inference.hidden_states import evaluation_mode
from crossling.model.encoder_decoder import CrosslingForConditionalGeneration
from crossling.model.pretrained import load_pretrained, load_tokenizer
from crossling.vocabulary.special_tokens import SpecialTokens

DEFAULT_BEAM = 5
# Bytes for the keys and values of a batch. Its logits take about as many.
BATCH_MEMORY_BYTES = {"cuda": 1 << 33, "cpu": 1 << 28}
LENGTH_FACTOR, EXTRA_TOKENS = 2, 20  # maximum length of a translation: a multiple of its source, and some more


@dataclass(frozen=True, kw_only=True)
class TranslatorInfo:
    """Contents of translator.json."""

    directions: list[str]  # "en-de"
    tags: dict[str, str]  # token before a source sentence, by target language; empty with a single direction
    model: str  # the model that initialized it
    init: str  # "pre-trained", "from-scratch" or "translator"
    seed: int
    hyperparameters: dict[str, Any]
    steps: int  # trained
    averaged_steps: list[int]  # checkpoints whose mean it is
    training_pairs: dict[str, int]  # number of sentence pairs by direction
    data: str  # fingerprint of training and dev text
    dev: dict[str, float] = field(default_factory=dict)  # sacreBLEU by direction
    curve: list[dict[str, float]] = field(default_factory=list)  # mean dev score by step and seconds of training

    @property
    def identity(self) -> dict[str, Any]:
        """Options and hyperparameters that determine the translator, apart from seed and data."""
        return {"model": self.model, "init": self.init, "directions": self.directions, **self.hyperparameters}

    @property
    def description(self) -> str:
        """Short text that distinguishes translators made from one model, apart from the seed."""
        own = self.hyperparameters
        key = json.dumps([self.directions, self.init, self.data, own], sort_keys=True).encode()
        words = [
            f"lr {own.get('lr', 0):g}",
            f"{own['steps']} steps" if own.get("steps") else f"{own.get('epochs', 0):g} epochs",
            f"decoder depth {own['decoder_layers']}" if own.get("decoder_layers") else "",
            "untied" if own.get("tied") is False else "",
            xxhash.xxh3_64_hexdigest(key)[:6],
        ]
        return ", ".join(filter(None, words))


def _parse_info(stored: dict[str, Any]) -> TranslatorInfo:
    info = TranslatorInfo(**stored)
    parse_directions(info.directions)  # refuses what is no direction
    return info


TRANSLATOR_INFO = InfoFile("translator.json", 2, _parse_info, "crossling finetune MODEL --task translation")


def add_language_tags(tokenizer: PreTrainedTokenizerFast, languages: Iterable[str]) -> PreTrainedTokenizerFast:
    """Return a copy of the tokenizer with the tags of these languages as special tokens."""
    tokenizer = copy.deepcopy(tokenizer)
    # rstrip: a space between tag and sentence is not a token.
    tags = [AddedToken(language_tag(language), special=True, rstrip=True, normalized=False) for language in languages]
    tokenizer.add_tokens(tags, special_tokens=True)
    return tokenizer


class TranslationTokenizer:
    """Token ids of source and target sentences, for training, for shards (as `LineTokenizer`) and to translate.

    A source has the special tokens that its tokenizer adds: it equals `tokenizer("<2de> a dog")`.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerFast, end: int, has_tags: bool) -> None:
        self.tokenizer, self.end, self.has_tags = tokenizer, end, has_tags
        self.builder = SequenceBuilder(tokenizer, has_token_types=False)

    @property
    def size(self) -> int:
        """Number of entries, language tags included."""
        return len(self.tokenizer)

    @property
    def fingerprint(self) -> str:
        """Hash of all that determines the token ids."""
        return xxhash.xxh3_128_hexdigest(self.tokenizer.backend_tokenizer.to_str().encode())

    @property
    def special(self) -> SpecialTokens:
        """Special tokens of the shards. Readers replace their end token by that of the model."""
        return SpecialTokens.standard(self.size)

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        """Return the ids of each line, without special tokens. A special token inside a line is tokenized as text."""
        tokenized = self.builder.tokenize(lines, offsets=False, special_tokens_as_text=True)
        return [tokens.ids.tolist() for tokens in tokenized]

    def encode_sources(self, texts: Sequence[str], languages: Sequence[str]) -> list[np.ndarray]:
        """Return the ids of source sentences, each with the tag of its target language."""
        affixes = {language: self.source_affixes(language) for language in {*languages}}
        return [
            np.concatenate([affixes[language][0], np.asarray(ids, dtype=np.int32), affixes[language][1]])
            for ids, language in zip(self.encode(texts), languages, strict=True)
        ]

    def source_affixes(self, language: str) -> tuple[np.ndarray, np.ndarray]:
        """Return what stands before and after the tokens of a source: special tokens and the tag of its target."""
        tag = self._tag_ids(language)
        sequence = self.builder.build(tag)
        before, after = np.split(sequence.ids, [sequence.first + len(tag)])
        return before, after

    def decode(self, ids: list[list[int]]) -> list[str]:
        """Return the texts of token ids, without special tokens."""
        return [text.strip() for text in self.tokenizer.batch_decode(ids, skip_special_tokens=True)]

    def truncate(self, source: np.ndarray, max_length: int) -> np.ndarray:
        """Return a source of at most `max_length` tokens. The special tokens at its end stay."""
        if len(source) <= max_length:
            return source
        empty = self.builder.build(np.empty(0, dtype=np.int32))
        after = len(empty.ids) - empty.first
        return np.concatenate([source[: max_length - after], source[len(source) - after :]])

    def _tag_ids(self, language: str) -> np.ndarray:
        if not self.has_tags:
            return np.empty(0, dtype=np.int32)
        tag = language_tag(language)
        tag_id = self.tokenizer.convert_tokens_to_ids(tag)
        if tag_id is None or tag_id == self.tokenizer.unk_token_id:
            raise BadInput(f"language {language}: the tokenizer of this translator has no tag {tag}. Use another one.")
        return np.array([tag_id], dtype=np.int32)


class Translator:
    """A translation model with its tokenizer and directions.

    Args:
        model: Encoder-decoder.
        tokenizer: Its tokenizer, with language tags if it has several directions.
        directions: Directions that it was trained for.
        has_tags: Source sentences start with the tag of the target language.
        name: Name in messages.

    Example:
        >>> translator = Translator.load("mt")
        >>> translator.translate(["A dog runs."], "de")
        ['Ein Hund rennt.']
    """

    def __init__(
        self,
        model: CrosslingForConditionalGeneration,
        tokenizer: PreTrainedTokenizerFast,
        *,
        directions: Sequence[Direction],
        has_tags: bool,
        name: str,
    ) -> None:
        self.model, self.directions, self.name = model, tuple(directions), name
        self.tokenizer = TranslationTokenizer(tokenizer, model.config.eos_token_id, has_tags)

    @property
    def max_length(self) -> int:
        """Maximum number of tokens of a source or a translation."""
        return int(self.model.config.max_position_embeddings)

    def translate(
        self,
        sentences: Sequence[str],
        to: str | Sequence[str],
        *,
        beam: int = DEFAULT_BEAM,
        length_penalty: float = 1.0,
        on_progress: Callable[[int], None] | None = None,
    ) -> list[str]:
        """Translate sentences. Those of similar length are decoded together.

        Args:
            sentences: Source sentences. Empty ones stay empty, and ones that are too long are truncated.
            to: Target language, or one per sentence.
            beam: Beam size. 1 is greedy decoding.
            length_penalty: Exponent of the length. Values above 0 prefer longer translations.
            on_progress: Called with the number of sentences of each finished batch.

        Returns:
            The translations, in the order of the sentences.

        Raises:
            BadInput: The tokenizer has no tag for a target language.

        Example:
            >>> translator.translate(["A dog runs.", "Ein Hund rennt."], ["de", "en"], beam=1)
            ['Ein Hund rennt.', 'A dog runs.']
        """
        languages = [to] * len(sentences) if isinstance(to, str) else list(to)
        filled = [row for row, sentence in enumerate(sentences) if sentence.strip()]
        sources = self.tokenizer.encode_sources([sentences[row] for row in filled], [languages[row] for row in filled])
        translations = [""] * len(sentences)
        too_long = sum(len(source) > self.max_length for source in sources)
        if too_long:
            warnings.warn(
                f"{self.name}: {too_long} sentences are longer than {self.max_length} tokens; truncated at the end",
                stacklevel=2,
            )
            sources = [self.tokenizer.truncate(source, self.max_length) for source in sources]
        for rows in self._batches([len(source) for source in sources], beam):
            generated = self._generate([sources[row] for row in rows], beam, length_penalty)
            for row, text in zip(rows, self.tokenizer.decode(generated), strict=True):
                translations[filled[row]] = text
            if on_progress is not None:
                on_progress(len(rows))
        return translations

    def _batches(self, lengths: Sequence[int], beam: int) -> Iterator[list[int]]:
        """Yield batches of similar length that fit into memory.

        Every token has keys and values in every layer, in source and translation. Every beam has logits over the
        vocabulary.
        """
        config, memory = self.model.config, BATCH_MEMORY_BYTES[self.model.device.type]
        tokens = memory // (16 * config.num_hidden_layers * config.hidden_size * beam)
        max_rows = max(1, memory // (16 * config.vocab_size * beam))
        return batch_by_length([max(length, tokens // max_rows) for length in lengths], tokens)

    def _generate(self, sources: Sequence[np.ndarray], beam: int, length_penalty: float) -> list[list[int]]:
        model = self.model
        ids = [torch.from_numpy(source).long() for source in sources]
        ids_BL = pad_sequence(ids, batch_first=True, padding_value=int(model.config.pad_token_id or 0))
        mask_BL = pad_sequence([torch.ones_like(own) for own in ids], batch_first=True)
        with evaluation_mode(model, mixed_precision=True), quiet_transformers():
            output_BL: Any = model.generate(
                ids_BL.to(model.device),
                attention_mask=mask_BL.to(model.device),
                num_beams=beam,
                length_penalty=length_penalty,
                early_stopping=beam > 1,
                do_sample=False,
                max_length=min(self.max_length, LENGTH_FACTOR * ids_BL.shape[1] + EXTRA_TOKENS),
            )
        rows: list[list[int]] = output_BL.tolist()
        return rows

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write model and tokenizer into an existing folder.

        Args:
            folder: Folder to write to. MT folders also have a translator.json, which `crossling.finetune` writes.

        Example:
            >>> translator = Translator.load("mt")
            >>> translator.save("copy")  # for AutoModelForSeq2SeqLM.from_pretrained of transformers
        """
        save_pretrained(self.model, self.tokenizer.tokenizer, folder)

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Translator:
        """Load a translator from its folder.

        Args:
            folder: MT folder, or the folder of one seed.

        Returns:
            The translator, on the GPU if there is one.

        Raises:
            BadInput: The folder holds no translator.

        Example:
            >>> translator = Translator.load("mt")
            >>> [str(direction) for direction in translator.directions]
            ['en-de', 'de-en']
        """
        folder = Path(folder)
        info = TRANSLATOR_INFO.read(folder)
        model: Any = load_pretrained(folder, folder, AutoModelForSeq2SeqLM)
        model.to("cuda" if torch.cuda.is_available() else "cpu")
        return cls(
            model,
            load_tokenizer(folder, folder),
            directions=parse_directions(info.directions),
            has_tags=bool(info.tags),
            name=str(folder),
        )
