"""Training pairs of translators from shards of `tokenize`, and from raw text that is tokenized once."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from crossling.core.errors import BadInput
from crossling.data.tokenize import tokenize
from crossling.finetune.translation import translation_pairs
from crossling.finetune.translation.parallel_text import parse_directions, read_parallel_text
from crossling.finetune.translation.translation_pairs import (
    TranslationPairs,
    open_training_shards,
    tokenize_training_text,
)
from crossling.finetune.translation.translation_training import TranslationRun
from crossling.finetune.translation.translator import TRANSLATOR_INFO, TranslationTokenizer, add_language_tags
from crossling.vocabulary.text_normalization import build_charsmap
from crossling.vocabulary.vocabulary import Vocabulary
from tests.finetune.tiny_tasks import make_tokenizer

from ..tiny_tasks import WORDS, make_model
from .tiny_parallel import train_short, training_rows, write_parallel

BOTH = parse_directions("en-de,de-en")
TOKENIZER = TranslationTokenizer(add_language_tags(make_tokenizer(), ["de", "en"]), end=2, has_tags=True)


# ---- raw text -----------------------------------------------------------------------------------------------


def test_tokenized_pairs_are_those_of_the_text_in_both_directions(tmp_path: Path) -> None:
    text = read_parallel_text(write_parallel(tmp_path / "data", {"train": 30, "dev": 3}), BOTH)
    tokenize_training_text(text.train, TOKENIZER, tmp_path / "shards")
    pairs = TranslationPairs.from_shards(open_training_shards(tmp_path / "shards"), BOTH, TOKENIZER)
    assert pairs.counts == dict.fromkeys(BOTH, 30)
    for group in pairs.groups:
        rows = training_rows(text, group.direction)
        sources = TOKENIZER.encode_sources([source for source, _ in rows], [group.direction.target] * 30)
        targets = TOKENIZER.encode([target for _, target in rows])
        for row in range(30):
            source, target = group.pair(row)
            assert source.tolist() == sources[row].tolist()
            assert target.tolist() == [*targets[row], 2]


@pytest.mark.filterwarnings("ignore:.*held out by their hash")
def test_held_out_rows_are_not_tokenized(tmp_path: Path) -> None:
    (tmp_path / "multi" / "some").mkdir(parents=True)
    for shift, language in enumerate(("de", "en")):
        lines = [f"{WORDS[(n + shift) % 13]} {WORDS[n // 13]}" for n in range(100)]
        (tmp_path / "multi" / "some" / f"{language}.txt").write_text("\n".join(lines) + "\n")
    text = read_parallel_text(tmp_path, BOTH)
    tokenize_training_text(text.train, TOKENIZER, tmp_path / "shards")
    pairs = TranslationPairs.from_shards(open_training_shards(tmp_path / "shards"), BOTH, TOKENIZER)
    assert pairs.counts == dict.fromkeys(BOTH, len(training_rows(text, BOTH[0])))
    assert 0 < pairs.counts[BOTH[0]] <= 90


def test_text_is_tokenized_once_and_again_for_another_tokenizer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = read_parallel_text(write_parallel(tmp_path / "data", {"train": 9}), BOTH)
    tokenize_training_text(text.train, TOKENIZER, tmp_path / "shards")
    calls: list[object] = []
    monkeypatch.setattr(translation_pairs, "write_shards", lambda *given: calls.append(given))
    tokenize_training_text(text.train, TOKENIZER, tmp_path / "shards")
    assert not calls
    other = TranslationTokenizer(add_language_tags(make_tokenizer(), ["fr"]), end=2, has_tags=True)
    tokenize_training_text(text.train, other, tmp_path / "shards")
    assert calls


def test_skipped_rows_are_reported(tmp_path: Path) -> None:
    data = write_parallel(tmp_path / "data", {"train": 9})
    (data / "train.de").write_text("\n".join([*(data / "train.de").read_text().splitlines()[:8], ""]) + "\n")
    text = read_parallel_text(data, BOTH)
    with pytest.warns(UserWarning, match=r"training text: skipped rows \(empty side: 1\)"):
        tokenize_training_text(text.train, TOKENIZER, tmp_path / "shards")


def test_seeds_and_resumed_runs_share_the_tokenized_text(
    encoder: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[Path] = []
    write_shards = translation_pairs.write_shards

    def record(corpora: object, tokenizer: object, out: Path) -> bool:
        written.append(out)
        return write_shards(corpora, tokenizer, out)  # type: ignore[arg-type]

    monkeypatch.setattr(translation_pairs, "write_shards", record)
    train_short(encoder, data, tmp_path / "mt", seeds=2, steps=2)
    assert len(written) == 1
    assert written[0].parent == tmp_path / "mt" / "training"
    assert not written[0].exists()  # removed with the unfinished runs


# ---- shards -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Path:
    """Shards of the training text, tokenized with a vocabulary of the words."""
    folder = tmp_path_factory.mktemp("tokenized")
    (folder / "corpora" / "pairs").mkdir(parents=True)
    for language in ("en", "de"):
        shutil.copy(data / f"train.{language}", folder / "corpora" / "pairs" / f"toy.en-de.{language}")
    scores = {f"▁{word}": -float(n + 1) for n, word in enumerate(WORDS)} | {"▁": -40.0}
    Vocabulary.from_scores(scores, build_charsmap([])).save(folder / "vocab")
    tokenize(folder / "corpora", folder / "vocab", folder / "shards")
    return folder / "shards"


@pytest.fixture(scope="module")
def matching_encoder(shards: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Encoder with the vocabulary of the shards."""
    folder = tmp_path_factory.mktemp("matching")
    tokenizer = Vocabulary.load(shards / "vocab").tokenizer()
    model = make_model()
    model.resize_token_embeddings(len(tokenizer))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def test_shards_train_the_translator_of_the_text(
    matching_encoder: Path, shards: Path, data: Path, tmp_path: Path
) -> None:
    """Raw text and shards of it give the same batches, so the same losses."""
    from_text = train_short(matching_encoder, data, tmp_path / "text")
    for file in ("train.en", "train.de"):
        assert (data / file).is_file()
    test_sets = tmp_path / "test-sets"
    test_sets.mkdir()
    for name in ("dev", "test"):
        for language in ("en", "de"):
            shutil.copy(data / f"{name}.{language}", test_sets)
    from_shards = train_short(matching_encoder, test_sets, tmp_path / "shards", shards=shards)
    assert [row["value"] for row in from_shards] == [row["value"] for row in from_text]
    info = TRANSLATOR_INFO.read(tmp_path / "shards")
    assert info.training_pairs == {"en-de": 800, "de-en": 800}
    losses = [
        [json.loads(line).get("translation") for line in (tmp_path / name / "metrics.jsonl").read_text().splitlines()]
        for name in ("text", "shards")
    ]
    assert losses[0] == losses[1]


def test_shards_that_do_not_fit_are_refused_before_training(
    encoder: Path,
    matching_encoder: Path,
    shards: Path,
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(TranslationRun, "fit", None)
    with pytest.raises(BadInput, match="another vocabulary than the model"):
        train_short(encoder, data, tmp_path / "mt", shards=shards)
    french = write_parallel(tmp_path / "french", {"dev": 3}, ("en", "fr"))
    with pytest.raises(BadInput, match="no sentence pairs of en-fr"):
        train_short(matching_encoder, french, tmp_path / "mt", shards=shards, directions="en-fr")
    with pytest.raises(BadInput, match="its rows may be in the shards"):
        train_short(matching_encoder, shards.parent / "corpora", tmp_path / "mt", shards=shards)
    with pytest.raises(BadInput, match="no shards found"):
        train_short(matching_encoder, data, tmp_path / "mt", shards=tmp_path)
