from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossling.errors import BadInput
from crossling.evaluate.bucc import best_threshold, bucc, candidates, read_bucc, xtreme_layer
from crossling.evaluate.encode import Encoder
from crossling.evaluate.measured import VALUES, numbers

Write = Callable[[Path, str], Path]


def sentences(seed: int, count: int) -> list[str]:
    rng = random.Random(seed)
    return [" ".join("".join(rng.choices("abcdefgh", k=3)) for _ in range(rng.randint(2, 6))) for _ in range(count)]


def write_split(write: Write, data: Path, split: str, seed: int) -> None:
    """Ten sentences that both sides have, the partners, among others; two of the first side are repeated."""
    shared = sentences(seed, 10)
    first, second = [*shared, *sentences(seed + 1, 6)], [*sentences(seed + 2, 8), *shared]
    first.append(shared[3])
    folder = data / "bucc2018"
    for code, side in (("zh", first), ("en", second)):
        lines = "".join(f"{code}-{row}\t{sentence}\n" for row, sentence in enumerate(side))
        write(folder / f"zh-en.{split}.{code}", lines)
    write(folder / f"zh-en.{split}.gold", "".join(f"zh-{row}\ten-{row + 8}\n" for row in range(10)))


def slow_threshold(items: list[tuple[tuple[str, str], float]], gold: set[tuple[str, str]]) -> float:
    """XTREME's loop; it fails where all candidates are wanted, here the last score is the threshold then."""
    best = threshold = 0.0
    correct = 0
    for taken, (pair, score) in enumerate(items, start=1):
        correct += pair in gold
        if correct:
            precision, recall = correct / taken, correct / len(gold)
            f1 = 2 * precision * recall / (precision + recall)
            if f1 > best:
                best = f1
                threshold = (score + items[taken][1]) / 2 if taken < len(items) else score
    return threshold


@given(st.lists(st.tuples(st.floats(0.125, 2, width=32), st.booleans()), max_size=30), st.integers(1, 20))
def test_the_threshold_is_that_of_the_loop(drawn: list[tuple[float, bool]], missing: int) -> None:
    ranked = sorted(drawn, key=lambda each: -each[0])
    items = [((f"a{row}", f"b{row}"), score) for row, (score, _) in enumerate(ranked)]
    gold = {pair for (pair, _), (_, right) in zip(items, ranked, strict=True) if right}
    gold |= {("none", str(row)) for row in range(missing)}
    assert best_threshold(dict(items), gold) == pytest.approx(slow_threshold(items, gold))


def test_candidates_leave_out_what_is_repeated(tmp_path: Path, write: Write, encoder: Encoder) -> None:
    write_split(write, tmp_path, "dev", 0)
    [splits] = read_bucc(tmp_path)
    found = candidates(encoder, splits["dev"], [0, 2], "mean")
    assert list(found) == [0, 2]
    for scores in found.values():
        assert list(scores.values()) == sorted(scores.values(), reverse=True)
        assert not {one for one, _ in scores} & {"zh-3", "zh-16"}
        assert ("zh-0", "en-8") in scores


def test_scores(tmp_path: Path, write: Write, encoder: Encoder) -> None:
    write_split(write, tmp_path, "dev", 0)
    write_split(write, tmp_path, "test", 10)
    dev, test = bucc(encoder, tmp_path, [1], pooling="cls")
    assert (dev.split, test.split, dev.language, dev.variant) == ("dev", "test", "zh", "cls")
    [splits] = read_bucc(tmp_path)
    threshold = best_threshold(candidates(encoder, splits["dev"], [1], "cls")[1], splits["dev"].gold)
    for measured in (dev, test):
        scores = candidates(encoder, splits[measured.split], [1], "cls")[1]
        taken = {pair for pair, score in scores.items() if score >= threshold}
        gold = splits[measured.split].gold
        rows = {row["metric"]: row for row in measured.rows if row["protocol"] == "margin"}
        assert rows["precision"]["value"] == pytest.approx(100 * len(taken & gold) / len(taken))
        assert rows["recall"]["value"] == pytest.approx(100 * len(taken & gold) / 10)
        assert rows["f1"]["value"] == pytest.approx(200 * len(taken & gold) / (10 + len(taken)))
        assert (rows["f1"]["layer"], rows["f1"]["pooling"], rows["f1"]["examples"]) == (1, "cls", 10)
        examples = list(measured.examples)
        assert [each.id for each in examples] == [f"zh-{row}" for row in range(17)]
        sums = np.sum([each.statistics["margin/f1"][1] for each in examples], axis=0)
        assert VALUES["f1"](sums) == pytest.approx(rows["f1"]["value"])
        told = np.array([each.statistics["margin/f1"][1] for each in examples])
        told = told[told.any(axis=1)]
        [expected] = numbers("f1", told[:, None])
        value, low, high = (rows["f1"][name] for name in ("value", "low", "high"))
        assert value == expected[0]
        assert (low, high) == pytest.approx(expected[1:], abs=5)  # the same sentences in another order
        assert low < value <= high
        assert {(each.id, each.prediction[1]) for each in examples if each.prediction[1]} == taken
        assert examples[0].prediction[3] is None
        assert examples[0].statistics["margin/f1"][3] is None


def test_xtreme_is_the_mean_alone(tmp_path: Path, write: Write, encoder: Encoder) -> None:
    """Its program takes the mean whatever its script asks for."""
    write_split(write, tmp_path, "dev", 0)
    write_split(write, tmp_path, "test", 10)
    for measured in bucc(encoder, tmp_path, [1]):
        assert {(row["protocol"], row["layer"]) for row in measured.rows} == {("margin", 1), ("xtreme", 2)}
        assert {row["pooling"] for row in measured.rows} == {"mean"}
    for measured in bucc(encoder, tmp_path, [1, 2], pooling="cls"):
        assert {(row["protocol"], row["layer"]) for row in measured.rows} == {("margin", 1), ("margin", 2)}
        assert {label.split("/")[0] for each in measured.examples for label in each.statistics} == {"margin"}


def test_sentences_in_no_pair_do_not_change_an_interval() -> None:
    rng = np.random.default_rng(0)
    found, wanted = (rng.random((2, 400)) < 0.7).astype(int)
    told_N3 = np.stack([found * wanted, found, wanted], axis=1)
    silent_N3 = np.zeros((4000, 3), dtype=int)
    [few], [many] = (numbers("f1", each_N3[:, None]) for each_N3 in (told_N3, np.concatenate([told_N3, silent_N3])))
    assert few == pytest.approx(many, abs=0.5)
    assert few[2] - few[1] > 4


def test_dev_alone_is_said(tmp_path: Path, write: Write, encoder: Encoder) -> None:
    write_split(write, tmp_path, "dev", 0)
    with pytest.warns(UserWarning, match="bucc2018 zh-en: only dev is here"):
        [measured] = bucc(encoder, tmp_path, [1])
    assert {row["split"] for row in measured.rows} == {"dev"}
    write_split(write, tmp_path, "test", 10)
    (tmp_path / "bucc2018/zh-en.test.gold").unlink()
    with pytest.warns(UserWarning, match=r"zh-en\.test\.gold: no gold pairs of test, which is left out"):
        assert [list(splits) for splits in read_bucc(tmp_path)] == [["dev"]]


def test_xtreme_layers() -> None:
    """Index 7 of the last 12 blocks."""
    assert [xtreme_layer(layers) for layers in (12, 24, 16, 3)] == [8, 20, 12, 2]


def test_bad_input(tmp_path: Path, write: Write, encoder: Encoder) -> None:
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
        list(bucc(encoder, tmp_path, [1], ["de"]))
    write(tmp_path / "bucc2018/zh-en.dev.gold", "zh-1\ten-99\n")
    with pytest.raises(BadInput, match=r"zh-en\.dev\.gold: the pair zh-1 en-99 names a sentence that is not there"):
        read_bucc(tmp_path)
    write(tmp_path / "bucc2018/zh-en.dev.zh", "zh-1\ta\nzh-2\n")
    with pytest.raises(BadInput, match=r"zh-en\.dev\.zh: line 2 is not `id TAB sentence`"):
        read_bucc(tmp_path)
    (tmp_path / "bucc2018/zh-en.dev.gold").unlink()
    write_split(write, tmp_path / "other", "dev", 0)
    (tmp_path / "other/bucc2018/zh-en.dev.gold").unlink()
    with pytest.raises(BadInput, match=r"zh-en\.dev\.gold: no such file"):
        read_bucc(tmp_path / "other")


def test_the_real_files(real_data: Path) -> None:
    [splits] = read_bucc(real_data)
    assert list(splits) == ["dev"]
    dev = splits["dev"]
    assert (dev.languages, len(dev.first.ids), len(dev.second.ids), len(dev.gold)) == (("zh", "en"), 8624, 13589, 257)
