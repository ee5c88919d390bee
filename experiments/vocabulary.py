"""Compare allocations of the vocabulary, `joint` and `vocap`, at several sizes on held-out lines.

    python experiments/vocabulary.py CORPORA --sizes 32000,64000 --characters 10000000 --workers 2

Holds out one line in twenty, by its hash. Prints means over the languages with the most, medium and least text, and
writes the measures of every language to experiments/results/DATE-vocabulary.json. Then trains a vocabulary without the
languages of --new and adds them to it.
"""

from __future__ import annotations

import argparse
import math
import platform
import tempfile
import time
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece
import tokenizers
import xxhash

import crossling
from crossling.core.files import write_json
from crossling.corpora.corpus import Corpora
from crossling.vocabulary import unigram
from crossling.vocabulary.build_vocabulary import describe_languages
from crossling.vocabulary.reuse_vocabulary import extend
from crossling.vocabulary.text_normalization import default_charsmap, normalize_nfkc
from crossling.vocabulary.text_sample import SampleSettings, TextSample, sample_corpora
from crossling.vocabulary.vocabulary import SPECIAL, Vocabulary
from crossling.vocabulary.vocap import allocate_capacity, average_log_probability

ONE_IN = 20
ALPHA, BETA = 0.5, 0.7
ADDED = 4000
Row = dict[str, float]


def split_corpora(corpora: Corpora, folder: Path) -> tuple[Corpora, Corpora]:
    """Write the training lines and the held-out lines of each language to two folders."""
    for language in corpora.languages:
        files = [folder / part / "text" / f"{language}.txt" for part in ("train", "held-out")]
        for file in files:
            file.parent.mkdir(parents=True, exist_ok=True)
        with files[0].open("w", encoding="utf-8") as train, files[1].open("w", encoding="utf-8") as held_out:
            for line in corpora.lines(language):
                is_held_out = xxhash.xxh3_64_intdigest(line.encode()) % ONE_IN == 0
                (held_out if is_held_out else train).write(line + "\n")
    return Corpora(folder / "train"), Corpora(folder / "held-out")


def sample_text(corpora: Corpora, characters: int, workers: int) -> TextSample:
    """Return the statistics and a sample of corpora."""
    with tempfile.TemporaryDirectory() as folder:
        sample = sample_corpora(corpora, Path(folder), SampleSettings(characters, ALPHA), workers=workers)
    assert sample is not None
    return sample


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("corpora")
    parser.add_argument("--sizes", default="32000,64000")
    parser.add_argument("--characters", type=int, default=10_000_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--new", default="am,yo,zu,km")
    parser.add_argument("-o", "--out", type=Path, default=Path("experiments/results"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        training, rest = split_corpora(Corpora(options.corpora), Path(folder))
        statistics = sample_text(training, options.characters, options.workers)
        heldout = sample_text(rest, 1, options.workers).excerpts
    sample = statistics.lines
    by_text = sorted(statistics.characters, key=lambda language: -statistics.characters[language])
    third = len(by_text) // 3
    parts = {"most text": by_text[:third], "medium text": by_text[third:-third], "least text": by_text[-third:]}
    runs = []
    with tempfile.TemporaryDirectory() as cache:
        for size in map(int, options.sizes.split(",")):
            for name in ("joint", "vocap"):
                start = time.monotonic()
                scores, allocated = train(
                    sample, statistics, size, Path(cache) if name == "vocap" else None, options.workers
                )
                seconds = time.monotonic() - start
                rows = measure(Vocabulary.from_scores(scores, default_charsmap()), heldout)
                characters = sum(len(subword) == 1 for subword in scores)
                runs.append(
                    {"allocate": name, "size": size, "characters": characters, "seconds": round(seconds)}
                    | {"means": {part: means(rows, languages) for part, languages in parts.items()}}
                    | {"languages": rows, "allocated": dict(allocated)}
                )
                print_run(runs[-1], runs[0], parts)
    result = {
        "date": date.today().isoformat(),
        "versions": {
            "python": platform.python_version(),
            "crossling": crossling.__version__,
            "sentencepiece": sentencepiece.__version__,
            "tokenizers": tokenizers.__version__,
        },
        "command": f"python experiments/vocabulary.py CORPORA --sizes {options.sizes} --characters {options.characters}"
        f" --workers {options.workers} --new {options.new}",
        "alpha": ALPHA,
        "beta": BETA,
        "held out": f"1 line in {ONE_IN} by hash; up to 2,000 of them a language",
        "text": statistics.characters,
        "parts": parts,
        "runs": runs,
        "extension": extension(sample, heldout, options.new.split(","), options.workers),
    }
    write_json(options.out / f"{date.today().isoformat()}-vocabulary.json", result)


def train(
    sample: Mapping[str, Sequence[str]], statistics: TextSample, size: int, cache: Path | None, workers: int
) -> tuple[dict[str, float], Mapping[str, int]]:
    """Return the scores of the subwords and the entries of each language: by VoCap with a cache, else jointly."""
    if cache is None:
        return unigram.train(map(normalize_nfkc, statistics.all_lines()), size - len(SPECIAL), workers), {}
    allocation = allocate_capacity(
        *(sample, statistics.proportions(ALPHA), size - len(SPECIAL)), cache=cache, beta=BETA, workers=workers
    )
    return allocation.scores, allocation.sizes


def measure(vocabulary: Vocabulary, heldout: Mapping[str, Sequence[str]]) -> dict[str, Row]:
    """Return the report row of every language, with its ALP."""
    return {
        language: row
        | {
            "alp": round(
                average_log_probability(vocabulary.count_tokens(heldout[language]).tolist(), len(heldout[language])), 3
            )
        }
        for language, row in describe_languages(vocabulary, heldout).items()
    }


def means(rows: Mapping[str, Row], languages: Sequence[str]) -> Row:
    """Return means over languages. That of fertility is geometric: without spaces, words have twenty tokens."""
    fertility = math.exp(np.mean([math.log(rows[language]["fertility"]) for language in languages]))
    alp, coverage = (np.mean([rows[language][key] for language in languages]) for key in ("alp", "coverage"))
    return {"fertility": round(fertility, 3), "alp": round(float(alp), 2), "coverage": round(float(coverage), 5)}


def print_run(run: dict[str, Any], first: dict[str, Any], parts: Mapping[str, Sequence[str]]) -> None:
    """Print the means of a run, and its fertility relative to the first run."""
    if run is first:
        print(f"{'':22}" + "".join(f"{part + ': tokens per word, ALP, unknown':>42}" for part in parts))
    cells = []
    for part in parts:
        mean, base = run["means"][part], first["means"][part]
        change = mean["fertility"] / base["fertility"] - 1
        cells.append(f"{mean['fertility']:.3f} ({change:+.1%}) {mean['alp']:.1f} {1 - mean['coverage']:.3%}")
    print(f"{run['allocate']} {run['size']:>7,} {run['seconds']:>5} s " + "".join(f"{cell:>42}" for cell in cells))


def extension(
    sample: Mapping[str, Sequence[str]], heldout: Mapping[str, Sequence[str]], new: Sequence[str], workers: int
) -> dict[str, Any]:
    """Measure the new languages before and after the extension, and its effect on the others."""
    others = [language for language in sample if language not in new]
    old_lines = [line for language in others for line in sample[language]]
    new_lines = [line for language in new for line in sample[language]]
    old = Vocabulary.from_scores(
        unigram.train(map(normalize_nfkc, old_lines), 32_000 - len(SPECIAL), workers), default_charsmap()
    )
    more = extend(old, new_lines, old.size + ADDED, threads=workers)
    changed = {
        language: float(
            np.mean([a != b for a, b in zip(*(v.encode(heldout[language]) for v in (old, more)), strict=True)])
        )
        for language in others
    }
    rows = {
        name: describe_languages(v, {language: heldout[language] for language in new})
        for name, v in (("old", old), ("new", more))
    }
    tokens = [sum(int(v.count_tokens(heldout[language]).sum()) for language in others) for v in (old, more)]
    result = {
        "added subwords": ADDED,
        "new languages": {
            language: {f"{key} {name}": rows[name][language][key] for name in rows for key in ("fertility", "coverage")}
            for language in new
        },
        "lines of other languages with another segmentation": round(float(np.mean(list(changed.values()))), 4),
        "tokens of other languages, new over old": round(tokens[1] / tokens[0], 5),
        "added subwords that the sample uses": int((more.count_tokens(new_lines)[old.size - 1 : -1] > 0).sum()),
    }
    print(result)
    return result


if __name__ == "__main__":
    main()
