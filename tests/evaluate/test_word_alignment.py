from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest

from crossling.core.errors import BadInput
from crossling.evaluate.significance import METRIC_VALUES
from crossling.evaluate.word_alignment import evaluate_word_alignment, link_counts, metric_statistics, read_gold
from crossling.inference.sentence_encoder import Encoder
from crossling.tasks.bootstrap import bootstrap_interval

Write = Callable[[Path, str], Path]
Links = set[tuple[int, int]]


def error_rate(corpus: Iterable[tuple[Links, Links, Links]]) -> float:
    """Return the AER of a corpus in percent."""
    return corpus_scores(corpus)["aer"]


def corpus_scores(corpus: Iterable[tuple[Links, Links, Links]]) -> dict[str, float]:
    """Return AER, precision, recall and F-measure of a corpus in percent."""
    statistics = metric_statistics(np.array([link_counts(*pair) for pair in corpus]))
    return {metric: float(METRIC_VALUES[metric](each.sum(axis=0))) for metric, each in statistics.items()}


def slow_scores(corpus: Iterable[tuple[Links, Links, Links]]) -> dict[str, float]:
    """Compute the definitions link by link, as lilt's aer.py."""
    in_sure = in_possible = found = sure = 0
    for links, sure_links, possible_links in corpus:
        for link in links:
            found += 1
            in_sure += link in sure_links
            in_possible += link in possible_links
        sure += len(sure_links)
    precision, recall = in_possible / found, in_sure / sure
    return {
        "aer": 100 * (1 - (in_sure + in_possible) / (found + sure)),
        "precision": 100 * precision,
        "recall": 100 * recall,
        "f_measure": 100 * 2 * precision * recall / (precision + recall) if precision * recall else 0.0,
    }


def write_set(write: Write, data: Path, name: str, text: str, gold: str) -> None:
    folder = data / "word-alignment" / name.split(".")[0]
    write(folder / f"{name}.src-tgt", text)
    write(folder / f"{name}.gold", gold)


def test_aer_of_known_counts() -> None:
    """3 found, 2 sure, 3 possible with the sure ones. 1 found is sure, 2 are possible: 1 - (1 + 2) / (3 + 2)."""
    found, sure, possible = {(0, 0), (1, 1), (2, 5)}, {(0, 0), (3, 3)}, {(0, 0), (3, 3), (1, 1)}
    assert error_rate([(found, sure, possible)]) == pytest.approx(40)
    # Over a corpus, counts are summed before the division: 1 - (3 + 2) / (5 + 2)
    assert error_rate([(found, sure, possible), ({(0, 0)}, {(0, 0)}, {(0, 0)})]) == pytest.approx(200 / 7)
    assert error_rate([(set(), sure, possible)]) == 100
    assert error_rate([(sure, sure, possible), (possible, possible, possible)]) == 0


def test_scores_equal_the_definitions() -> None:
    rng = np.random.default_rng(0)

    def links(density: float) -> Links:
        return {(i, j) for i in range(6) for j in range(6) if rng.random() < density}

    for _ in range(50):
        corpus = []
        for _ in range(4):
            sure = links(0.2)
            corpus.append((links(0.3), sure, sure | links(0.2)))
        assert corpus_scores(corpus) == pytest.approx(slow_scores(corpus))
    assert corpus_scores([(set(), {(0, 0)}, {(0, 0)})]) == {"aer": 100, "precision": 0, "recall": 0, "f_measure": 0}


def test_sure_and_possible_links_are_read(tmp_path: Path, write: Write) -> None:
    write_set(write, tmp_path, "deen", "das Rad ||| the wheel\neins ||| one more\n", "1-1 2p2 1p1\n1-2 9-1 1p3\n")
    [gold] = read_gold(tmp_path)
    assert (gold.languages, gold.split, gold.links_past_end) == ("de-en", "test", 2)
    assert gold.pairs[0].source == ["das", "Rad"]
    assert (gold.pairs[0].sure, gold.pairs[0].possible) == ({(0, 0)}, {(0, 0), (1, 1)})
    assert (gold.pairs[1].sure, gold.pairs[1].possible) == ({(0, 1), (8, 0)}, {(0, 1), (8, 0), (0, 2)})


def test_gold_links_past_the_end_of_a_sentence_are_missed(tmp_path: Path, write: Write, encoder: Encoder) -> None:
    write_set(write, tmp_path, "deen", "zebra ||| zebra\n", "1-1 2-1\n")
    with pytest.warns(UserWarning, match="1 gold links point past their sentence; all missed"):
        [result] = evaluate_word_alignment(encoder, tmp_path)
    values = {row["metric"]: row["value"] for row in result.rows if row["layer"] == 0}
    assert values == pytest.approx({"aer": 100 / 3, "precision": 100, "recall": 50, "f_measure": 200 / 3})


def test_file_names_give_languages_and_split(tmp_path: Path, write: Write) -> None:
    for name in ("enhi", "enhi.dev", "qaa-qab", "deueng"):
        write_set(write, tmp_path, name, "a ||| b\n", "1-1\n")
    names = sorted((gold.languages, gold.split) for gold in read_gold(tmp_path))
    assert names == [("de-en", "test"), ("en-hi", "dev"), ("en-hi", "test"), ("qaa-qab", "test")]


def test_rows_and_examples_follow_the_links(tmp_path: Path, write: Write, encoder: Encoder) -> None:
    text = ["the white house ||| la maison blanche", "a b c ||| a c b", "zebra ||| quilt zebra"]
    write_set(write, tmp_path, "qaa-qab", "\n".join([*text, "a " * 70 + "||| b"]), "1-1 2-3 3-2\n1-1\n1p1 1-2\n1-1\n")
    with pytest.warns(UserWarning, match="1 of 4 pairs are longer than the 64 tokens"):
        [result] = evaluate_word_alignment(encoder, tmp_path)
    rows = [row for row in result.rows if row["metric"] == "aer"]
    gold = read_gold(tmp_path)[0].pairs[:3]
    for layer, row in enumerate(rows):
        links = [encoder.align(*line.split(" ||| "), layer=layer) for line in text]
        pairs = [(set(found), pair.sure, pair.possible) for found, pair in zip(links, gold, strict=True)]
        statistics = metric_statistics(np.array([link_counts(*pair) for pair in pairs]))["aer"]
        low, high = bootstrap_interval(METRIC_VALUES["aer"], statistics)
        assert low < high
        assert row == {
            "version": 1,
            "model": "runs/tiny",
            "task": "word-alignment",
            "protocol": "xlm-align-ot",
            "metric": "aer",
            "language": "qaa-qab",
            "layer": layer,
            "setting": "training-free",
            "split": "test",
            "examples": 3,
            "value": pytest.approx(error_rate(pairs)),
            "low": pytest.approx(low),
            "high": pytest.approx(high),
        }
    assert len(rows) == 4
    assert [row["metric"] for row in result.rows[::4]] == ["aer", "precision", "recall", "f_measure"]
    assert (result.name, result.variant) == ("qaa-qab", "ot")
    examples = list(result.examples)
    assert [each.id for each in examples] == ["1", "2", "3"]
    sums = np.sum([each.statistics["xlm-align-ot/aer"] for each in examples], axis=0)
    np.testing.assert_allclose(METRIC_VALUES["aer"](sums), [row["value"] for row in rows])
    links = [encoder.align(*text[1].split(" ||| "), layer=layer) for layer in range(4)]
    assert examples[1].prediction == [" ".join(f"{i}-{j}" for i, j in each) for each in links]


def test_methods_and_languages_select_results(tmp_path: Path, write: Write, encoder: Encoder) -> None:
    for name in ("deen", "enhi"):
        write_set(write, tmp_path, name, "the white house ||| a b c house\n", "1-1 3-4\n")
    found = list(evaluate_word_alignment(encoder, tmp_path, ["hi"], ["argmax", "itermax"]))
    assert [(each.rows[0]["language"], each.variant, each.rows[0]["protocol"]) for each in found] == [
        ("en-hi", "argmax", "mutual-argmax"),
        ("en-hi", "itermax", "itermax"),
    ]
    for each in found:
        for layer, row in enumerate(each.rows[:4]):
            links = encoder.align("the white house", "a b c house", layer=layer, method=str(each.variant))
            assert row["value"] == pytest.approx(error_rate([(set(links), {(0, 0), (2, 3)}, {(0, 0), (2, 3)})]))
    assert len(list(evaluate_word_alignment(encoder, tmp_path, ["en-hi", "deu"]))) == 2
    with pytest.raises(BadInput, match=r"word-alignment: no files of language 'fr'"):
        list(evaluate_word_alignment(encoder, tmp_path, ["fr"]))


@pytest.mark.parametrize(
    ("text", "gold", "message"),
    [
        ("a ||| b\n", "1-1\n1-1\n", r"deen\.gold: 2 lines, but deen\.src-tgt has 1"),
        ("a ||| b\na b\n", "1-1\n1-1\n", "line 2: expected `source"),
        ("a ||| b\n", "1:1\n", r"deen\.gold: line 1: '1:1' is not a link"),
        ("a ||| b\n", "0-1\n", "counted from 1"),
        ("a ||| b\n", "1p1\n", "no sure links"),
        ("a ||| b\n", "", "the file is empty"),
    ],
)
def test_invalid_files_are_refused(tmp_path: Path, write: Write, text: str, gold: str, message: str) -> None:
    write_set(write, tmp_path, "deen", text, gold)
    with pytest.raises(BadInput, match=message):
        read_gold(tmp_path)


def test_missing_files_are_refused(tmp_path: Path, write: Write) -> None:
    with pytest.raises(BadInput, match="no such folder"):
        read_gold(tmp_path)
    write(tmp_path / "word-alignment/deen/deen.gold", "1-1\n")
    with pytest.raises(BadInput, match="no files"):
        read_gold(tmp_path)
    write(tmp_path / "word-alignment/d/d.src-tgt", "a ||| b\n")
    write(tmp_path / "word-alignment/d/d.gold", "1-1\n")
    with pytest.raises(BadInput, match="not a language pair"):
        read_gold(tmp_path)


def test_the_real_files_have_the_expected_counts(real_data: Path) -> None:
    sets = {(gold.languages, gold.split): gold for gold in read_gold(real_data)}
    counts = {
        name: (
            len(gold.pairs),
            sum(len(pair.sure) for pair in gold.pairs),
            sum(len(pair.possible - pair.sure) for pair in gold.pairs),
            gold.links_past_end,
        )
        for name, gold in sets.items()
    }
    assert counts == {
        ("de-en", "test"): (508, 9613, 921, 0),
        ("en-fr", "test"): (447, 4038, 13400, 0),
        ("en-hi", "test"): (90, 1385, 0, 0),
        ("en-hi", "trial"): (24, 465, 0, 0),
        ("ja-en", "test"): (582, 13562, 0, 6),
        ("zh-en", "test"): (450, 11238, 178, 0),
    }
    for gold in sets.values():
        assert error_rate((pair.sure, pair.sure, pair.possible) for pair in gold.pairs) == 0
