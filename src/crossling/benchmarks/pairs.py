"""Examples with their translations, row by row, for models that read both (VECO's plug-in).

SET/translated/XX/  is written in XX:  train.*       the training data of the pivot
                                       test-YY.*     the test part of YY; dev-YY.* likewise

A part of another language is read in the pivot; the pivot's own in the first language there is.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from pathlib import Path

from crossling.benchmarks.dataset import DataSet, Layout, looked_for
from crossling.benchmarks.examples import Example
from crossling.errors import BadInput

Pair = tuple[Example, Example]


def training_pairs(data_set: DataSet, data: Path, pivot: str) -> dict[str, list[Pair]]:
    """By language, each training example of the pivot with its translation; of the very set that is trained on.

    Questions whose answer is nowhere in the text are among them, as what the other one is read with.
    """
    first = data_set.rows(data_set.layouts, data, "train", pivot)
    found: dict[str, list[Pair]] = {}
    for layout in data_set.translations:
        for language in layout.find(data, "train"):
            second = data_set.rows((layout,), data, "train", language)
            if language not in (*found, pivot) and first is not None and second is not None:
                found[language] = _side_by_side(first, second)
    if not found:
        raise _bare(data_set, data, "train", pivot, data_set.translations)
    return dict(sorted(found.items()))


def translations(
    data_set: DataSet, data: Path, split: str, language: str, pivot: str
) -> tuple[str, list[Example]] | None:
    """What the examples of a part are read with, and its language; None where there is nothing."""
    for layout in data_set.paired:
        files = layout.find_into(data, split)
        for into in sorted(code for of, code in files if of == language and (code == pivot) != (language == pivot)):
            first = data_set.rows(data_set.layouts, data, split, language)
            if first is not None:
                paths = files[language, into]
                second = [example for file in paths for example in layout.read(file, data_set.labels)]
                return into, [other for _, other in _side_by_side(first, (paths[0], second))]
    return None


def scored_in_pairs(data_set: DataSet, data: Path, pivot: str) -> list[str]:
    """The languages there is something to score on that has translations; a note names the others."""
    there = data_set.tested(data)
    splits = {code: data_set.test(data, code)[0] for code in there}
    bare = [code for code, split in splits.items() if translations(data_set, data, split, code, pivot) is None]
    if bare and bare == there:
        raise _bare(data_set, data, splits[bare[0]], bare[0], data_set.paired)
    if bare:
        warnings.warn(f"{data_set.name}: no translations in {', '.join(bare)}; not scored", stacklevel=2)
    return [code for code in there if code not in bare]


def _bare(data_set: DataSet, data: Path, split: str, language: str, layouts: Iterable[Layout]) -> BadInput:
    told = looked_for(layouts, split) or "no layout of them is known"
    return BadInput(
        f"{data}: the {split} part of {data_set.name} in {language!r} has no translations to be read with; {told}"
    )


def _side_by_side(first: tuple[Path, list[Example]], second: tuple[Path, list[Example]]) -> list[Pair]:
    (file, examples), (other, translated) = first, second
    if len(examples) != len(translated):
        row = min(len(examples), len(translated)) + 1
        longer, shorter = (file, other) if len(examples) > len(translated) else (other, file)
        raise BadInput(
            f"{other}: {len(translated)} rows, but {file} has {len(examples)}, expected row i to translate row i; row"
            f" {row} of {longer} has no partner in {shorter}: translate or fetch the files again"
        )
    return list(zip(examples, translated, strict=True))
