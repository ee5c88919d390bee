"""The verbs: parse, then call one public function of the same name.

Exit status: 0 done, 1 failed, 2 bad input (one sentence, no traceback), 130 interrupted (the same command goes on).
"""

from __future__ import annotations

import errno
import json
import os
import sys
import warnings
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from crossling import __version__
from crossling.errors import BadInput, Failed, Interrupted

app = typer.Typer(
    help="Pre-train, adapt, fine-tune and evaluate cross-lingual language models.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EACCES, errno.EPERM, errno.EROFS)
MISPLACED = (errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG)  # a file where a folder should be, ...

Out = Annotated[Path, typer.Option("-o", "--out", help="The folder to write.")]
Seed = Annotated[int, typer.Option(help="Everything random follows from it.", min=0)]
Json = Annotated[bool, typer.Option("--json", help="Print machine-readable rows.")]


def _version(asked: bool) -> None:
    if asked:
        print(f"crossling {__version__}")
        raise typer.Exit


@app.callback()
def options(
    _: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it and exit.")] = False,
) -> None:
    """Pre-train, adapt, fine-tune and evaluate cross-lingual language models."""


@app.command()
def demo(out: Out = Path("demo"), seed: Seed = 0, json_: Json = False) -> None:
    """The whole path on constructed languages, on a CPU in minutes; ends with a page to open.

    Example: crossling demo -o demo
    """
    from crossling.demo import demo

    rows = demo(out, seed=seed)
    if json_:
        _print_json(rows)
    else:
        _print_scores(rows)
        print(f"\nOpen {out / 'report.html'}")


@app.command()
def babel(
    out: Out,
    languages: Annotated[int, typer.Option(help="2 to 40.")] = 6,
    sentences: Annotated[int, typer.Option(help="Monolingual sentences of the largest language.")] = 20_000,
    seed: Seed = 0,
    lemmas: Annotated[int, typer.Option(help="Size of the lexicon, from 300.")] = 400,
    wrong: Annotated[float, typer.Option(help="Share of bitext rows with a wrong translation.")] = 0.0,
    copies: Annotated[float, typer.Option(help="Share of bitext rows whose target copies the source.")] = 0.0,
    near_duplicates: Annotated[float, typer.Option(help="Share of bitext rows repeated with a small edit.")] = 0.0,
    many_to_one: Annotated[float, typer.Option(help="Share of bitext rows mapped to one target.")] = 0.0,
    json_: Json = False,
) -> None:
    """A family of constructed languages: corpora and benchmarks with known truth.

    Example: crossling babel -o babel --languages 6 --sentences 20000
    """
    from crossling.babel import Noise, babel

    noise = Noise(wrong=wrong, copies=copies, near_duplicates=near_duplicates, many_to_one=many_to_one)
    babel(out, languages, sentences, seed, lemmas, noise)
    card = json.loads((out / "babel.json").read_text(encoding="utf-8"))
    if json_:
        print(json.dumps(card))
        return
    table = Table("language", "family", "script", "order", "morphology", "sentences", title=str(out))
    for one in card["languages"]:
        facts = (one["family"], one["script"], one["order"], one["morphology"], f"{one['sentences']:,}")
        table.add_row(one["code"], *map(str, facts))
    Console().print(table)
    print(f"Text and bitext are in {out / 'corpora'}, benchmarks in {out / 'data'}")


@app.command()
def vocab(
    corpora: Annotated[Path, typer.Argument(help="A folder with text/, pairs/ or multi/.")],
    out: Out,
    size: Annotated[int, typer.Option(help="Number of pieces, special ones included.")],
    alpha: Annotated[float, typer.Option(help="Exponent that smooths the share of each language.")] = 0.5,
    seed: Seed = 0,
    json_: Json = False,
) -> None:
    """Train the vocabulary: SentencePiece unigram on smoothed text.

    Example: crossling vocab corpora --size 32000 -o vocab
    """
    from crossling.corpora.corpus import Corpora
    from crossling.vocabulary.vocabulary import vocab

    if sys.stderr.isatty():
        print("reading, then training; SentencePiece gives no sign until it is done", file=sys.stderr)
    vocab(Corpora(corpora), size, out, alpha=alpha, seed=seed)
    report = json.loads((out / "vocab.json").read_text(encoding="utf-8"))
    if json_:
        print(json.dumps(report))
        return
    table = Table("language", "pieces", "coverage", "pieces per word", title=f"{report['size']:,} pieces")
    for language, row in report["languages"].items():
        table.add_row(language, f"{row['pieces']:,}", f"{row['coverage']:.2%}", f"{row['fertility']:.2f}")
    Console().print(table)


@app.command()
def encode(
    corpora: Annotated[Path, typer.Argument(help="A folder with text/, pairs/ or multi/.")],
    out: Out,
    vocab: Annotated[Path, typer.Option(help="A folder made by crossling vocab.")],
    workers: Annotated[int, typer.Option(help="Processes.", min=1)] = 1,
    json_: Json = False,
) -> None:
    """Text to token shards; goes on where it was interrupted.

    Example: crossling encode corpora --vocab vocab -o shards --workers 4
    """
    from crossling.corpora.corpus import Corpora
    from crossling.data.shards import encode

    manifest = encode(Corpora(corpora), vocab, out, workers).manifest
    if json_:
        print(json.dumps(manifest))
        return
    for kind in ("text", "pairs", "multi"):
        for name, entry in manifest[kind].items():
            for reason, lines in entry["dropped"].items():
                print(f"{kind}/{name}: {lines:,} lines left out ({reason})", file=sys.stderr)
    tokens = sum(entry["tokens"] for entry in manifest["text"].values())
    print(
        f"{out}: text in {len(manifest['text'])} languages ({tokens:,} tokens), {len(manifest['pairs'])} bitexts,"
        f" {len(manifest['multi'])} multi-way sets"
    )


@app.command()
def pretrain(
    recipe: Annotated[str, typer.Argument(help="xlm_r, xlm, xlm_e, or the recipe.json of an earlier run.")],
    shards: Annotated[Path, typer.Option(help="A folder made by crossling encode.")],
    out: Out,
    size: Annotated[str | None, typer.Option(help="tiny, small, base (if not said), large or xl.")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="key=value, any key of the recipe.")] = None,
    workers: Annotated[
        int | None, typer.Option(help="Loader processes; chosen by the machine if not given.", min=0)
    ] = None,
) -> None:
    """Train a model; goes on when the folder holds a checkpoint.

    Example: crossling pretrain xlm_e --shards shards -o run --size tiny --set steps=500 --set trtd=off
    """
    from crossling.data.shards import Shards
    from crossling.recipe import pretrain
    from crossling.recipes import named

    pretrain(named(recipe, size).set(set_ or []), Shards.open(shards), out, workers=workers)
    print(out)


@app.command()
def evaluate(
    model: Annotated[str, typer.Argument(help="A run, an exported folder, or a Hugging Face encoder.")],
    task: Annotated[str, typer.Option(help="tatoeba, word-alignment, or both with a comma.")],
    data: Annotated[Path, typer.Option(help="A folder of benchmark data.")],
    out: Annotated[Path | None, typer.Option("-o", "--out", help="Adds the rows to scores.jsonl there.")] = None,
    json_: Json = False,
) -> None:
    """Score an encoder: every layer, both directions.

    Example: crossling evaluate run --task tatoeba,word-alignment --data babel/data -o run
    """
    from crossling.evaluate.evaluate import evaluate
    from crossling.load import load

    rows = evaluate(load(model), task.split(","), data, out)
    if json_:
        _print_json(rows)
    else:
        _print_scores(rows)


@app.command()
def align(
    file: Annotated[Path, typer.Argument(help="Lines of `source ||| target`.")],
    model: Annotated[str, typer.Option(help="A run, an exported folder, or a Hugging Face encoder.")],
    json_: Json = False,
) -> None:
    """Word alignments, one line of Pharaoh `i-j` links for each line of the file.

    Example: crossling align pairs.txt --model run
    """
    from crossling.evaluate.alignment import align
    from crossling.load import load

    for links in align(load(model), file):
        print(json.dumps(links) if json_ else " ".join(f"{i}-{j}" for i, j in links))


@app.command()
def report(
    folders: Annotated[list[Path], typer.Argument(help="Runs, or folders of runs.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="The page to write.")] = Path("report.html"),
) -> None:
    """One self-contained page: tables and plots of the runs side by side.

    Example: crossling report runs/xlm_e runs/xlm -o report.html
    """
    from crossling.evaluate.report import report

    print(report(folders, out))


def _print_json(rows: list[dict[str, object]]) -> None:
    for row in rows:
        print(json.dumps(row))


def _print_scores(rows: list[dict[str, object]]) -> None:
    """Means over languages and directions, by layer; the best layer is bold."""
    from crossling.evaluate.retrieval import by_list
    from crossling.evaluate.scores import Summary, summary

    tables: dict[tuple[str, ...], list[Summary]] = {}
    for found in summary([*rows, *by_list(rows)]):
        tables.setdefault((found.task, found.metric, found.protocol, found.split), []).append(found)
    for (task, metric, protocol, split), found_models in tables.items():
        layers = sorted({layer for found in found_models for layer in found.by_layer})
        name = task if split == "test" else f"{task} {split}"
        table = Table("model", *map(str, layers), title=f"{name}: {metric} ({protocol}) by layer, mean, %")
        for found in found_models:
            cells = [f"{found.by_layer[k]:.1f}" if k in found.by_layer else "" for k in layers]
            table.add_row(
                found.model,
                *(f"[bold]{c}[/]" if k == found.best_layer else c for k, c in zip(layers, cells, strict=True)),
            )
        Console().print(table)


def main() -> None:
    """Turns every expected end into its sentence and its exit status."""
    # Threads that spin while they wait for each other make a busy machine up to five times slower; with few spins an
    # idle one loses some 7%. Must be set before torch is first imported.
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    warnings.showwarning = lambda message, *_, **__: print(f"crossling: note: {message}", file=sys.stderr)
    try:
        app()
    except BadInput as error:
        _end(str(error), 2)
    except Failed as error:
        _end(str(error), 1)
    except Interrupted as error:
        _end(str(error), 130)
    except SystemExit as end:
        if end.code == 130:  # Ctrl-C: typer has already taken the exception
            print("crossling: interrupted; the same command starts again", file=sys.stderr)
        raise
    except OSError as error:
        if error.errno in MISPLACED:
            _end(f"{error.filename}: {error.strerror}; give another path", 2)
        # NumPy reports a full disk without a number: "1000 requested and 12 written".
        if error.errno not in DISK and not (error.errno is None and str(error).endswith(" written")):
            raise
        where, what = error.filename or "the output folder", error.strerror or f"no space left ({error})"
        _end(f"{where}: {what}; what was finished before is kept", 1)


def _end(sentence: str, status: int) -> None:
    print(f"crossling: {sentence}", file=sys.stderr)
    sys.exit(status)
