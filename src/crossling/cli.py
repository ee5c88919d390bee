"""The verbs: parse, then call one public function of the same name.

Exit status: 0 done, 1 failed, 2 bad input (one sentence, no traceback), 130 interrupted (the same command goes on).
"""

from __future__ import annotations

import errno
import json
import os
import sys
import warnings
from dataclasses import asdict
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
MISPLACED = (
    errno.EEXIST,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.ENAMETOOLONG,
    errno.ENOENT,
)  # a file where a folder should be, ...

Out = Annotated[Path, typer.Option("-o", "--out", help="The folder to write.")]
Seed = Annotated[int, typer.Option(help="Everything random follows from it.", min=0)]
CorporaFolder = Annotated[
    str, typer.Argument(metavar="CORPORA", help="A folder with text/, pairs/ or multi/, or hf://OWNER/NAME.")
]
Workers = Annotated[int, typer.Option(help="Processes.", min=1)]
Task = Annotated[str | None, typer.Option(help="i/n: only the i-th of n shares, for one of n machines.")]
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
def check(
    corpora: CorporaFolder,
    against: Annotated[Path | None, typer.Option(help="A folder of benchmarks: are they in the text?")] = None,
    out: Annotated[Path | None, typer.Option("-o", "--out", help="Keeps the report, and shares of the work.")] = None,
    workers: Workers = 1,
    task: Task = None,
    json_: Json = False,
) -> None:
    """What is in a folder of corpora, and what is suspicious about it; changes nothing.

    Example: crossling check corpora --against data --workers 4

    Of a folder of shards it tells whether every byte is still what was written: crossling check shards
    """
    from crossling.corpora.corpus import Corpora
    from crossling.quality.check import REPORT, check
    from crossling.tasks import Share

    if (Path(corpora) / "manifest.json").is_file():
        _check_shards(Path(corpora))
        return
    if any(Path(corpora).glob("*/**/entry.json")):
        raise BadInput(f"{corpora}: shards that are not complete; run crossling encode again")
    report = check(Corpora(corpora), against, out, workers, Share.parse(task) if task else None)
    if report is None:
        print(f"{out}: share {task} is done; the last one writes {REPORT}")
    else:
        _print_quality(report, json_)


@app.command()
def clean(
    corpora: CorporaFolder,
    out: Out,
    length: Annotated[str | None, typer.Option(help="MIN:MAX characters of a line, such as 2:10000.")] = None,
    ratio: Annotated[float | None, typer.Option(help="How far lengths may be from the usual proportion: 4.")] = None,
    copies: Annotated[bool, typer.Option("--copies", help="Translations that copy the source.")] = False,
    near_copies: Annotated[bool, typer.Option("--near-copies", help="Those that nearly do.")] = False,
    duplicates: Annotated[bool, typer.Option("--duplicates", help="Lines and pairs said before.")] = False,
    near_duplicates: Annotated[bool, typer.Option("--near-duplicates", help="Those nearly said before.")] = False,
    language: Annotated[bool, typer.Option("--language", help="Lines in another language.")] = False,
    many_to_one: Annotated[int | None, typer.Option(help="Texts with more than so many translations: 6.")] = None,
    min_pairs: Annotated[int | None, typer.Option(help="Bitext of languages with fewer pairs: 50000.")] = None,
    against: Annotated[
        Path | None, typer.Option(help="Lines with a sentence of the benchmarks in this folder.")
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="All of these but the last two.")] = False,
    workers: Workers = 1,
    task: Task = None,
    json_: Json = False,
) -> None:
    """Corpora without what the chosen rules name, as a new folder of corpora; goes on where it was interrupted.

    Example: crossling clean corpora --all --min-pairs 50000 -o cleaned --workers 4
    """
    from crossling.corpora.corpus import Corpora
    from crossling.quality.clean import REPORT, clean
    from crossling.quality.rules import chosen
    from crossling.tasks import Share

    rules = chosen(
        all_,
        length,
        ratio=ratio,
        copies=copies,
        near_copies=near_copies,
        duplicates=duplicates,
        near_duplicates=near_duplicates,
        language=language,
        many_to_one=many_to_one,
        min_pairs=min_pairs,
        against=against,
    )
    report = clean(Corpora(corpora), out, rules, workers, Share.parse(task) if task else None)
    if report is None:
        print(f"{out}: share {task} is done; the last one writes the corpora and {REPORT}")
    else:
        _print_quality(report, json_)


@app.command()
def vocab(
    corpora: CorporaFolder,
    out: Out,
    size: Annotated[int | None, typer.Option(help="Number of pieces, special ones included.")] = None,
    allocate: Annotated[
        str | None, typer.Option(help="joint (if not said): one training; vocap: by what each language gains.")
    ] = None,
    source: Annotated[
        str | None, typer.Option("--from", help="Train nothing: take the vocabulary of this folder or model.")
    ] = None,
    extend: Annotated[bool, typer.Option("--extend", help="Add pieces for these corpora.")] = False,
    trim: Annotated[bool, typer.Option("--trim", help="Keep only the pieces these corpora use.")] = False,
    alpha: Annotated[float, typer.Option(help="Exponent that smooths the share of each language.")] = 0.5,
    beta: Annotated[float, typer.Option(help="Exponent of that share in vocap.")] = 0.7,
    characters: Annotated[int, typer.Option(help="Size of the sample to train on.")] = 40_000_000,
    workers: Annotated[int, typer.Option(help="Processes (vocap) or threads.", min=1)] = 2,
    seed: Seed = 0,
    json_: Json = False,
) -> None:
    """The vocabulary: SentencePiece unigram, trained on smoothed text or made from another.

    Example: crossling vocab corpora --size 32000 -o vocab

    A smaller XLM-R for these languages: crossling vocab corpora --from xlm-roberta-base --trim -o vocab
    """
    from crossling.corpora.corpus import Corpora
    from crossling.vocabulary.vocab import vocab

    if sys.stderr.isatty() and size and allocate != "vocap" and not trim:
        print("reading, then training; SentencePiece gives no sign until it is done", file=sys.stderr)
    vocab(
        *(Corpora(corpora), size, out, alpha, seed),
        allocate=allocate,
        beta=beta,
        characters=characters,
        workers=workers,
        source=source,
        extend=extend,
        trim=trim,
    )
    report = json.loads((out / "vocab.json").read_text(encoding="utf-8"))
    if json_:
        print(json.dumps(report))
        return
    columns = {
        "pieces": ("pieces", ",d"),
        "coverage": ("coverage", ".2%"),
        "fertility": ("pieces per word", ".2f"),
        "per_character": ("per character", ".2f"),
        "allocated": ("allocated", ",d"),
        "alp": ("ALP", ".1f"),
    }
    shown = {key: columns[key] for key in columns if any(key in row for row in report["languages"].values())}
    table = Table("language", *(title for title, _ in shown.values()), title=f"{report['size']:,} pieces")
    for language, row in report["languages"].items():
        table.add_row(language, *(format(row[key], form) if key in row else "" for key, (_, form) in shown.items()))
    Console().print(table)


@app.command()
def encode(
    corpora: CorporaFolder,
    out: Out,
    vocab: Annotated[Path, typer.Option(help="A folder made by crossling vocab.")],
    workers: Workers = 1,
    task: Task = None,
    append: Annotated[bool, typer.Option("--append", help="Keep what the shards hold besides.")] = False,
    priority: Annotated[
        str,
        typer.Option(help="Collections by comma: a later one only fills pairs the earlier have not; else the union."),
    ] = "",
    json_: Json = False,
) -> None:
    """Text to token shards; goes on where it was interrupted.

    Example: crossling encode corpora --vocab vocab -o shards --workers 4

    On many machines, each does its share and the last one writes the manifest: crossling encode ... --task 3/16
    """
    from crossling.corpora.corpus import Corpora
    from crossling.data.encode import encode_share
    from crossling.tasks import Share

    share = Share.parse(task) if task else None
    names = tuple(priority.split(",")) if priority else ()
    shards = encode_share(Corpora(corpora, names), vocab, out, share, workers, append)
    if shards is None:
        print(f"{out}: share {task} is done; the last one writes the manifest, or the same command without --task")
        return
    manifest = shards.manifest
    if json_:
        print(json.dumps(manifest))
        return
    for place, entry in shards.units().items():
        for reason, lines in entry["dropped"].items():
            print(f"{place}: {lines:,} lines left out ({reason})", file=sys.stderr)
    tokens = sum(entry["tokens"] for entry in manifest["text"].values())
    print(
        f"{out}: text in {len(manifest['text'])} languages ({tokens:,} tokens), {len(manifest['pairs'])} bitexts,"
        f" {len(manifest['multi'])} multi-way sets"
    )


@app.command()
def inspect(
    recipe: Annotated[str, typer.Argument(help="xlm_r, xlm, xlm_e, or the recipe.json of an earlier run.")],
    shards: Annotated[Path, typer.Option(help="A folder made by crossling encode.")],
    out: Annotated[Path | None, typer.Option("-o", "--out", help="A page (.html) to write.")] = None,
    size: Annotated[str | None, typer.Option(help="tiny, small, base (if not said), large or xl.")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="key=value, any key of the recipe.")] = None,
    json_: Json = False,
) -> None:
    """What a recipe would do with some shards: sampling under every rule, epochs, parameters, FLOPs; trains nothing.

    Memory and time are not estimated yet.

    Example: crossling inspect xlm_e --shards shards --set sampling.pair_rule=xy_lent -o page.html
    """
    from crossling.data.shards import Shards
    from crossling.inspect import inspect
    from crossling.inspect.tables import tables
    from crossling.recipes import named

    plan = inspect(named(recipe, size).set(set_ or []), Shards.open(shards), out)
    if json_:
        print(json.dumps(plan.dump()))
        return
    for table in tables(plan):
        Console().print(table)
    if out is not None:
        print(f"Open {out}")


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


@app.command()
def bench(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="data; all if none is given.")] = None,
    corpora: Annotated[Path | None, typer.Option(help="Text to measure on; else embedded languages.")] = None,
    json_: Json = False,
) -> None:
    """Speed and memory of the parts, each beside its peer, in one run.

    Example: crossling bench data
    """
    from crossling.bench import bench

    table = Table("bench", "ours", "peer", "ratio", "unit", "beside")
    for row in bench(names or (), corpora):
        if json_:
            print(json.dumps(asdict(row)), flush=True)
        figures = (f"{value:,.3g}" if value and value < 100 else f"{value or 0:,.0f}" for value in (row.ours, row.peer))
        table.add_row(row.name, *figures, f"{row.ratio:.3g}x" if row.ratio else "", row.unit, row.peer_name)
    if not json_:
        Console().print(table)


def _check_shards(folder: Path) -> None:
    from crossling.data.shards import Shards

    shards = Shards.open(folder)
    damaged = shards.verify()
    if damaged:
        others = f" and {len(damaged) - 1} more" if len(damaged) > 1 else ""
        raise Failed(f"{damaged[0]}{others}: not what was written; run crossling encode again")
    print(f"{folder}: every file of {len(shards.units())} corpora is what was written")


def _print_quality(report: dict[str, object], json_: bool) -> None:
    from crossling.quality.tables import tables

    if json_:
        print(json.dumps(report))
        return
    for part in tables(report):
        Console().print(part)


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
            print("crossling: interrupted; the same command does the rest", file=sys.stderr)
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
