"""The encoder in MTEB's protocol, and MTEB's own evaluators on the same vectors."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from crossling.core.errors import BadInput
from crossling.evaluate.evaluate import evaluate
from crossling.inference.sentence_encoder import Encoder
from crossling.mteb import MtebEncoder, mteb_name, read_results
from crossling.report.report import report
from crossling.tasks.scores import ScoreRow, add_scores

Write = Callable[[Path, str], Path]
BATCHES = [{"text": ["the blue house", "rain"]}, {"text": ["snow falls"]}]
needs_mteb = pytest.mark.skipif(find_spec("mteb") is None, reason="mteb is not installed")


def test_vectors_are_those_of_encode(encoder: Encoder) -> None:
    model = MtebEncoder(encoder, layer=1, pooling="cls")
    expected = encoder.encode([text for batch in BATCHES for text in batch["text"]], layer=1, pooling="cls")
    vectors = model.encode(BATCHES, task_metadata=None, hf_split="test", hf_subset="default", batch_size=2)
    np.testing.assert_allclose(vectors, expected, atol=1e-6)
    cosines = model.similarity(vectors, vectors)
    assert cosines.shape == (3, 3)
    np.testing.assert_allclose(model.similarity_pairwise(vectors, vectors), np.diag(cosines), atol=1e-6)
    np.testing.assert_allclose(np.diag(cosines), 1, atol=1e-6)
    assert model.similarity(vectors[0], vectors).shape == (1, 3)
    encoder.precision = "bfloat16"
    assert MtebEncoder(encoder).encoder.precision == "float32"  # as in `evaluate`
    assert model.encode([{"text": ["rain", "snow", "rain"]}])[0].tolist() == model.encode(BATCHES[:1])[1].tolist()
    with pytest.raises(BadInput, match="precision=int8: vectors have float32"):
        model.encode(BATCHES, precision="int8")


def test_declared_vectors_and_prompts_are_used(declared_encoder: Encoder) -> None:
    model, texts = MtebEncoder(declared_encoder), BATCHES[0]["text"]
    np.testing.assert_allclose(model.encode(BATCHES[:1]), declared_encoder.encode(texts), atol=1e-6)
    assert declared_encoder.head is not None
    declared = {**declared_encoder.head.prompts, "query": "snow "}
    declared_encoder.head = replace(declared_encoder.head, prompts=declared)
    model = MtebEncoder(declared_encoder)
    assert model._prompt_name(SimpleNamespace(value="query")) == "query"
    assert model._prompt_name("document") is None
    assert model._prompt_name(None) is None


def test_names_have_an_organization() -> None:
    names = ("bundled", "runs/xlm_e", "/data/runs/xlm_e", "a/b/c", "intfloat/multilingual-e5-base")
    assert [mteb_name(name) for name in names] == [
        *("crossling/bundled", "runs/xlm_e", "crossling/xlm_e", "crossling/c", "intfloat/multilingual-e5-base"),
    ]


@pytest.mark.skipif(find_spec("mteb") is not None, reason="mteb is installed")
def test_the_missing_package_is_named(encoder: Encoder) -> None:
    with pytest.raises(BadInput, match=r"needs the package mteb. Install it with `pip install crossling\[mteb\]`"):
        _ = MtebEncoder(encoder).mteb_model_meta


# ---- MTEB itself ------------------------------------------------------------------------------------------------


def sentences(seed: int, count: int) -> list[str]:
    rng = random.Random(seed)
    return [" ".join("".join(rng.choices("abcdefgh", k=3)) for _ in range(rng.randint(2, 6))) for _ in range(count)]


def write_data(write: Write, data: Path) -> tuple[list[str], list[str]]:
    """Write Tatoeba, and BUCC with ten gold pairs among twenty sentences of each side. Half of the pairs are equal."""
    first, second = sentences(1, 20), sentences(2, 20)
    second[5:10] = first[:5]
    for code, side in (("deu", first), ("eng", second)):
        write(data / f"tatoeba/v1/tatoeba.deu-eng.{code}", "".join(f"{line}\n" for line in side))
    for split in ("dev", "test"):
        for code, side in (("de", first), ("en", second)):
            lines = "".join(f"{code}-{row}\t{sentence}\n" for row, sentence in enumerate(side))
            write(data / f"bucc2018/de-en.{split}.{code}", lines)
        gold = "".join(f"de-{row}\ten-{row + 5}\n" for row in range(10))
        write(data / f"bucc2018/de-en.{split}.gold", gold)
    return first, second


def local_tasks(first: list[str], second: list[str]) -> list[Any]:
    """Return MTEB's tasks Tatoeba, BUCC and BUCC.v2 with the data that their loading from the hub would give."""
    from datasets import Dataset
    from mteb.tasks.bitext_mining.multilingual.bucc_bitext_mining import BUCCBitextMining
    from mteb.tasks.bitext_mining.multilingual.bucc_bitext_mining_fast import BUCCBitextMiningFast
    from mteb.tasks.bitext_mining.multilingual.tatoeba_bitext_mining import TatoebaBitextMining

    gold = [(row, row + 5) for row in range(10)]
    pairs = {"sentence1": [first[one] for one, _ in gold], "sentence2": [second[other] for _, other in gold]}
    whole = {"sentence1": [first], "sentence2": [second], "gold": [[(one + 1, other + 1) for one, other in gold]]}

    class Tatoeba(TatoebaBitextMining):  # type: ignore[misc]
        def load_data(self, **_: Any) -> None:
            lines = Dataset.from_dict({"sentence1": first, "sentence2": second})
            self.dataset, self.data_loaded = {"deu-eng": {"test": lines}}, True

    class Bucc(BUCCBitextMining):  # type: ignore[misc]
        def load_data(self, **_: Any) -> None:
            self.dataset = {"de-en": {"test": whole}}
            self.dataset_transform()
            self.data_loaded = True

    class BuccFast(BUCCBitextMiningFast):  # type: ignore[misc]
        def load_data(self, **_: Any) -> None:
            self.dataset, self.data_loaded = {"de-en": {"test": Dataset.from_dict(pairs)}}, True

    tasks = [Tatoeba(), Bucc(), BuccFast()]
    for task, subset in zip(tasks, ("deu-eng", "de-en", "de-en"), strict=True):
        task.hf_subsets = [subset]
    return tasks


@pytest.mark.soak
@needs_mteb
@pytest.mark.filterwarnings("ignore")
def test_scores_equal_those_of_mteb(
    tmp_path: Path, write: Write, declared_encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    import mteb
    from mteb.models import EncoderProtocol

    texts = write_data(write, tmp_path / "data")
    model = MtebEncoder(declared_encoder)
    assert isinstance(model, EncoderProtocol)
    cache = mteb.ResultCache(tmp_path / "mteb")
    mteb.evaluate(model, local_tasks(*texts), cache=cache, show_progress_bar=False)
    theirs = read_results(tmp_path / "mteb")
    ours = [
        row
        for row in evaluate(declared_encoder, ["tatoeba", "bucc2018"], tmp_path / "data")
        if row["protocol"].startswith("mteb") and row["split"] == "test" and row.get("direction") != "en-xx"
    ]

    def key(row: ScoreRow) -> tuple[str, ...]:
        return row["model"], row["task"], row["protocol"], row["metric"], row["language"]

    found, expected = {key(row): row["value"] for row in ours}, {key(row): row["value"] for row in theirs}
    assert len(expected) == 3
    assert found == pytest.approx(expected, abs=1e-3)
    assert all(0 < value < 100 for value in found.values())
    add_scores(tmp_path / "scores/scores.jsonl", ours)
    page = report([tmp_path / "mteb", tmp_path / "scores"], tmp_path / "report.md").read_text(encoding="utf-8")
    assert "Tatoeba" in page


@pytest.mark.soak
@needs_mteb
@pytest.mark.filterwarnings("ignore")
def test_mteb_runs_tasks_of_other_types(tmp_path: Path, encoder: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    import mteb
    from mteb.mocks import mock_tasks

    names = ("Classification", "Retrieval", "STS", "PairClassification", "Reranking", "Clustering")
    tasks = [getattr(mock_tasks, f"Mock{name}Task") for name in names if hasattr(mock_tasks, f"Mock{name}Task")]
    mteb.evaluate(
        MtebEncoder(encoder), [task() for task in tasks], cache=mteb.ResultCache(tmp_path), show_progress_bar=False
    )
    rows = read_results(tmp_path)
    assert len({row["task"] for row in rows}) == len(tasks) >= 5
    assert "main_score" not in {row["metric"] for row in rows}
