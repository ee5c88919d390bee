from __future__ import annotations

import gzip
import random
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossling.errors import BadInput
from crossling.evaluate import retrieval
from crossling.evaluate.cosine import unit
from crossling.evaluate.encode import Encoder
from crossling.evaluate.measured import VALUES, Measured
from crossling.evaluate.retrieval import accuracy, nearest_both, read_tatoeba, tatoeba, xtreme_layer
from crossling.evaluate.scores import Row
from crossling.metrics.bootstrap import interval

Write = Callable[[Path, str], Path]


def sentences(seed: int, count: int = 12) -> list[str]:
    rng = random.Random(seed)
    return [" ".join("".join(rng.choices("abcdefgh", k=3)) for _ in range(rng.randint(1, 6))) for _ in range(count)]


def write_pair(write: Write, data: Path, pair: str, first: Sequence[str], second: Sequence[str]) -> None:
    for code, side in zip(pair.split("-"), (first, second), strict=True):
        write(data / "tatoeba/v1" / f"tatoeba.{pair}.{code}", "".join(f"{line}\n" for line in side))


def rows_of(measured: Iterable[Measured]) -> list[Row]:
    return [row for each in measured for row in each.rows]


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


@given(st.integers(0, 10_000), st.integers(1, 12), st.integers(1, 12), st.integers(1, 5))
def test_nearest_both_is_brute_force_in_blocks_of_any_size(seed: int, first: int, second: int, block: int) -> None:
    rng = np.random.default_rng(seed)
    one, other = (unit(rng.integers(-2, 3, size=(rows, 3)).astype(np.float32)) for rows in (first, second))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(retrieval, "QUERIES_AT_ONCE", block)
        ahead, back = nearest_both(one, other)
    cosine = one @ other.T
    np.testing.assert_allclose(cosine[np.arange(first), ahead], cosine.max(axis=1), atol=1e-6)
    np.testing.assert_allclose(cosine[back, np.arange(second)], cosine.max(axis=0), atol=1e-6)


def test_of_equals_the_first_is_nearest() -> None:
    vectors = np.eye(3, dtype=np.float32)[[0, 0, 1]]
    ahead, back = nearest_both(vectors, vectors[[2, 0, 1]])
    assert (ahead.tolist(), back.tolist()) == ([1, 1, 0], [2, 0, 0])


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
    rows = [row for row in rows_of(tatoeba(encoder, tmp_path)) if row["protocol"] == "sweep"]
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
    assert all(isinstance(rows[0].pop(name), float) for name in ("value", "low", "high"))
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

    def spy(asked: Sequence[str], pooling: str = "mean", **_: object) -> np.ndarray:
        seen.extend(asked)
        return pooled(asked, pooling)

    encoder.pooled = spy  # type: ignore[method-assign]
    list(tatoeba(encoder, tmp_path))
    assert sorted(seen) == sorted(sentence for side in sides.values() for sentence in side)


def test_xtreme_is_its_script(tmp_path: Path, write: Write, encoder: Encoder) -> None:
    """English asks, an index of all foreign lines, duplicates included, answers with the first of the nearest."""
    foreign, english = sentences(3, 30), sentences(4, 30)
    foreign[7] = foreign[20] = foreign[2]
    for line in range(12, 24):  # so that some are found
        foreign[line] = english[line]
    write_pair(write, tmp_path, "swh-eng", foreign, english)
    found = list(tatoeba(encoder, tmp_path))
    [row] = [row for row in rows_of(found) if row["protocol"] == "xtreme"]
    assert (row["direction"], row["language"], row["layer"], row["pooling"]) == ("en-xx", "sw", 2, "mean")
    vectors = [[encoder.pooled([sentence])[2, 0] for sentence in side] for side in (foreign, english)]
    answers = [int(np.argmax([round(cosine(asked, other), 6) for other in vectors[0]])) for asked in vectors[1]]
    right = [int(answer == line) for line, answer in enumerate(answers)]
    assert row["value"] == pytest.approx(100 * np.mean(right))
    assert 0 < row["value"] < 100
    [kept] = [each for each in found if each.variant == "en-xx"]
    examples = list(kept.examples)
    assert [each.prediction[2] for each in examples] == [answer + 1 for answer in answers]
    assert [each.statistics["xtreme/accuracy"][2] for each in examples] == [[each, 1] for each in right]
    assert not [row for row in rows_of(tatoeba(encoder, tmp_path, pooling="cls")) if row["protocol"] == "xtreme"]


def test_xtreme_finds_a_repeated_sentence_once(tmp_path: Path, write: Write, encoder: Encoder) -> None:
    same = ["a b", "c d", "a b", "e f g"]
    write_pair(write, tmp_path, "swh-eng", same, same)
    rows = {row["protocol"]: row["value"] for row in rows_of(tatoeba(encoder, tmp_path)) if row["layer"] == 2}
    assert rows == {"sweep": 100, "xtreme": 75}


def test_xtreme_layers() -> None:
    """Counted with the embeddings as 0: index 7 of 12 blocks, 13 of 24."""
    assert [xtreme_layer(layers) for layers in (12, 24, 3, 6, 36)] == [8, 14, 2, 4, 24]


def test_scores_are_the_sums_of_what_examples_add(tmp_path: Path, write: Write, encoder: Encoder) -> None:
    write_pair(write, tmp_path, "swh-eng", sentences(5), [*sentences(5)[:6], *sentences(6)[6:]])
    write_pair(write, tmp_path, "qaa-qab", sentences(7), sentences(8))
    found = list(tatoeba(encoder, tmp_path, pooling="cls"))
    assert [each.variant for each in found] == ["qaa-qab.cls", "qab-qaa.cls", "xx-en.cls", "en-xx.cls"]
    for each in found:
        sums = np.sum([example.statistics["sweep/accuracy"] for example in each.examples], axis=0)
        np.testing.assert_allclose(VALUES["accuracy"](sums), [row["value"] for row in each.rows])


def test_intervals_are_those_of_the_examples(tmp_path: Path, write: Write, encoder: Encoder) -> None:
    write_pair(write, tmp_path, "swh-eng", sentences(5, 40), [*sentences(5, 40)[:20], *sentences(6, 40)[20:]])
    for each in tatoeba(encoder, tmp_path):
        examples = list(each.examples)
        assert {row["protocol"] for row in each.rows} == ({"sweep", "xtreme"} if each.variant == "en-xx" else {"sweep"})
        for row in each.rows:
            label = f"{row['protocol']}/accuracy"
            outcomes = np.array([example.statistics[label][row["layer"]] for example in examples])
            assert (row["low"], row["high"]) == pytest.approx(interval(VALUES["accuracy"], outcomes))
            assert row["low"] < row["value"] < row["high"]


def test_vectors_of_as_many_pairs_as_fit(
    tmp_path: Path, write: Write, encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed, code in enumerate(("deu", "fra", "swh")):
        write_pair(write, tmp_path, f"{code}-eng", sentences(seed), sentences(9))
    whole = rows_of(tatoeba(encoder, tmp_path))
    asked: list[int] = []
    pooled = encoder.pooled

    def spy(some: Sequence[str], pooling: str = "mean", **_: object) -> np.ndarray:
        asked.append(len(some))
        return pooled(some, pooling)

    encoder.pooled = spy  # type: ignore[method-assign]
    monkeypatch.setattr(retrieval, "MEMORY", 40 * 4 * 16 * 4)
    assert rows_of(tatoeba(encoder, tmp_path)) == whole
    assert asked == [36, 24]


def test_languages(tmp_path: Path, write: Write, encoder: Encoder) -> None:
    for pair in ("deu-eng", "swh-eng", "qaa-qab"):
        write_pair(write, tmp_path, pair, sentences(1), sentences(2))
    names = {row["language"] for row in rows_of(tatoeba(encoder, tmp_path, ["swh", "qab"]))}
    assert names == {"sw", "qaa-qab"}
    with pytest.raises(BadInput, match=r"tatoeba: no files of language 'th'"):
        list(tatoeba(encoder, tmp_path, ["th", "sw"]))


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
