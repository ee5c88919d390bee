"""Examples paired with their translations, line by line, for models with cross-attention (VECO's plug-in).

SET/translated/XX/  written in XX:     train.*       the training split of the pivot language
                                       test-YY.*     the test split of YY; dev-YY.* likewise

Splits of other languages are paired with the pivot. Splits of the pivot are paired with the first language available.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from pathlib import Path

from crossling.core.errors import BadInput
from crossling.tasks.dataset import BenchmarkDataset, FilePattern, describe_expected_files
from crossling.tasks.examples import Example

ExamplePair = tuple[Example, Example]


def read_training_pairs(dataset: BenchmarkDataset, data: Path, pivot: str) -> dict[str, list[ExamplePair]]:
    """Return the training examples of the pivot with their translations, by language.

    Includes questions whose answer is not in the context, since the other example of the pair may be trainable.
    """
    original = dataset.read_rows(dataset.patterns, data, "train", pivot)
    pairs: dict[str, list[ExamplePair]] = {}
    for language in dataset.translated_languages(data):
        translated = dataset.read_rows(dataset.training_translations, data, "train", language)
        if language != pivot and original is not None and translated is not None:
            pairs[language] = _zip_rows(original, translated)
    if not pairs:
        raise _no_translations(dataset, data, "train", pivot, dataset.training_translations)
    return pairs


def read_test_translations(
    dataset: BenchmarkDataset, data: Path, split: str, language: str, pivot: str
) -> tuple[str, list[Example]] | None:
    """Return the translations of a split and their language. None if there are none."""
    for pattern in dataset.test_translations:
        files = pattern.find_translations(data, split)
        for into in sorted(code for of, code in files if of == language and (code == pivot) != (language == pivot)):
            original = dataset.read_rows(dataset.patterns, data, split, language)
            if original is not None:
                paths = files[language, into]
                translated = [example for file in paths for example in pattern.read(file, dataset.labels)]
                return into, [translation for _, translation in _zip_rows(original, (paths[0], translated))]
    return None


def languages_with_translations(dataset: BenchmarkDataset, data: Path, pivot: str) -> list[str]:
    """Return the languages whose test examples have translations. Warn about the others."""
    languages = dataset.scorable_languages(data)
    splits = {code: dataset.read_test(data, code)[0] for code in languages}
    missing = [
        code for code, split in splits.items() if read_test_translations(dataset, data, split, code, pivot) is None
    ]
    if missing and missing == languages:
        raise _no_translations(dataset, data, splits[missing[0]], missing[0], dataset.test_translations)
    if missing:
        warnings.warn(f"{dataset.name}: no translations of {', '.join(missing)}; not scored", stacklevel=2)
    return [code for code in languages if code not in missing]


def _no_translations(
    dataset: BenchmarkDataset, data: Path, split: str, language: str, patterns: Iterable[FilePattern]
) -> BadInput:
    expected = describe_expected_files(patterns, split)
    return BadInput(
        f"{data}: the {split} split of {dataset.name} for language {language!r} has no translations. {expected}."
    )


def _zip_rows(original: tuple[Path, list[Example]], translated: tuple[Path, list[Example]]) -> list[ExamplePair]:
    (file, examples), (other, translations) = original, translated
    if len(examples) != len(translations):
        raise BadInput(
            f"{other}: {len(translations)} rows, but {file} has {len(examples)}. Expected row i to translate row i. "
            "Translate or download the files again."
        )
    return list(zip(examples, translations, strict=True))
