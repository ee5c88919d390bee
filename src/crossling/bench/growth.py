"""How the cost of a step grows: with the length of the sequences, the vocabulary, the batch and the layers.

One is changed at a time; with the length, the tokens of a step stay the same. Beside each is the step they all begin
from, so that the ratio says what the change does to speed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

from crossling import recipes
from crossling.bench.clock import Speed
from crossling.bench.row import Row
from crossling.bench.setting import Setting
from crossling.bench.training import measured, sized

TIMES = 6  # runs of each, as there are many


@dataclass(frozen=True)
class Point:
    what: str
    value: int
    at: Setting
    batch: int


def points(at: Setting) -> list[Point]:
    """All that is measured; the step they begin from is among each kind."""
    batch, length, pieces, layers = at.batches[0], at.length, at.vocabulary, at.shape.layers
    lengths = [128, 512, 1024, 2048] if at.on_gpu else [length // 2, length]
    sizes = [32_000, 128_000, 250_002, 500_000] if at.on_gpu else [pieces // 2, pieces]
    batches = [16, 64, 256] if at.on_gpu else [batch, 2 * batch]
    depths = [6, 12, 24] if at.on_gpu else [1, layers]
    return [
        *(Point("length", each, replace(at, length=each), max(1, batch * length // each)) for each in lengths),
        *(Point("vocabulary", each, replace(at, vocabulary=each), batch) for each in sizes),
        *(Point("batch", each, at, each) for each in batches),
        *(Point("layers", each, replace(at, shape=replace(at.shape, layers=each)), batch) for each in depths),
    ]


def rows(at: Setting) -> Iterator[Row]:
    at = replace(at, times=min(at.times, TIMES))
    text = recipes.xlm_e().but(trtd=None)
    batch = at.batches[0]
    begin = at.tried("the step that all begin from", partial(measured, sized(text, at, batch), at))
    if begin is None:
        return
    told = f"{at.length} tokens, {at.vocabulary:,} pieces, batch {batch}, {at.shape.layers} layers"
    for point in points(at):
        name = f"{point.what} {point.value:,}"
        speed: Speed | None = begin
        if (point.at, point.batch) != (at, batch):
            speed = at.tried(name, partial(measured, sized(text, point.at, point.batch), point.at))
        if speed is not None:
            yield at.tokens(name, speed, begin, told)
