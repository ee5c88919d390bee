"""Code blocks of a Markdown page, with the comments that say how a test runs them."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path

EXECUTED = ("bash", "console", "python")
REASONS = ("needs a GPU", "needs a cluster", "needs the network")  # for blocks that are not run
_COMMENT = re.compile(r"\s*(?:% ?|<!-- ?)(?P<kind>not run|shorter|files): (?P<text>.*?)(?: ?-->)?\s*")
_FENCE = re.compile(r"(?P<indent> *)(?P<ticks>`{3,})(?P<info>.*)")


@dataclass(frozen=True)
class Block:
    """A fenced block of code.

    Args:
        language: `bash`, `console` or `python`.
        code: Its text, after the replacements of a `shorter` comment.
        line: Line of the page on which the block starts, from 1.
        reason: Text of its `not run` comment, or nothing.
    """

    language: str
    code: str
    line: int
    reason: str = ""


@dataclass(frozen=True)
class Page:
    """The code of a page and the prepared files that it starts from."""

    path: Path
    files: tuple[str, ...]
    blocks: tuple[Block, ...]


def read_page(path: Path) -> Page:
    """Return the executable blocks of a Markdown page.

    A comment applies to the block directly below it. It is a line `% kind: text`, or `<!-- kind: text -->` where the
    page is also wanted outside of the site. Kinds:

        files: corpora shards        prepared files that the page starts from
        not run: needs a GPU         the block is not run
        shorter: steps=900 -> steps=2; large -> tiny    replaced in the block before a test runs it
    """
    files: list[str] = []
    blocks: list[Block] = []
    comments: dict[str, str] = {}
    directives: list[str] = []  # fences of the directives that are open
    lines = enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
    for number, line in lines:
        if comment := _COMMENT.fullmatch(line):
            kind, text = comment["kind"], comment["text"]
            files += text.split() if kind == "files" else []
            comments[kind] = f"{comments[kind]}; {text}" if kind in comments else text
        elif fence := _FENCE.match(line):
            language = fence["info"].replace("{code-block}", "").strip()
            if language.startswith("{"):  # a directive: blocks inside of it count
                directives.append(fence["ticks"])
                continue
            if not language and directives and fence["ticks"] == directives[-1]:
                directives.pop()
                continue
            body = []
            for _, inner in lines:
                if inner.strip() == fence["ticks"]:
                    break
                body.append(inner.removeprefix(fence["indent"]))
            if language in EXECUTED:
                code = shorten("\n".join(body), comments.get("shorter", ""))
                blocks.append(Block(language, code, number, comments.get("not run", "")))
            comments = {}
        elif line.strip():
            comments = {}
    return Page(path, tuple(files), tuple(blocks))


def shorten(code: str, replacements: str) -> str:
    """Apply `old -> new; old -> new` to a block.

    Raises:
        ValueError: An old text is not in the block.
    """
    for rule in filter(None, replacements.split("; ")):
        old, _, new = rule.partition(" -> ")
        if old not in code:
            raise ValueError(f"shorter: {old!r} is not in the block")
        code = code.replace(old, new)
    return code


def split_console(code: str) -> list[tuple[str, list[str]]]:
    """Return the commands of a console block, each with the lines of output below it."""
    found: list[tuple[str, list[str]]] = []
    for line in code.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        elif found and found[-1][0].endswith("\\") and not found[-1][1]:
            found[-1] = (f"{found[-1][0]}\n{line}", [])
        elif found:
            found[-1][1].append(line.rstrip())
    return found


def output_matches(expected: list[str], output: str) -> bool:
    """Return whether output is as on the page.

    `...` stands for any text, alone on a line also for any lines. Numbers with three or more decimals may differ by
    0.5%, because they depend on the CPU.
    """
    text = "\n".join(line.rstrip() for line in output.strip("\n").splitlines())
    wanted = "\n".join(expected).strip("\n")
    parts = [re.escape(part).replace(re.escape("..."), ".*?") for part in re.split(r"(?m)^\.\.\.$", wanted)]
    pattern = re.sub(r"\d+\\\.\d{3,}", lambda _: r"(\d+\.\d{3,})", r"(?s:.*)".join(parts))
    match = re.fullmatch(pattern, text)
    return match is not None and all(
        math.isclose(float(number), float(found), rel_tol=0.005)
        for number, found in zip(re.findall(r"\d+\.\d{3,}", wanted), match.groups(), strict=True)
    )
