"""The report of `check` or `clean` as a person reads it: the corpora, the worst with an example, the benchmarks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

WORST = 3  # corpora for each reason
MOST = 12  # of anything else that is listed
FEWEST = 5  # rows, for a share of them to be remarkable
SHOWN = 100  # characters of an example


def tables(report: dict[str, Any]) -> Iterator[RenderableType]:
    rows = report["corpora"]
    yield _corpora(rows, "kept" if "files" in report else "no reason")
    yield from _worst(rows)
    seen: Counter[str] = Counter()
    for row in rows:
        for language, instead in row["seen instead"].items():
            seen.update({f"{other} in {language}": count for other, count in instead.items()})
    notes = {
        "Seen instead of the language expected": _listed(dict(seen.most_common(MOST))),
        "Languages unknown to the identifier, so no line of them is called wrong": ", ".join(
            sorted({language for row in rows for language in row["language not judged"]})
        ),
        "Pairs that another corpus holds already": _listed(_held(rows)),
        "Languages with few pairs": _listed(report.get("languages with few pairs", {})),
        "Languages with too few pairs, left out of the bitext": _listed(report.get("languages with too few pairs", {})),
        "Corpora left out as a whole": ", ".join(f"{name} ({why})" for name, why in report.get("gone", {}).items()),
        "Rules not applied, for want of a package (pip install crossling[data])": ", ".join(
            f"{rule.replace('_', ' ')} ({package})"
            for rule, package in report.get("rules without their package", {}).items()
        ),
    }
    yield from (_line(f"{head}: ", tail) for head, tail in notes.items() if tail)
    if any(row["exact"] or row["near"] for row in report["benchmarks"]):
        yield _benchmarks(report["benchmarks"])
    elif report["benchmarks"]:
        yield _line("No sentence of the benchmarks was found.", "")


def _corpora(rows: Sequence[dict[str, Any]], kept_means: str) -> Table:
    """All languages of a multi-way set in one row."""
    table = Table("corpus", "rows read", kept_means, "reasons", title="Corpora")
    sums: dict[str, tuple[int, int, Counter[str]]] = {}
    for row in rows:
        read, kept, reasons = sums.get(_collection(row), (0, 0, Counter()))
        sums[_collection(row)] = read + row["read"], kept + row["kept"], reasons + Counter(row["reasons"])
    sums["all"] = (
        sum(read for read, _, _ in sums.values()),
        sum(kept for _, kept, _ in sums.values()),
        sum((reasons for _, _, reasons in sums.values()), Counter()),
    )
    for name, (read, kept, reasons) in sums.items():
        table.add_row(name, f"{read:,}", f"{kept:,}", _listed(dict(reasons.most_common())))
    return table


def _worst(rows: Sequence[dict[str, Any]]) -> Iterator[RenderableType]:
    """For each reason the corpora with the largest shares of it."""
    found: dict[str, list[tuple[float, dict[str, Any]]]] = {}
    for row in rows:
        for reason, count in row["reasons"].items():
            if count >= FEWEST and row["examples"].get(reason):
                found.setdefault(reason, []).append((count / row["read"], row))
    for reason, shares in found.items():
        yield _line(f"\n{reason}, the largest shares:", "")
        for share, row in sorted(shares, key=lambda one: (-one[0], one[1]["corpus"]))[:WORST]:
            example = row["examples"][reason][0]
            text = " | ".join(part[:SHOWN] for part in example["text"])
            first = f" (first: {example['first in']}, row {example['first row']})" if "first in" in example else ""
            yield _line(f"  {row['corpus']} {share:.1%}, as in row {example['row']}{first}: ", text)


def _benchmarks(rows: Sequence[dict[str, Any]]) -> Table:
    table = Table(
        "benchmark", "language", "sentences", "found", "nearly", "in", title="Benchmark sentences in the text"
    )
    sums: dict[tuple[str, str], tuple[Counter[str], Counter[str]]] = {}
    for row in rows:
        counts, where = sums.setdefault((row["benchmark"], row["language"]), (Counter(), Counter()))
        counts.update({key: row[key] for key in ("sentences", "exact", "near")})
        where.update(row["corpora"])
    for (benchmark, language), (counts, where) in sums.items():
        if where:
            numbers = [f"{counts[key]:,}" for key in ("sentences", "exact", "near")]
            table.add_row(benchmark, language, *numbers, _listed(dict(where.most_common(3))))
    return table


def _held(rows: Sequence[dict[str, Any]]) -> dict[str, int]:
    found: Counter[str] = Counter()
    for row in rows:
        for other, count in row["also in"].items():
            found[f"{row['corpus']} of {other}"] += count
    return dict(found.most_common(MOST))


def _collection(row: dict[str, Any]) -> str:
    name = str(row["corpus"])
    return name.rpartition("/")[0] if name.startswith("multi/") else name


def _listed(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in counts.items())


def _line(head: str, tail: str) -> Text:
    """As it is: brackets in a text are no markup."""
    return Text(head + tail)
