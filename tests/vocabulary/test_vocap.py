"""Tests of VoCap: the allocation equals a slow greedy loop, and cached curves are reused."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossling.core.errors import BadInput
from crossling.corpora.corpus import Corpora
from crossling.vocabulary import unigram, vocap
from crossling.vocabulary.build_vocabulary import vocab
from crossling.vocabulary.unigram import SubwordScores
from crossling.vocabulary.vocabulary import SPECIAL, UNK, Vocabulary
from crossling.vocabulary.vocap import (
    CurvePoint,
    LanguageCurve,
    allocate_sizes,
    average_log_probability,
    concave_envelope,
    fill_remaining,
    interpolate_curve,
    rank_steps,
)

# ---- curves --------------------------------------------------------------------------------------------------

POINTS = st.lists(st.tuples(st.integers(1, 40), st.floats(-5, 9, allow_subnormal=False)), min_size=1, max_size=7).map(
    lambda steps: [(sum(s for s, _ in steps[: i + 1]), sum(g for _, g in steps[: i + 1])) for i in range(len(steps))]
)


def pool_increases(points: Sequence[CurvePoint]) -> list[CurvePoint]:
    """Pool adjacent increases of which the second gains more, until there are none: the definition."""
    blocks = [[a, b] for a, b in pairwise(points)]
    while True:
        gains = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in blocks]
        rising = [i for i in range(len(blocks) - 1) if gains[i + 1] > gains[i]]
        if not rising:
            break
        i = rising[0]
        blocks[i : i + 2] = [[blocks[i][0], blocks[i + 1][1]]]
    return [points[0], *(b for a, b in blocks if b[1] > a[1])]


@given(points=POINTS)
def test_the_concave_envelope_equals_pooled_increases(points: list[CurvePoint]) -> None:
    line, slow = concave_envelope(points), pool_increases(points)
    assert {line[0], line[-1]} == {slow[0], slow[-1]}
    for size, value in slow:  # it keeps points on a straight line
        [(a, b)] = [(a, b) for a, b in pairwise([*line, line[-1]]) if a[0] <= size < b[0]] or [(line[-1], line[-1])]
        part = (size - a[0]) / (b[0] - a[0]) if b[0] > a[0] else 0.0
        assert value == pytest.approx(a[1] + part * (b[1] - a[1]), abs=1e-9)


@given(points=POINTS)
def test_an_increase_never_gains_more_than_the_one_before(points: list[CurvePoint]) -> None:
    line = concave_envelope(points)
    gains = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in pairwise(line)]
    assert gains == sorted(gains, reverse=True)
    assert all(gain > 0 for gain in gains)
    assert set(line) <= set(points)
    assert line[0] == points[0]


def test_alp_is_interpolated_over_the_logarithm_of_the_size() -> None:
    grid = interpolate_curve([(100, -50.0), (400, -30.0), (800, -29.0)])
    values = dict(grid)
    assert (values[100], values[400], values[800]) == (-50.0, -30.0, -29.0)
    assert len(grid) == 1 + 16 + 8
    assert values[200] == pytest.approx(-40.0)
    assert [size for size, _ in grid] == sorted(values)
    assert interpolate_curve([(7, 1.0)]) == [(7, 1.0)]
    assert interpolate_curve([(3, 1.0), (4, 2.0)]) == [(3, 1.0), (4, 2.0)]


# ---- allocation ----------------------------------------------------------------------------------------------


@st.composite
def families(draw: st.DrawFn) -> tuple[dict[str, LanguageCurve], dict[str, float]]:
    """Return languages that have some subwords in common."""
    languages, weights = {}, {}
    for number in range(draw(st.integers(1, 5))):
        name = f"l{number}"
        points = draw(POINTS)
        shared = draw(st.integers(0, 3))  # one of so many subwords is in common with others
        subwords = [f"s{i}" if shared and i % (shared + 1) == 0 else f"{name}.{i}" for i in range(points[-1][0])]
        languages[name] = LanguageCurve(tuple(points), {points[-1][0]: dict.fromkeys(subwords, -1.0)}, True)
        weights[name] = draw(st.floats(0.01, 2.0))
    return languages, weights


def union_of(languages: Mapping[str, LanguageCurve], sizes: Mapping[str, int]) -> set[str]:
    return {subword for name, size in sizes.items() for subword in languages[name].subwords(size)}


def greedy(
    curves: Mapping[str, Sequence[CurvePoint]],
    weights: Mapping[str, float],
    languages: Mapping[str, LanguageCurve],
    size: int,
) -> dict[str, int]:
    """Take the best next increase of any language while the union fits: the definition."""
    positions = dict.fromkeys(curves, 0)
    while True:
        nexts = []
        for name, curve in curves.items():
            if positions[name] + 1 < len(curve):
                a, b = curve[positions[name]], curve[positions[name] + 1]
                nexts.append((-weights[name] * (b[1] - a[1]) / (b[0] - a[0]), name))
        if not nexts:
            break
        grown = positions | {min(nexts)[1]: positions[min(nexts)[1]] + 1}
        if len(union_of(languages, {name: curves[name][place][0] for name, place in grown.items()})) > size:
            break
        positions = grown
    return {name: curves[name][place][0] for name, place in positions.items()}


def allocated(languages: Mapping[str, LanguageCurve], weights: Mapping[str, float], size: int) -> dict[str, int]:
    curves = {name: concave_envelope(language.points) for name, language in languages.items()}
    smallest = {name: curve[0][0] for name, curve in curves.items()}
    return allocate_sizes(rank_steps(curves, weights), smallest, size, languages)


def least(languages: Mapping[str, LanguageCurve]) -> int:
    return len(union_of(languages, {name: language.points[0][0] for name, language in languages.items()}))


@given(family=families(), capacity=st.integers(0, 200))
def test_the_allocation_equals_a_greedy_loop(
    family: tuple[dict[str, LanguageCurve], dict[str, float]], capacity: int
) -> None:
    languages, weights = family
    size = least(languages) + capacity
    sizes = allocated(languages, weights, size)
    curves = {name: concave_envelope(language.points) for name, language in languages.items()}
    assert sizes == greedy(curves, weights, languages, size)
    assert len(union_of(languages, sizes)) <= size
    assert all(sizes[name] >= language.points[0][0] for name, language in languages.items())


@given(family=families(), capacity=st.integers(0, 200), more=st.integers(0, 50))
def test_a_larger_size_reduces_no_language(
    family: tuple[dict[str, LanguageCurve], dict[str, float]], capacity: int, more: int
) -> None:
    languages, weights = family
    size = least(languages) + capacity
    small, large = (allocated(languages, weights, n) for n in (size, size + more))
    assert all(small[name] <= large[name] for name in languages)


@given(family=families(), capacity=st.integers(0, 200), order=st.randoms(use_true_random=False))
def test_the_allocation_does_not_depend_on_the_order_of_languages(
    family: tuple[dict[str, LanguageCurve], dict[str, float]], capacity: int, order: object
) -> None:
    languages, weights = family
    names = list(languages)
    order.shuffle(names)  # type: ignore[attr-defined]
    size = least(languages) + capacity
    assert allocated({name: languages[name] for name in names}, weights, size) == allocated(languages, weights, size)


@given(family=families(), capacity=st.integers(0, 200))
def test_remaining_capacity_is_filled(family: tuple[dict[str, LanguageCurve], dict[str, float]], capacity: int) -> None:
    languages, weights = family
    size = least(languages) + capacity
    curves = {name: concave_envelope(language.points) for name, language in languages.items()}
    sizes = allocated(languages, weights, size)
    everything = len(union_of(languages, {name: curve[-1][0] for name, curve in curves.items()}))
    order = rank_steps(curves, weights)
    if everything < size:
        with pytest.raises(BadInput, match=f"yields at most {everything + len(SPECIAL)} entries"):
            fill_remaining(order, sizes, size, languages)
        return
    chosen = fill_remaining(order, sizes, size, languages)
    assert len({subword for subwords in chosen.values() for subword in subwords}) == size
    for name, subwords in chosen.items():
        assert (
            set(languages[name].subwords(sizes[name]))
            <= set(subwords)
            <= set(languages[name].subwords(curves[name][-1][0]))
        )


def test_a_size_too_small_for_the_characters_names_the_size_they_need() -> None:
    languages = {
        name: LanguageCurve(((3, -9.0), (5, -8.0)), {5: dict.fromkeys(f"{name}abcd", -1.0)}, True) for name in "xyz"
    }
    assert allocated(languages, dict.fromkeys(languages, 1.0), 5) == dict.fromkeys(languages, 3)
    with pytest.raises(
        BadInput, match=r"size 9 is too small: .* 3 languages alone need 10 entries\. Give that size or more"
    ):
        allocated(languages, dict.fromkeys(languages, 1.0), 4)


def test_a_size_between_two_has_the_best_subwords_of_the_larger() -> None:
    small: SubwordScores = {"a": -1.0, "ab": -2.0}
    large: SubwordScores = {"a": -3.0, "b": -4.0, "bb": -1.0, "ba": -2.0}
    language = LanguageCurve(((1, -9.0), (2, -8.0), (4, -7.0)), {2: small, 4: large}, False)
    assert language.subwords(1) == ["a"]
    assert language.subwords(2) == ["a", "ab"]
    assert language.subwords(3) == ["a", "b", "bb"]


# ---- curves -------------------------------------------------------------------------------------------------


def test_alp_is_the_mean_over_sentences_of_summed_log_frequencies(vocabulary: Vocabulary) -> None:
    lines = ["the quick fox", "habari ya asubuhi", "the fox"]
    rows = vocabulary.encode(lines)
    subwords = [subword for row in rows for subword in row]
    slow = sum(math.log(subwords.count(subword) / len(subwords)) for subword in subwords) / len(lines)
    assert average_log_probability(vocabulary.count_tokens(lines).tolist(), len(lines)) == pytest.approx(slow)
    assert average_log_probability([], 0) == 0.0


@pytest.fixture(scope="module")
def corpora(corpora_folder: Path) -> Corpora:
    return Corpora(corpora_folder)


@pytest.fixture(scope="module")
def sample(corpora: Corpora) -> dict[str, list[str]]:
    return {language: list(corpora.lines(language)) for language in corpora.languages}


def uniform(sample: Mapping[str, Sequence[str]]) -> dict[str, float]:
    return dict.fromkeys(sample, 1 / len(sample))


@pytest.fixture(scope="module")
def cache(sample: dict[str, list[str]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Cache with the curves for a vocabulary of 400 subwords."""
    cache = tmp_path_factory.mktemp("cache")
    vocap.allocate_capacity(sample, uniform(sample), 400, cache=cache)
    return cache


def test_a_curve_depends_on_its_language_alone(sample: dict[str, list[str]], cache: Path) -> None:
    [folder] = cache.glob("qab-*")
    found = json.loads((folder / "250.json").read_text(encoding="utf-8"))
    scores = found["scores"]
    assert len(scores) == 250
    characters = {character for subword in scores for character in subword}
    assert list(scores)[: len(characters)] == sorted(characters, key=lambda c: (-scores[c], c))
    alone = Vocabulary.from_scores(dict.fromkeys(sorted(characters), -5.0), b"")
    assert found["alp_of_characters"] == pytest.approx(
        average_log_probability(alone.count_tokens(sample["qab"]).tolist(), len(sample["qab"]))
    )
    assert found["alp_of_characters"] < found["alp"] < 0


def test_the_union_has_the_characters_of_every_language(sample: dict[str, list[str]], cache: Path) -> None:
    found = vocap.allocate_capacity(sample, uniform(sample), 400, cache=cache)
    assert len(found.scores) == 400
    made = Vocabulary.from_scores(found.scores, b"")
    for language, lines in sample.items():
        known = {character for character in "".join(lines).replace(" ", "") if character in found.scores}
        counts = made.count_tokens(lines)
        assert counts[UNK] <= (1 - unigram.CHARACTER_COVERAGE) * len("".join(lines))
        assert len(known) > 20
        assert found.sizes[language] > 20
        assert found.alp[language] < 0


def test_another_size_or_beta_reuses_the_curves(
    sample: dict[str, list[str]], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unigram, "train", None)
    found = vocap.allocate_capacity(sample, uniform(sample), 300, cache=cache, beta=0.2)
    assert len(found.scores) == 300


def test_a_larger_beta_gives_more_to_languages_with_more_text(sample: dict[str, list[str]], cache: Path) -> None:
    large, *others = sample
    skewed = {language: 0.9 if language == large else 0.1 / len(others) for language in sample}
    sizes = [
        vocap.allocate_capacity(sample, skewed, 300, cache=cache, beta=beta).sizes[large] for beta in (0.0, 0.7, 2.0)
    ]
    assert sizes[0] < sizes[1] < sizes[2]


def test_other_lines_get_a_new_curve(sample: dict[str, list[str]], cache: Path) -> None:
    before = set(cache.iterdir())
    changed = sample | {"qab": sample["qab"][1:]}
    vocap.allocate_capacity(changed, uniform(sample), 300, cache=cache)
    assert len(set(cache.iterdir()) - before) == 1


def test_an_interrupted_curve_resumes(
    sample: dict[str, list[str]], cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained: list[int] = []
    original = unigram.train

    def counting(lines: object, size: int, **options: object) -> SubwordScores:
        if len(trained) == 4:
            raise KeyboardInterrupt
        trained.append(size)
        return original(lines, size, **options)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(unigram, "train", counting)
        with pytest.raises(KeyboardInterrupt):
            vocap.allocate_capacity(sample, uniform(sample), 400, cache=tmp_path)
    assert len(list(tmp_path.glob("*/*.json"))) == 4
    trained.clear()
    monkeypatch.setattr(unigram, "train", lambda *a, **k: trained.append(1) or original(*a, **k))
    assert vocap.allocate_capacity(sample, uniform(sample), 400, cache=tmp_path) == vocap.allocate_capacity(
        sample, uniform(sample), 400, cache=cache
    )
    assert len(trained) == len(list(tmp_path.glob("*/*.json"))) - 4


def test_the_number_of_workers_does_not_change_the_result(
    sample: dict[str, list[str]], cache: Path, tmp_path: Path
) -> None:
    few = {language: sample[language] for language in list(sample)[:2]}
    assert vocap.allocate_capacity(few, uniform(few), 300, cache=tmp_path, workers=2) == vocap.allocate_capacity(
        few, uniform(few), 300, cache=cache
    )


def test_a_curve_is_extended_for_a_language_that_needs_more(
    sample: dict[str, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vocap, "FIRST_SIZES", (60, 200))
    few = {language: sample[language] for language in ("qaa", "qab")}
    found = vocap.allocate_capacity(few, {"qaa": 1.0, "qab": 1e-9}, 300, cache=tmp_path)
    assert len(found.scores) == 300
    assert found.sizes["qaa"] > 200 > found.sizes["qab"]
    assert {file.stem for file in tmp_path.glob("qaa-*/*.json")} == {"60", "200", "400"}
    assert {file.stem for file in tmp_path.glob("qab-*/*.json")} == {"60", "200"}


def test_too_little_text_names_the_possible_size(sample: dict[str, list[str]], tmp_path: Path) -> None:
    few = {"qaa": sample["qaa"]}
    with pytest.raises(BadInput, match=r"yields at most (\d+) entries\. Give a smaller size") as caught:
        vocap.allocate_capacity(few, uniform(few), 100_000, cache=tmp_path)
    most = int(str(caught.value).split()[5]) - len(SPECIAL)
    assert len(vocap.allocate_capacity(few, uniform(few), most, cache=tmp_path).scores) == most


def test_a_language_without_text_is_skipped(sample: dict[str, list[str]], tmp_path: Path) -> None:
    found = vocap.allocate_capacity(
        {"qaa": sample["qaa"], "qab": ["\u200b"], "qac": []}, dict.fromkeys(sample, 0.3), 250, cache=tmp_path
    )
    assert set(found.sizes) == {"qaa"}


def test_a_language_with_more_characters_than_the_first_sizes(tmp_path: Path) -> None:
    characters = [chr(0x4E00 + i) for i in range(600)]
    lines = ["".join(characters[i : i + 40]) for i in range(0, 600, 20)] * 3
    found = vocap.allocate_capacity({"zh": lines}, {"zh": 1.0}, 620, cache=tmp_path)
    assert {*characters} <= {*found.scores}
    assert found.sizes == {"zh": 620}


def test_vocab_with_vocap_writes_report_and_cache(corpora: Corpora, tmp_path: Path) -> None:
    made = vocab(corpora, tmp_path / "vocab", size=405, allocate="vocap", workers=1)
    report = json.loads((tmp_path / "vocab" / "vocab.json").read_text(encoding="utf-8"))
    assert made.size == report["size"] == 405
    assert {file.name for file in tmp_path.iterdir()} == {"vocab", ".vocap"}
    for row in report["languages"].values():
        assert {"subwords", "coverage", "fertility", "per_character", "allocated", "alp"} == set(row)
        assert row["coverage"] > 0.999
    again = vocab(corpora, tmp_path / "again", size=405, allocate="vocap", workers=1)
    assert again == made
