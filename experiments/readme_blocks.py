"""Fill the generated parts of README.md from stored results: the comparison and the scores of the bundled model.

    python experiments/readme_blocks.py

Each part stands between `<!-- NAME: made by experiments/readme_blocks.py -->` and `<!-- until here -->`. The table of
the recipes has the same form and comes from experiments/publish.py.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "experiments" / "results"
END = "<!-- until here -->"


def main() -> None:
    readme, guide = ROOT / "README.md", ROOT / "docs" / "how-to" / "adapt.md"
    readme.write_text(fill(readme.read_text(encoding="utf-8")), encoding="utf-8")
    start = "<!-- adapt: made by experiments/readme_blocks.py -->"
    guide.write_text(replace_part(guide.read_text(encoding="utf-8"), start, adaptation_table()), encoding="utf-8")
    print(readme, guide)


def fill(text: str) -> str:
    """Return the README with current generated parts."""
    for name, part in (("comparison", comparison()), ("bundled", bundled()), ("adaptation", adaptation())):
        text = replace_part(text, f"<!-- {name}: made by experiments/readme_blocks.py -->", part)
    return text


def replace_part(text: str, start: str, part: str) -> str:
    """Return the text with another part between the marker `start` and the next end marker.

    Raises:
        ValueError: A marker is missing.
    """
    before, found, rest = text.partition(start)
    _, end, after = rest.partition(END)
    if not (found and end):
        raise ValueError(f"expected {start!r} and after it {END!r}")
    return f"{before}{found}\n{part}\n{end}{after}"


def comparison() -> str:
    """Return the table of crossling beside Hugging Face."""
    rtd = _row("speed-step", "xlm_e, best batch (256)", "Hugging Face ELECTRA pair, head at masked, compiled, batch 64")
    mlm = _row("speed-recipes", "xlm_r (MLM), batch 64", "Hugging Face XLM-R, compiled, batch 32")
    vectors = _row("speed-encode", "embedding 10,000 sentences", "Sentence Transformers, batches of 102")
    rows = [
        ("", "crossling", "Hugging Face"),
        ("Pre-training code of XLM-E, XY-LENT, InfoXLM and VECO", "yes", "no"),
        ("XLM-E Base step, tokens/s", *_figures(rtd)),
        ("XLM-R Base MLM step, tokens/s", *_figures(mlm)),
        ("Sentence vectors, sentences/s", *_figures(vectors)),
    ]
    lines = [f"| {' | '.join(row)} |" for row in rows]
    note = """One H200, bf16, compiled ([how](docs/research/speed.md)). XLM-E: our best batch beside ELECTRA's 64.
XLM-R: our head reads masked positions, the peer's all positions. Vectors: beside Sentence Transformers."""
    return "\n".join([lines[0], "|---|---|---|", *lines[1:]]) + f"\n\n{note}"


def bundled() -> str:
    """Return the sentence on the scores of the bundled model."""
    results = _newest("bundled-model")["runs"]["with TLM, ships"]["int8"]
    layer = str(results["layer"])
    languages, aer = results["languages"], results["aer"]
    examples = ", ".join(f"{code} {languages[code]:.0f}" for code in ("de", "zh", "sw", "jv"))
    return (
        f"The model finds {results['tatoeba'][layer]:.1f}% of Tatoeba's translations in {len(languages)} languages "
        f"({examples}). Its\nalignment error rate is {aer['de-en'][layer]:.1f} for German-English and "
        f"{aer['en-fr'][layer]:.1f} for English-French ([details](docs/reference/bundled-model.md))."
    )


NAMES = {"is": "Icelandic", "lt": "Lithuanian", "mk": "Macedonian"}


def adaptation() -> str:
    """Return the sentence on the scores before and after the adaptation of the bundled model."""
    runs = _newest("adapt")["runs"]
    scores = [f"{NAMES[code]} {' to '.join(_retrieval(runs[code], 'new'))}" for code in runs]
    kept = [" to ".join(_retrieval(runs[code], "kept")) for code in runs]
    steps = ", ".join(str(run["settings"]["steps"]) for run in runs.values())
    return (
        f"Retrieval on held-out pairs, %: {', '.join(scores)}.\n"
        f"Mean of the other languages: {', '.join(kept)}.\nOne seed, {steps} steps on a busy CPU, from messy files."
    )


def adaptation_table() -> str:
    """Return the table of the adaptations of the bundled model."""
    runs = list(_newest("adapt")["runs"].values())
    names = [NAMES[code] for code in _newest("adapt")["runs"]]
    rows = [f"| | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]

    def add(name: str, *values: str) -> None:
        rows.append(f"| {name} | {' | '.join(values)} |")

    add("training pairs", *(f"{sum(run['text']['pairs'].values()):,}" for run in runs))
    add("steps (epochs)", *(f"{run['settings']['steps']} ({run['settings']['epochs']:g})" for run in runs))
    add("minutes of training", *(f"{run['training']['seconds'] / 60:.1f}" for run in runs))
    for measure, digits in (("retrieval, %", 1), ("tokens per word", 2), ("known tokens, %", 1)):
        add(measure, *(" → ".join(_retrieval(run, "new", measure, digits)) for run in runs))
    add("retrieval, other languages, %", *(" → ".join(_retrieval(run, "kept")) for run in runs))
    add("largest loss", *map(_largest_loss, runs))
    note = """
The bundled model was trained on none of them. Pairs of the `tatoeba` set and text of Common Voice were written as csv,
xlsx, TMX and text in four encodings, with copies, repeated rows and HTML entities. One seed, two busy CPU cores,
`--minutes 7`. Retrieval is among 500 held-out pairs, and among 50 for each other language. A run of ten epochs, the
default, was not measured. Command: `python experiments/adapt.py run FILES -o RUNS --minutes 7`."""
    return "\n".join(rows) + "\n" + note


def _retrieval(run: dict[str, Any], role: str, measure: str = "retrieval, %", digits: int = 1) -> list[str]:
    changes = [each for each in run["changes"] if (each["role"], each["measure"]) == (role, measure)]
    return [f"{sum(each[when] for each in changes) / len(changes):.{digits}f}" for when in ("before", "after")]


def _largest_loss(run: dict[str, Any]) -> str:
    changes = [each for each in run["changes"] if (each["role"], each["measure"]) == ("kept", "retrieval, %")]
    worst = min(changes, key=lambda each: each["after"] - each["before"])
    return f"{worst['language']} {worst['before']:.1f} → {worst['after']:.1f}"


def _newest(name: str) -> dict[str, Any]:
    results: dict[str, Any] = json.loads(sorted(RESULTS.glob(f"*-{name}.json"))[-1].read_text(encoding="utf-8"))
    return results


def _row(results: str, name: str, peer: str) -> dict[str, Any]:
    [row] = [row for row in _newest(results)["rows"] if (row["name"], row.get("peer_name")) == (name, peer)]
    return dict(row)


def _figures(row: dict[str, Any]) -> tuple[str, str]:
    return f"**{row['ours']:,.0f}**", f"{row['peer']:,.0f}"


if __name__ == "__main__":
    main()
