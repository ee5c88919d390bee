"""Commands that study methods and data: demo, lab, audit, bench."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

import crossling as xl
from crossling.cli.closing import finish, this_command, unused
from crossling.cli.options import Json, Out, OutFile, Seed, argument, check_data_folder, check_folder, flag, option
from crossling.cli.score_tables import print_means
from crossling.core.errors import BadInput, suggestion
from crossling.core.progress import format_duration, print_status

if TYPE_CHECKING:
    from crossling.audit.ranking import RankedCorpus
    from crossling.bench.bench_results import BenchResults

# Names of crossling.bench.BENCHES, whose import takes seconds.
BENCHES = (
    *("step", "step-sizes", "fp8", "recipes", "attention", "head"),
    *("data", "encode", "evaluate", "bundled", "growth", "start-up", "runs-at-once"),
)


def demo(out: Out = Path("demo"), seed: Seed = 0, json_: Json = False) -> None:
    """Run the whole pipeline on synthetic languages, then adapt the bundled model to Icelandic, on a CPU in minutes.

    Example: crossling demo -o demo
    """
    rows = xl.demo(out, seed=seed)
    if json_:
        for row in rows:
            print(json.dumps(row))
    else:
        print_means(rows)
        print(f"\nOpen {out / 'report.html'}")
    run, data = out / "with-bitext", out / "synth" / "data"
    finish(
        f"Wrote three models, their scores and {out / 'report.html'}.",
        ["evaluate", run, "--task", "tatoeba,word-alignment", "--data", data],
        ["export", run, "-o", unused(out / "exported")],
        json=json_,
    )


def lab(
    plan: Annotated[
        str, argument("PLAN", "architecture, papers, rosetta, synthetic, synthetic-all, or your own plan (.json).")
    ],
    out: Annotated[Path, option("LAB", "Write to this folder.", "-o", "--out")],
    shards: Annotated[Path | None, option("FOLDER", "Shards made by crossling tokenize, for all runs.")] = None,
    data: Annotated[Path | None, option("FOLDER", "Folder of benchmark data.")] = None,
    only: Annotated[str | None, option("RUNS", "Train only these runs, comma-separated. [default: all]")] = None,
    minutes: Annotated[float | None, option("M", "Stop after this many minutes. The same command resumes.")] = None,
    json_: Json = False,
) -> None:
    """Train the runs of a plan under one budget, score them, and report the status of the papers' claims.

    Example: crossling lab synthetic -o lab

    Example: crossling lab papers -o lab --shards shards --data data --minutes 25
    """
    from crossling.data.shards import Shards
    from crossling.lab.lab_plan import read_plan

    runs = None if only is None else only.split(",")
    read_plan(plan).check_names(runs or ())  # before the slow import of torch
    if shards is not None:
        Shards.open(shards)
    if data is not None:
        check_data_folder(data)
    comparison = xl.lab(plan, out, shards, data, only=runs, minutes=minutes)
    if json_:
        print(json.dumps(comparison))
        return
    for table in (_run_table(comparison), _claim_table(comparison)):
        if table.row_count:
            Console().print(table)
    print(out / "results.md")
    page = out / "report.html"
    is_complete = page.is_file()  # written once all runs are finished
    finish(
        f"Wrote {out / 'results.md'}, {out / 'lab.json'} and {len(comparison['runs'])} runs to {out}.",
        f"open {page} in a browser." if is_complete else ["report", out / "runs", "-o", unused(out / "runs.html")],
    )


def _run_table(comparison: Mapping[str, Any]) -> Table:
    scores = [(task, metrics) for run in comparison["runs"] for task, metrics in run["scores"].items()]
    measures = dict.fromkeys((task, metric) for task, metrics in scores for metric in metrics)
    table = Table("run", "seed", "state", title="scores, % (layer)")
    for heading in ("FLOPs", "time", *(f"{task} {metric}" for task, metric in measures)):
        table.add_column(heading, justify="right")
    for run in comparison["runs"]:
        cost = run["cost"]
        spent = (f"{cost['flops']['full']:.3g}", format_duration(cost["seconds"])) if cost else ("", "")
        cells = [_score_cell(run["scores"].get(task, {}).get(metric)) for task, metric in measures]
        table.add_row(run["run"], str(run["seed"]), run["state"], *spent, *cells)
    return table


def _claim_table(comparison: Mapping[str, Any]) -> Table:
    from crossling.lab.comparison import format_claim_status

    table = Table("claim", "at", "result", title="claims")
    for claim in comparison["claims"]:
        for view, result in claim["views"].items():
            table.add_row(claim["claim"], view, format_claim_status(result))
    return table


def _score_cell(score: Mapping[str, Any] | None) -> str:
    if score is None:
        return ""
    return f"{score['mean']:.1f}" + (f" ({score['layer']})" if score["layer"] is not None else "")


def audit(
    run: Annotated[Path, argument("RUN", "Run that was trained with --set dro=on.")],
    shards: Annotated[
        Path | None, option("FOLDER", "Its training shards: show lines, copies and repeats of each corpus.")
    ] = None,
    out: OutFile = None,
    ends: Annotated[int, option("N", "Corpora to show at each end.", min=1)] = 10,
    json_: Json = False,
) -> None:
    """Rank the bitext of a run by its losses: hardest first (wrong lines), easiest last (copies).

    Example: crossling audit run --shards shards -o audit.json
    """
    from crossling.core.files import write_json
    from crossling.data.shards import Shards

    check_folder(run, "Give a folder that crossling pretrain wrote.")
    if shards is not None:
        Shards.open(shards)
    groups = xl.audit(run, shards)
    if out is not None:
        write_json(out, [group.dump() for group in groups])
    if json_:
        for group in groups:
            print(json.dumps(group.dump(), ensure_ascii=False))
        return
    hard, easy = groups[:ends], groups[max(ends, len(groups) - ends) :]
    _print_groups("hardest first: wrong lines, many to one?", hard)
    if easy:
        _print_groups("easiest last: copies, repeats?", easy)
    if out is not None:
        print(out)
    written = f"Wrote {len(groups)} corpora to {out}." if out else f"Ranked {len(groups)} corpora; wrote nothing."
    keep = [this_command("-o", unused(Path("audit.json")))] if out is None else []
    finish(written, *keep, "read the lines of the corpora at both ends, then remove the damaged ones and train again.")


def _group_label(name: str) -> str:
    """Return `opus.en-sw` for `opus.en-sw en-sw`."""
    corpus, _, pair = name.rpartition(" ")
    return corpus if corpus.endswith(pair) else name


def _print_groups(title: str, groups: Sequence[RankedCorpus]) -> None:
    with_lines = any(group.statistics for group in groups)
    table = Table("corpus", title=title)
    for column in ("pairs", "loss", "deviations", "sampled", *(("copies", "repeats") if with_lines else ())):
        table.add_column(column, justify="right")
    for group in groups:
        cells = [f"{group.pairs:,}", f"{group.loss:.3f}", f"{group.deviation:+.1f}", f"{group.ratios[-1]:.2f}x"]
        if group.statistics:
            cells += [f"{proportion:.0%}" for proportion in (group.statistics.copies, group.statistics.repeats)]
        table.add_row(escape(_group_label(group.name)), *cells)
    console = Console()
    console.print(table)
    for group in groups:
        label = _group_label(group.name)
        for source, target in group.statistics.lines if group.statistics else ():
            console.print(f"{label}: {source} ||| {target}", markup=False, highlight=False, soft_wrap=True)


def bench(
    names: Annotated[
        list[str] | None,
        argument("[NAME]...", f"{', '.join(BENCHES[:-1])} or {BENCHES[-1]}. [default: all]"),
    ] = None,
    corpora: Annotated[Path | None, option("FOLDER", "Text for `data`. [default: synthetic languages]")] = None,
    size: Annotated[
        str | None, option("SIZE", "tiny, small, base, large or xl. [default: base; CPU: tiny]", "--size")
    ] = None,
    profile: Annotated[
        bool, flag("--profile", "Print the time of an XLM-E step by kind of operation instead.")
    ] = False,
    out: OutFile = None,
    json_: Json = False,
) -> None:
    """Measure speed and memory of the parts, each beside another library in the same run.

    Example: crossling bench step attention -o experiments/results/step.json
    """
    from crossling.model.model_shape import SIZES

    for name in names or ():  # before the slow import of torch
        if name not in BENCHES:
            raise BadInput(f"{name}: no such benchmark{suggestion(name, BENCHES)}")
    if size is not None and size not in SIZES:
        raise BadInput(f"size={size}: no such size{suggestion(size, SIZES)}")
    from crossling.bench.bench_results import BenchResults, figure

    if profile and (names or corpora):
        raise BadInput("--profile: measures an XLM-E step alone. Omit the names of benchmarks and --corpora.")
    rows = xl.bench(names or (), corpora, size)  # checks the names before the file is created
    results = BenchResults(out, " ".join(["crossling", *sys.argv[1:]]), xl.__version__) if out else None
    if profile:
        _print_profiles(size, results, json_)
        return
    table = Table("bench", "ours", "peer", "ratio", "unit", "MFU", "host", "GiB", "beside")
    try:
        for row in rows:
            if results is not None:
                results.add(row)
            if json_:
                print(json.dumps(row.dump()), flush=True)
            else:
                beside = f", {row.ratio:.3g}x {row.peer_name}" if row.ratio else ""
                print_status(f"{row.name}: {figure(row.ours)} {row.unit}{beside}")
            ratio = f"{row.ratio:.3g}x" if row.ratio else ""
            mfu, host = (f"{value:.3g}" if value else "" for value in (row.mfu, row.host))
            ours, peer, memory = (figure(value) for value in (row.ours, row.peer, row.peak_gib))
            table.add_row(row.name, ours, peer, ratio, row.unit, mfu, host, memory, row.peer_name)
    finally:  # results before a failure are still printed
        if not json_ and table.rows:
            Console().print(table)


def _print_profiles(size: str | None, results: BenchResults | None, json_: bool) -> None:
    """Print one table for each batch size."""
    from crossling.bench.bench_step import text_recipe
    from crossling.bench.step_profile import PROFILE_COLUMNS, profile_step
    from crossling.bench.workload import BenchSetup

    at = BenchSetup.of(size)
    for batch in at.batches:
        name = " ".join(["xlm_e", *([size] if size else []), f"on text, batch {batch}"])
        found = profile_step(name, text_recipe(), at, batch)
        if results is not None:
            results.add_profile(found)
        if json_:
            print(json.dumps(asdict(found)), flush=True)
            continue
        table = Table(*PROFILE_COLUMNS, title=found.title, title_justify="left")
        for cells in found.cells():
            table.add_row(*cells)
        Console().print(table)
