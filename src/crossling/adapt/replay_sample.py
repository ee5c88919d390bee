"""The multilingual sample in the package, on which adaptation prevents and measures forgetting.

Its sentences are from tatoeba.org, CC BY 2.0 FR (data/ATTRIBUTION.md). experiments/adapt_samples.py makes it.
"""

from __future__ import annotations

import lzma
from collections.abc import Iterator
from importlib import resources
from typing import NamedTuple

TRAIN, HELD_OUT = "train", "held-out"
PIVOT = "en"


class SampleRow(NamedTuple):
    """An English sentence and its translation."""

    part: str
    language: str
    english: str
    translation: str


def read_sample() -> Iterator[SampleRow]:
    """Yield all rows of the sample."""
    for line in _read_lines("replay.tsv.xz"):
        yield SampleRow(*line.split("\t"))


def read_icelandic() -> list[tuple[str, str]]:
    """Return the English-Icelandic pairs that the demo adapts the bundled model to."""
    return [(english, text) for english, text in (line.split("\t") for line in _read_lines("en-is.tsv.xz"))]


def _read_lines(name: str) -> list[str]:
    packed = resources.files("crossling.adapt").joinpath("data", name).read_bytes()
    return lzma.decompress(packed).decode().removesuffix("\n").split("\n")
