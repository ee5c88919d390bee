"""What an allocation of pieces is worth: `joint` and `vocap` at several sizes, on lines that neither was trained on.

    python benchmarks/vocabulary.py CORPORA --sizes 32000,64000 --characters 10000000 --workers 2

One line in twenty, by its hash, is held out. Prints means over the languages with the most, the middling and the least
text, and writes every language's figures to benchmarks/results/DATE-vocabulary.json. Languages named by --new are then
left out of a vocabulary and added to it again.
"""

from __future__ import annotations

import argparse
import math
import platform
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece
import tokenizers
import xxhash

import crossling
from crossling.corpora.corpus import Corpora
from crossling.disk import write_json
from crossling.vocabulary import unigram
from crossling.vocabulary.normalise import nfkc, plain_map
from crossling.vocabulary.report import describe
from crossling.vocabulary.reuse import extend
from crossling.vocabulary.sample import joined, smoothed_sample, survey
from crossling.vocabulary.vocabulary import SPECIAL, Vocabulary
from crossling.vocabulary.vocap import likelihood, vocap

ONE_IN = 20
ALPHA, BETA = 0.5, 0.7
ADDED = 4000
Row = dict[str, float]


class Part(Corpora):
    """The lines held out, or all others."""

    def __init__(self, path: str, held_out: bool) -> None:
        super().__init__(path)
        self.held_out = held_out

    def lines(self, language: str) -> Iterator[str]:
        for line in super().lines(language):
            if (xxhash.xxh3_64_intdigest(line.encode()) % ONE_IN == 0) == self.held_out:
                yield line


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("corpora")
    parser.add_argument("--sizes", default="32000,64000")
    parser.add_argument("--characters", type=int, default=10_000_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--new", default="am,yo,zu,km")
    parser.add_argument("-o", "--out", type=Path, default=Path("benchmarks/results"))
    options = parser.parse_args()
    seen = survey(Part(options.corpora, held_out=False))
    held = survey(Part(options.corpora, held_out=True)).excerpts
    sample = smoothed_sample(Part(options.corpora, held_out=False), seen.characters, ALPHA, options.characters)
    by_text = sorted(seen.characters, key=lambda language: -seen.characters[language])
    third = len(by_text) // 3
    parts = {"most text": by_text[:third], "middle": by_text[third:-third], "least text": by_text[-third:]}
    runs = []
    with tempfile.TemporaryDirectory() as cache:
        for size in map(int, options.sizes.split(",")):
            for name in ("joint", "vocap"):
                start = time.monotonic()
                if name == "joint":
                    scores = unigram.train(map(nfkc, joined(sample)), size - len(SPECIAL), options.workers)
                    allocated: Mapping[str, int] = {}
                else:
                    found = vocap(sample, seen.shares(ALPHA), size - len(SPECIAL), Path(cache), BETA, options.workers)
                    scores, allocated = found.scores, found.sizes
                seconds = time.monotonic() - start
                rows = measured(Vocabulary.of(scores, plain_map()), held)
                characters = sum(len(piece) == 1 for piece in scores)
                runs.append(
                    {"allocate": name, "size": size, "characters": characters, "seconds": round(seconds)}
                    | {"means": {part: means(rows, languages) for part, languages in parts.items()}}
                    | {"languages": rows, "allocated": dict(allocated)}
                )
                show(runs[-1], runs[0], parts)
    result = {
        "date": date.today().isoformat(),
        "versions": {
            "python": platform.python_version(),
            "crossling": crossling.__version__,
            "sentencepiece": sentencepiece.__version__,
            "tokenizers": tokenizers.__version__,
        },
        "command": f"python benchmarks/vocabulary.py CORPORA --sizes {options.sizes} --characters {options.characters}"
        f" --workers {options.workers} --new {options.new}",
        "alpha": ALPHA,
        "beta": BETA,
        "held out": f"1 line in {ONE_IN} by hash; up to 2,000 of them a language",
        "text": seen.characters,
        "parts": parts,
        "runs": runs,
        "extension": extension(sample, held, options.new.split(","), options.workers),
    }
    write_json(options.out / f"{date.today().isoformat()}-vocabulary.json", result)


def measured(vocabulary: Vocabulary, held: Mapping[str, Sequence[str]]) -> dict[str, Row]:
    return {
        language: row | {"alp": round(likelihood(vocabulary.counts(held[language]).tolist(), len(held[language])), 3)}
        for language, row in describe(vocabulary, held).items()
    }


def means(rows: Mapping[str, Row], languages: Sequence[str]) -> Row:
    """Geometric where languages differ in scale: those without spaces have words of twenty pieces."""
    fertility = math.exp(np.mean([math.log(rows[language]["fertility"]) for language in languages]))
    alp, coverage = (np.mean([rows[language][key] for language in languages]) for key in ("alp", "coverage"))
    return {"fertility": round(fertility, 3), "alp": round(float(alp), 2), "coverage": round(float(coverage), 5)}


def show(run: dict[str, Any], first: dict[str, Any], parts: Mapping[str, Sequence[str]]) -> None:
    if run is first:
        print(f"{'':22}" + "".join(f"{part + ': pieces a word, ALP, unknown':>42}" for part in parts))
    cells = []
    for part in parts:
        mean, base = run["means"][part], first["means"][part]
        change = mean["fertility"] / base["fertility"] - 1
        cells.append(f"{mean['fertility']:.3f} ({change:+.1%}) {mean['alp']:.1f} {1 - mean['coverage']:.3%}")
    print(f"{run['allocate']} {run['size']:>7,} {run['seconds']:>5} s " + "".join(f"{cell:>42}" for cell in cells))


def extension(
    sample: Mapping[str, Sequence[str]], held: Mapping[str, Sequence[str]], new: Sequence[str], workers: int
) -> dict[str, Any]:
    """How the new languages fare before and after pieces are added for them, and what it does to the others."""
    others = [language for language in sample if language not in new]
    old_lines = [line for language in others for line in sample[language]]
    new_lines = [line for language in new for line in sample[language]]
    old = Vocabulary.of(unigram.train(map(nfkc, old_lines), 32_000 - len(SPECIAL), workers), plain_map())
    more = extend(old, new_lines, old.size + ADDED, workers)
    changed = {
        language: float(
            np.mean([a != b for a, b in zip(*(v.encode(held[language]) for v in (old, more)), strict=True)])
        )
        for language in others
    }
    rows = {
        name: describe(v, {language: held[language] for language in new}) for name, v in (("old", old), ("new", more))
    }
    tokens = [sum(int(v.counts(held[language]).sum()) for language in others) for v in (old, more)]
    result = {
        "added pieces": ADDED,
        "new languages": {
            language: {f"{key} {name}": rows[name][language][key] for name in rows for key in ("fertility", "coverage")}
            for language in new
        },
        "lines of the others that are cut differently": round(float(np.mean(list(changed.values()))), 4),
        "pieces of the others, new over old": round(tokens[1] / tokens[0], 5),
        "pieces added that the sample uses": int((more.counts(new_lines)[old.size - 1 : -1] > 0).sum()),
    }
    print(result)
    return result


if __name__ == "__main__":
    main()
