"""The verbs from text to shards: babel, check, clean, vocab, encode."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from crossling.cli.options import CorporaFolder, Json, Out, Seed, Task, Workers
from crossling.errors import BadInput, Failed


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
    domain: Annotated[str, typer.Option(help="general, or science: other words and events, the same languages.")] = (
        "general"
    ),
    train: Annotated[
        int | None, typer.Option(help="Examples to train on of each data set; a tenth of the sentences if not said.")
    ] = None,
    dev: Annotated[int | None, typer.Option(help="Examples to choose models by; a hundredth.")] = None,
    test: Annotated[int | None, typer.Option(help="Examples to test on; a fiftieth.")] = None,
    json_: Json = False,
) -> None:
    """A family of constructed languages: corpora and benchmarks with known truth.

    Example: crossling babel -o babel --languages 6 --sentences 20000
    """
    from crossling.babel import Examples, Noise, babel

    noise = Noise(wrong=wrong, copies=copies, near_duplicates=near_duplicates, many_to_one=many_to_one)
    asked = {split: number for split, number in (("train", train), ("dev", dev), ("test", test)) if number is not None}
    examples = replace(Examples.plan(sentences), **asked)
    babel(out, languages, sentences, seed, lemmas, noise, domain=domain, examples=examples)
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
    else:
        _print_vocabulary(report)


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


def _print_vocabulary(report: dict[str, Any]) -> None:
    """What each language gets of the pieces; columns only for what was measured."""
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
