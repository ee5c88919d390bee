"""Benchmarks on disk, in the formats of Tatoeba retrieval and of gold word alignment."""

from __future__ import annotations

from pathlib import Path

from crossling.babel.alignment import links
from crossling.babel.heldout import Candidate
from crossling.babel.language import text
from crossling.babel.resources import Pair


def write_retrieval(folder: Path, pairs: list[Pair], sentences: list[Candidate]) -> None:
    """Two files a pair in v1/; line i of one translates line i of the other. What each side is translated to, for those
    who read a sentence with its translation, stands in translated/CODE/ under its name."""
    for pair in pairs:
        for code, other in (pair, pair[::-1]):
            lines = "".join(text(one.renderings[code]) + "\n" for one in sentences)
            name = f"tatoeba.{pair[0]}-{pair[1]}"
            for path in (folder / "v1" / f"{name}.{code}", folder / "translated" / code / f"{name}.{other}"):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(lines, encoding="utf-8", newline="\n")


def write_alignment(folder: Path, pairs: list[Pair], sentences: list[Candidate]) -> None:
    """`source words ||| target words`, and on the same line of the gold file its links counted from 1.

    `i-j` is a sure link and `ipj` a possible one; a sure link is possible too and not repeated.
    """
    for source, target in pairs:
        name = f"{source}-{target}"
        texts, gold = [], []
        for one in sentences:
            left, right = one.renderings[source], one.renderings[target]
            texts.append(f"{text(left)} ||| {text(right)}\n")
            marks = [f"{i + 1}{'-' if sure else 'p'}{j + 1}" for i, j, sure in links(left, right)]
            gold.append(" ".join(marks) + "\n")
        (folder / name).mkdir(parents=True)
        (folder / name / f"{name}.src-tgt").write_text("".join(texts), encoding="utf-8", newline="\n")
        (folder / name / f"{name}.gold").write_text("".join(gold), encoding="utf-8", newline="\n")
