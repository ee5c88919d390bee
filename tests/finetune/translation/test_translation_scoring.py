"""Scores of translators: their fields, reuse of stored translations, and resumed evaluations."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from crossling.core.errors import BadInput, Interrupted
from crossling.evaluate.evaluate import evaluate
from crossling.finetune.translation import translation_scoring as module
from crossling.finetune.translation.parallel_text import parse_directions, read_parallel_text
from crossling.finetune.translation.translation_scoring import (
    evaluate_translator,
    rescore_stored,
    score_translator_seed,
)
from crossling.finetune.translation.translator import TRANSLATOR_INFO, TranslatorInfo
from crossling.tasks import predictions, scores

pytest.importorskip("sacrebleu")
HYPER = {"lr": 5e-4, "epochs": 10, "steps": None, "decoder_layers": None, "tied": True}
SENTENCES = ["the red dog runs home", "a cat sleeps here now", "the bird sings", "who saw the old blue house"]


class EchoTranslator:
    """Stand-in for a translator. It returns the source without its first word."""

    calls: list[tuple[str, str, int, float]]  # first line of a text, target language and beam search
    max_calls = 99  # then it is interrupted

    @classmethod
    def load(cls, folder: Path) -> EchoTranslator:  # noqa: ARG003
        return cls()

    def translate(
        self,
        lines: Sequence[str],
        to: str,
        *,
        beam: int,
        length_penalty: float,
        on_progress: Callable[[int], None],
    ) -> list[str]:
        if len(self.calls) >= self.max_calls:
            raise KeyboardInterrupt
        self.calls.append((lines[0], to, beam, length_penalty))
        on_progress(len(lines) - 1)  # empty lines are not counted
        return [f"{beam} {line.partition(' ')[2]}" for line in lines]


@pytest.fixture(autouse=True)
def echo(monkeypatch: pytest.MonkeyPatch) -> type[EchoTranslator]:
    monkeypatch.setattr(module, "Translator", EchoTranslator)
    monkeypatch.setattr(EchoTranslator, "calls", [], raising=False)
    return EchoTranslator


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    for split in ("test_a", "test_b", "dev"):
        for language in ("en", "de"):
            write_lines(folder / f"{split}.{language}", [f"{split} {line}" for line in SENTENCES])
    return folder


@pytest.fixture
def mt(tmp_path: Path) -> Path:
    return write_translator(tmp_path / "mt")


def write_lines(file: Path, lines: Sequence[str]) -> None:
    file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def write_translator(
    folder: Path, directions: str = "en-de,de-en", seed: int = 0, data: str = "d", weight: float = 0.0, **hyper: Any
) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    names = [*map(str, parse_directions(directions))]
    TRANSLATOR_INFO.write(
        folder,
        TranslatorInfo(
            directions=names,
            tags={},
            model="encoder",
            init="pre-trained",
            seed=seed,
            hyperparameters={**HYPER, **hyper},
            steps=7,
            averaged_steps=[7],
            training_pairs={},
            data=data,
        ),
    )
    save_file({"weight": torch.tensor([weight])}, folder / "model.safetensors")
    return folder


def tuned(rows: Sequence[dict[str, Any]]) -> str:
    [found] = {row["tuned"] for row in rows}
    return str(found)


# ---- fields of a score --------------------------------------------------------------------------------------


def test_translators_of_one_encoder_have_different_descriptions(data: Path, tmp_path: Path) -> None:
    variants: list[dict[str, Any]] = [{}, {"decoder_layers": 1}, {"tied": False}, {"lr": 1e-4}, {"data": "other"}]
    rows = [
        score_translator_seed(write_translator(tmp_path / f"mt{n}", **variant), data)
        for n, variant in enumerate(variants)
    ]
    rows.append(score_translator_seed(tmp_path / "mt0", data, beam=1))
    rows.append(score_translator_seed(tmp_path / "mt0", data, length_penalty=0.6))
    assert len({tuned(each) for each in rows}) == len(rows)
    assert len(scores.deduplicate_scores(row for each in rows for row in each)) == sum(map(len, rows))
    assert tuned(rows[0]).startswith("lr 0.0005, 10 epochs, ")
    assert "decoder depth 1" in tuned(rows[1])
    assert "untied" in tuned(rows[2])
    assert tuned(rows[0]).endswith(", beam 5")
    assert tuned(rows[-1]).endswith(", beam 5, length penalty 0.6")


def test_seeds_have_the_same_description_after_different_numbers_of_steps(data: Path, tmp_path: Path) -> None:
    for seed in (0, 1):
        write_translator(tmp_path / "mt" / f"seed-{seed}", seed=seed, steps=40)
    write_translator(tmp_path / "mt")
    file = tmp_path / "mt" / "seed-1" / "translator.json"
    file.write_text(file.read_text().replace('"steps": 7', '"steps": 9'))
    rows = evaluate_translator(tmp_path / "mt", data)
    assert {row["seed"] for row in rows} == {0, 1}
    assert tuned(rows).startswith("lr 0.0005, 40 steps, ")


def test_the_translator_gets_the_beam_search(mt: Path, data: Path, echo: type[EchoTranslator]) -> None:
    score_translator_seed(mt, data, languages=["en-de"], beam=3, length_penalty=0.4)
    assert echo.calls == [(f"test_{n} {SENTENCES[0]}", "de", 3, 0.4) for n in "ab"]


def test_metrics_tokenize_by_the_target_language(data: Path, tmp_path: Path) -> None:
    for split in ("test_a", "test_b", "dev"):
        write_lines(data / f"{split}.zh", ["狗跑了", "猫睡了", "鸟在唱歌", "谁看见了"])
    rows = score_translator_seed(write_translator(tmp_path / "zh", "en-zh,zh-en"), data)
    for row in rows:
        if row["metric"] != "chrf":
            assert f"tok:{'zh' if row['language'] == 'en-zh' else '13a'}|" in row["signature"]


# ---- requested directions -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("requested", "expected"),
    [("deu-eng", {"de-en"}), ("de-en", {"de-en"}), ("deu", {"de-en", "en-de"}), (None, {"de-en", "en-de"})],
)
def test_languages_may_have_any_code(mt: Path, data: Path, requested: str | None, expected: set[str]) -> None:
    rows = evaluate(mt, ["translation"], data, languages=[requested] if requested else None)
    assert {row["language"] for row in rows} == expected


def test_a_missing_direction_is_refused(mt: Path, data: Path) -> None:
    with pytest.raises(BadInput, match="no test set of 'en-fr'; did you mean 'en-de'"):
        evaluate(mt, ["translation"], data, languages=["en-fr"])


def test_dev_is_scored_without_a_test_set_and_marked(mt: Path, data: Path) -> None:
    assert not any("selected_on_test" in row for row in score_translator_seed(mt, data))
    for file in data.glob("test_*"):
        file.unlink()
    rows = score_translator_seed(mt, data)
    assert {row["split"] for row in rows} == {"dev"}
    assert all(row["selected_on_test"] is True for row in rows)


def test_the_text_is_read_once_for_all_seeds(tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(3):
        write_translator(tmp_path / "mt" / f"seed-{seed}", seed=seed)
    write_translator(tmp_path / "mt")
    times = []
    monkeypatch.setattr(module, "read_parallel_text", lambda *given: times.append(given) or read_parallel_text(*given))
    evaluate_translator(tmp_path / "mt", data)
    assert len(times) == 1
    score_translator_seed(
        tmp_path / "mt", data, text=read_parallel_text(data, parse_directions("en-de"), ("dev", "test"))
    )
    assert len(times) == 1


# ---- resuming -----------------------------------------------------------------------------------------------


def test_an_interrupted_evaluation_resumes(
    mt: Path, data: Path, tmp_path: Path, echo: type[EchoTranslator], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    whole = evaluate(mt, ["translation"], data)
    del echo.calls[:]
    monkeypatch.setattr(echo, "max_calls", 3)
    with pytest.raises(Interrupted, match="same command"):
        evaluate(mt, ["translation"], data, out)
    assert not (out / "scores.jsonl").exists()
    assert not predictions.find_prediction_files(out)
    write_lines(data / "test_a.de", [f"test_a {line} noch" for line in SENTENCES])  # of a finished set
    monkeypatch.setattr(echo, "max_calls", 99)
    before = len(echo.calls)
    rows = evaluate(mt, ["translation"], data, out)
    assert [(line[:6], to) for line, to, *_ in echo.calls[before:]] == [
        ("test_a", "de"),
        ("test_a", "en"),
        ("test_b", "en"),
    ]
    assert [row for row in rows if row["split"] == "test_b"] == [row for row in whole if row["split"] == "test_b"]
    assert scores.read_scores(out / "scores.jsonl") == rows
    assert len(predictions.find_prediction_files(out)) == 4
    assert not [*(out / "seed-0").glob(".evaluate*")]


def test_without_an_output_folder_nothing_is_stored(
    mt: Path, data: Path, echo: type[EchoTranslator], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(echo, "max_calls", 1)
    with pytest.raises(Interrupted, match="Nothing was stored"):
        evaluate(mt, ["translation"], data)


@pytest.mark.parametrize(
    ("change", "left"),
    [({}, 1), ({"beam": 2}, 4), ({"length_penalty": 0.5}, 4), ({"lr": 1.0}, 4), ({"weight": 1.0}, 4)],
)
def test_another_translator_or_beam_search_starts_again(
    data: Path,
    tmp_path: Path,
    echo: type[EchoTranslator],
    monkeypatch: pytest.MonkeyPatch,
    change: dict[str, Any],
    left: int,
) -> None:
    mt, out = write_translator(tmp_path / "mt"), tmp_path / "kept"
    monkeypatch.setattr(echo, "max_calls", 3)
    with pytest.raises(KeyboardInterrupt):
        score_translator_seed(mt, data, out=out, beam=1)
    monkeypatch.setattr(echo, "max_calls", 99)
    del echo.calls[:]
    if {"lr", "weight"} & change.keys():
        score_translator_seed(write_translator(tmp_path / "other", **change), data, out=out, beam=1)
    else:
        score_translator_seed(mt, data, out=out, **{"beam": 1, **change})
    assert len(echo.calls) == left


# ---- stored translations ------------------------------------------------------------------------------------


def test_stored_translations_give_the_same_rows(mt: Path, data: Path, echo: type[EchoTranslator]) -> None:
    rows = score_translator_seed(mt, data, out=mt, beam=2, length_penalty=0.7)
    del echo.calls[:]
    assert rescore_stored(mt, data) == rows
    assert evaluate(mt, ["translation"], data, recompute=True) == rows
    assert echo.calls == []
    assert tuned(rows).endswith("beam 2, length penalty 0.7")


def test_stored_translations_of_another_text_or_model_are_not_scored(mt: Path, data: Path, tmp_path: Path) -> None:
    score_translator_seed(mt, data, out=mt)
    other = write_translator(tmp_path / "other", weight=1.0)
    shutil.copytree(mt / "predictions", other / "predictions")
    with pytest.raises(BadInput, match="not this model's translations of test_a"):
        rescore_stored(other, data)
    write_lines(data / "test_b.en", [f"another {line}" for line in SENTENCES])  # as many rows
    assert rescore_stored(mt, data, text=read_of(data, "test_a"))
    with pytest.raises(BadInput, match=r"test_b-en-de.jsonl: these are not .*Run without recompute"):
        rescore_stored(mt, data)
    for file in (mt / "predictions").rglob("*.json"):
        file.unlink()
    with pytest.raises(BadInput, match="Run without recompute"):
        rescore_stored(mt, data)


def read_of(data: Path, split: str) -> Any:
    text = read_parallel_text(data, parse_directions("en-de,de-en"), ("test",))
    return type(text)({}, {}, {split: text.tests[split]})


@pytest.mark.filterwarnings("ignore:.*no stored translations")
def test_missing_stored_translations_are_refused(mt: Path, data: Path) -> None:
    with pytest.raises(BadInput, match=r"no stored translations. Run once without recompute"):
        evaluate(mt, ["translation"], data, recompute=True)


def test_translations_are_reused_for_the_same_text_and_beam_search(
    mt: Path, data: Path, echo: type[EchoTranslator]
) -> None:
    rows = score_translator_seed(mt, data, out=mt, reuse=True)
    del echo.calls[:]
    assert score_translator_seed(mt, data, out=mt, reuse=True) == rows
    assert echo.calls == []
    assert rescore_stored(mt, data) == rows
    write_lines(data / "test_b.de", [f"anders {line}" for line in SENTENCES])
    assert score_translator_seed(mt, data, out=mt, reuse=True) != rows
    assert [(line[:6], to) for line, to, *_ in echo.calls] == [("test_b", "de"), ("anders", "en")]
    del echo.calls[:]
    one = score_translator_seed(mt, data, out=mt, reuse=True, beam=1)
    other = score_translator_seed(mt, data, out=mt, reuse=True, beam=1, length_penalty=0.5)
    assert len(echo.calls) == 8
    assert tuned(one) != tuned(other)
    del echo.calls[:]
    score_translator_seed(mt, data, out=mt)
    assert len(echo.calls) == 4


def test_an_interruption_leaves_no_info_of_other_translations(
    mt: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    score_translator_seed(mt, data, out=mt)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "write_json", interrupt)
    with pytest.raises(KeyboardInterrupt):
        score_translator_seed(mt, data, out=mt, beam=1)
    with pytest.raises(BadInput, match="Run without recompute"):
        rescore_stored(mt, data)
