"""Example counts of language pairs, and properties of distributions over them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain, combinations

import numpy as np
from hypothesis import strategies as st

from crossling.sampling import Pair

# Four languages, all paired: en has the most data, and sw-ta hardly any.
WORKED = {
    ("en", "de"): 800,
    ("en", "sw"): 40,
    ("en", "ta"): 60,
    ("de", "sw"): 10,
    ("de", "ta"): 20,
    ("sw", "ta"): 2,
}
STAR = {pair: n for pair, n in WORKED.items() if "en" in pair}

TEMPERATURES = st.sampled_from([1.0, 1.05, 1 / 0.7, 2.0, 5.0, 100.0, float("inf")])


@st.composite
def counts(draw: st.DrawFn, most: int = 10**9) -> dict[Pair, int]:
    """Some pairs of 2 to 7 languages. Counts are often equal, which makes borders of the feasible set likely."""
    languages = [f"l{i}" for i in range(draw(st.integers(2, 7)))]
    pairs = draw(st.lists(st.sampled_from([*combinations(languages, 2)]), min_size=1, unique=True))
    number = draw(st.sampled_from([st.integers(1, most), st.integers(1, 3), st.just(7)]))
    return {pair: draw(number) for pair in pairs}


@st.composite
def full_counts(draw: st.DrawFn) -> dict[Pair, int]:
    """All pairs of 4 or 5 languages: enough freedom that many distributions have the same marginals."""
    languages = [f"l{i}" for i in range(draw(st.integers(4, 5)))]
    return {pair: draw(st.integers(1, 10**4)) for pair in combinations(languages, 2)}


def marginals_of(probabilities: Mapping[Pair, float]) -> dict[str, float]:
    found: dict[str, float] = {}
    for pair, probability in probabilities.items():
        for language in pair:
            found[language] = found.get(language, 0.0) + probability / 2
    return found


def neighbors(pairs: Sequence[Pair], some: Sequence[str]) -> set[str]:
    return {b for a, b in chain(pairs, ((b, a) for a, b in pairs)) if a in some}


def surplus(pairs: Sequence[Pair], target: Mapping[str, float]) -> float:
    """Return the largest excess of any set of languages over its neighbors, by trying every set."""
    languages = list(target)
    sets = chain.from_iterable(combinations(languages, size) for size in range(1, len(languages) + 1))
    return max(
        sum(target[a] for a in some) - sum(target[b] for b in neighbors(pairs, some))  # by definition
        for some in sets
    )


def incidence(pairs: Sequence[Pair], languages: Sequence[str]) -> np.ndarray:
    """Return the matrix that maps pair probabilities to language marginals."""
    return np.array([[0.5 * (language in pair) for pair in pairs] for language in languages])


def matrix(values: Mapping[Pair, float], languages: Sequence[str]) -> np.ndarray:
    """Return a symmetric matrix that sums to 1."""
    found = np.zeros((len(languages), len(languages)))
    for (a, b), value in values.items():
        i, j = languages.index(a), languages.index(b)
        found[i, j] = found[j, i] = value
    return found / found.sum()
