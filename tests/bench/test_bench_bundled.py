from __future__ import annotations

from importlib.util import find_spec

import pytest

from crossling.bench import bench, bench_bundled
from crossling.inference.load import load


def test_bundled_model_is_measured_beside_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SENTENCES", "PAIRS", "TIMES"):
        monkeypatch.setattr(bench_bundled, name, 2)
    monkeypatch.setattr(bench_bundled, "find_spec", lambda name: None if name == "onnxruntime" else find_spec(name))
    rows = list(bench(["bundled"]))
    assert [row.unit for row in rows] == ["sentences/s", "sentences/s", "pairs/s"]
    assert [row.peer_name for row in rows] == ["ours in float32", "Sentence Transformers", "ours in float32"]
    assert all(row.ours > 0 and row.peer is not None and row.peer > 0 for row in rows)


def test_random_sentences_have_words_of_one_token() -> None:
    encoder = load()
    sentences = bench_bundled.random_sentences(encoder, 3)
    assert sentences == bench_bundled.random_sentences(encoder, 3)
    for sentence in sentences:
        assert len(encoder.tokenizer(sentence)["input_ids"]) == len(sentence.split()) + 2


def test_works_are_timed_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_bundled, "TIMES", 2)
    calls: list[str] = []
    seconds = bench_bundled.time_in_turn({name: lambda name=name: calls.append(name) for name in "ab"})
    assert "".join(calls) == "ababab"
    assert [*seconds] == ["a", "b"]
