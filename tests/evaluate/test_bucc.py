from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossling.core.errors import BadInput
from crossling.evaluate.bucc import (
    BuccSplit,
    IdPair,
    best_threshold,
    encode_sides,
    evaluate_bucc,
    mine_candidates,
    read_bucc,
    xtreme_bucc_layer,
)
from crossling.evaluate.significance import METRIC_VALUES, values_with_intervals
from crossling.inference.pooling import normalize_vectors
from crossling.inference.sentence_encoder import Encoder

Write = Callable[[Path, str], Path]


def sentences(seed: int, count: int) -> list[str]:
    rng = random.Random(seed)
    return [" ".join("".join(rng.choices("abcdefgh", k=3)) for _ in range(rng.randint(2, 6))) for _ in range(count)]


def write_split(write: Write, data: Path, split: str, seed: int) -> None:
    """Write ten sentences that occur on both sides, the gold pairs, among others. One of the first side is repeated."""
    shared = sentences(seed, 10)
    first, second = [*shared, *sentences(seed + 1, 6)], [*sentences(seed + 2, 8), *shared]
    first.append(shared[3])
    folder = data / "bucc2018"
    for code, side in (("zh", first), ("en", second)):
        lines = "".join(f"{code}-{row}\t{sentence}\n" for row, sentence in enumerate(side))
        write(folder / f"zh-en.{split}.{code}", lines)
    write(folder / f"zh-en.{split}.gold", "".join(f"zh-{row}\ten-{row + 8}\n" for row in range(10)))


def slow_threshold(items: list[tuple[tuple[str, str], float]], gold: set[tuple[str, str]]) -> float:
    """Follow XTREME's loop. If all candidates are accepted, where the script fails, return the last score."""
    best = threshold = 0.0
    correct = 0
    for accepted, (pair, score) in enumerate(items, start=1):
        correct += pair in gold
        if correct:
            precision, recall = correct / accepted, correct / len(gold)
            f1 = 2 * precision * recall / (precision + recall)
            if f1 > best:
                best = f1
                threshold = (score + items[accepted][1]) / 2 if accepted < len(items) else score
    return threshold


@given(st.lists(st.tuples(st.floats(0.125, 2, width=32), st.booleans()), max_size=30), st.integers(1, 20))
def test_the_threshold_equals_that_of_a_slow_loop(candidates: list[tuple[float, bool]], missing: int) -> None:
    ranked = sorted(candidates, key=lambda candidate: -candidate[0])
    items = [((f"a{row}", f"b{row}"), score) for row, (score, _) in enumerate(ranked)]
    gold = {pair for (pair, _), (_, right) in zip(items, ranked, strict=True) if right}
    gold |= {("none", str(row)) for row in range(missing)}
    assert best_threshold(dict(items), gold) == pytest.approx(slow_threshold(items, gold))


def mine(encoder: Encoder, split: BuccSplit, layers: list[int], pooling: str) -> dict[int, dict[IdPair, float]]:
    return mine_candidates(encoder, encode_sides(encoder, split, layers, pooling), layers)


def test_mteb_is_the_f1_of_the_nearest_sentence(tmp_path: Path, write: Write, encoder: Encoder) -> None:
    f1_score = pytest.importorskip("sklearn.metrics").f1_score
    write_split(write, tmp_path, "dev", 0)
    with pytest.warns(UserWarning, match="no test split"):
        [result] = evaluate_bucc(encoder, tmp_path, [1], pooling="cls")
    rows = {row["protocol"]: row for row in result.rows if row["protocol"].startswith("mteb")}
    assert {(row["metric"], row["layer"], row["pooling"], row["examples"]) for row in rows.values()} == {
        ("f1", encoder.universal_layer, "cls", 10)
    }
    split = read_bucc(tmp_path)[0]["dev"]
    first, second = (dict(side) for side in (split.first, split.second))
    gold = sorted(split.gold, key=lambda pair: [*first].index(pair[0]))
    queries = normalize_vectors(encoder.encode([first[one] for one, _ in gold], pooling="cls"))
    for protocol, candidates in (("mteb", [*second]), ("mteb-v2", [other for _, other in gold])):
        vectors = normalize_vectors(encoder.encode([second[name] for name in candidates], pooling="cls"))
        found = (queries @ vectors.T).argmax(axis=1)
        labels = [candidates.index(other) for _, other in gold]
        expected = f1_score(labels, found, average="weighted", zero_division=0)
        assert rows[protocol]["value"] == pytest.approx(100 * expected)


def test_candidates_exclude_repeated_sentences(tmp_path: Path, write: Write, encoder: Encoder) -> None:
    write_split(write, tmp_path, "dev", 0)
    [splits] = read_bucc(tmp_path)
    found = mine(encoder, splits["dev"], [0, 2], "mean")
    assert list(found) == [0, 2]
    for scores in found.values():
        assert list(scores.values()) == sorted(scores.values(), reverse=True)
        assert not {one for one, _ in scores} & {"zh-3", "zh-16"}
        assert ("zh-0", "en-8") in scores


def test_scores_follow_their_definitions(tmp_path: Path, write: Write, encoder: Encoder) -> None:
    write_split(write, tmp_path, "dev", 0)
    write_split(write, tmp_path, "test", 10)
    dev, test = evaluate_bucc(encoder, tmp_path, [1], pooling="cls")
    assert [(each.rows[0]["split"], each.rows[0]["language"], each.variant) for each in (dev, test)] == [
        ("dev", "zh", "cls"),
        ("test", "zh", "cls"),
    ]
    [splits] = read_bucc(tmp_path)
    threshold = best_threshold(mine(encoder, splits["dev"], [1], "cls")[1], splits["dev"].gold)
    for result in (dev, test):
        scores = mine(encoder, splits[result.rows[0]["split"]], [1], "cls")[1]
        accepted = {pair for pair, score in scores.items() if score >= threshold}
        gold = splits[result.rows[0]["split"]].gold
        rows = {row["metric"]: row for row in result.rows if row["protocol"] == "margin"}
        assert rows["precision"]["value"] == pytest.approx(100 * len(accepted & gold) / len(accepted))
        assert rows["recall"]["value"] == pytest.approx(100 * len(accepted & gold) / 10)
        assert rows["f1"]["value"] == pytest.approx(200 * len(accepted & gold) / (10 + len(accepted)))
        assert (rows["f1"]["layer"], rows["f1"]["pooling"], rows["f1"]["examples"]) == (1, "cls", 10)
        examples = list(result.examples)
        assert [each.id for each in examples] == [f"zh-{row}" for row in range(17)]
        sums = np.sum([each.statistics["margin/f1"][1] for each in examples], axis=0)
        assert METRIC_VALUES["f1"](sums) == pytest.approx(rows["f1"]["value"])
        statistics = np.array([each.statistics["margin/f1"][1] for each in examples])
        statistics = statistics[statistics.any(axis=1)]
        [expected] = values_with_intervals("f1", statistics[:, None])
        value, low, high = (rows["f1"][name] for name in ("value", "low", "high"))
        assert value == expected[0]
        assert (low, high) == pytest.approx(expected[1:], abs=5)  # the same sentences in another order
        assert low < value <= high
        assert {(each.id, each.prediction[1]) for each in examples if each.prediction[1]} == accepted
        assert examples[0].prediction[3] is None
        assert examples[0].statistics["margin/f1"][3] is None


def test_declared_vectors_have_rows_and_thresholds_of_their_own(
    tmp_path: Path, write: Write, declared_encoder: Encoder
) -> None:
    for split, seed in (("dev", 1), ("test", 2)):
        write_split(write, tmp_path, split, seed)
    results = list(evaluate_bucc(declared_encoder, tmp_path, [1]))
    assert [(each.variant, each.parts) for each in results] == [(None, 4), (None, 4), ("declared", 4), ("declared", 4)]
    declared = [row for each in results[2:] for row in each.rows]
    assert {(row["protocol"], row["layer"], row["prompt"]) for row in declared} == {
        (protocol, 3, "the ") for protocol in ("declared", "mteb", "mteb-v2")
    }
    assert not any(row["protocol"].startswith("mteb") for each in results[:2] for row in each.rows)
    [dev] = [splits["dev"] for splits in read_bucc(tmp_path)]
    [scores] = mine(declared_encoder, dev, [3], "declared").values()
    least = best_threshold(scores, dev.gold)
    found = {pair for pair, score in scores.items() if score >= least}
    recall = next(row["value"] for row in declared if (row["split"], row["metric"]) == ("dev", "recall"))
    assert recall == pytest.approx(100 * len(found & dev.gold) / len(dev.gold))


def test_xtreme_uses_mean_pooling_only(tmp_path: Path, write: Write, encoder: Encoder) -> None:
    """The program computes the mean, whatever the script requests."""
    write_split(write, tmp_path, "dev", 0)
    write_split(write, tmp_path, "test", 10)
    for result in evaluate_bucc(encoder, tmp_path, [1]):
        assert {(row["protocol"], row["layer"]) for row in result.rows} == {
            *(("margin", 1), ("xtreme", 2), ("mteb", encoder.universal_layer), ("mteb-v2", encoder.universal_layer))
        }
        assert {row["pooling"] for row in result.rows} == {"mean"}
    for result in evaluate_bucc(encoder, tmp_path, [1, 2], pooling="cls"):
        assert {(row["protocol"], row["layer"]) for row in result.rows} >= {("margin", 1), ("margin", 2)}
        assert "xtreme" not in {row["protocol"] for row in result.rows}
        assert {label.split("/")[0] for each in result.examples for label in each.statistics} == {"margin"}


def test_sentences_without_a_pair_do_not_change_intervals() -> None:
    rng = np.random.default_rng(0)
    predicted, gold = (rng.random((2, 400)) < 0.7).astype(int)
    paired_N3 = np.stack([predicted * gold, predicted, gold], axis=1)
    unpaired_N3 = np.zeros((4000, 3), dtype=int)
    [few], [many] = (
        values_with_intervals("f1", each_N3[:, None])
        for each_N3 in (paired_N3, np.concatenate([paired_N3, unpaired_N3]))
    )
    assert few == pytest.approx(many, abs=0.5)
    assert few[2] - few[1] > 4


def test_a_missing_test_split_gives_a_warning(tmp_path: Path, write: Write, encoder: Encoder) -> None:
    write_split(write, tmp_path, "dev", 0)
    with pytest.warns(UserWarning, match="bucc2018 zh-en: no test split"):
        [result] = evaluate_bucc(encoder, tmp_path, [1])
    assert {row["split"] for row in result.rows} == {"dev"}
    write_split(write, tmp_path, "test", 10)
    (tmp_path / "bucc2018/zh-en.test.gold").unlink()
    with pytest.warns(UserWarning, match=r"zh-en\.test\.gold: no such file; skipped the test split"):
        assert [list(splits) for splits in read_bucc(tmp_path)] == [["dev"]]


def test_layers_are_those_of_xtreme() -> None:
    """Index 7 of the last 12 blocks."""
    assert [xtreme_bucc_layer(layers) for layers in (12, 24, 16, 3)] == [8, 20, 12, 2]


def test_invalid_files_are_refused(tmp_path: Path, write: Write, encoder: Encoder) -> None:
    with pytest.raises(BadInput, match="no such folder"):
        read_bucc(tmp_path)
    (tmp_path / "bucc2018").mkdir()
    with pytest.raises(BadInput, match="no files named"):
        read_bucc(tmp_path)
    write_split(write, tmp_path, "test", 0)
    with pytest.raises(BadInput, match="zh-en has no dev files"):
        read_bucc(tmp_path)
    write_split(write, tmp_path, "dev", 0)
    with pytest.raises(BadInput, match="no files of language 'de'"):
        list(evaluate_bucc(encoder, tmp_path, [1], ["de"]))
    write(tmp_path / "bucc2018/zh-en.dev.gold", "zh-1\ten-99\n")
    with pytest.raises(BadInput, match=r"zh-en\.dev\.gold: pair zh-1 en-99: no sentence has this id"):
        read_bucc(tmp_path)
    write(tmp_path / "bucc2018/zh-en.dev.zh", "zh-1\ta\nzh-2\n")
    with pytest.raises(BadInput, match=r"zh-en\.dev\.zh: line 2: expected `id TAB sentence`"):
        read_bucc(tmp_path)
    (tmp_path / "bucc2018/zh-en.dev.gold").unlink()
    write_split(write, tmp_path / "other", "dev", 0)
    (tmp_path / "other/bucc2018/zh-en.dev.gold").unlink()
    with pytest.raises(BadInput, match=r"zh-en\.dev\.gold: no such file"):
        read_bucc(tmp_path / "other")


def test_the_real_files_have_the_expected_counts(real_data: Path) -> None:
    [splits] = read_bucc(real_data)
    assert list(splits) == ["dev"]
    dev = splits["dev"]
    assert (dev.languages, len(dev.first), len(dev.second), len(dev.gold)) == (("zh", "en"), 8624, 13589, 257)
