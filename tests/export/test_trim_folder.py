"""An encoder trimmed to some languages: the same vectors on their text, in a smaller folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForMaskedLM, AutoTokenizer, XLMRobertaConfig, XLMRobertaForMaskedLM

from crossling.core.errors import BadInput
from crossling.corpora.corpus import Corpora
from crossling.export import export
from crossling.inference.load import load
from crossling.recipes.run_checkpoints import run_of
from crossling.vocabulary.build_vocabulary import vocab
from crossling.vocabulary.text_normalization import default_charsmap
from crossling.vocabulary.vocabulary import Vocabulary

from .conftest import Train


@pytest.fixture(scope="module")
def two(corpora_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return corpora of two of the three languages."""
    folder = tmp_path_factory.mktemp("two")
    (folder / "text").mkdir()
    for language in Corpora(corpora_folder).languages[:2]:
        lines = list(Corpora(corpora_folder).lines(language))[:60]
        (folder / "text" / f"{language}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def xlmr(vocabulary_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an XLM-R with a language model head and random weights, and the vocabulary of the corpora."""
    vocabulary, folder = Vocabulary.load(vocabulary_folder), tmp_path_factory.mktemp("xlmr") / "model"
    config = XLMRobertaConfig(
        vocab_size=vocabulary.size, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=130, type_vocab_size=1, initializer_range=0.3,
    )  # fmt: skip
    torch.manual_seed(0)
    XLMRobertaForMaskedLM(config).save_pretrained(folder)
    vocabulary.tokenizer().save_pretrained(folder)
    return folder


def text_of(corpora: Path) -> list[str]:
    return [line for language in Corpora(corpora).languages for line in Corpora(corpora).lines(language)][:40]


def vectors(folder: Path, lines: list[str]) -> Any:
    return load(folder, device="cpu", precision="float32").encode(lines)


def test_a_hugging_face_encoder_computes_the_same_on_the_text(xlmr: Path, two: Path, tmp_path: Path) -> None:
    out, lines = export(xlmr, tmp_path / "small", trim=two), text_of(two)
    np.testing.assert_array_equal(vectors(out, lines), vectors(xlmr, lines))
    info = json.loads((out / "export.json").read_text())["trimmed"]
    config = json.loads((out / "config.json").read_text())
    before, after = info["before"], info["after"]
    assert after["entries"] == config["vocab_size"] < before["entries"]
    # A row of the table (tied to the output) and a bias for each entry.
    assert before["parameters"] - after["parameters"] == (before["entries"] - after["entries"]) * (16 + 1)
    assert config["architectures"] == ["XLMRobertaForMaskedLM"]
    # Logits of kept entries, <mask> among them.
    (one, other), tokens = ((AutoTokenizer.from_pretrained(each) for each in (xlmr, out)), [])
    text = f"{lines[0]} <mask>"
    logits = []
    for folder, tokenizer in ((xlmr, one), (out, other)):
        ids = tokenizer(text, return_tensors="pt")["input_ids"]
        tokens.append(tokenizer.convert_ids_to_tokens(ids[0]))
        scores = AutoModelForMaskedLM.from_pretrained(folder).eval()(ids).logits[0]
        logits.append(scores[:, tokenizer.convert_tokens_to_ids(other.convert_ids_to_tokens(range(len(other))))])
    assert tokens[0] == tokens[1]
    assert "<mask>" in tokens[1]
    torch.testing.assert_close(*logits)


def test_a_run_is_trimmed_in_any_precision(train: Train, two: Path, tmp_path: Path) -> None:
    """With its generator."""
    run, lines = train("xlm_e"), text_of(two)
    assert run_of(run) is not None
    whole = export(run, tmp_path / "whole")
    expected = vectors(whole, lines)
    for precision, tolerance in ((None, 0.0), ("half", 2e-2), ("int8", 0.3)):
        out = export(run, tmp_path / f"{precision}", trim=two, precision=precision)
        np.testing.assert_allclose(vectors(out, lines), expected, atol=tolerance, rtol=0)
        for part in (out, out / "generator"):
            name = "half" if precision == "half" else "single"
            entries = json.loads((part / "config.json").read_text())["vocab_size"]
            assert entries < json.loads((whole / "config.json").read_text())["vocab_size"]
            kinds = {values.dtype for values in load_file(part / "model.safetensors").values()}
            assert (torch.float16 in kinds) == (name == "half")
            assert (torch.int8 in kinds) == (precision == "int8")
            assert len(AutoTokenizer.from_pretrained(part)) == entries


def test_trimmed_by_a_vocabulary_of_a_chosen_size(xlmr: Path, two: Path, tmp_path: Path) -> None:
    vocab(two, tmp_path / "vocab", from_=xlmr, trim=True, size=150)
    out = export(xlmr, tmp_path / "small", trim=tmp_path / "vocab", precision="half")
    config = json.loads((out / "config.json").read_text())
    assert (config["vocab_size"], config["dtype"]) == (150, "float16")
    other = Vocabulary.from_scores({"▁nowhere": -1.0, "a": -2.0}, default_charsmap()).save(tmp_path / "other")
    with pytest.raises(BadInput, match="has the entry '▁nowhere', which"):
        export(xlmr, tmp_path / "wrong", trim=other)
    assert not (tmp_path / "wrong").exists()


def test_mistakes(xlmr: Path, two: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot load int8 weights of xlm-roberta"):
        export(xlmr, tmp_path / "a", trim=two, precision="int8")
    with pytest.raises(BadInput, match=r"Omit options other than trim, precision, onnx and push\."):
        export(xlmr, tmp_path / "b", trim=two, layers=1)
    with pytest.raises(BadInput, match="so not a run folder"):
        export(xlmr, tmp_path / "c")
    assert not [*tmp_path.iterdir()]
