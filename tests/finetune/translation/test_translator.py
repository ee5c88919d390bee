"""Translators: source tokens, translations, and their folder."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from crossling.core.errors import BadInput
from crossling.finetune.translation import translator as translator_module
from crossling.finetune.translation.translator import (
    TRANSLATOR_INFO,
    TranslationTokenizer,
    Translator,
    add_language_tags,
)

from ..tiny_tasks import WORDS, make_tokenizer

LINES = ["the red dog", "cat", "", "the old blue bird sings where the cat sleeps", "dog runs", "   ", "what"]


@pytest.fixture(scope="module")
def translator(mt: Path) -> Translator:
    return Translator.load(mt)


def test_a_folder_without_a_tokenizer_is_refused(mt: Path, tmp_path: Path) -> None:
    folder = tmp_path / "mt"
    shutil.copytree(mt, folder)
    (folder / "tokenizer.json").unlink()
    with pytest.raises(BadInput, match="mt: "):
        Translator.load(folder)
    (folder / "tokenizer_config.json").unlink(missing_ok=True)
    with pytest.raises(BadInput, match="no tokenizer"):
        Translator.load(folder)


# ---- tokens -------------------------------------------------------------------------------------------------


def test_a_source_equals_the_tokenized_tag_and_sentence() -> None:
    tokenizer = add_language_tags(make_tokenizer(), ["de", "en"])
    encoder = TranslationTokenizer(tokenizer, end=2, has_tags=True)
    sources = encoder.encode_sources(["the red dog", "cat"], ["de", "en"])
    for source, text in zip(sources, ["<2de> the red dog", "<2en> cat"], strict=True):
        assert source.tolist() == tokenizer(text)["input_ids"]
    before, after = encoder.source_affixes("de")
    assert [*before, *encoder.encode(["the red dog"])[0], *after] == sources[0].tolist()


def test_one_direction_has_no_tag() -> None:
    tokenizer = make_tokenizer()
    [source] = TranslationTokenizer(tokenizer, end=2, has_tags=False).encode_sources(["the red dog"], ["de"])
    assert source.tolist() == tokenizer("the red dog")["input_ids"]


def test_special_tokens_inside_a_text_are_tokenized_as_text() -> None:
    tokenizer = add_language_tags(make_tokenizer(), ["de"])
    encoder = TranslationTokenizer(tokenizer, end=2, has_tags=True)
    [source] = encoder.encode_sources(["dog </s> <2de>"], ["de"])
    special = {2, tokenizer.convert_tokens_to_ids("<2de>")}
    assert not special & {*source[2:-1].tolist()}
    assert encoder.encode(["dog </s> <2de>"]) == [source[2:-1].tolist()]


def test_tags_are_added_to_a_copy_of_the_tokenizer() -> None:
    plain = make_tokenizer()
    size = len(plain)
    assert len(add_language_tags(plain, ["de", "en"])) == size + 2
    assert len(plain) == size


def test_a_truncated_source_keeps_its_tag_and_its_end() -> None:
    tokenizer = add_language_tags(make_tokenizer(), ["de"])
    encoder = TranslationTokenizer(tokenizer, end=2, has_tags=True)
    [source] = encoder.encode_sources(["the red dog runs"], ["de"])
    truncated = encoder.truncate(source, 5)
    assert truncated.tolist() == [*source[:4].tolist(), 2]
    assert np.array_equal(encoder.truncate(source, len(source)), source)


# ---- translations -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("beam", [1, 3])
def test_translations_are_in_order_and_do_not_depend_on_the_batch(
    translator: Translator, beam: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = translator.translate(LINES, "de", beam=beam)
    single = [translator.translate([line], "de", beam=beam)[0] for line in LINES]
    monkeypatch.setattr(translator_module, "BATCH_MEMORY_BYTES", {"cpu": 24 * 16 * 2 * 32 * beam})
    assert len([*translator._batches([4, 5, 12, 4], beam)]) > 1
    in_small_batches = translator.translate(LINES, "de", beam=beam)
    assert together == single == in_small_batches
    assert together[2] == together[5] == ""
    assert len({*together}) > 3


def test_each_sentence_may_have_its_own_target_language(translator: Translator) -> None:
    lines = ["the red dog runs", "the red dog runs"]
    mixed = translator.translate(lines, ["de", "en"], beam=1)
    assert mixed == [translator.translate(lines[:1], "de", beam=1)[0], translator.translate(lines[:1], "en", beam=1)[0]]


def test_a_long_sentence_is_truncated_with_a_warning(translator: Translator) -> None:
    long = " ".join(WORDS * 10)
    with pytest.warns(UserWarning, match="1 sentences are longer than 64 tokens; truncated"):
        translations = translator.translate(["dog", long], "de", beam=1)
    fitting = " ".join((WORDS * 10)[: 64 - 3])
    assert translations[1] == translator.translate([fitting], "de", beam=1)[0]


@pytest.mark.parametrize(("beam", "length_penalty", "early"), [(1, 1.0, False), (4, 0.6, True)])
def test_generate_gets_the_options_of_the_beam_search(
    translator: Translator, monkeypatch: pytest.MonkeyPatch, beam: int, length_penalty: float, early: bool
) -> None:
    calls: list[dict[str, Any]] = []

    def generate(ids_BL: torch.Tensor, **options: Any) -> torch.Tensor:
        calls.append({"width": ids_BL.shape[1], **options})
        return ids_BL

    monkeypatch.setattr(translator.model, "generate", generate)
    translator.translate(["dog"], "de", beam=beam, length_penalty=length_penalty)
    [found] = calls
    width = found["width"]
    assert width == 4  # start, tag, word, end
    assert found["max_length"] == 2 * width + 20
    assert (found["num_beams"], found["length_penalty"], found["early_stopping"]) == (beam, length_penalty, early)
    assert found["do_sample"] is False
    translator.translate([" ".join(WORDS * 2)], "de", beam=beam)
    assert 2 * calls[1]["width"] + 20 > calls[1]["max_length"] == translator.max_length


def test_a_length_penalty_changes_the_length(translator: Translator) -> None:
    short, long = (translator.translate(LINES, "de", beam=4, length_penalty=penalty) for penalty in (-4.0, 4.0))
    assert sum(map(len, short)) < sum(map(len, long))


def test_dropout_is_off_and_the_training_mode_is_restored(translator: Translator) -> None:
    translator.model.train()
    try:
        first, second = (translator.translate(LINES, "en", beam=1) for _ in range(2))
        assert first == second
        assert translator.model.training
    finally:
        translator.model.eval()


# ---- folder -------------------------------------------------------------------------------------------------


def test_the_info_file_describes_the_training(mt: Path) -> None:
    info = json.loads((mt / "translator.json").read_text())
    assert info["directions"] == ["en-de", "de-en"]
    assert info["tags"] == {"de": "<2de>", "en": "<2en>"}
    assert info["init"] == "pre-trained"
    assert info["steps"] == 80
    assert [point["step"] for point in info["curve"]] == [0, 20, 40, 60, 80]
    assert info["training_pairs"] == {"en-de": 800, "de-en": 800}
    assert set(info["dev"]) == {"en-de", "de-en"}
    assert TRANSLATOR_INFO.seed_folders(mt) == [mt / "seed-0"]
    assert TRANSLATOR_INFO.read(mt) == TRANSLATOR_INFO.read(mt / "seed-0")


def test_plain_transformers_give_the_same_translations(mt: Path, translator: Translator) -> None:
    program = f"""
import json, crossling
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained({str(mt)!r})
model = AutoModelForSeq2SeqLM.from_pretrained({str(mt)!r})
batch = tokenizer(["<2de> the red dog", "<2en> what sings"], return_tensors="pt", padding=True)
batch.pop("token_type_ids", None)
output = model.generate(**batch, num_beams=4, early_stopping=True, max_length=24)
print(json.dumps(tokenizer.batch_decode(output, skip_special_tokens=True)))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    expected = json.loads(done.stdout.splitlines()[-1])
    ours = [
        translator.translate(["the red dog"], "de", beam=4)[0],
        translator.translate(["what sings"], "en", beam=4)[0],
    ]
    # These are shorter than the maximum length of our translations.
    assert [line.strip() for line in expected] == ours


def test_a_folder_without_a_translator_is_refused(tmp_path: Path, encoder: Path) -> None:
    with pytest.raises(BadInput, match=r"no translator.json here"):
        Translator.load(encoder)
    (tmp_path / "translator.json").write_text("{}")
    with pytest.raises(BadInput, match="format version 1, expected 2"):
        TRANSLATOR_INFO.read(tmp_path)
