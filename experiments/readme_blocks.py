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
    readme = ROOT / "README.md"
    readme.write_text(fill(readme.read_text(encoding="utf-8")), encoding="utf-8")
    print(readme)


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


def adaptation() -> str:
    """Return the sentence on the scores before and after the adaptation of the tutorial."""
    results = _newest("tutorial-adaptation")
    icelandic, german = (results["retrieval_layer_5_both_directions"][code] for code in ("is", "de"))
    return (
        f"In the [tutorial](docs/tutorials/adapt-an-encoder.md) these {results['cost']['steps']} steps on a CPU raise "
        f"retrieval in Icelandic from {icelandic['before']:.1f}%\nto {icelandic['after']:.1f}%, and keep German "
        f"({german['before']:.1f}%, then {german['after']:.1f}%; one seed)."
    )


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
