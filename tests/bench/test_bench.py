"""The benches run, and say what they measured. Their figures are no test's business."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from crossling.bench import bench, data
from crossling.bench.row import rate
from crossling.errors import BadInput


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"SECONDS": 0.01, "LINES": 200, "STEP_TOKENS": 20_000, "PIECES": 400}.items():
        monkeypatch.setattr(data, name, value)


@pytest.mark.skipif(not importlib.util.find_spec("datasets"), reason="the peer is not installed")
@pytest.mark.usefixtures("quick")
def test_the_data_path_beside_datasets(corpora_folder: Path) -> None:
    rows = {row.name: row for row in bench(["data"], corpora_folder)}
    assert list(rows) == [
        *("padding of bitext", "batches of 512", "batches of 512, 4 workers", "encoding text"),
        *("memory of the text reader, 10x", "memory of the shard reader, 10x"),
    ]
    for row in rows.values():
        assert row.ours > 0
        assert row.peer is not None
        assert row.peer > 0
    assert rows["encoding text"].ratio == pytest.approx(rows["encoding text"].ours / rows["encoding text"].peer)  # type: ignore[operator]
    assert 0 < rows["padding of bitext"].ours < 100


@pytest.mark.usefixtures("quick")
def test_without_the_peer_ours_is_measured_alone(corpora_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = importlib.util.find_spec
    monkeypatch.setattr(data, "find_spec", lambda name: None if name == "datasets" else known(name))
    rows = {row.name: row for row in bench(["data"], corpora_folder)}
    assert rows["batches of 512"].peer is None
    assert rows["encoding text"].ratio is None


def test_an_unknown_bench_names_the_nearest() -> None:
    with pytest.raises(BadInput, match="dat: there is no such bench; did you mean 'data'"):
        list(bench(["dat"]))


def test_a_rate_is_units_by_seconds_without_the_first() -> None:
    calls = []

    def work(number: int) -> int:
        calls.append(number)
        return 5

    assert rate(work, 0.01) > 0
    assert calls == list(range(len(calls)))
    assert len(calls) >= 2
