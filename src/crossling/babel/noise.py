"""Noise for bitext: the damage that mined pairs come with, at stated rates, with a record of every damaged row."""

from __future__ import annotations

import random
from dataclasses import asdict, dataclass
from typing import NamedTuple

from crossling.errors import BadInput

Row = tuple[str, str]
CROWD = 8  # how many sources share a target where many are mapped to one


@dataclass(frozen=True)
class Noise:
    """The share of rows, of each pair's file, that is damaged in each way; a row is damaged in one way at most.

    wrong: the target of another row. copies: the source again as its target. near_duplicates: another row
    again, with a small edit. many_to_one: several sources with the target of one other row.
    """

    wrong: float = 0.0
    copies: float = 0.0
    near_duplicates: float = 0.0
    many_to_one: float = 0.0

    def __post_init__(self) -> None:
        rates = asdict(self)
        for name, rate in rates.items():
            if not 0 <= rate <= 1:
                raise BadInput(f"noise: {name} is {rate}, expected a rate between 0 and 1")
        if sum(rates.values()) > 1:
            raise BadInput(f"noise: the rates add up to {sum(rates.values()):g}, expected at most 1")


class Damage(NamedTuple):
    """Row `row` was damaged as `kind` says, with the help of row `origin`; rows count from 0."""

    row: int
    kind: str
    origin: int


def damage(rows: list[Row], noise: Noise, rng: random.Random) -> tuple[list[Row], list[Damage]]:
    """The rows with noise, as many as before, and what was done to which."""
    order = rng.sample(range(len(rows)), len(rows))
    kinds = [kind for kind, rate in asdict(noise).items() for _ in range(round(rate * len(rows)))][: len(rows)]
    intact = order[len(kinds) :] or order  # what is repeated should be found whole as well, if any row stays so
    damaged = list(rows)
    record: list[Damage] = []
    crowd = 0
    for row, kind in zip(order, kinds, strict=False):
        origin = row if kind == "copies" else _other(rows, row, intact, rng)
        if kind == "many_to_one":
            crowd += 1
            if crowd % CROWD != 1 and rows[record[-1].origin][1] != rows[row][1]:
                origin = record[-1].origin
        damaged[row] = _damaged(kind, rows[row], rows[origin], rng)
        record.append(Damage(row, kind, origin))
    return damaged, sorted(record)


def _damaged(kind: str, row: Row, origin: Row, rng: random.Random) -> Row:
    match kind:
        case "copies":
            return row[0], row[0]
        case "near_duplicates":
            return _edited(origin[0], rng), origin[1]
        case _:
            return row[0], origin[1]


def _other(rows: list[Row], row: int, intact: list[int], rng: random.Random) -> int:
    """An intact row with another target than this one has."""
    for _ in range(1000):
        other = rng.choice(intact)
        if rows[other][1] != rows[row][1]:
            return other
    raise AssertionError("all rows of a pair have the same target")


def _edited(sentence: str, rng: random.Random) -> str:
    """One word left out, said twice, or put before its neighbour."""
    words = sentence.split(" ")
    at = rng.randrange(len(words) - 1)
    match rng.randrange(3):
        case 0:
            del words[at]
        case 1:
            words.insert(at, words[at])
        case _:
            words[at : at + 2] = [words[at + 1], words[at]]
    return " ".join(words)
