"""Benchmark sentences are found in lines, inside of longer lines and with small changes, in any punctuation."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from crossling.cleaning.contamination import BenchmarkIndex, benchmark_fingerprint, build_index
from crossling.core.errors import BadInput

SENTENCE = "The old harbour was closed to ships because the winter storms had broken its wall."
SHORT = "I do not know."
CHINESE = "辽宁省位于中国东北地区的南部"


@pytest.fixture
def index(tmp_path: Path) -> BenchmarkIndex:
    data = tmp_path / "data"
    (data / "xnli").mkdir(parents=True)
    (data / "xnli" / "test-en.tsv").write_text(f"{SENTENCE}\t{SHORT}\tneutral\n")
    (data / "tatoeba").mkdir()
    (data / "tatoeba" / "tatoeba.zh-en.zh").write_text(f"{CHINESE}\n")
    (data / "tatoeba" / "tatoeba.zh-en.en").write_text(f"{SENTENCE}\n{SHORT}\n")
    build_index(data, tmp_path / "index")
    return BenchmarkIndex(tmp_path / "index")


def hits(index: BenchmarkIndex, lines: Sequence[str]) -> list[tuple[int, str, bool]]:
    return [(line, index.text(number), bool(near)) for line, number, near in index.find(lines).tolist()]


def test_benchmark_sentences_are_found_in_lines(index: BenchmarkIndex) -> None:
    lines = [
        "Nothing of this kind is in any of the benchmarks that are known here.",
        SENTENCE,
        f"Well then. {SENTENCE} And so on.",
        "the old harbour was closed to ships , because the winter storms had broken its wall",
        SENTENCE.replace("ships", "ship"),
        SHORT,
        "",
        f"看。{CHINESE}。好",
    ]
    expected = [(1, SENTENCE, False), (2, SENTENCE, False), (3, SENTENCE, False), (4, SENTENCE, True)]
    assert hits(index, lines) == [*expected, (7, CHINESE, False)]


def test_hits_do_not_depend_on_other_lines(index: BenchmarkIndex) -> None:
    lines = [SENTENCE, SENTENCE.replace("closed", "open"), "something else is written in this line"]
    together = hits(index, lines)
    alone = [(number, *hit[1:]) for number, line in enumerate(lines) for hit in hits(index, [line])]
    assert together == alone
    assert index.find([]).shape == index.find(["short"]).shape == (0, 3)


def test_a_sentence_is_counted_for_each_of_its_files(index: BenchmarkIndex) -> None:
    counted = [(row["file"], row["language"], row["sentences"]) for row in index.files]
    assert counted == [
        ("tatoeba/tatoeba.zh-en.en", "en", 1),
        ("tatoeba/tatoeba.zh-en.zh", "zh", 1),
        ("xnli/test-en.tsv", "en", 1),
    ]
    assert len(index.hashes) == 2
    assert sorted(index.owners.tolist()) == [[0, 0], [0, 2], [1, 1]]


def test_an_index_is_built_again_only_if_the_data_changed(tmp_path: Path, index: BenchmarkIndex) -> None:
    before = (tmp_path / "index" / "entry.json").stat().st_ino
    build_index(tmp_path / "data", tmp_path / "index")
    assert (tmp_path / "index" / "entry.json").stat().st_ino == before
    assert index.key == benchmark_fingerprint(tmp_path / "data")
    (tmp_path / "data" / "xnli" / "test-en.tsv").write_text("Quite another sentence is here now.\n")
    build_index(tmp_path / "data", tmp_path / "index")
    assert hits(BenchmarkIndex(tmp_path / "index"), ["Quite another sentence is here now!"])


def test_benchmarks_without_sentences_are_refused(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "labels.tsv").write_text("0\n1\n")
    with pytest.raises(BadInput, match="no benchmark sentence found"):
        build_index(tmp_path / "data", tmp_path / "index")
    assert not (tmp_path / "index").exists()
