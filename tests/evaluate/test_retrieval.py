from __future__ import annotations

import gzip
import random
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossling.core.errors import BadInput
from crossling.evaluate import retrieval
from crossling.evaluate.retrieval import (
    evaluate_flores,
    evaluate_tatoeba,
    f1_by_label,
    nearest_in_both_directions,
    retrieval_accuracy,
    xtreme_tatoeba_layer,
)
from crossling.evaluate.retrieval_pairs import read_tatoeba
from crossling.evaluate.significance import METRIC_VALUES, TaskResult
from crossling.inference.pooling import normalize_vectors
from crossling.inference.sentence_encoder import Encoder
from crossling.tasks.bootstrap import bootstrap_interval
from crossling.tasks.scores import ScoreRow

Write = Callable[[Path, str], Path]


def sentences(seed: int, count: int = 12) -> list[str]:
    rng = random.Random(seed)
    return [" ".join("".join(rng.choices("abcdefgh", k=3)) for _ in range(rng.randint(1, 6))) for _ in range(count)]


def write_pair(write: Write, data: Path, pair: str, first: Sequence[str], second: Sequence[str]) -> None:
    for code, side in zip(pair.split("-"), (first, second), strict=True):
        write(data / "tatoeba/v1" / f"tatoeba.{pair}.{code}", "".join(f"{line}\n" for line in side))


def rows_of(results: Iterable[TaskResult]) -> list[ScoreRow]:
    return [row for result in results for row in result.rows]


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


@given(st.integers(0, 10_000), st.integers(1, 12), st.integers(1, 12), st.integers(1, 5))
def test_nearest_in_blocks_equals_brute_force(seed: int, first: int, second: int, block: int) -> None:
    rng = np.random.default_rng(seed)
    one, other = (normalize_vectors(rng.integers(-2, 3, size=(rows, 3)).astype(np.float32)) for rows in (first, second))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(retrieval, "QUERIES_PER_BLOCK", block)
        forward, backward = nearest_in_both_directions(one, other)
    cosine = one @ other.T
    np.testing.assert_allclose(cosine[np.arange(first), forward], cosine.max(axis=1), atol=1e-6)
    np.testing.assert_allclose(cosine[backward, np.arange(second)], cosine.max(axis=0), atol=1e-6)


def test_the_first_of_equal_vectors_is_nearest() -> None:
    vectors = np.eye(3, dtype=np.float32)[[0, 0, 1]]
    forward, backward = nearest_in_both_directions(vectors, vectors[[2, 0, 1]])
    assert (forward.tolist(), backward.tolist()) == ([1, 1, 0], [2, 0, 0])


def test_random_vectors_score_at_chance() -> None:
    rng = np.random.default_rng(0)
    names = [str(row) for row in range(50)]
    values = [retrieval_accuracy(rng.normal(size=(50, 16)), rng.normal(size=(50, 16)), names) for _ in range(200)]
    assert np.mean(values) == pytest.approx(100 / 50, abs=0.5)


def test_equal_sentences_are_one_candidate() -> None:
    vectors = np.eye(3)[[0, 1, 0, 2]]
    assert retrieval_accuracy(vectors, vectors, ["a", "b", "a", "c"]) == 100
    assert retrieval_accuracy(vectors[[2, 1, 3, 0]], vectors, ["a", "b", "a", "c"]) == 50


def test_scores_equal_brute_force(tmp_path: Path, write: Write, encoder: Encoder) -> None:
    first, second = sentences(1), sentences(2)
    write_pair(write, tmp_path, "qaa-qab", first, second)
    write_pair(write, tmp_path, "swh-eng", second, first)
    rows = [row for row in rows_of(evaluate_tatoeba(encoder, tmp_path)) if row["protocol"] == "sweep"]
    assert len(rows) == 2 * 2 * 4
    vectors = {sentence: encoder.encode_layers([sentence])[:, 0] for sentence in (*first, *second)}
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
        "version": 1,
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


def test_flores_is_scored_as_tatoeba(tmp_path: Path, write: Write, encoder: Encoder) -> None:
    first, second = sentences(1), sentences(2)
    write_pair(write, tmp_path, "cmn-eng", first, second)
    for code, side in (("zho_Hant", first), ("eng_Latn", second), ("deu_Latn", second)):
        write(tmp_path / f"flores200_dataset/devtest/{code}.devtest", "".join(f"{line}\n" for line in side))
    expected = {(row["direction"], row["layer"]): row["value"] for row in rows_of(evaluate_tatoeba(encoder, tmp_path))}
    rows = rows_of(evaluate_flores(encoder, tmp_path, ["zh-Hant"]))
    assert {(row["task"], row["language"], row["split"]) for row in rows} == {("flores", "zh-Hant", "devtest")}
    assert {row["protocol"] for row in rows} == {"sweep", "mteb"}
    for row in rows:
        assert row["protocol"] == "mteb" or row["value"] == expected[row["direction"], row["layer"]]
    direct = rows_of(evaluate_flores(encoder, tmp_path, ["de-zh-Hant"]))
    assert {(row["language"], row["direction"]) for row in direct} == {
        ("de-zh-Hant", "de-zh-Hant"),
        ("de-zh-Hant", "zh-Hant-de"),
    }
    write(tmp_path / "flores200_dataset/devtest/eng_Latn.devtest", "One.\n")
    with pytest.raises(BadInput, match=r"sentences, but .* has 1\. Expected the same"):
        rows_of(evaluate_flores(encoder, tmp_path))


def test_each_sentence_is_encoded_once(tmp_path: Path, write: Write, encoder: Encoder) -> None:
    sides = {code: sentences(seed) for seed, code in enumerate(["qaa", "qab", "qac"])}
    for pair in ("qaa-qab", "qaa-qac", "qab-qac"):
        first, second = pair.split("-")
        write_pair(write, tmp_path, pair, sides[first], sides[second])
    encoded: list[str] = []
    encode_layers = encoder.encode_layers

    def spy(texts: Sequence[str], pooling: str = "mean", **_: object) -> np.ndarray:
        encoded.extend(texts)
        return encode_layers(texts, pooling)

    encoder.encode_layers = spy  # type: ignore[method-assign]
    list(evaluate_tatoeba(encoder, tmp_path))
    assert sorted(encoded) == sorted(sentence for side in sides.values() for sentence in side)


@given(st.integers(0, 10_000), st.integers(1, 30), st.booleans())
def test_mteb_f1_is_that_of_scikit_learn(seed: int, lines: int, repeated: bool) -> None:
    """MTEB's BitextMiningEvaluator: the weighted F1 of scikit-learn, with each line as its own class."""
    sklearn = pytest.importorskip("sklearn.metrics")
    rng = np.random.default_rng(seed)
    gold = rng.integers(lines, size=lines) if repeated else np.arange(lines)
    found = np.where(rng.random(lines) < 0.5, gold, rng.integers(2 * lines, size=lines))
    value = METRIC_VALUES["f1"](f1_by_label(found[None], gold).sum(axis=0))
    expected = sklearn.f1_score(gold, found, average="weighted", zero_division=0)
    assert value.tolist() == pytest.approx([100 * expected])


def test_mteb_rows_are_at_the_universal_layer_in_both_directions(
    tmp_path: Path, write: Write, encoder: Encoder
) -> None:
    foreign, english = sentences(5, 6), sentences(6, 6)
    write_pair(write, tmp_path, "swh-eng", foreign, english)
    rows = [row for row in rows_of(evaluate_tatoeba(encoder, tmp_path, pooling="cls")) if row["protocol"] == "mteb"]
    assert [(row["direction"], row["metric"]) for row in rows] == [("xx-en", "f1"), ("en-xx", "f1")]
    vectors = {sentence: encoder.encode([sentence], pooling="cls")[0] for sentence in (*foreign, *english)}
    for row, (query, candidate) in zip(rows, ((foreign, english), (english, foreign)), strict=True):
        found = [max(range(6), key=lambda j: cosine(vectors[one], vectors[candidate[j]])) for one in query]
        f1 = [2 / (1 + found.count(line)) if found[line] == line else 0 for line in range(6)]
        assert (row["layer"], row["value"]) == (encoder.universal_layer, pytest.approx(100 * np.mean(f1)))


def test_declared_vectors_have_rows_of_their_own(tmp_path: Path, write: Write, declared_encoder: Encoder) -> None:
    foreign, english = sentences(5, 8), sentences(6, 8)
    write_pair(write, tmp_path, "swh-eng", foreign, english)
    results = list(evaluate_tatoeba(declared_encoder, tmp_path))
    assert [(each.variant, each.parts) for each in results] == [
        *(("xx-en", 4), ("en-xx", 4)),
        *(("xx-en.declared", 4), ("en-xx.declared", 4)),
    ]
    rows = rows_of(results)
    last = declared_encoder.num_layers
    assert {(row["protocol"], row["pooling"], row.get("prompt")) for row in rows} == {
        *(("sweep", "mean", None), ("xtreme", "mean", None)),
        *(("declared", "declared", "the "), ("mteb", "declared", "the ")),  # MTEB uses what the folder declares
    }
    vectors = [normalize_vectors(declared_encoder.encode(side)) for side in (foreign, english)]
    for direction, query, candidate in (("xx-en", *vectors), ("en-xx", *vectors[::-1])):
        found = np.argmax(query @ candidate.T, axis=1)
        own = {row["protocol"]: row for row in rows if row["direction"] == direction and row["layer"] == last}
        assert own["declared"]["value"] == pytest.approx(100 * np.mean(found == np.arange(8)))
        f1 = METRIC_VALUES["f1"](f1_by_label(found[None], np.arange(len(found))).sum(axis=0))[0]
        assert own["mteb"]["value"] == pytest.approx(f1)
        [result] = [each for each in results if each.variant == f"{direction}.declared"]
        examples = list(result.examples)
        assert [each.prediction for each in examples] == [[None] * last + [number + 1] for number in found.tolist()]
        assert examples[0].statistics["declared/accuracy"][:last] == [None] * last
    [before, after] = (rows_of(evaluate_tatoeba(declared_encoder, tmp_path, pooling="cls")) for _ in range(2))
    assert {row["protocol"] for row in before} == {"sweep"}
    declared_encoder.prompt = "house "
    assert {row.get("prompt") for row in rows_of(evaluate_tatoeba(declared_encoder, tmp_path))} == {"house "}
    assert before == after


def test_truncated_vectors_have_rows_by_dimension(tmp_path: Path, write: Write, encoder: Encoder) -> None:
    first, second = sentences(1), sentences(2)
    write_pair(write, tmp_path, "swh-eng", first, second)
    results = list(evaluate_tatoeba(encoder, tmp_path, dimensions=[4, 8]))
    assert {result.parts for result in results} == {len(results)} == {6}
    assert len({result.variant for result in results}) == 6
    whole = list(evaluate_tatoeba(encoder, tmp_path))
    assert [row for row in rows_of(results) if "dimension" not in row] == rows_of(whole)
    rows = [row for row in rows_of(results) if "dimension" in row]
    assert [(row["dimension"], row["protocol"], row["direction"]) for row in rows] == [
        (m, f"sweep-{m}", direction) for m in (4, 8) for direction in ("xx-en", "en-xx")
    ]
    assert {row["layer"] for row in rows} == {encoder.universal_layer}
    for row in rows:
        one, other = (encoder.encode(side)[:, : row["dimension"]] for side in (first, second))
        sides = (one, other, second) if row["direction"] == "xx-en" else (other, one, first)
        assert row["value"] == pytest.approx(retrieval_accuracy(*sides))
    with pytest.raises(BadInput, match=r"dimensions=4,16: the vectors of .* have 16\. Give smaller numbers"):
        list(evaluate_tatoeba(encoder, tmp_path, dimensions=[4, 16]))


def test_declared_vectors_are_truncated_too(tmp_path: Path, write: Write, declared_encoder: Encoder) -> None:
    write_pair(write, tmp_path, "swh-eng", sentences(1), sentences(2))
    rows = rows_of(evaluate_tatoeba(declared_encoder, tmp_path, dimensions=[4]))
    found = {row["protocol"] for row in rows if "dimension" in row}
    assert found == {"sweep-4", "declared-4"}


def test_xtreme_equals_its_script(tmp_path: Path, write: Write, encoder: Encoder) -> None:
    """English queries search all foreign lines, duplicates included. The first of equal lines is found."""
    foreign, english = sentences(3, 30), sentences(4, 30)
    foreign[7] = foreign[20] = foreign[2]
    for line in range(12, 24):  # correct pairs
        foreign[line] = english[line]
    write_pair(write, tmp_path, "swh-eng", foreign, english)
    results = list(evaluate_tatoeba(encoder, tmp_path))
    [row] = [row for row in rows_of(results) if row["protocol"] == "xtreme"]
    assert (row["direction"], row["language"], row["layer"], row["pooling"]) == ("en-xx", "sw", 2, "mean")
    vectors = [[encoder.encode_layers([sentence])[2, 0] for sentence in side] for side in (foreign, english)]
    found = [int(np.argmax([round(cosine(query, other), 6) for other in vectors[0]])) for query in vectors[1]]
    correct = [int(number == line) for line, number in enumerate(found)]
    assert row["value"] == pytest.approx(100 * np.mean(correct))
    assert 0 < row["value"] < 100
    [result] = [result for result in results if result.variant == "en-xx"]
    examples = list(result.examples)
    assert [each.prediction[2] for each in examples] == [number + 1 for number in found]
    assert [each.statistics["xtreme/accuracy"][2] for each in examples] == [[each, 1] for each in correct]
    assert not [
        row for row in rows_of(evaluate_tatoeba(encoder, tmp_path, pooling="cls")) if row["protocol"] == "xtreme"
    ]


def test_xtreme_finds_a_repeated_sentence_once(tmp_path: Path, write: Write, encoder: Encoder) -> None:
    same = ["a b", "c d", "a b", "e f g"]
    write_pair(write, tmp_path, "swh-eng", same, same)
    rows = {row["protocol"]: row["value"] for row in rows_of(evaluate_tatoeba(encoder, tmp_path)) if row["layer"] == 2}
    assert rows == {"sweep": 100, "xtreme": 75, "mteb": pytest.approx(200 / 3)}


def test_layers_are_those_of_xtreme() -> None:
    """Index 7 of 12 blocks and 13 of 24; the embeddings are layer 0."""
    assert [xtreme_tatoeba_layer(layers) for layers in (12, 24, 3, 6, 36)] == [8, 14, 2, 4, 24]


def test_scores_are_sums_of_example_statistics(tmp_path: Path, write: Write, encoder: Encoder) -> None:
    write_pair(write, tmp_path, "swh-eng", sentences(5), [*sentences(5)[:6], *sentences(6)[6:]])
    write_pair(write, tmp_path, "qaa-qab", sentences(7), sentences(8))
    found = list(evaluate_tatoeba(encoder, tmp_path, pooling="cls"))
    assert [each.variant for each in found] == ["qaa-qab.cls", "qab-qaa.cls", "xx-en.cls", "en-xx.cls"]
    for each in found:
        sums = np.sum([example.statistics["sweep/accuracy"] for example in each.examples], axis=0)
        swept = [row["value"] for row in each.rows if row["protocol"] == "sweep"]
        np.testing.assert_allclose(METRIC_VALUES["accuracy"](sums), swept)


def test_intervals_are_bootstrapped_over_the_examples(tmp_path: Path, write: Write, encoder: Encoder) -> None:
    write_pair(write, tmp_path, "swh-eng", sentences(5, 40), [*sentences(5, 40)[:20], *sentences(6, 40)[20:]])
    for each in evaluate_tatoeba(encoder, tmp_path):
        examples = list(each.examples)
        swept = [row for row in each.rows if row["metric"] == "accuracy"]
        assert {row["protocol"] for row in swept} == ({"sweep", "xtreme"} if each.variant == "en-xx" else {"sweep"})
        for row in swept:
            label = f"{row['protocol']}/accuracy"
            statistics = np.array([example.statistics[label][row["layer"]] for example in examples])
            assert (row["low"], row["high"]) == pytest.approx(bootstrap_interval(METRIC_VALUES["accuracy"], statistics))
            assert row["low"] < row["value"] < row["high"]


def test_pairs_are_grouped_by_memory(
    tmp_path: Path, write: Write, encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed, code in enumerate(("deu", "fra", "swh")):
        write_pair(write, tmp_path, f"{code}-eng", sentences(seed), sentences(9))
    whole = rows_of(evaluate_tatoeba(encoder, tmp_path))
    sizes: list[int] = []
    encode_layers = encoder.encode_layers

    def spy(texts: Sequence[str], pooling: str = "mean", **_: object) -> np.ndarray:
        sizes.append(len(texts))
        return encode_layers(texts, pooling)

    encoder.encode_layers = spy  # type: ignore[method-assign]
    monkeypatch.setattr(retrieval, "MAX_VECTOR_BYTES", 40 * 4 * 16 * 4)
    assert rows_of(evaluate_tatoeba(encoder, tmp_path)) == whole
    assert sizes == [36, 24]


def test_languages_select_pairs(tmp_path: Path, write: Write, encoder: Encoder) -> None:
    for pair in ("deu-eng", "swh-eng", "qaa-qab"):
        write_pair(write, tmp_path, pair, sentences(1), sentences(2))
    names = {row["language"] for row in rows_of(evaluate_tatoeba(encoder, tmp_path, ["swh", "qab"]))}
    assert names == {"sw", "qaa-qab"}
    with pytest.raises(BadInput, match=r"tatoeba: no files of language 'th'"):
        list(evaluate_tatoeba(encoder, tmp_path, ["th", "sw"]))


def test_compressed_files_and_unusual_line_ends_are_read(tmp_path: Path) -> None:
    folder = tmp_path / "tatoeba/v1"
    folder.mkdir(parents=True)
    (folder / "tatoeba.deu-eng.deu").write_bytes("eins\u2028zwei\r\ndrei".encode())
    (folder / "tatoeba.deu-eng.eng.gz").write_bytes(gzip.compress(b"one\ntwo\n"))
    [pair] = read_tatoeba(tmp_path)
    assert (pair.first.language, pair.first.sentences) == ("de", ["eins\u2028zwei", "drei"])
    assert (pair.second.language, pair.second.sentences) == ("en", ["one", "two"])


def test_invalid_files_are_refused(tmp_path: Path, write: Write) -> None:
    with pytest.raises(BadInput, match="no such folder"):
        read_tatoeba(tmp_path)
    (tmp_path / "tatoeba/v1").mkdir(parents=True)
    with pytest.raises(BadInput, match="no files named"):
        read_tatoeba(tmp_path)
    write_pair(write, tmp_path, "deu-eng", ["a", "b"], ["c"])
    with pytest.raises(BadInput, match=r"deu-eng: 2 lines in \.deu but 1 in \.eng"):
        read_tatoeba(tmp_path)
    write_pair(write, tmp_path, "deu-eng", ["a", " "], ["c", "d"])
    with pytest.raises(BadInput, match=r"tatoeba\.deu-eng\.deu: line 2: empty"):
        read_tatoeba(tmp_path)
    write_pair(write, tmp_path, "deu-eng", [], ["c"])
    with pytest.raises(BadInput, match=r"tatoeba\.deu-eng\.deu: the file is empty"):
        read_tatoeba(tmp_path)
    (tmp_path / "tatoeba/v1/tatoeba.deu-eng.deu").unlink()
    with pytest.raises(BadInput, match=r"tatoeba\.deu-eng\.deu: no such file"):
        read_tatoeba(tmp_path)
    (tmp_path / "tatoeba/v1/tatoeba.deu-eng.deu").write_bytes(b"a\nb\xff\n")
    with pytest.raises(BadInput, match="line 2: not UTF-8"):
        read_tatoeba(tmp_path)
    (tmp_path / "tatoeba/v1/tatoeba.deu-eng.deu").unlink()
    (tmp_path / "tatoeba/v1/tatoeba.deu-eng.deu.gz").write_bytes(b"no gzip")
    with pytest.raises(BadInput, match="cannot be read"):
        read_tatoeba(tmp_path)


def test_unknown_languages_are_refused(tmp_path: Path, write: Write) -> None:
    write_pair(write, tmp_path, "xqz1-eng", ["a"], ["b"])
    with pytest.raises(BadInput):
        read_tatoeba(tmp_path)


def test_the_real_files_have_the_expected_counts(real_data: Path) -> None:
    pairs = read_tatoeba(real_data)
    counts = {pair.first.language: len(pair.first.sentences) for pair in pairs}
    assert len(counts) == len(pairs) == 38
    assert {pair.second.language for pair in pairs} == {"en"}
    fewer = {"sw": 390, "th": 548, "jv": 205, "ka": 746, "ta": 307, "te": 234}
    assert {language: count for language, count in counts.items() if count != 1000} == fewer
