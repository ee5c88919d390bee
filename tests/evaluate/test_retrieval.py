from __future__ import annotations

import gzip
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from crossling.errors import BadInput
from crossling.evaluate import retrieval
from crossling.evaluate.encode import Encoder
from crossling.evaluate.retrieval import accuracy, nearest_rows, read_tatoeba, tatoeba

Write = Callable[[Path, str], Path]


def sentences(seed: int, count: int = 12) -> list[str]:
    rng = random.Random(seed)
    return [" ".join("".join(rng.choices("abcdefgh", k=3)) for _ in range(rng.randint(1, 6))) for _ in range(count)]


def write_pair(write: Write, data: Path, pair: str, first: Sequence[str], second: Sequence[str]) -> None:
    for code, side in zip(pair.split("-"), (first, second), strict=True):
        write(data / "tatoeba/v1" / f"tatoeba.{pair}.{code}", "".join(f"{line}\n" for line in side))


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


def test_nearest_rows_is_brute_force(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retrieval, "QUERIES_AT_ONCE", 4)
    rng = np.random.default_rng(0)
    query, candidate = rng.normal(size=(11, 5)), rng.normal(size=(7, 5))
    slow = [max(range(7), key=lambda row: cosine(vector, candidate[row])) for vector in query]
    assert nearest_rows(query, candidate).tolist() == slow


def test_random_vectors_give_chance() -> None:
    rng = np.random.default_rng(0)
    names = [str(row) for row in range(50)]
    values = [accuracy(rng.normal(size=(50, 16)), rng.normal(size=(50, 16)), names) for _ in range(200)]
    assert np.mean(values) == pytest.approx(100 / 50, abs=0.5)


def test_equal_sentences_are_one_candidate() -> None:
    vectors = np.eye(3)[[0, 1, 0, 2]]
    assert accuracy(vectors, vectors, ["a", "b", "a", "c"]) == 100
    assert accuracy(vectors[[2, 1, 3, 0]], vectors, ["a", "b", "a", "c"]) == 50


def test_scores_are_brute_force(tmp_path: Path, write: Write, encoder: Encoder) -> None:
    first, second = sentences(1), sentences(2)
    write_pair(write, tmp_path, "qaa-qab", first, second)
    write_pair(write, tmp_path, "swh-eng", second, first)
    rows = tatoeba(encoder, tmp_path)
    assert len(rows) == 2 * 2 * 4
    vectors = {sentence: encoder.pooled([sentence])[:, 0] for sentence in (*first, *second)}
    for row in rows:
        query, candidate = (first, second) if row["direction"] in ("qaa-qab", "en-xx") else (second, first)
        right = 0
        for line, sentence in enumerate(query):
            at = [cosine(vectors[sentence][row["layer"]], vectors[other][row["layer"]]) for other in candidate]
            right += int(np.argmax(at)) == line
        assert row["value"] == pytest.approx(100 * right / 12)
    assert {(row["language"], row["direction"]) for row in rows} == {
        ("qaa-qab", "qaa-qab"),
        ("qaa-qab", "qab-qaa"),
        ("sw", "en-xx"),
        ("sw", "xx-en"),
    }
    value = rows[0].pop("value")
    assert isinstance(value, float)
    assert rows[0] == {
        "model": "runs/tiny",
        "task": "tatoeba",
        "protocol": "sweep",
        "metric": "accuracy",
        "language": "qaa-qab",
        "direction": "qaa-qab",
        "layer": 0,
        "pooling": "mean",
        "setting": "training-free",
        "split": "test",
        "examples": 12,
    }


def test_each_sentence_is_embedded_once(tmp_path: Path, write: Write, encoder: Encoder) -> None:
    sides = {code: sentences(seed) for seed, code in enumerate(["qaa", "qab", "qac"])}
    for pair in ("qaa-qab", "qaa-qac", "qab-qac"):
        first, second = pair.split("-")
        write_pair(write, tmp_path, pair, sides[first], sides[second])
    seen: list[str] = []
    pooled = encoder.pooled

    def spy(asked: Sequence[str], pooling: str = "mean") -> np.ndarray:
        seen.extend(asked)
        return pooled(asked, pooling)

    encoder.pooled = spy  # type: ignore[method-assign]
    tatoeba(encoder, tmp_path)
    assert sorted(seen) == sorted(sentence for side in sides.values() for sentence in side)


def test_reads_gzip_and_odd_line_ends(tmp_path: Path) -> None:
    folder = tmp_path / "tatoeba/v1"
    folder.mkdir(parents=True)
    (folder / "tatoeba.deu-eng.deu").write_bytes("eins\u2028zwei\r\ndrei".encode())
    (folder / "tatoeba.deu-eng.eng.gz").write_bytes(gzip.compress(b"one\ntwo\n"))
    [bitext] = read_tatoeba(tmp_path)
    assert (bitext.first.language, bitext.first.sentences) == ("de", ["eins\u2028zwei", "drei"])
    assert (bitext.second.language, bitext.second.sentences) == ("en", ["one", "two"])


def test_bad_input(tmp_path: Path, write: Write) -> None:
    with pytest.raises(BadInput, match="no such folder"):
        read_tatoeba(tmp_path)
    (tmp_path / "tatoeba/v1").mkdir(parents=True)
    with pytest.raises(BadInput, match="no files named"):
        read_tatoeba(tmp_path)
    write_pair(write, tmp_path, "deu-eng", ["a", "b"], ["c"])
    with pytest.raises(BadInput, match=r"deu-eng: 2 lines in \.deu but 1 in \.eng"):
        read_tatoeba(tmp_path)
    write_pair(write, tmp_path, "deu-eng", ["a", " "], ["c", "d"])
    with pytest.raises(BadInput, match=r"tatoeba\.deu-eng\.deu: line 2 is empty"):
        read_tatoeba(tmp_path)
    write_pair(write, tmp_path, "deu-eng", [], ["c"])
    with pytest.raises(BadInput, match=r"tatoeba\.deu-eng\.deu: the file is empty"):
        read_tatoeba(tmp_path)
    (tmp_path / "tatoeba/v1/tatoeba.deu-eng.deu").unlink()
    with pytest.raises(BadInput, match=r"tatoeba\.deu-eng\.deu: no such file"):
        read_tatoeba(tmp_path)
    (tmp_path / "tatoeba/v1/tatoeba.deu-eng.deu").write_bytes(b"a\nb\xff\n")
    with pytest.raises(BadInput, match="line 2 is not UTF-8"):
        read_tatoeba(tmp_path)
    (tmp_path / "tatoeba/v1/tatoeba.deu-eng.deu").unlink()
    (tmp_path / "tatoeba/v1/tatoeba.deu-eng.deu.gz").write_bytes(b"no gzip")
    with pytest.raises(BadInput, match="cannot be read"):
        read_tatoeba(tmp_path)


def test_unknown_language(tmp_path: Path, write: Write) -> None:
    write_pair(write, tmp_path, "xqz1-eng", ["a"], ["b"])
    with pytest.raises(BadInput):
        read_tatoeba(tmp_path)


def test_the_real_files(real_data: Path) -> None:
    bitexts = read_tatoeba(real_data)
    counts = {bitext.first.language: len(bitext.first.sentences) for bitext in bitexts}
    assert len(counts) == len(bitexts) == 38
    assert {bitext.second.language for bitext in bitexts} == {"en"}
    fewer = {"sw": 390, "th": 548, "jv": 205, "ka": 746, "ta": 307, "te": 234}
    assert {language: count for language, count in counts.items() if count != 1000} == fewer
