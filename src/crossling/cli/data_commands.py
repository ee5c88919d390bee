"""Commands from text to shards: synth, ingest, check, clean, vocab, tokenize."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

import crossling as xl
from crossling.cli.closing import finish, training_command, unused, vocab_command
from crossling.cli.options import CorporaFolder, Json, Out, Seed, ShareOption, Workers, argument, flag, option
from crossling.core.errors import BadInput, Failed


def synth(
    out: Out,
    languages: Annotated[int, option("N", "Number of languages, 2 to 40.")] = 6,
    sentences: Annotated[int, option("N", "Monolingual sentences of the largest language.")] = 20_000,
    seed: Seed = 0,
    lemmas: Annotated[int, option("N", "Size of the lexicon, at least 300.")] = 400,
    wrong: Annotated[float, option("P", "Proportion of pairs with a wrong translation.")] = 0.0,
    copies: Annotated[float, option("P", "Proportion of pairs whose target copies the source.")] = 0.0,
    near_duplicates: Annotated[float, option("P", "Proportion of pairs repeated with a small edit.")] = 0.0,
    many_to_one: Annotated[float, option("P", "Proportion of pairs that have the same target.")] = 0.0,
    domain: Annotated[
        str, option("DOMAIN", "general or science (other words and events, same languages).", "--domain")
    ] = "general",
    train: Annotated[int | None, option("N", "Training examples per task. [default: sentences / 10]")] = None,
    dev: Annotated[int | None, option("N", "Development examples per task. [default: sentences / 100]")] = None,
    test: Annotated[int | None, option("N", "Test examples per task. [default: sentences / 50]")] = None,
    json_: Json = False,
) -> None:
    """Generate synthetic languages: corpora and benchmark data with known ground truth.

    Example: crossling synth -o synth --languages 6 --sentences 20000
    """
    noise = xl.BitextNoise(wrong=wrong, copies=copies, near_duplicates=near_duplicates, many_to_one=many_to_one)
    sizes = {split: size for split, size in (("train", train), ("dev", dev), ("test", test)) if size is not None}
    examples = replace(xl.ExampleCounts.plan(sentences), **sizes)
    xl.synth(out, languages, sentences, seed, lemmas=lemmas, noise=noise, domain=domain, examples=examples)
    card = json.loads((out / "synthetic.json").read_text(encoding="utf-8"))
    if json_:
        print(json.dumps(card))
        return
    table = Table("language", "family", "script", "order", "morphology", "sentences", title=str(out))
    for language in card["languages"]:
        cells = [language[key] for key in ("code", "family", "script", "order", "morphology")]
        table.add_row(*map(str, cells), f"{language['sentences']:,}")
    Console().print(table)
    print(f"Text and bitext are in {out / 'corpora'}, benchmarks in {out / 'data'}")
    lines = sum(language["sentences"] for language in card["languages"])
    finish(f"Wrote {_counted(len(card['languages']), 'language')} to {out}.", vocab_command(out / "corpora", lines))


def ingest(
    files: Annotated[list[Path], argument("FILES...", "Files, and folders of which every file is read.")],
    out: Out,
    language: Annotated[str | None, option("LL", "Language of the text. [default: by names and headers]")] = None,
    pair: Annotated[
        str | None, option("LL-LL", "Languages of translations, as en-sw. [default: by names and headers]")
    ] = None,
    columns: Annotated[
        str | None, option("A,B", "Names or numbers of the columns, in the order of the languages.")
    ] = None,
    encoding: Annotated[
        str | None, option("NAME", "Encoding of the text files, as cp1251. [default: found by reading]")
    ] = None,
    json_: Json = False,
) -> None:
    """Make corpora from docx, xlsx, CSV, TSV, JSON Lines, Parquet, TMX, Moses and text files of any encoding.

    Example: crossling ingest news.docx glossary.xlsx bitext.csv --pair en-sw -o corpora

    A folder, in which other files are skipped with a note: crossling ingest downloads -o corpora
    """
    chosen = columns.split(",") if columns else ()
    report = xl.ingest(files, out, language=language, pair=pair, columns=chosen, encoding=encoding)
    if json_:
        print(json.dumps(report))
        return
    _print_ingestion(report)
    written = sum(entry["written"] for entry in report["files"])
    finish(f"Wrote {written:,} rows to {out}, and the report to {out / 'ingest.json'}.", ["check", out])


def check(
    corpora: CorporaFolder,
    against: Annotated[Path | None, option("FOLDER", "Search the text for sentences of these benchmarks.")] = None,
    out: Annotated[Path | None, option("FOLDER", "Keep the report here. Needed for --share.", "-o", "--out")] = None,
    workers: Workers = 1,
    share: ShareOption = None,
    json_: Json = False,
) -> None:
    """Report what a corpora folder holds and what is suspicious about it. Changes nothing.

    Example: crossling check corpora --against data --workers 4

    Verify the checksums of a shards folder: crossling check shards
    """
    from crossling.cleaning.check import REPORT

    if (Path(corpora) / "manifest.json").is_file():
        _check_shards(Path(corpora))
        return
    if any(Path(corpora).glob("*/**/entry.json")):
        raise BadInput(f"{corpora}: incomplete shards. Run crossling tokenize again.")
    report = xl.check(corpora, against=against, out=out, workers=workers, share=_parse_share(share))
    _print_cleaning_report(report, json_, f"{out}: part {share} is done. The last part writes {REPORT}.")
    if report is None:
        return
    written = f"Wrote the report to {out / REPORT}." if out else f"Read {_rows(report, 'read'):,} rows; wrote nothing."
    if _rows(report, "kept") == _rows(report, "read"):
        finish(written, vocab_command(corpora, _rows(report, "kept")), json=json_)
        return
    cleaned = unused(Path(f"{corpora.rstrip('/')}-clean" if "://" not in corpora else "clean"))
    benchmarks = ["--against", against] if against else []
    finish(written, ["clean", corpora, "--all", *benchmarks, "-o", cleaned], json=json_)


def clean(
    corpora: CorporaFolder,
    out: Out,
    length: Annotated[
        str | None, option("MIN:MAX", "Drop lines outside this length in characters, as 2:10000.")
    ] = None,
    ratio: Annotated[float | None, option("R", "Drop pairs whose length ratio is off by this factor, as 4.")] = None,
    copies: Annotated[bool, flag("--copies", "Drop pairs whose target copies the source.")] = False,
    near_copies: Annotated[bool, flag("--near-copies", "Drop pairs whose target nearly copies the source.")] = False,
    duplicates: Annotated[bool, flag("--duplicates", "Drop repeated lines and pairs.")] = False,
    near_duplicates: Annotated[bool, flag("--near-duplicates", "Drop nearly repeated lines and pairs.")] = False,
    language: Annotated[bool, flag("--language", "Drop lines in another language.")] = False,
    many_to_one: Annotated[int | None, option("N", "Drop sentences with more than N translations, as 6.")] = None,
    min_score: Annotated[float | None, option("S", "Drop pairs of scored TSV files below this score.")] = None,
    min_pairs: Annotated[int | None, option("N", "Drop bitext of languages with fewer pairs, as 50000.")] = None,
    against: Annotated[Path | None, option("FOLDER", "Drop lines that hold a sentence of these benchmarks.")] = None,
    all_: Annotated[bool, flag("--all", "Apply all but --min-score, --min-pairs, --against.")] = False,
    workers: Workers = 1,
    share: ShareOption = None,
    json_: Json = False,
) -> None:
    """Write corpora without the lines that the chosen rules drop. Resumes where it was interrupted.

    Example: crossling clean corpora --all --min-pairs 50000 -o cleaned --workers 4
    """
    from crossling.cleaning.clean import REPORT
    from crossling.cleaning.rules import rules_from_options

    rules = rules_from_options(
        all_,
        length,
        ratio=ratio,
        copies=copies,
        near_copies=near_copies,
        duplicates=duplicates,
        near_duplicates=near_duplicates,
        language=language,
        many_to_one=many_to_one,
        min_score=min_score,
        min_pairs=min_pairs,
        against=against,
    )
    report = xl.clean(corpora, out, rules, workers=workers, share=_parse_share(share))
    part_done = f"{out}: part {share} is done. The last part writes the corpora and {REPORT}."
    _print_cleaning_report(report, json_, part_done)
    if report is not None:
        kept, read = _rows(report, "kept"), _rows(report, "read")
        finish(f"Wrote {kept:,} of {read:,} rows to {out}.", vocab_command(out, kept), json=json_)


def vocab(
    corpora: CorporaFolder,
    out: Out,
    size: Annotated[int | None, option("N", "Number of vocabulary entries, special tokens included.")] = None,
    allocate: Annotated[
        str | None, option("METHOD", "joint (one training) or vocap (capacity per language). [default: joint]")
    ] = None,
    from_: Annotated[str | None, option("MODEL", "Reuse the vocabulary of a folder or model.", "--from")] = None,
    extend: Annotated[bool, flag("--extend", "Add entries for these corpora.")] = False,
    focus: Annotated[str | None, option("LL,LL", "With --extend: add entries for these languages only.")] = None,
    trim: Annotated[bool, flag("--trim", "Keep only the entries that these corpora use.")] = False,
    alpha: Annotated[float, option("A", "Exponent that smooths the proportions of languages.")] = 0.5,
    beta: Annotated[float, option("B", "Exponent of the proportions in vocap.")] = 0.7,
    characters: Annotated[
        int | None, option("N", "Size of the sample. [default: 40 million; vocap: 1,250 per entry if more]")
    ] = None,
    workers: Annotated[int, option("N", "Processes that read, then threads that train.", min=1)] = 2,
    share: ShareOption = None,
    seed: Seed = 0,
    json_: Json = False,
) -> None:
    """Train a SentencePiece unigram vocabulary on smoothed text, or reuse, extend or trim another.

    Example: crossling vocab corpora --size 32000 -o vocab

    A smaller XLM-R for these languages: crossling vocab corpora --from xlm-roberta-base --trim -o vocab

    On 16 machines, where the last one trains: crossling vocab ... --share 3/16
    """
    if sys.stderr.isatty() and size and allocate != "vocap" and not trim:
        print("Reading text, then training. SentencePiece shows no progress.", file=sys.stderr)
    vocabulary = xl.vocab(
        corpora,
        out,
        size=size,
        alpha=alpha,
        seed=seed,
        allocate=allocate,
        beta=beta,
        characters=characters,
        workers=workers,
        from_=from_,
        extend=extend,
        focus=focus.split(",") if focus else (),
        trim=trim,
        share=_parse_share(share),
    )
    if vocabulary is None:
        print(f"{out}: part {share} is done. The last part, or a run without --share, trains the vocabulary.")
        return
    report = json.loads((out / "vocab.json").read_text(encoding="utf-8"))
    if json_:
        print(json.dumps(report))
    else:
        _print_vocabulary(report)
    shards = unused(out.parent / "shards")
    command = ["tokenize", corpora, "--vocab", out, "-o", shards]
    finish(f"Wrote a vocabulary of {report['size']:,} entries to {out}.", command, json=json_)


def tokenize(
    corpora: CorporaFolder,
    out: Out,
    vocab: Annotated[Path, option("VOCAB", "Vocabulary folder, model folder, hub name or bundled.")],
    workers: Workers = 1,
    share: ShareOption = None,
    append: Annotated[bool, flag("--append", "Keep the other corpora of existing shards.")] = False,
    priority: Annotated[
        str, option("NAMES", "Collections by comma; a later one only adds pairs that earlier ones lack.")
    ] = "",
    json_: Json = False,
) -> None:
    """Turn text into token shards. Resumes where it was interrupted.

    Example: crossling tokenize corpora --vocab vocab -o shards --workers 4

    On 16 machines, where the last one merges the shards: crossling tokenize ... --share 3/16
    """
    source = xl.Corpora(corpora, tuple(priority.split(",")) if priority else ())
    shards = xl.tokenize(source, vocab, out, workers=workers, append=append, share=_parse_share(share))
    if shards is None:
        print(f"{out}: part {share} is done. The last part, or a run without --share, writes the manifest.")
        return
    manifest = shards.manifest
    if json_:
        print(json.dumps(manifest))
        return
    for place, entry in shards.entries().items():
        for reason, lines in entry["dropped"].items():
            print(f"{place}: {lines:,} lines dropped ({reason})", file=sys.stderr)
    tokens = sum(entry["tokens"] for entry in manifest["text"].values())
    pairs = sum(bitext.pairs for bitext in shards.bitexts)
    counts = [
        f"text in {_counted(len(manifest['text']), 'language')} ({tokens:,} tokens)",
        f"{_counted(len(manifest['pairs']), 'bitext')} and {_counted(len(manifest['multi']), 'multi-way set')}"
        f" ({pairs:,} sentence pairs)",
    ]
    print(f"{out}: {', '.join(counts)}")
    commands = (training_command(verb, out, manifest) for verb in ("plan", "pretrain"))
    finish(f"Wrote shards with their vocabulary to {out}.", *commands)


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number != 1)}"


def _parse_share(share: str | None) -> xl.Share | None:
    return xl.Share.parse(share) if share else None


def _check_shards(folder: Path) -> None:
    shards = xl.Shards.open(folder)
    damaged = shards.verify()
    if damaged:
        others = f" and {len(damaged) - 1} more" if len(damaged) > 1 else ""
        raise Failed(f"{damaged[0]}{others}: wrong checksum. Run crossling tokenize again.")
    print(f"{folder}: all checksums of {len(shards.entries())} corpora are right")


def _print_cleaning_report(report: dict[str, Any] | None, json_: bool, part_done: str) -> None:
    """Print a report, or `part_done` if there is none yet."""
    from crossling.cleaning.check import summary_tables

    if report is None:
        print(part_done)
    elif json_:
        print(json.dumps(report))
    else:
        for table in summary_tables(report):
            Console().print(table)


def _print_ingestion(report: dict[str, Any]) -> None:
    """Print a table of the files that were read, then the files that were skipped and the notes."""
    table = Table("file", "read as", "written to", "rows", "written", "skipped", "changed", title="Files")
    for entry in report["files"]:
        file = Text(" + ".join([*entry["files"], *([entry["sheet"]] if "sheet" in entry else [])]))
        form = ", ".join(filter(None, [entry["format"], entry.get("encoding"), entry.get("line ends")]))
        reasons, changes = (
            ", ".join(f"{name} {count:,}" for name, count in entry[key].items()) for key in ("skipped", "changed")
        )
        output = Text(", ".join(entry["output"]))
        table.add_row(file, form, output, f"{entry['read']:,}", f"{entry['written']:,}", reasons, changes)
    Console().print(table)
    for file, reason in report["skipped files"].items():
        print(f"Skipped {file}: {reason.rstrip('.')}.")
    for note in report["notes"]:
        print(note)


def _rows(report: dict[str, Any], count: str) -> int:
    """Return the rows of all corpora in a report: read, or kept."""
    return sum(row[count] for row in report["corpora"])


def _print_vocabulary(report: dict[str, Any]) -> None:
    """Print the entries of each language, with columns only for figures that were computed."""
    columns = {
        "subwords": ("entries", ",d"),
        "coverage": ("coverage", ".2%"),
        "fertility": ("tokens per word", ".2f"),
        "per_character": ("per character", ".2f"),
        "allocated": ("allocated", ",d"),
        "alp": ("ALP", ".1f"),
    }
    present = {key: columns[key] for key in columns if any(key in row for row in report["languages"].values())}
    table = Table("language", *(title for title, _ in present.values()), title=f"{report['size']:,} entries")
    for language, row in report["languages"].items():
        table.add_row(language, *(format(row[key], form) if key in row else "" for key, (_, form) in present.items()))
    Console().print(table)
