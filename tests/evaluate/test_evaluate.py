from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from crossling.core.errors import BadInput, Interrupted
from crossling.evaluate import evaluate as evaluate_module
from crossling.evaluate.evaluate import evaluate
from crossling.evaluate.significance import ModelPredictions, TaskResult, compare_models
from crossling.inference.sentence_encoder import Encoder
from crossling.tasks import predictions, scores
from crossling.tasks.predictions import PartialResults


def test_all_tasks_are_scored_and_stored(tmp_path: Path, write: Callable[[Path, str], Path], encoder: Encoder) -> None:
    write(tmp_path / "tatoeba/v1/tatoeba.qaa-qab.qaa", "a b\nc\n")
    write(tmp_path / "tatoeba/v1/tatoeba.qaa-qab.qab", "d\ne f\n")
    write(tmp_path / "word-alignment/qaa-qab/qaa-qab.src-tgt", "a b ||| c d\n")
    write(tmp_path / "word-alignment/qaa-qab/qaa-qab.gold", "1-2 2-1\n")
    write(tmp_path / "bucc2018/qaa-qab.dev.qaa", "1\ta b\n2\tc\n")
    write(tmp_path / "bucc2018/qaa-qab.dev.qab", "1\tb a\n2\te f\n")
    write(tmp_path / "bucc2018/qaa-qab.dev.gold", "1\t1\n")
    out = tmp_path / "out"
    rows = evaluate(encoder, ["tatoeba", "word-alignment"], tmp_path, out)
    files = [str(path.relative_to(out)) for path in predictions.find_prediction_files(out)]
    assert files == [
        "predictions/tatoeba/test-qaa-qab.qaa-qab.jsonl",
        "predictions/tatoeba/test-qaa-qab.qab-qaa.jsonl",
        "predictions/word-alignment/test-qaa-qab.ot.jsonl",
    ]
    assert [row.id for row in predictions.read_predictions(out / files[0])] == ["1", "2"]
    assert [row["task"] for row in rows] == ["tatoeba"] * 2 * (4 + 1) + ["word-alignment"] * 4 * 4
    assert scores.read_scores(tmp_path / "out/scores.jsonl") == rows
    assert evaluate(encoder, ["word-alignment"], tmp_path) == rows[10:]
    with pytest.warns(UserWarning, match="no test split"):
        mined = evaluate(encoder, ["bucc2018"], tmp_path, out, layers=[0, 3])
    assert {(row["protocol"], row["layer"]) for row in mined} == {
        *(("margin", 0), ("margin", 3), ("xtreme", 2), ("mteb", 2), ("mteb-v2", 2))
    }
    assert scores.read_scores(out / "scores.jsonl") == rows + mined


def test_predictions_belong_to_one_model(tmp_path: Path, write: Callable[[Path, str], Path], encoder: Encoder) -> None:
    """Prediction files do not name their model."""
    write(tmp_path / "tatoeba/v1/tatoeba.qaa-qab.qaa", "a b\nc\n")
    write(tmp_path / "tatoeba/v1/tatoeba.qaa-qab.qab", "d\ne f\n")
    evaluate(encoder, ["tatoeba"], tmp_path, tmp_path / "out")
    before = [path.read_bytes() for path in predictions.find_prediction_files(tmp_path)]
    encoder.name = "another"
    with pytest.warns(UserWarning, match="contains scores of runs/tiny, so the predictions of another are not stored"):
        evaluate(encoder, ["tatoeba"], tmp_path, tmp_path / "out", pooling="cls")
    assert [path.read_bytes() for path in predictions.find_prediction_files(tmp_path)] == before
    assert len(before) == 2
    assert {row["model"] for row in scores.read_scores(tmp_path / "out/scores.jsonl")} == {"runs/tiny", "another"}


def test_own_pairs_are_scored_as_retrieval(
    tmp_path: Path, write: Callable[[Path, str], Path], encoder: Encoder
) -> None:
    """The figures are those of Tatoeba on the same sentences, without the protocol of XTREME."""
    sides = ["a b\nc\nd e\n", "d\ne f\na c\n"]
    for code, text in zip(("deu", "eng"), sides, strict=True):
        write(tmp_path / f"tatoeba/v1/tatoeba.deu-eng.{code}", text)
    lines = zip(*(text.splitlines() for text in sides), strict=True)
    own = write(tmp_path / "test.de-en.tsv", "".join(f"{left}\t{right}\n" for left, right in lines))
    out = tmp_path / "out"
    rows = evaluate(encoder, pairs=own, out=out)
    expected = [row for row in evaluate(encoder, "tatoeba", tmp_path) if row["protocol"] != "xtreme"]
    assert rows == [{**row, "task": "retrieval"} for row in expected]
    assert scores.read_scores(out / "scores.jsonl") == rows
    assert len(predictions.find_prediction_files(out)) == 2
    swapped = evaluate(encoder, pairs=own, languages="en-de")
    assert {row["direction"] for row in swapped} == {"en-xx", "xx-en"}
    for options in ({"task": "tatoeba"}, {"data": tmp_path}, {"recompute": True}, {"plug_in": True}):
        with pytest.raises(BadInput):
            evaluate(encoder, pairs=own, **options)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="one is missing"):
        evaluate(encoder, "tatoeba")


def test_invalid_requests_are_refused(tmp_path: Path, encoder: Encoder) -> None:
    with pytest.raises(BadInput, match="did you mean 'tatoeba'"):
        evaluate(encoder, ["tatoba"], tmp_path)
    with pytest.raises(BadInput, match="no such folder"):
        evaluate(encoder, ["tatoeba"], tmp_path / "nowhere")
    with pytest.raises(BadInput, match="pooling=men"):
        evaluate(encoder, ["tatoeba"], tmp_path, pooling="men")
    with pytest.raises(BadInput, match="did you mean 'itermax'"):
        evaluate(encoder, ["tatoeba"], tmp_path, method="itermx")
    with pytest.raises(BadInput, match="layer 4 does not exist"):
        evaluate(encoder, ["bucc2018"], tmp_path, layers=[2, 4])


def test_the_output_folder_is_checked_before_the_evaluation(encoder: Encoder, tmp_path: Path) -> None:
    place = tmp_path / "out"
    place.mkdir()
    (place / "scores.jsonl").write_text("not a score\n", encoding="utf-8")
    with pytest.raises(BadInput, match="line 1: not JSON"):
        evaluate(encoder, ["tatoeba"], tmp_path, place)  # there is no data either
    with pytest.raises(BadInput, match="expected a folder, found a file"):
        evaluate(encoder, ["tatoeba"], tmp_path, place / "scores.jsonl")


# ---- Languages that not every task has ---------------------------------------------------------------------------


@pytest.fixture
def two_tasks(tmp_path: Path, write: Callable[[Path, str], Path]) -> Path:
    """Tatoeba in three languages, gold alignments in one other."""
    for code in ("deu", "swh", "tha"):
        write(tmp_path / f"data/tatoeba/v1/tatoeba.{code}-eng.{code}", "a b\nc\n")
        write(tmp_path / f"data/tatoeba/v1/tatoeba.{code}-eng.eng", "d\ne f\n")
    write(tmp_path / "data/word-alignment/deen/deen.src-tgt", "a b ||| c d\n")
    write(tmp_path / "data/word-alignment/deen/deen.gold", "1-2 2-1\n")
    return tmp_path / "data"


def test_languages_need_not_be_in_every_task(two_tasks: Path, encoder: Encoder) -> None:
    with pytest.warns(UserWarning, match=r"^word-alignment: no data for swh; skipped$"):
        rows = evaluate(encoder, ["tatoeba", "word-alignment"], two_tasks, languages=["swh", "de"])
    assert {(row["task"], row["language"]) for row in rows} == {
        *(("tatoeba", "sw"), ("tatoeba", "de"), ("word-alignment", "de-en"))
    }
    with pytest.warns(UserWarning, match="^word-alignment: no data for th"):
        rows = evaluate(encoder, ["tatoeba", "word-alignment"], two_tasks, languages=["th"])
    assert {(row["task"], row["language"]) for row in rows} == {("tatoeba", "th")}
    with pytest.raises(BadInput, match="tatoeba, word-alignment has no data for language 'fr'"):
        evaluate(encoder, ["tatoeba", "word-alignment"], two_tasks, languages=["de", "fr"])


def test_files_of_other_languages_are_not_read(two_tasks: Path, encoder: Encoder) -> None:
    (two_tasks / "tatoeba/v1/tatoeba.tha-eng.tha").write_bytes(b"\xff\n")
    (two_tasks / "tatoeba/v1/tatoeba.x-y-z.x").write_text("", encoding="utf-8")
    assert {row["language"] for row in evaluate(encoder, ["tatoeba"], two_tasks, languages=["de"])} == {"de"}
    with pytest.raises(BadInput, match=r"tha: line 1: not UTF-8"):
        evaluate(encoder, ["tatoeba"], two_tasks, languages=["de", "th"])


# ---- Resuming ----------------------------------------------------------------------------------------------------


class Interruption:
    """Interrupt the evaluation after a number of language pairs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, pairs: int) -> None:
        self.evaluated: list[str] = []
        self.pairs = pairs
        evaluate_tatoeba = evaluate_module.evaluate_tatoeba

        def interrupt(*arguments: Any, **options: Any) -> Iterator[TaskResult]:
            for result in evaluate_tatoeba(*arguments, **options):
                if result.name not in self.evaluated:
                    if len(self.evaluated) == self.pairs:
                        raise KeyboardInterrupt
                    self.evaluated.append(result.name)
                yield result

        monkeypatch.setattr(evaluate_module, "evaluate_tatoeba", interrupt)


def test_an_interrupted_evaluation_resumes(
    two_tasks: Path, tmp_path: Path, encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = evaluate(encoder, ["tatoeba"], two_tasks)
    out = tmp_path / "out"
    interruption = Interruption(monkeypatch, pairs=2)
    with pytest.raises(Interrupted, match=f"Finished scores are in {out}. Run the same command again"):
        evaluate(encoder, ["tatoeba"], two_tasks, out)
    # Incomplete results are not visible.
    assert predictions.find_prediction_files(out) == []
    assert not (out / "scores.jsonl").exists()
    assert compare_models([ModelPredictions(name, [out], {}) for name in "ab"]) == []
    interruption.pairs = 9
    interruption.evaluated.clear()
    assert evaluate(encoder, ["tatoeba"], two_tasks, out) == whole
    assert interruption.evaluated == ["th-en"]
    assert scores.read_scores(out / "scores.jsonl") == whole
    assert len(predictions.find_prediction_files(out)) == 6
    assert sorted(path.name for path in out.iterdir()) == ["predictions", "scores.jsonl"]


def test_other_weights_options_or_files_start_from_scratch(
    two_tasks: Path, tmp_path: Path, encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    interruption = Interruption(monkeypatch, pairs=2)
    for change in ("nothing", "pooling", "file", "weights"):
        interruption.pairs, out = 2, tmp_path / change
        interruption.evaluated.clear()
        with pytest.raises(Interrupted):
            evaluate(encoder, ["tatoeba"], two_tasks, out)
        interruption.pairs = 9
        interruption.evaluated.clear()
        if change == "file":
            (two_tasks / "tatoeba/v1/tatoeba.deu-eng.deu").write_text("a b e\nc\n", encoding="utf-8")
        if change == "weights":
            next(encoder.model.parameters()).data += 1
        evaluate(encoder, ["tatoeba"], two_tasks, out, pooling="cls" if change == "pooling" else "auto")
        expected = {"nothing": ["th-en"], "file": ["de-en", "th-en"]}
        assert interruption.evaluated == expected.get(change, ["de-en", "sw-en", "th-en"])


def test_an_unfinished_line_is_evaluated_again(tmp_path: Path) -> None:
    partial = PartialResults(tmp_path, "tatoeba", {"model": "a"})
    partial.record("de-en", [{"value": 1}], "1")
    with (partial.folder / "done.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"key": "sw-en", "inputs": "1", "va')
    again = PartialResults(tmp_path, "tatoeba", {"model": "a"})
    assert again.done("de-en", "1") == [{"value": 1}]
    assert again.done("de-en", "2") is None
    assert again.done("sw-en", "1") is None
    again.record("sw-en", [], "1")
    assert PartialResults(tmp_path, "tatoeba", {"model": "a"}).done("sw-en", "1") == []


def test_without_a_folder_nothing_is_stored(two_tasks: Path, encoder: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    Interruption(monkeypatch, pairs=1)
    with pytest.raises(Interrupted, match="Nothing was stored"):
        evaluate(encoder, ["tatoeba"], two_tasks)
