"""Check the wording of code, tests and pages against the glossary in CONTRIBUTING.

    python tools/check_wording.py [PATH ...]

Prints `file:line: found -> write` for every term that readers of the field do not use and `file:line: N words` for
every sentence over 30 words. In pages, a line of one upper-case word is a placeholder. Exits with 1 if there
is any. Identifiers are checked word by word: `_` and capital letters separate words. `--table` prints the glossary of
CONTRIBUTING.
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
DEFAULT = (
    *("src", "tests", "tools", "examples", "experiments", "docs"),
    *("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "Makefile"),
)
SUFFIXES = (".py", ".md", ".jinja", ".sh", ".sbatch")
# Data, other people's words, and this list itself with its test.
SKIPPED = ("tools/check_wording.py", "tests/tools", "src/crossling/bundled/model", "experiments/results")
LONGEST = 30  # words in a sentence


@dataclass(frozen=True)
class Rule:
    """One term to replace.

    Args:
        term: Name of the term in the glossary.
        found: Regular expression of the term, matched case-insensitively.
        write: What to write in its place.
        unless: Regular expression of the term in a context in which it is right. Its match has to overlap the term.
        only: Path prefixes the rule applies to. All if empty.
        exempt: Path prefixes the rule does not apply to.
    """

    term: str
    found: str
    write: str
    unless: str = ""
    only: tuple[str, ...] = ()
    exempt: tuple[str, ...] = ()


LINGUISTICS = ("src/crossling/synthetic", "tests/synthetic")
MASKING = ("src/crossling/objectives", "tests/objectives")
QA_CONTEXTS = ("src/crossling/finetune", "src/crossling/tasks", "tests/finetune")
SHUFFLE_WINDOWS = (
    *("src/crossling/data", "tests/data", "experiments/step_data.py", "tests/experiments/test_step_data.py"),
)
JOBS = ("tests/cleaning", "tests/core", "tests/data")  # --share I/N
EXAMPLES = ("tests/evaluate", "tests/inference")  # "the house" is a sentence
LAB = ("src/crossling/lab", "tests/lab")
NAME = r"(?= ?=(?!=)| ?:=|: \w+ =|, \*|\()"  # the term is the name of a variable or a function
RULES = (
    Rule("peak rate", r"peak rate|rate of the optimizer|(?<!learning )\brate of adam", "peak learning rate"),
    Rule(
        "rate",
        r"\brates?\b",
        "learning rate (`lr`), or say which rate",
        unless=r"(learning|error|sampling|masking|mask|dropout|drop|noise|damage|sample|frame|skip|keep|corruption|"
        r"replacement|discovery|hit|acceptance|success)[ _-]rates?|rates? (per|of (replacement|masking|noise|damage))|"
        r"[.( ]rate=|[\w}]\.rate\b|\"rates?\"|generator rate",  # of masking; keys of plan --json; an alias
        exempt=MASKING,
    ),
    Rule(
        "pieces",
        r"\bpieces?\b",
        "tokens, subwords or vocabulary entries",
        unless=r"id to piece|piece to id|\.pieces?\b|piece size|PieceTo|encode as pieces|EncodeAsPieces|piece=|"
        r"(unk|bos|eos|pad) piece|SentencePiece\(|WordPiece",
    ),
    Rule(
        "maps (of a block)",
        r"\b(the|its|all|other|these|of) maps\b|\bmaps of\b",
        "weight matrices, linear layers",
        unless=r"attention maps",
    ),
    Rule("on the way back", r"on the way back", "in the backward pass"),
    Rule("both ways", r"\bboth ways\b", "forward and backward, in both directions"),
    Rule("computed again", r"computed again|recomputed on the way", "activation checkpointing"),
    Rule("goes on", r"\b(goes|gone|go|going|went) on\b", "resumes, continues"),
    Rule("begun, begins as", r"\bbegun\b|\bbeg[ia]n(s|ning)? as\b", "started, initialized from"),
    Rule("from nothing", r"from nothing", "from scratch"),
    Rule(
        "contrast",
        r"\bcontrast\b",
        "contrastive loss, contrastive learning (XLCo)",
        unless=r"in contrast|prefers-contrast",
    ),
    Rule(
        "detection",
        r"\bdetection\b",
        "replaced token detection (RTD)",
        unless=r"(replaced[ -]token|language|duplicate|collapse|encoding)[ -]detection|detection \(.?RTD",
    ),
    Rule(
        "masking (as an objective)",
        r"\bmasking (objective|loss|task)s?\b|\b(objective|loss|task) of masking\b|\bby masking\b",
        "masked language modelling (MLM)",
    ),
    Rule("left out", r"\bleft out\b|\bleaves? out\b|\bleav(e|ing) \S+( \S+){0,3} out\b", "skip, omit, exclude"),
    Rule(
        "drawn, draws",
        r"\bdrawn\b|\bdraws\b",
        "sampled, samples",
        exempt=("src/crossling/report",),
        unless=r"(chart|plot|figure|curve|axis|axes)s? (is|are|was|were) drawn|draws \w+ (chart|plot|curve)s?",
    ),
    Rule("anew", r"\banew\b", "again, resampled"),
    Rule(
        "shares",
        r"\bshares\b",
        "proportions, sampling probabilities, or: has in common",
        unless=r"shares (the |its |their |one )?(\w+ )?(weights|table|embeddings?|memory|machine)|shares of the jobs",
        exempt=JOBS,
    ),
    Rule("told, tells", r"\b(told|tells?|telling)\b", "reports, logs, returns, distinguishes", unless=r"\.tell\(\)"),
    Rule("says", r"\b(says|said)\b", "reports, logs, returns, states"),
    Rule("speaks, hears", r"\b(speaks?|spoke|speaking|hears?|heard|hearing)\b", "logs, receives, `is_main_process`"),
    Rule("first_one_then_all", r"first one then all", "`main_process_first`"),
    Rule("LAST_WORDS", r"last words", "`ERROR_GRACE_SECONDS`"),
    Rule("asks, asked", r"\b(asks?|asked|asking)\b", "requests, request"),
    Rule("looks", r"\blooks\b", "evaluations, probes, reads"),
    Rule("judge", r"\bjudg(e|es|ed|ing|e?ments?)\b", "check, score, filter", unless="entailment judgment"),  # of SICK
    Rule("mend", r"\bmend(s|ed|ing)?\b", "fix"),
    Rule("forget, remember", r"\bforg[eo]ts?\b|\bforgotten\b|\bremember(s|ed|ing)?\b", "reset, store"),
    Rule("born", r"\bborn\b", "created"),
    Rule("room", r"\brooms?\b", "package, module, space"),
    Rule(
        "house",
        r"\bhouses?\b",
        "codebase, package",
        unless=r"white.{0,3}house|house.{0,3}white|[\"']house[\"']|house.*(maison|Haus)|(maison|Haus).*house|"
        r"(blue|that) house|house place",  # a slot of MASSIVE
        exempt=EXAMPLES,
    ),
    Rule(
        "box",
        r"\bbox\b",
        "bundled model",
        unless=r"box-(sizing|shadow)|view-?box|check-?box|bounding.box|border-box|Box-M",
    ),
    Rule(
        "embedded languages, babel",
        r"\b(embedded|constructed) languages?\b|\bbabel\b",
        "synthetic languages",
        unless="`babel`",
    ),
    Rule(
        "place of a token",
        r"\bplace of (a|an|the|each|every|its) (token|subword|word)\b|\b(token|subword|word)'s place\b",
        "position",
    ),
    Rule("number of processes", r"number of processes", "world size"),
    Rule("the first process", r"\bthe first process\b", "the main process (rank 0)"),
    Rule("steady, usual norm", r"\bsteady\b|usual norm", "gradient-norm guard, running mean of the gradient norm"),
    Rule("pace, time left", r"\bpace\b|\b(time|minutes|hours) left\b", "throughput, ETA"),
    Rule(
        "account",
        r"\baccounts?\b",
        "training cost",
        unless=r"accounts? for|into account|on account|user account",
    ),
    Rule(
        "window (of steps)",
        r"\bwindow\b",
        "metrics accumulator",
        unless="window-size|get window|content ?window|sliding.window|shuffle window",
        exempt=(*QA_CONTEXTS, *SHUFFLE_WINDOWS),
    ),
    Rule("measured (as a name)", rf"\bmeasured\b{NAME}|\bdef measured\b|(?-i:\bMeasured\b)(?= ?[(:])", "result"),
    Rule(
        "shown (as a name)",
        rf"(?<!is )(?<!not )\bshown\b{NAME}|\bdef shown\b|(?-i:\bShown\b)(?= ?[(:])",
        "report view, or say what",
    ),
    Rule(
        "sections (of a report)",
        r"\bsections\b",
        "report sections",
        unless=r"(report|task|all) sections",
    ),
    Rule("board", r"\bboards?\b", "leaderboard", unless=r"tensor ?board|keyboard|dashboard|clipboard"),
    Rule("material", r"\bmaterial\b", "shared inputs, data"),
    Rule("trial", r"\btrials?\b", "run", unless=r"\"trial\""),
    Rule("unit (of a lab)", r"\bunits?\b", "run", only=LAB),
    Rule(
        "verdict, undecided, not held",
        r"\bverdicts?\b|\bundecided\b|\bnot held\b",
        "claim status: supported, contradicted, inconclusive",
    ),
    Rule("held (of a claim)", r"\bheld\b", "supported", unless="held[ -]out", only=LAB),
    Rule("finalists", r"\bfinalists?\b", "runs that are also fine-tuned"),
    Rule("laboratory", r"\blaborator(y|ies)\b", "lab"),
    Rule("parts of speech", r"parts? of speech", "POS", exempt=LINGUISTICS),
    Rule(
        "names, answers, inference (as tasks)",
        r"\b(names|answers|inference)(,| and| or) (answers|inference|parts of speech|NER|POS|NLI|QA)\b|"
        r"\b(names|answers|inference) (task|benchmark)s?\b|\btasks? of (names|answers|inference)\b",
        "NER, QA, NLI",
    ),
    Rule("errors of word alignment", r"errors of word alignment", "alignment error rate (AER)"),
    Rule("piles", r"\bpiles?\b", "monolingual corpora"),
    Rule(
        "fate, stranger",
        r"\bfates?\b|\bstrangers?\b",
        "replacement draw, random token",
        unless=r"\"fate\", \"stranger\"",
    ),
    Rule("Seen (a class)", r"(?-i:\bSeen\b)(?=[(\[:])", "`AttentionMask`"),
    Rule(
        "if not said, unless named",
        r"\bif not (said|named|given)\b|\bif (none|nothing) is (said|named|given)\b|\bunless (said|named)\b",
        "`[default: ...]`",
    ),
    Rule("whoever", r"\bwhoever\b", "name the actor"),
)
_SENTENCE = re.compile(r"(?<=[.!?;:])\s+(?=[\"'`(A-Z0-9])")
# One line with punctuation. Others are docstrings, files, lists of codes and regular expressions.
_MESSAGE = re.compile(r"(?!.*\(\?:).*[.,:;](\s.*)?")


def main(paths: list[str]) -> int:
    """Print every finding in `paths`, or the glossary, and return the exit code."""
    if paths == ["--table"]:
        print(glossary(), end="")
        return 0
    found = [finding for file in files(paths) for finding in check(file)]
    for finding in found:
        print(finding)
    print(f"{len(found)} findings")
    return bool(found)


def glossary() -> str:
    """Return the rules as a Markdown table."""
    rows = [f"| {rule.term} | {rule.write} |\n" for rule in RULES]
    return "".join(["| replace | write |\n", "|---|---|\n", *rows])


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
    text = file.read_text(encoding="utf-8").replace(glossary(), "")
    rules = [
        rule
        for rule in RULES
        if (not rule.only or relative.startswith(rule.only)) and not relative.startswith(rule.exempt or ("\0",))
    ]
    for number, line in enumerate(text.splitlines(), start=1):
        words = re.sub(r"(?<=[a-z])(?=[A-Z])(?<!Sentence)(?<!Word)", " ", line).replace("_", " ")  # not SentencePiece
        for rule in rules:
            for match in re.finditer(rule.found, words, re.IGNORECASE):
                if not is_exempt(rule, match, words):
                    yield f"{relative}:{number}: {match[0]!r} -> {rule.write}"
    for number, block in blocks(text, file.suffix, is_test=relative.startswith("tests")):
        for sentence in sentences(block):
            count = len(re.findall(r"[A-Za-z][\w'-]*", sentence))
            if count > LONGEST:
                yield f"{relative}:{number}: {count} words in a sentence: {sentence[:60]!r}"
    if file.suffix == ".md":
        outside = re.sub(r"```.*?```", lambda match: "\n" * match[0].count("\n"), text, flags=re.DOTALL)
        for number, line in enumerate(outside.splitlines(), start=1):
            if re.fullmatch(r"[A-Z][A-Z_]{2,}", line):
                yield f"{relative}:{number}: {line!r} alone on a line -> what it is a placeholder for"
    if file.suffix == ".py":
        yield from headless(text, relative)


def is_exempt(rule: Rule, match: re.Match[str], line: str) -> bool:
    """Return whether the term stands in a context in which it is right."""
    contexts = re.finditer(rule.unless, line, re.IGNORECASE) if rule.unless else ()
    return any(context.start() < match.end() and match.start() < context.end() for context in contexts)


def headless(text: str, relative: str) -> Iterator[str]:
    """Yield docstrings and comments that do not start with a verb or a noun."""
    for number, docstring in docstrings(text):
        if re.match(r"(Of|What|Whether|That|Which|Where|How|Who|Whose|By|So|As|To|And|Not)\b", docstring):
            yield f"{relative}:{number}: docstring starts with {docstring.split()[0]!r} -> a verb or a noun"
    for number, comment in comments(text):
        if re.match(r"(Of|What|Whether|Which|Who|Whose)\b", comment):  # a note beside code may be "of text"
            yield f"{relative}:{number}: comment starts with {comment.split()[0]!r} -> a verb or a noun"


def sentences(block: str) -> Iterator[str]:
    """Yield the sentences of a block of prose. Code, tables and indented lines are not prose."""
    for paragraph in re.split(r"\n\s*\n|\n\s*(?=[-*|>]|\d+\. )", block):
        if re.search(r"^\s{4,}\S", paragraph) or paragraph.lstrip().startswith(("|", "```", "$", ">>>")):
            continue
        yield from _SENTENCE.split(" ".join(paragraph.split()))


def blocks(text: str, suffix: str, is_test: bool = False) -> Iterator[tuple[int, str]]:
    """Yield the parts of a file that are prose, with the line each starts at. Strings of tests are data."""
    if suffix == ".md":
        text = re.sub(r"^(% .*|<!--.*?-->)$", "", text, flags=re.MULTILINE)  # how a test runs a block
        outside = re.sub(r"```.*?```", lambda match: "\n" * match[0].count("\n"), text, flags=re.DOTALL)
        yield from ((1, part) for part in outside.split("\n\n"))
    elif suffix == ".jinja":
        text = re.sub(r"<(style|script|svg).*?</\1>|\{#.*?#\}|\{%.*?%\}", "\n\n", text, flags=re.DOTALL)
        text = re.sub(r"\{\{.*?\}\}", "X", text, flags=re.DOTALL)
        text = re.sub(r"</?(a|b|i|em|code|strong|abbr|sup|sub)\b[^>]*>", "", text)
        yield from ((1, part) for part in re.split(r"<[^>]*>|[{}]|\n\n", text))
    elif suffix == ".py":
        yield from ((line, re.split(r"\n\s*(Example|Examples|>>>)", each)[0]) for line, each in docstrings(text))
        yield from comments(text)
        yield from () if is_test else messages(text)


def docstrings(text: str) -> Iterator[tuple[int, str]]:
    """Yield docstrings with the line of their definition."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and (docstring := ast.get_docstring(node)):
            yield getattr(node, "lineno", 1), docstring


def messages(text: str) -> Iterator[tuple[int, str]]:
    """Yield strings on one line or joined from several, as messages and help texts are. A value counts as one word."""
    tree = ast.parse(text)
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            values = (part.value if isinstance(part, ast.Constant) else "X" for part in node.values)
            yield node.lineno, "".join(map(str, values))
        elif isinstance(node, ast.Constant) and id(node) not in parts and re.fullmatch(_MESSAGE, str(node.value)):
            yield node.lineno, str(node.value)


def comments(text: str) -> Iterator[tuple[int, str]]:
    """Yield comments, those on successive lines together, with their first line."""
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
