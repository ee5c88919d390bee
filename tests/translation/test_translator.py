"""A translator's folder, what it reads, and the order in which it answers."""

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
from transfer.toys import WORDS, make_tokenizer

from crossling.errors import BadInput
from crossling.translation import translator as module
from crossling.translation.pieces import Pieces, tagged
from crossling.translation.translator import Translator, facts, seeds

LINES = ["the red dog", "cat", "", "the old blue bird sings where the cat sleeps", "dog runs", "   ", "what"]


@pytest.fixture(scope="module")
def known(mt: Path) -> Translator:
    return Translator.load(mt)


def test_a_folder_without_a_tokenizer_is_refused_in_one_sentence(mt: Path, tmp_path: Path) -> None:
    folder = tmp_path / "mt"
    shutil.copytree(mt, folder)
    (folder / "tokenizer.json").unlink()
    with pytest.raises(BadInput, match="mt: "):
        Translator.load(folder)
    (folder / "tokenizer_config.json").unlink(missing_ok=True)
    with pytest.raises(BadInput, match="no tokenizer here"):
        Translator.load(folder)


# ---- what it reads ------------------------------------------------------------------------------------------


def test_a_source_is_what_plain_transformers_make_of_the_tag_and_the_sentence() -> None:
    tokenizer = tagged(make_tokenizer(), ["de", "en"])
    pieces = Pieces(tokenizer, end=2, with_tags=True)
    sources, targets = pieces.pairs(["the red dog", "cat"], ["de", "en"], ["the cat", "cat"])
    for source, text in zip(sources, ["<2de> the red dog", "<2en> cat"], strict=True):
        assert source.tolist() == tokenizer(text)["input_ids"]
    for target, text in zip(targets, ["the cat", "cat"], strict=True):
        assert target.tolist() == [*tokenizer(text, add_special_tokens=False)["input_ids"], 2]
    assert all(map(np.array_equal, sources, pieces.sources(["the red dog", "cat"], ["de", "en"])))


def test_one_direction_has_no_tag() -> None:
    tokenizer = make_tokenizer()
    [source] = Pieces(tokenizer, end=2, with_tags=False).sources(["the red dog"], ["de"])
    assert source.tolist() == tokenizer("the red dog")["input_ids"]


def test_text_that_looks_like_a_special_token_is_text() -> None:
    tokenizer = tagged(make_tokenizer(), ["de"])
    pieces = Pieces(tokenizer, end=2, with_tags=True)
    [source], [target] = pieces.pairs(["dog </s> <2de>"], ["de"], ["dog </s>"])
    special = {2, tokenizer.convert_tokens_to_ids("<2de>")}
    assert not special & {*source[2:-1].tolist()}
    assert 2 not in target[:-1]


def test_a_tokenizer_is_copied_before_it_learns_tags() -> None:
    plain = make_tokenizer()
    size = len(plain)
    assert len(tagged(plain, ["de", "en"])) == size + 2
    assert len(plain) == size


def test_a_source_that_is_cut_keeps_its_tag_and_its_end() -> None:
    tokenizer = tagged(make_tokenizer(), ["de"])
    pieces = Pieces(tokenizer, end=2, with_tags=True)
    [source] = pieces.sources(["the red dog runs"], ["de"])
    cut = pieces.cut(source, 5)
    assert cut.tolist() == [*source[:4].tolist(), 2]
    assert np.array_equal(pieces.cut(source, len(source)), source)


# ---- what it says -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("beam", [1, 3])
def test_lines_are_answered_in_their_order_whatever_they_are_decoded_with(
    known: Translator, beam: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = known.translate(LINES, "de", beam)
    alone = [known.translate([line], "de", beam)[0] for line in LINES]
    monkeypatch.setattr(module, "MEMORY", {"cpu": 24 * 16 * 2 * 32 * beam})
    assert len([*known._batches([4, 5, 12, 4], beam)]) > 1
    in_small_batches = known.translate(LINES, "de", beam)
    assert together == alone == in_small_batches
    assert together[2] == together[5] == ""
    assert len({*together}) > 3


def test_each_line_may_go_into_a_language_of_its_own(known: Translator) -> None:
    lines = ["the red dog runs", "the red dog runs"]
    mixed = known.translate(lines, ["de", "en"], 1)
    assert mixed == [known.translate(lines[:1], "de", 1)[0], known.translate(lines[:1], "en", 1)[0]]


def test_a_line_that_is_too_long_is_cut_and_told_of(known: Translator) -> None:
    long = " ".join(WORDS * 10)
    with pytest.warns(UserWarning, match="1 lines have more than 64 tokens and are cut"):
        said = known.translate(["dog", long], "de", 1)
    fitting = " ".join((WORDS * 10)[: 64 - 3])
    assert said[1] == known.translate([fitting], "de", 1)[0]


@pytest.mark.parametrize(("beam", "length_penalty", "early"), [(1, 1.0, False), (4, 0.6, True)])
def test_how_to_look_for_a_translation_is_handed_on(
    known: Translator, monkeypatch: pytest.MonkeyPatch, beam: int, length_penalty: float, early: bool
) -> None:
    asked: list[dict[str, Any]] = []

    def generate(ids_BL: torch.Tensor, **ways: Any) -> torch.Tensor:
        asked.append({"width": ids_BL.shape[1], **ways})
        return ids_BL

    monkeypatch.setattr(known.model, "generate", generate)
    known.translate(["dog"], "de", beam, length_penalty)
    [found] = asked
    width = found["width"]
    assert width == 4  # begin, tag, word, end
    assert found["max_length"] == 2 * width + 20
    assert (found["num_beams"], found["length_penalty"], found["early_stopping"]) == (beam, length_penalty, early)
    assert found["do_sample"] is False
    known.translate([" ".join(WORDS * 2)], "de", beam)
    assert 2 * asked[1]["width"] + 20 > asked[1]["max_length"] == known.longest


def test_a_length_penalty_changes_what_is_said(known: Translator) -> None:
    short, long = (known.translate(LINES, "de", 4, penalty) for penalty in (-4.0, 4.0))
    assert sum(map(len, short)) < sum(map(len, long))


def test_dropout_is_off_and_training_goes_on_as_it_was(known: Translator) -> None:
    known.model.train()
    try:
        first, second = (known.translate(LINES, "en", 1) for _ in range(2))
        assert first == second
        assert known.model.training
    finally:
        known.model.eval()


# ---- its folder ---------------------------------------------------------------------------------------------


def test_the_folder_tells_how_it_was_made(mt: Path) -> None:
    told = json.loads((mt / "translator.json").read_text())
    assert told["pairs"] == ["en-de", "de-en"]
    assert told["tags"] == {"de": "<2de>", "en": "<2en>"}
    assert told["start"] == "pre-trained"
    assert told["steps"] == 60
    assert [point["step"] for point in told["curve"]] == [0, 20, 40, 60]
    assert told["rows"] == {"en-de": 800, "de-en": 800}
    assert set(told["dev"]) == {"en-de", "de-en"}
    assert seeds(mt) == [mt / "seed-0"]
    assert facts(mt) == facts(mt / "seed-0")


def test_plain_transformers_say_the_same(mt: Path, known: Translator) -> None:
    program = f"""
import json, crossling
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained({str(mt)!r})
model = AutoModelForSeq2SeqLM.from_pretrained({str(mt)!r})
batch = tokenizer(["<2de> the red dog", "<2en> what sings"], return_tensors="pt", padding=True)
batch.pop("token_type_ids", None)
said = model.generate(**batch, num_beams=4, early_stopping=True, max_length=24)
print(json.dumps(tokenizer.batch_decode(said, skip_special_tokens=True)))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    said = json.loads(done.stdout.splitlines()[-1])
    ours = [known.translate(["the red dog"], "de", 4)[0], known.translate(["what sings"], "en", 4)[0]]
    # Ours stop at twice the length of the source and some more, which these are below.
    assert [line.strip() for line in said] == ours


def test_what_is_no_translator_is_refused(tmp_path: Path, encoder: Path) -> None:
    with pytest.raises(BadInput, match="no translator"):
        Translator.load(encoder)
    (tmp_path / "translator.json").write_text("{}")
    with pytest.raises(BadInput, match="not what crossling finetune writes"):
        facts(tmp_path)
