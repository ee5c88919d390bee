"""Scores of translators: whose they are, of which text and how decoded; gone on with after a stop."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from crossling.errors import BadInput, Interrupted
from crossling.evaluate import predictions, scores
from crossling.evaluate import translated as module
from crossling.evaluate.evaluate import evaluate
from crossling.evaluate.translated import evaluate_translator, recomputed, score_seed
from crossling.translation.directions import directions
from crossling.translation.parallel import read
from crossling.translation.translator import Facts, write_facts

pytest.importorskip("sacrebleu")
HYPER = {"lr": 5e-4, "epochs": 10, "steps": None, "decoder_layers": None, "tied": True}
SENTENCES = ["the red dog runs home", "a cat sleeps here now", "the bird sings", "who saw the old blue house"]


class Parrot:
    """In the place of a translator: it says what it reads, but for the first word."""

    asked: list[tuple[str, str, int, float]]  # the first line of a text, and how it was to be translated
    most = 99  # texts, then it is stopped

    @classmethod
    def load(cls, folder: Path) -> Parrot:  # noqa: ARG003
        return cls()

    def translate(
        self, lines: Sequence[str], to: str, beam: int, length_penalty: float, told: Callable[[int], None]
    ) -> list[str]:
        if len(self.asked) >= self.most:
            raise KeyboardInterrupt
        self.asked.append((lines[0], to, beam, length_penalty))
        told(len(lines) - 1)  # an empty line is not told of
        return [f"{beam} {line.partition(' ')[2]}" for line in lines]


@pytest.fixture(autouse=True)
def parrot(monkeypatch: pytest.MonkeyPatch) -> type[Parrot]:
    monkeypatch.setattr(module, "Translator", Parrot)
    monkeypatch.setattr(Parrot, "asked", [], raising=False)
    return Parrot


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    for split in ("test_a", "test_b", "dev"):
        for language in ("en", "de"):
            put(folder / f"{split}.{language}", [f"{split} {line}" for line in SENTENCES])
    return folder


@pytest.fixture
def mt(tmp_path: Path) -> Path:
    return translator(tmp_path / "mt")


def put(file: Path, lines: Sequence[str]) -> None:
    file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def translator(folder: Path, pairs: str = "en-de,de-en", seed: int = 0, data: str = "d", **hyper: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    known = [*map(str, directions(pairs))]
    write_facts(folder, Facts(known, {}, "encoder", "pre-trained", seed, {**HYPER, **hyper}, 7, [7], {}, data))
    return folder


def tuned(rows: Sequence[dict[str, Any]]) -> str:
    [found] = {row["tuned"] for row in rows}
    return str(found)


# ---- whose they are -----------------------------------------------------------------------------------------


def test_translators_of_one_encoder_are_told_apart_in_one_table(data: Path, tmp_path: Path) -> None:
    ways: list[dict[str, Any]] = [{}, {"decoder_layers": 1}, {"tied": False}, {"lr": 1e-4}, {"data": "other"}]
    rows = [score_seed(translator(tmp_path / f"mt{n}", **way), data) for n, way in enumerate(ways)]
    rows.append(score_seed(tmp_path / "mt0", data, beam=1))
    rows.append(score_seed(tmp_path / "mt0", data, length_penalty=0.6))
    assert len({tuned(each) for each in rows}) == len(rows)
    assert len(scores.unique(row for each in rows for row in each)) == sum(map(len, rows))
    assert tuned(rows[0]).startswith("lr 0.0005, 10 epochs, ")
    assert "decoder depth 1" in tuned(rows[1])
    assert "untied" in tuned(rows[2])
    assert tuned(rows[0]).endswith(", beam 5")
    assert tuned(rows[-1]).endswith(", beam 5, length penalty 0.6")


def test_seeds_of_one_way_are_one_way_however_early_each_ended(data: Path, tmp_path: Path) -> None:
    for seed in (0, 1):
        translator(tmp_path / "mt" / f"seed-{seed}", seed=seed, steps=40)
    translator(tmp_path / "mt")
    file = tmp_path / "mt" / "seed-1" / "translator.json"
    file.write_text(file.read_text().replace('"steps": 7', '"steps": 9'))
    rows = evaluate_translator(tmp_path / "mt", data)
    assert {row["seed"] for row in rows} == {0, 1}
    assert tuned(rows).startswith("lr 0.0005, 40 steps, ")


def test_how_it_is_decoded_is_handed_on(mt: Path, data: Path, parrot: type[Parrot]) -> None:
    score_seed(mt, data, ["en-de"], beam=3, length_penalty=0.4)
    assert parrot.asked == [(f"test_{n} {SENTENCES[0]}", "de", 3, 0.4) for n in "ab"]


def test_words_are_those_of_the_target_language(data: Path, tmp_path: Path) -> None:
    for split in ("test_a", "test_b", "dev"):
        put(data / f"{split}.zh", ["狗跑了", "猫睡了", "鸟在唱歌", "谁看见了"])
    rows = score_seed(translator(tmp_path / "zh", "en-zh,zh-en"), data)
    for row in rows:
        if row["metric"] != "chrf":
            assert f"tok:{'zh' if row['language'] == 'en-zh' else '13a'}|" in row["signature"]


# ---- which are asked for ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "found"),
    [("deu-eng", {"de-en"}), ("de-en", {"de-en"}), ("deu", {"de-en", "en-de"}), (None, {"de-en", "en-de"})],
)
def test_languages_may_be_spelt_as_anywhere(mt: Path, data: Path, asked: str | None, found: set[str]) -> None:
    rows = evaluate(mt, ["translation"], data, languages=[asked] if asked else None)
    assert {row["language"] for row in rows} == found


def test_a_direction_that_is_not_there_is_told_of(mt: Path, data: Path) -> None:
    with pytest.raises(BadInput, match="no test set of 'en-fr'; did you mean 'en-de'"):
        evaluate(mt, ["translation"], data, languages=["en-fr"])


def test_dev_is_scored_only_where_there_is_no_test_and_says_so(mt: Path, data: Path) -> None:
    assert not any("selected_on_test" in row for row in score_seed(mt, data))
    for file in data.glob("test_*"):
        file.unlink()
    rows = score_seed(mt, data)
    assert {row["split"] for row in rows} == {"dev"}
    assert all(row["selected_on_test"] is True for row in rows)


def test_the_text_is_read_once_for_all_seeds(tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(3):
        translator(tmp_path / "mt" / f"seed-{seed}", seed=seed)
    translator(tmp_path / "mt")
    times = []
    monkeypatch.setattr(module, "read", lambda *asked: times.append(asked) or read(*asked))
    evaluate_translator(tmp_path / "mt", data)
    assert len(times) == 1
    score_seed(tmp_path / "mt", data, text=read(data, directions("en-de"), ("dev", "test")))
    assert len(times) == 1


# ---- gone on with -------------------------------------------------------------------------------------------


def test_what_was_stopped_goes_on(
    mt: Path, data: Path, tmp_path: Path, parrot: type[Parrot], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    whole = evaluate(mt, ["translation"], data)
    del parrot.asked[:]
    monkeypatch.setattr(parrot, "most", 3)
    with pytest.raises(Interrupted, match="the same command goes on"):
        evaluate(mt, ["translation"], data, out)
    assert not (out / "scores.jsonl").exists()
    assert not predictions.paths(out)
    put(data / "test_a.de", [f"test_a {line} noch" for line in SENTENCES])  # of what was done
    monkeypatch.setattr(parrot, "most", 99)
    before = len(parrot.asked)
    rows = evaluate(mt, ["translation"], data, out)
    assert [(line[:6], to) for line, to, *_ in parrot.asked[before:]] == [
        ("test_a", "de"),
        ("test_a", "en"),
        ("test_b", "en"),
    ]
    assert [row for row in rows if row["split"] == "test_b"] == [row for row in whole if row["split"] == "test_b"]
    assert scores.read(out / "scores.jsonl") == rows
    assert len(predictions.paths(out)) == 4
    assert not [*(out / "seed-0").glob(".evaluate*")]


def test_without_a_folder_nothing_is_kept_after_a_stop(
    mt: Path, data: Path, parrot: type[Parrot], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parrot, "most", 1)
    with pytest.raises(Interrupted, match="nothing is kept without -o"):
        evaluate(mt, ["translation"], data)


@pytest.mark.parametrize(
    ("change", "left"), [({}, 1), ({"beam": 2}, 4), ({"length_penalty": 0.5}, 4), ({"lr": 1.0}, 4)]
)
def test_another_translator_or_way_of_decoding_is_other_work(
    data: Path, tmp_path: Path, parrot: type[Parrot], monkeypatch: pytest.MonkeyPatch, change: dict[str, Any], left: int
) -> None:
    mt, keep = translator(tmp_path / "mt"), tmp_path / "kept"
    monkeypatch.setattr(parrot, "most", 3)
    with pytest.raises(KeyboardInterrupt):
        score_seed(mt, data, keep=keep, beam=1)
    monkeypatch.setattr(parrot, "most", 99)
    del parrot.asked[:]
    if "lr" in change:
        score_seed(translator(tmp_path / "other", **change), data, keep=keep, beam=1)
    else:
        score_seed(mt, data, keep=keep, **{"beam": 1, **change})
    assert len(parrot.asked) == left


# ---- what was said before -----------------------------------------------------------------------------------


def test_stored_translations_give_the_same_rows_however_they_were_decoded(
    mt: Path, data: Path, parrot: type[Parrot]
) -> None:
    rows = score_seed(mt, data, keep=mt, beam=2, length_penalty=0.7)
    del parrot.asked[:]
    assert recomputed(mt, data) == rows
    assert evaluate(mt, ["translation"], data, recompute=True) == rows
    assert parrot.asked == []
    assert tuned(rows).endswith("beam 2, length penalty 0.7")


def test_stored_translations_of_another_text_or_model_are_not_scored(mt: Path, data: Path, tmp_path: Path) -> None:
    score_seed(mt, data, keep=mt)
    other = translator(tmp_path / "other", lr=1.0)
    shutil.copytree(mt / "predictions", other / "predictions")
    with pytest.raises(BadInput, match="not translations by this model of the test_a"):
        recomputed(other, data)
    put(data / "test_b.en", [f"another {line}" for line in SENTENCES])  # as many rows
    assert recomputed(mt, data, text=read_of(data, "test_a"))
    with pytest.raises(BadInput, match=r"test_b-en-de.jsonl: these are not translations .*leave --recompute out"):
        recomputed(mt, data)
    for file in (mt / "predictions").rglob("*.json"):
        file.unlink()
    with pytest.raises(BadInput, match="leave --recompute out"):
        recomputed(mt, data)


def read_of(data: Path, split: str) -> Any:
    text = read(data, directions("en-de,de-en"), ("test",))
    return type(text)({}, {}, {split: text.tests[split]})


@pytest.mark.filterwarnings("ignore:.*no stored translations")
def test_nothing_stored_is_told_of(mt: Path, data: Path) -> None:
    with pytest.raises(BadInput, match="no stored translations; leave --recompute out once"):
        evaluate(mt, ["translation"], data, recompute=True)


def test_what_was_said_of_this_text_in_this_way_is_not_said_again_where_asked(
    mt: Path, data: Path, parrot: type[Parrot]
) -> None:
    rows = score_seed(mt, data, keep=mt, reuse=True)
    del parrot.asked[:]
    assert score_seed(mt, data, keep=mt, reuse=True) == rows
    assert parrot.asked == []
    assert recomputed(mt, data) == rows
    put(data / "test_b.de", [f"anders {line}" for line in SENTENCES])
    assert score_seed(mt, data, keep=mt, reuse=True) != rows
    assert [(line[:6], to) for line, to, *_ in parrot.asked] == [("test_b", "de"), ("anders", "en")]
    del parrot.asked[:]
    one = score_seed(mt, data, keep=mt, reuse=True, beam=1)
    other = score_seed(mt, data, keep=mt, reuse=True, beam=1, length_penalty=0.5)
    assert len(parrot.asked) == 8
    assert tuned(one) != tuned(other)
    del parrot.asked[:]
    score_seed(mt, data, keep=mt)
    assert len(parrot.asked) == 4


def test_translations_never_lie_beside_what_is_told_of_others(
    mt: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    score_seed(mt, data, keep=mt)

    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "write_json", stopped)
    with pytest.raises(KeyboardInterrupt):
        score_seed(mt, data, keep=mt, beam=1)
    with pytest.raises(BadInput, match="leave --recompute out"):
        recomputed(mt, data)
