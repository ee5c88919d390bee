"""The benchmark of the data path: its rows, with and without the peer. Values are not tested."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from crossling.bench import bench, bench_data
from crossling.bench.workload import throughput
from crossling.core.errors import BadInput

SMALL = {"LINES": 200, "MEMORY_LINES": 2000, "STEP_TOKENS": 20_000, "BATCH": 8}


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**SMALL, "SECONDS": 0.01, "VOCABULARY_SIZE": 400}.items():
        monkeypatch.setattr(bench_data, name, value)


@pytest.mark.skipif(not importlib.util.find_spec("datasets"), reason="the peer is not installed")
@pytest.mark.usefixtures("quick")
def test_data_path_beside_datasets(corpora_folder: Path) -> None:
    rows = {row.name: row for row in bench(["data"], corpora_folder)}
    assert list(rows) == [
        *("padding of bitext", "batches of 512", "batches of 512, 4 workers", "tokenizing text"),
        *("memory of the text reader, 10x", "memory of the shard reader, 10x"),
    ]
    for row in rows.values():
        assert row.ours > 0
        assert row.peer is not None
        assert row.peer > 0
    assert rows["tokenizing text"].ratio == pytest.approx(rows["tokenizing text"].ours / rows["tokenizing text"].peer)  # type: ignore[operator]
    assert 0 < rows["padding of bitext"].ours < 100


@pytest.mark.usefixtures("quick")
def test_without_the_peer_rows_have_no_ratio(corpora_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(bench_data, "find_spec", lambda name: None if name == "datasets" else find_spec(name))
    monkeypatch.setattr(bench_data, "_memory", lambda _: ())  # its peer is the same reader
    rows = {row.name: row for row in bench(["data"], corpora_folder)}
    assert rows["batches of 512"].peer is None
    assert rows["tokenizing text"].ratio is None


def test_unknown_benchmark_suggests_the_nearest_name() -> None:
    with pytest.raises(BadInput, match="dat: no such benchmark; did you mean 'data'"):
        list(bench(["dat"]))


def test_throughput_excludes_the_first_call() -> None:
    calls = []

    def work(number: int) -> int:
        calls.append(number)
        return 5

    assert throughput(work, 0.01) > 0
    assert calls == list(range(len(calls)))
    assert len(calls) >= 2
