"""Language by language maps of how often pairs are drawn, as XY-LENT's Figures 2 and 6. The template only draws."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from crossling.inspect.draws import NOTHING
from crossling.sampling import Pair

CELL = 10
LEVELS = 20  # of the colour
MARGIN = 34  # for names

# The languages of the tasks XY-LENT reports (XNLI, PAWS-X, XQuAD, MLQA and TyDiQA: its Tables 10 to 14).
DOWNSTREAM = (
    *("ar", "bg", "bn", "de", "el", "en", "es", "fi", "fr", "hi", "id"),
    *("ja", "ko", "ru", "sw", "te", "th", "tr", "ur", "vi", "zh"),
)


@dataclass(frozen=True)
class Scale:
    """Probabilities of one direction that get the faintest and the fullest colour; logarithmic between them."""

    low: float
    high: float

    def level(self, probability: float) -> int:
        share = math.log(probability / self.low) / math.log(self.high / self.low)
        return max(1, min(LEVELS, math.ceil(share * LEVELS)))

    @property
    def marks(self) -> list[tuple[float, str]]:
        """Colours with their probabilities, a power of ten each."""
        powers = range(math.ceil(math.log10(self.low)), math.floor(math.log10(self.high)) + 1)
        return [(self.level(10.0**power) / LEVELS, f"1e{power}") for power in powers]


@dataclass(frozen=True)
class Density:
    title: str
    languages: Sequence[str]
    filled: list[tuple[float, str]]  # opacity, and the outline of all cells that have it
    never: str  # the outline of the pairs that are there and are not drawn

    @property
    def size(self) -> int:
        return MARGIN + CELL * len(self.languages)


def scale(rates: Iterable[Mapping[Pair, float]]) -> Scale:
    """One for all maps, so that their colours can be compared."""
    drawn = [rate / 2 for each in rates for rate in each.values() if rate >= NOTHING]
    high = max(drawn)
    return Scale(max(min(drawn), high / 1e8) / 2, high)


def density(title: str, languages: Sequence[str], rates: Mapping[Pair, float], colours: Scale) -> Density:
    """Both directions of every pair among these languages: first down, second across."""
    place = {language: MARGIN + CELL * i for i, language in enumerate(languages)}
    outlines: dict[int, list[str]] = {}
    for (a, b), rate in rates.items():
        if a in place and b in place:
            level = colours.level(rate / 2) if rate >= NOTHING else 0
            cells = (f"M{x} {y}h9v9h-9z" for x, y in ((place[a], place[b]), (place[b], place[a])))
            outlines.setdefault(level, []).extend(cells)
    filled = [(level / LEVELS, "".join(cells)) for level, cells in sorted(outlines.items()) if level]
    return Density(title, languages, filled, "".join(outlines.get(0, [])))
