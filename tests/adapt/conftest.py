"""A tiny multilingual encoder, a sample of one language to keep, and messy files of a new language."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import XLMRobertaConfig, XLMRobertaForMaskedLM

from crossling.adapt import adapt_stages
from crossling.adapt.replay_sample import HELD_OUT, TRAIN, read_icelandic, read_sample
from crossling.corpora.corpus import Corpora
from crossling.vocabulary.vocabulary import Vocabulary

ROWS = [row for row in read_sample() if row.language in ("de", "fr")]
FAST = ["steps=2", "pairs=8", "tokens=128", "entries=20"]


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder like that of XLM-R: random weights, and a vocabulary of English, German and French."""
    folder = tmp_path_factory.mktemp("model")
    (folder / "corpora" / "text").mkdir(parents=True)
    for language in ("de", "fr"):
        lines = [f"{row.english}\n{row.translation}\n" for row in ROWS if row.language == language]
        (folder / "corpora" / "text" / f"{language}.txt").write_text("".join(lines), encoding="utf-8")
    vocabulary = Vocabulary.train(Corpora(folder / "corpora"), 400)
    torch.manual_seed(0)
    config = XLMRobertaConfig(
        vocab_size=400,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=66,
        pad_token_id=1,
        bos_token_id=0,
        eos_token_id=2,
    )
    XLMRobertaForMaskedLM(config).save_pretrained(folder / "tiny")
    vocabulary.tokenizer().save_pretrained(folder / "tiny")
    return folder / "tiny"


@pytest.fixture(autouse=True)
def small_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the shipped sample to one language, of which little is held out."""
    german = [row for row in ROWS if row.language == "de"]
    short = [row for row in german if row.part == TRAIN][:20] + [row for row in german if row.part == HELD_OUT][:8]
    monkeypatch.setattr(adapt_stages, "read_sample", lambda: iter(short))


@pytest.fixture(scope="session")
def messy_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a table in an old encoding, and text with CR line ends and HTML entities."""
    folder = tmp_path_factory.mktemp("files")
    pairs = read_icelandic()[:200]
    table = "English;Icelandic;note\n" + "".join(f'"{one}";"{two}";x\n' for one, two in pairs[:120])
    (folder / "bitext.csv").write_bytes(table.encode("cp1252", "xmlcharrefreplace"))
    text = "\r".join(two.replace("ð", "&eth;") for _, two in pairs[120:])
    (folder / "text.is.txt").write_bytes(text.encode("utf-16"))
    return folder
