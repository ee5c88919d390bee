"""The allocation equals a slow greedy loop from the definition; measurements are made once and never lost."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossling.corpora.corpus import Corpora
from crossling.errors import BadInput
from crossling.vocabulary import unigram, vocap
from crossling.vocabulary.sample import smoothed_sample, survey
from crossling.vocabulary.unigram import Scores
from crossling.vocabulary.vocab import vocab
from crossling.vocabulary.vocabulary import SPECIAL, UNK, Vocabulary
from crossling.vocabulary.vocap import Language, Point, allocate, between, concave, filled, likelihood, ranked_steps

# ---- curves --------------------------------------------------------------------------------------------------

POINTS = st.lists(st.tuples(st.integers(1, 40), st.floats(-5, 9)), min_size=1, max_size=7).map(
    lambda steps: [(sum(s for s, _ in steps[: i + 1]), sum(g for _, g in steps[: i + 1])) for i in range(len(steps))]
)


def pooled(points: Sequence[Point]) -> list[Point]:
    """From the definition: pool any two adjacent increases of which the second gains more, until there are none."""
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
def test_concave_curves_are_those_with_pooled_increases(points: list[Point]) -> None:
    line, slow = concave(points), pooled(points)
    assert {line[0], line[-1]} == {slow[0], slow[-1]}
    for size, value in slow:  # the slow one keeps points that lie on a straight line
        [(a, b)] = [(a, b) for a, b in pairwise([*line, line[-1]]) if a[0] <= size < b[0]] or [(line[-1], line[-1])]
        part = (size - a[0]) / (b[0] - a[0]) if b[0] > a[0] else 0.0
        assert value == pytest.approx(a[1] + part * (b[1] - a[1]), abs=1e-9)


@given(points=POINTS)
def test_an_increase_never_gains_more_than_the_one_before(points: list[Point]) -> None:
    line = concave(points)
    gains = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in pairwise(line)]
    assert gains == sorted(gains, reverse=True)
    assert all(gain > 0 for gain in gains)
    assert set(line) <= set(points)
    assert line[0] == points[0]


def test_between_two_sizes_alp_follows_the_logarithm() -> None:
    grid = between([(100, -50.0), (400, -30.0), (800, -29.0)])
    values = dict(grid)
    assert (values[100], values[400], values[800]) == (-50.0, -30.0, -29.0)
    assert len(grid) == 1 + 16 + 8
    assert values[200] == pytest.approx(-40.0)
    assert [size for size, _ in grid] == sorted(values)
    assert between([(7, 1.0)]) == [(7, 1.0)]
    assert between([(3, 1.0), (4, 2.0)]) == [(3, 1.0), (4, 2.0)]


# ---- allocation ----------------------------------------------------------------------------------------------


@st.composite
def families(draw: st.DrawFn) -> tuple[dict[str, Language], dict[str, float]]:
    """Languages that have some of their pieces in common."""
    languages, weights = {}, {}
    for number in range(draw(st.integers(1, 5))):
        name = f"l{number}"
        points = draw(POINTS)
        shared = draw(st.integers(0, 3))  # every so many pieces is another's, too
        pieces = [f"s{i}" if shared and i % (shared + 1) == 0 else f"{name}.{i}" for i in range(points[-1][0])]
        languages[name] = Language(tuple(points), {points[-1][0]: dict.fromkeys(pieces, -1.0)}, True)
        weights[name] = draw(st.floats(0.01, 2.0))
    return languages, weights


def united(languages: Mapping[str, Language], sizes: Mapping[str, int]) -> set[str]:
    return {piece for name, size in sizes.items() for piece in languages[name].pieces(size)}


def greedy(
    curves: Mapping[str, Sequence[Point]], weights: Mapping[str, float], languages: Mapping[str, Language], size: int
) -> dict[str, int]:
    """From the definition: the best next increase of any language, as long as the union fits."""
    places = dict.fromkeys(curves, 0)
    while True:
        nexts = []
        for name, curve in curves.items():
            if places[name] + 1 < len(curve):
                a, b = curve[places[name]], curve[places[name] + 1]
                nexts.append((-weights[name] * (b[1] - a[1]) / (b[0] - a[0]), name))
        if not nexts:
            break
        grown = places | {min(nexts)[1]: places[min(nexts)[1]] + 1}
        if len(united(languages, {name: curves[name][place][0] for name, place in grown.items()})) > size:
            break
        places = grown
    return {name: curves[name][place][0] for name, place in places.items()}


def allocated(languages: Mapping[str, Language], weights: Mapping[str, float], size: int) -> dict[str, int]:
    curves = {name: concave(language.points) for name, language in languages.items()}
    smallest = {name: curve[0][0] for name, curve in curves.items()}
    return allocate(ranked_steps(curves, weights), smallest, size, languages)


def least(languages: Mapping[str, Language]) -> int:
    return len(united(languages, {name: language.points[0][0] for name, language in languages.items()}))


@given(family=families(), room=st.integers(0, 200))
def test_allocation_is_what_a_greedy_loop_finds(
    family: tuple[dict[str, Language], dict[str, float]], room: int
) -> None:
    languages, weights = family
    size = least(languages) + room
    sizes = allocated(languages, weights, size)
    curves = {name: concave(language.points) for name, language in languages.items()}
    assert sizes == greedy(curves, weights, languages, size)
    assert len(united(languages, sizes)) <= size
    assert all(sizes[name] >= language.points[0][0] for name, language in languages.items())


@given(family=families(), room=st.integers(0, 200), more=st.integers(0, 50))
def test_more_room_is_no_loss_to_any_language(
    family: tuple[dict[str, Language], dict[str, float]], room: int, more: int
) -> None:
    languages, weights = family
    size = least(languages) + room
    small, large = (allocated(languages, weights, n) for n in (size, size + more))
    assert all(small[name] <= large[name] for name in languages)


@given(family=families(), room=st.integers(0, 200), order=st.randoms(use_true_random=False))
def test_the_order_of_the_languages_does_not_matter(
    family: tuple[dict[str, Language], dict[str, float]], room: int, order: object
) -> None:
    languages, weights = family
    names = list(languages)
    order.shuffle(names)  # type: ignore[attr-defined]
    size = least(languages) + room
    assert allocated({name: languages[name] for name in names}, weights, size) == allocated(languages, weights, size)


@given(family=families(), room=st.integers(0, 200))
def test_spare_room_is_filled(family: tuple[dict[str, Language], dict[str, float]], room: int) -> None:
    languages, weights = family
    size = least(languages) + room
    curves = {name: concave(language.points) for name, language in languages.items()}
    sizes = allocated(languages, weights, size)
    everything = len(united(languages, {name: curve[-1][0] for name, curve in curves.items()}))
    order = ranked_steps(curves, weights)
    if everything < size:
        with pytest.raises(BadInput, match=f"yields {everything + len(SPECIAL)} pieces at most"):
            filled(order, sizes, size, languages)
        return
    chosen = filled(order, sizes, size, languages)
    assert len({piece for pieces in chosen.values() for piece in pieces}) == size
    for name, pieces in chosen.items():
        assert (
            set(languages[name].pieces(sizes[name])) <= set(pieces) <= set(languages[name].pieces(curves[name][-1][0]))
        )


def test_no_room_for_the_characters_is_answered_with_how_much_they_need() -> None:
    languages = {
        name: Language(((3, -9.0), (5, -8.0)), {5: dict.fromkeys(f"{name}abcd", -1.0)}, True) for name in "xyz"
    }
    assert allocated(languages, dict.fromkeys(languages, 1.0), 5) == dict.fromkeys(languages, 3)
    with pytest.raises(BadInput, match=r"--size 9 is too small for these 3 languages.* need 10: give that or more"):
        allocated(languages, dict.fromkeys(languages, 1.0), 4)


def test_a_size_between_two_has_the_characters_and_the_best_pieces_of_the_larger() -> None:
    small: Scores = {"a": -1.0, "ab": -2.0}
    large: Scores = {"a": -3.0, "b": -4.0, "bb": -1.0, "ba": -2.0}
    language = Language(((1, -9.0), (2, -8.0), (4, -7.0)), {2: small, 4: large}, False)
    assert language.pieces(1) == ["a"]
    assert language.pieces(2) == ["a", "ab"]
    assert language.pieces(3) == ["a", "b", "bb"]


# ---- measuring -----------------------------------------------------------------------------------------------


def test_alp_is_the_mean_over_sentences_of_summed_log_frequencies(vocabulary: Vocabulary) -> None:
    lines = ["the quick fox", "habari ya asubuhi", "the fox"]
    rows = vocabulary.encode(lines)
    pieces = [piece for row in rows for piece in row]
    slow = sum(math.log(pieces.count(piece) / len(pieces)) for piece in pieces) / len(lines)
    assert likelihood(vocabulary.counts(lines).tolist(), len(lines)) == pytest.approx(slow)
    assert likelihood([], 0) == 0.0


@pytest.fixture(scope="module")
def corpora(corpora_folder: Path) -> Corpora:
    return Corpora(corpora_folder)


@pytest.fixture(scope="module")
def sample(corpora: Corpora) -> dict[str, list[str]]:
    return smoothed_sample(corpora, survey(corpora).characters, 0.5)


def shares(sample: Mapping[str, Sequence[str]]) -> dict[str, float]:
    return dict.fromkeys(sample, 1 / len(sample))


@pytest.fixture(scope="module")
def cache(sample: dict[str, list[str]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With all that a vocabulary of 400 pieces needs."""
    cache = tmp_path_factory.mktemp("cache")
    vocap.vocap(sample, shares(sample), 400, cache)
    return cache


def test_measurements_are_those_of_the_language_alone(sample: dict[str, list[str]], cache: Path) -> None:
    [place] = cache.glob("qab-*")
    found = json.loads((place / "250.json").read_text(encoding="utf-8"))
    scores = found["scores"]
    assert len(scores) == 250
    characters = {character for piece in scores for character in piece}
    assert list(scores)[: len(characters)] == sorted(characters, key=lambda c: (-scores[c], c))
    alone = Vocabulary.of(dict.fromkeys(sorted(characters), -5.0), b"")
    assert found["alp_of_characters"] == pytest.approx(
        likelihood(alone.counts(sample["qab"]).tolist(), len(sample["qab"]))
    )
    assert found["alp_of_characters"] < found["alp"] < 0


def test_every_language_has_its_characters(sample: dict[str, list[str]], cache: Path) -> None:
    found = vocap.vocap(sample, shares(sample), 400, cache)
    assert len(found.scores) == 400
    made = Vocabulary.of(found.scores, b"")
    for language, lines in sample.items():
        known = {character for character in "".join(lines).replace(" ", "") if character in found.scores}
        counts = made.counts(lines)
        assert counts[UNK] <= (1 - unigram.COVERAGE) * len("".join(lines))
        assert len(known) > 20
        assert found.sizes[language] > 20
        assert found.alp[language] < 0


def test_another_size_or_beta_measures_nothing_again(
    sample: dict[str, list[str]], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unigram, "train", None)
    found = vocap.vocap(sample, shares(sample), 300, cache, beta=0.2)
    assert len(found.scores) == 300


def test_a_larger_beta_gives_more_to_languages_with_more_text(sample: dict[str, list[str]], cache: Path) -> None:
    large, *others = sample
    skewed = {language: 0.9 if language == large else 0.1 / len(others) for language in sample}
    sizes = [vocap.vocap(sample, skewed, 300, cache, beta).sizes[large] for beta in (0.0, 0.7, 2.0)]
    assert sizes[0] < sizes[1] < sizes[2]


def test_other_lines_are_measured_anew(sample: dict[str, list[str]], cache: Path) -> None:
    before = set(cache.iterdir())
    changed = sample | {"qab": sample["qab"][1:]}
    vocap.vocap(changed, shares(sample), 300, cache)
    assert len(set(cache.iterdir()) - before) == 1


def test_an_interrupted_measurement_goes_on(
    sample: dict[str, list[str]], cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained: list[int] = []
    original = unigram.train

    def counting(lines: object, size: int, **options: object) -> Scores:
        if len(trained) == 4:
            raise KeyboardInterrupt
        trained.append(size)
        return original(lines, size, **options)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(unigram, "train", counting)
        with pytest.raises(KeyboardInterrupt):
            vocap.vocap(sample, shares(sample), 400, tmp_path)
    assert len(list(tmp_path.glob("*/*.json"))) == 4
    trained.clear()
    monkeypatch.setattr(unigram, "train", lambda *a, **k: trained.append(1) or original(*a, **k))
    assert vocap.vocap(sample, shares(sample), 400, tmp_path) == vocap.vocap(sample, shares(sample), 400, cache)
    assert len(trained) == len(list(tmp_path.glob("*/*.json"))) - 4


def test_workers_change_nothing(sample: dict[str, list[str]], cache: Path, tmp_path: Path) -> None:
    few = {language: sample[language] for language in list(sample)[:2]}
    assert vocap.vocap(few, shares(few), 300, tmp_path, workers=2) == vocap.vocap(few, shares(few), 300, cache)


def test_a_language_that_deserves_more_is_measured_further(
    sample: dict[str, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vocap, "FIRST", (60, 200))
    few = {language: sample[language] for language in ("qaa", "qab")}
    found = vocap.vocap(few, {"qaa": 1.0, "qab": 1e-9}, 300, tmp_path)
    assert len(found.scores) == 300
    assert found.sizes["qaa"] > 200 > found.sizes["qab"]
    assert {file.stem for file in tmp_path.glob("qaa-*/*.json")} == {"60", "200", "400"}
    assert {file.stem for file in tmp_path.glob("qab-*/*.json")} == {"60", "200"}


def test_text_that_yields_too_little_says_how_much(sample: dict[str, list[str]], tmp_path: Path) -> None:
    few = {"qaa": sample["qaa"]}
    with pytest.raises(BadInput, match=r"yields (\d+) pieces at most: give a smaller --size") as caught:
        vocap.vocap(few, shares(few), 100_000, tmp_path)
    most = int(str(caught.value).split()[3]) - len(SPECIAL)
    assert len(vocap.vocap(few, shares(few), most, tmp_path).scores) == most


def test_a_language_of_nothing_is_left_out(sample: dict[str, list[str]], tmp_path: Path) -> None:
    found = vocap.vocap({"qaa": sample["qaa"], "qab": ["\u200b"], "qac": []}, dict.fromkeys(sample, 0.3), 250, tmp_path)
    assert set(found.sizes) == {"qaa"}


def test_a_language_of_more_characters_than_the_first_sizes(tmp_path: Path) -> None:
    characters = [chr(0x4E00 + i) for i in range(600)]
    lines = ["".join(characters[i : i + 40]) for i in range(0, 600, 20)] * 3
    found = vocap.vocap({"zh": lines}, {"zh": 1.0}, 620, tmp_path)
    assert {*characters} <= {*found.scores}
    assert found.sizes == {"zh": 620}


def test_by_the_verb(corpora: Corpora, tmp_path: Path) -> None:
    made = vocab(corpora, 405, tmp_path / "vocab", allocate="vocap", workers=1)
    report = json.loads((tmp_path / "vocab" / "vocab.json").read_text(encoding="utf-8"))
    assert made.size == report["size"] == 405
    assert {file.name for file in tmp_path.iterdir()} == {"vocab", ".vocap"}
    for row in report["languages"].values():
        assert {"pieces", "coverage", "fertility", "per_character", "allocated", "alp"} == set(row)
        assert row["coverage"] > 0.999
    again = vocab(corpora, 405, tmp_path / "again", allocate="vocap", workers=1)
    assert again == made
