"""Check the wording of code, tests and pages against the glossary in CONTRIBUTING.

    python tools/check_wording.py [PATH ...]

Prints `file:line: found -> write` for every term that readers of the field do not use and `file:line: N words` for
every sentence over 30 words. Exits with 1 if there is any. Identifiers are checked word by word: `_` and capital
letters separate words.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
DEFAULT = ("src", "tests", "tools", "examples", "experiments", "CHANGELOG.md", "CONTRIBUTING.md", "Makefile")
SUFFIXES = (".py", ".md", ".jinja", ".sh", ".sbatch")
# Data, other people's words, and this list itself with its test.
SKIPPED = ("tools/check_wording.py", "tests/tools", "src/crossling/bundled/model", "experiments/results")
LONGEST = 30  # words in a sentence


@dataclass(frozen=True)
class Rule:
    """One term to replace.

    Args:
        found: Regular expression of the term, matched case-insensitively.
        write: What to write in its place.
        unless: Regular expression of contexts in which the term is right, matched against the same line.
        only: Path prefixes the rule applies to. All if empty.
        exempt: Path prefixes the rule does not apply to.
    """

    found: str
    write: str
    unless: str = ""
    only: tuple[str, ...] = ()
    exempt: tuple[str, ...] = ()


LINGUISTICS = ("src/crossling/synthetic", "tests/synthetic")
TRAINING = ("src/crossling/train", "src/crossling/finetune", "src/crossling/recipes", "src/crossling/planning")
LAB = ("src/crossling/lab", "tests/lab")
RULES = (
    Rule(r"peak rate|rate of the optimizer|(?<!learning )\brate of adam", "learning rate"),
    Rule(
        r"\brates?\b",
        "learning rate (lr), or say which rate",
        unless=r"(learning|error|sampling|masking|mask|dropout|drop|noise|damage|sample|frame|skip|keep|corruption|"
        r"replacement|discovery|hit|acceptance|success)[ _-]rates?|rates? (per|of (replacement|masking|noise|damage))|"
        r"\brate=|\"rates\"|\"generator rate\"",  # of masking; keys of plan --json; an alias
        only=TRAINING,
    ),
    Rule(
        r"\bpieces?\b",
        "token, subword or vocabulary entry",
        unless=r"id to piece|piece to id|\.pieces\b|\.piece\b|piece size|PieceTo|encode as pieces|EncodeAsPieces|"
        r"piece=|unk piece|bos piece|eos piece|pad piece|user defined|SentencePiece\(|WordPiece",
    ),
    Rule(
        r"\b(the|its|all|other|these|of) maps\b|\bmaps of\b", "weight matrices, linear layers", unless=r"attention maps"
    ),
    Rule(r"on the way back", "in the backward pass"),
    Rule(r"\bboth ways\b", "forward and backward, or in both directions"),
    Rule(r"computed again|recomputed on the way", "activation checkpointing"),
    Rule(r"\b(goes|gone|go|going|went) on\b", "resumes, continues"),
    Rule(r"\bbegun\b|\bbeg[ia]n(s|ning)? as\b|\bbegan as\b", "started, initialized from"),
    Rule(r"from nothing", "from scratch"),
    Rule(r"\bcontrast\b", "contrastive loss, contrastive learning", unless=r"in contrast|prefers-contrast"),
    Rule(
        r"\bdetection\b",
        "replaced token detection (RTD)",
        unless=r"replaced[ -]token[ -]detection|language[ -]detection|(duplicate|collapse|encoding) detection|RTD",
    ),
    Rule(
        r"\bmasking (objective|loss|task)s?\b|\b(objective|loss|task) of masking\b|\bby masking\b",
        "masked language modelling (MLM)",
    ),
    Rule(r"\bleft out\b|\bleaves? out\b|\bleav(e|ing) \S+( \S+){0,3} out\b", "skip, omit, exclude"),
    Rule(
        r"\bdrawn\b|\bdraws\b",
        "sampled, samples",
        exempt=("src/crossling/report",),
        unless=r"(chart|plot|figure|curve|picture|axis)",
    ),
    Rule(r"\banew\b", "again, resample"),
    Rule(
        r"\bshares\b",
        "proportions, sampling probabilities, or: has in common",
        unless=r"weights|table|embedding|memory|machine|of the jobs|\bshare\b",
        exempt=("tests/cleaning", "tests/core", "tests/data"),  # of --share I/N
    ),
    Rule(r"\b(told|tells?|telling)\b", "report, log, return, distinguish", unless=r"\.tell\(\)"),
    Rule(r"\b(says|said)\b", "reports, logs, returns, states"),
    Rule(r"\b(speaks?|spoke|speaking|hears?|heard|hearing)\b", "is_main_process, logs, receives"),
    Rule(r"first one then all", "main_process_first"),
    Rule(r"last words", "ERROR_GRACE_SECONDS"),
    Rule(r"\b(asks?|asked|asking)\b", "request, requested"),
    Rule(r"\blooks\b", "evaluations, probes, reads"),
    Rule(r"\bjudg(e|es|ed|ing|e?ments?)\b", "check, score, filter", unless="entailment judgment"),  # column of SICK
    Rule(r"\bmend(s|ed|ing)?\b", "fix, fixed"),
    Rule(r"\bforg[eo]ts?\b|\bforgotten\b|\bremember(s|ed|ing)?\b", "reset, store"),
    Rule(r"\bborn\b", "created"),
    Rule(r"\brooms?\b", "package, module, space"),
    Rule(  # unless a sentence of an example has the word
        r"\bhouses?\b",
        "codebase, package",
        unless=r"white.{0,3}house|house.{0,3}white|[\"']house[\"']|maison|Haus|house the|house zq|(blue|that) house",
    ),
    Rule(r"\bbox\b", "bundled model", unless=r"box-(sizing|shadow)|view-?box|check-?box|bounding|border-box|Box-M"),
    Rule(r"\b(embedded|constructed) languages?\b|\bbabel\b", "synthetic languages", unless="`babel`"),
    Rule(r"\bplace of (a|an|the|each|every|its) (token|subword|word)\b|\b(token|subword|word)'s place\b", "position"),
    Rule(r"number of processes", "world size"),
    Rule(r"\bthe first process\b", "the main process"),
    Rule(r"\bsteady\b|usual norm", "gradient-norm guard, running mean of the gradient norm"),
    Rule(r"\bpace\b|\b(time|minutes|hours) left\b", "throughput, ETA"),
    Rule(r"\baccounts?\b", "training cost", unless=r"accounts? for|into account|accounted|on account|user account"),
    Rule(r"\bwindow\b", "metrics accumulator", only=("src/crossling/train",)),
    Rule(r"(?-i:\bMeasured\b)(?= ?[(:])", "Result", only=("src",)),
    Rule(r"(?-i:\bShown\b)(?= ?[(:])", "report view", only=("src",)),
    Rule(r"\bboards?\b", "leaderboard", unless=r"tensorboard|keyboard|dashboard|clipboard"),
    Rule(r"\bmaterial\b", "shared inputs, data"),
    Rule(r"\btrials?\b", "run", unless=r"\"trial\""),
    Rule(r"\bunits?\b", "run", only=LAB),
    Rule(r"\bverdicts?\b|\bundecided\b|\bnot held\b", "claim status: supported, contradicted, inconclusive"),
    Rule(r"\bheld\b", "supported", unless="held[ -]out", only=LAB),
    Rule(r"\bfinalists?\b", "runs that are also fine-tuned"),
    Rule(r"\blaborator(y|ies)\b", "lab"),
    Rule(r"parts? of speech", "POS", exempt=LINGUISTICS),
    Rule(
        r"\b(names|answers|inference)(,| and| or) (answers|inference|parts of speech|NER|POS|NLI|QA)\b|"
        r"\b(names|answers|inference) (task|benchmark)s?\b|\btasks? of (names|answers|inference)\b",
        "NER, QA, NLI",
    ),
    Rule(r"errors of word alignment", "alignment error rate (AER)"),
    Rule(r"\bpiles?\b", "monolingual corpora"),
    Rule(r"\bfates?\b|\bstrangers?\b", "replacement draw, random token", unless=r"\"fate\", \"stranger\""),
    Rule(r"(?-i:\bSeen\b)(?=[(\[:])", "AttentionMask"),
    Rule(
        r"\bif not (said|named|given)\b|\bif (none|nothing) is (said|named|given)\b|\bunless (said|named)\b",
        "[default: ...]",
    ),
    Rule(r"\bwhoever\b", "name the actor"),
    Rule(r"by hand made|made up of languages", "synthetic"),
)
_SENTENCE = re.compile(r"(?<=[.!?;:])\s+(?=[\"'`(A-Z0-9])")


def main(paths: list[str]) -> int:
    """Print every finding in `paths` and return the exit code."""
    found = [finding for file in files(paths) for finding in check(file)]
    for finding in found:
        print(finding)
    print(f"{len(found)} findings")
    return bool(found)


def files(paths: list[str]) -> Iterator[Path]:
    """Yield the files named in `paths` (or in the default) and the text files below the folders named there."""
    for name in paths or DEFAULT:
        path = (ROOT / name).resolve()
        # By suffix only: an installed package leaves PKG-INFO, a copy of the README, in src.
        below = sorted(file for file in path.rglob("*") if file.suffix in SUFFIXES) if path.is_dir() else [path]
        yield from (file for file in below if not file.relative_to(ROOT).as_posix().startswith(SKIPPED))


def check(file: Path) -> Iterator[str]:
    """Yield the findings of one file."""
    relative = file.relative_to(ROOT).as_posix()
    text = file.read_text(encoding="utf-8")
    rules = [
        rule
        for rule in RULES
        if (not rule.only or relative.startswith(rule.only)) and not relative.startswith(rule.exempt or ("\0",))
    ]
    for number, line in enumerate(text.splitlines(), start=1):
        words = re.sub(r"(?<=[a-z])(?=[A-Z])(?<!Sentence)(?<!Word)", " ", line).replace("_", " ")  # not SentencePiece
        for rule in rules:
            for match in re.finditer(rule.found, words, re.IGNORECASE):
                if not (rule.unless and re.search(rule.unless, words, re.IGNORECASE)):
                    yield f"{relative}:{number}: {match[0]!r} -> {rule.write}"
    for number, sentence in prose(text, file.suffix):
        count = len(re.findall(r"[A-Za-z][\w'-]*", sentence))
        if count > LONGEST:
            yield f"{relative}:{number}: {count} words in a sentence: {sentence[:60]!r}"
    if file.suffix == ".py":
        yield from headless(text, relative)


def headless(text: str, relative: str) -> Iterator[str]:
    """Yield docstrings that do not start with a verb or a noun."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            docstring = ast.get_docstring(node) or ""
            if re.match(r"(Of|What|Whether|That|Which|Where|How|Who|Whose|By|So|As|To|And|Not)\b", docstring):
                line = getattr(node, "lineno", 1)
                yield f"{relative}:{line}: docstring starts with {docstring.split()[0]!r} -> a verb or a noun"


def prose(text: str, suffix: str) -> Iterator[tuple[int, str]]:
    """Yield the sentences of docstrings and comments, or of Markdown paragraphs, with their lines."""
    for number, block in blocks(text, suffix):
        for paragraph in re.split(r"\n\s*\n|\n\s*(?=[-*|>]|\d+\. )", block):
            if re.search(r"^\s{4,}\S", paragraph) or paragraph.lstrip().startswith(("|", "```", "$", ">>>")):
                continue
            for sentence in _SENTENCE.split(" ".join(paragraph.split())):
                yield number, sentence


def blocks(text: str, suffix: str) -> Iterator[tuple[int, str]]:
    """Yield the parts of a file that are prose, with the line each starts at."""
    if suffix == ".md":
        outside = re.sub(r"```.*?```", lambda match: "\n" * match[0].count("\n"), text, flags=re.DOTALL)
        yield from ((1, part) for part in outside.split("\n\n"))
    if suffix != ".py":
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node):
            yield getattr(node, "lineno", 1), re.split(r"\n\s*(Example|Examples|>>>)", ast.get_docstring(node) or "")[0]
    comment: list[str] = []
    start = last = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            if comment and (token.start[0] != last + 1 or not token.line.lstrip().startswith("#")):
                yield start, "\n".join(comment)
                comment = []
            start = start if comment else token.start[0]
            comment.append(token.string.lstrip("# "))
            last = token.start[0]
    if comment:
        yield start, "\n".join(comment)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
