"""Figures of the bundled model, from the provenance file in its folder: scores, training data and commands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from markdown_tables import code, table

from crossling.bundled import folder


def scores() -> str:
    """Return the scores of the run and of the bundled file, which has weights in 8 bits."""
    known = _provenance()
    before, after = known["before"], known["after"]
    layer = str(after["layer"])
    rows = [["Tatoeba, accuracy in %", *(f"{each['tatoeba'][layer]:.2f}" for each in (before, after))]]
    rows += [
        [f"AER {pair}", *(f"{each['aer'][pair][layer]:.1f}" for each in (before, after))]
        for pair in sorted(after["aer"], key=lambda pair: after["aer"][pair][layer])
    ]
    cosine = known["cosine"]
    similarity = f"{cosine['mean']:.4f} (least {cosine['least']:.4f})"
    rows.append([f"cosine of {cosine['sentences']:,} sentence vectors", "", similarity])
    return table([f"layer {layer}", "run, float32", "bundled, int8"], rows)


def scores_by_language() -> str:
    """Return the Tatoeba score and the training data of each language, the best first."""
    known = _provenance()
    found, counts = known["after"]["languages"], known["languages"]
    order = sorted(counts, key=lambda language: (-found.get(language, -1.0), language))
    rows = [
        [
            code(language),
            f"{found[language]:.1f}" if language in found else "",
            f"{counts[language]['text']:,}",
            f"{counts[language]['rows']:,}",
        ]
        for language in order
    ]
    return table(["language", "Tatoeba, %", "lines of text", "rows of multi-way parallel text"], rows)


def training_data() -> str:
    """Return the parts of the training data with their licences."""
    rows = [
        [code(part["name"]), str(len(part["languages"])), f"{part['lines']:,}", part["source"]]
        for part in _provenance()["text"]["kept"]
    ]
    return table(["part", "languages", "lines", "source and licence"], rows)


def excluded_data() -> str:
    """Return the data sets that were excluded, with the reason."""
    return table(["excluded", "licence"], list(_provenance()["text"]["excluded"].items()))


def commands() -> str:
    """Return the commands that built the model."""
    lines = "\n".join(_provenance()["commands"])
    return f"```text\n{lines}\n```\n"


def _provenance() -> dict[str, Any]:
    stored: dict[str, Any] = json.loads((Path(folder()) / "provenance.json").read_text(encoding="utf-8"))
    return stored
