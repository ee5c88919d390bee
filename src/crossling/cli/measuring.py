"""The verbs that score, compare and use: evaluate, align, embed, mine, report, bench; and demo, ending in scores."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from crossling import __version__
from crossling.cli.options import Json, Out, Seed
from crossling.cli.tuning import print_by_language
from crossling.errors import BadInput
from crossling.progress import say

if TYPE_CHECKING:
    from crossling.evaluate.scores import Summary

Model = Annotated[
    str | None,
    typer.Option(help="A run, an exported folder, or a Hugging Face encoder; if not said the one that ships."),
]
Layer = Annotated[
    int | None, typer.Option(help="0 is the embeddings; if not said the model's universal layer, else two thirds up.")
]
Pooling = Annotated[str, typer.Option(help="mean of all positions, or cls: the first.")]


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


def evaluate(
    task: Annotated[
        str,
        typer.Option(help="tatoeba, bucc2018, word-alignment, or what it was fine-tuned for; several with commas."),
    ],
    data: Annotated[Path, typer.Option(help="A folder of benchmark data.")],
    model: Annotated[
        str | None,
        typer.Argument(
            help="A run, an exported or fine-tuned folder, a translator, or a Hugging Face encoder; if not said the"
            " one that ships."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="Adds the rows to scores.jsonl there, and keeps predictions.")
    ] = None,
    languages: Annotated[str | None, typer.Option(help="sw,th,de-en: only these; else all that are there.")] = None,
    pooling: Pooling = "mean",
    method: Annotated[str, typer.Option(help="ot, argmax, itermax: of word alignment; several with commas.")] = "ot",
    layers: Annotated[str | None, typer.Option(help="6,8: to mine at in bucc2018; else the universal one.")] = None,
    recompute: Annotated[
        bool, typer.Option("--recompute", help="Scores the stored predictions of a fine-tuned model anew.")
    ] = False,
    plug_in: Annotated[
        bool, typer.Option("--plug-in", help="Of tatoeba: reads each sentence with its translation, by VECO's module.")
    ] = False,
    json_: Json = False,
) -> None:
    """Score an encoder: every layer, both directions.

    Example: crossling evaluate run --task tatoeba,word-alignment --data babel/data -o run
    """
    from crossling.box import folder
    from crossling.evaluate.asked import Asked
    from crossling.hub import local_folder

    chosen = languages.split(",") if languages else None
    at = _numbers(layers) if layers else None
    asked = Asked(task.split(","), data, out, chosen, pooling, method.split(","), at, recompute, plug_in)
    asked.check()  # what is refused is refused before torch is imported
    if model is None and asked.tuned:
        raise BadInput(f"{asked.tuned[0]}: the model that ships was not fine-tuned; name the model to score")
    local_folder(model or folder())
    from crossling.evaluate.evaluate import evaluate
    from crossling.load import load

    rows = evaluate(load(model) if asked.free or model is None else model, **vars(asked))
    if json_:
        _print_json(rows)
    else:
        _print_scores(rows)
        print_by_language([row for row in rows if "layer" not in row])


def align(
    file: Annotated[Path, typer.Argument(help="Lines of `source ||| target`.")],
    model: Model = None,
    layer: Layer = None,
    method: Annotated[str, typer.Option(help="ot, argmax or itermax.")] = "ot",
    json_: Json = False,
) -> None:
    """Word alignments, one line of Pharaoh `i-j` links for each line of the file. Words are what stands between spaces:
    put spaces between those of Chinese, Japanese or Thai first.

    Example: crossling align pairs.txt
    """
    from crossling.box import folder
    from crossling.evaluate.links import check_methods
    from crossling.hub import local_folder

    check_methods([method])
    local_folder(model or folder())
    _check_files(file)
    from crossling.evaluate.alignment import align
    from crossling.load import load

    for links in align(load(model), file, layer, method):
        print(json.dumps(links) if json_ else " ".join(f"{i}-{j}" for i, j in links))


def embed(
    file: Annotated[Path, typer.Argument(help="One sentence a line, plain or packed (.gz, .xz, .zst).")],
    out: Annotated[Path, typer.Option("-o", "--out", help="The .npy file to write: row i is of line i.")],
    model: Model = None,
    layer: Layer = None,
    pooling: Pooling = "mean",
    half: Annotated[bool, typer.Option("--half", help="In float16: half the room.")] = False,
    json_: Json = False,
) -> None:
    """Sentence vectors of a file of any length; one that was stopped is gone on with.

    Example: crossling embed sentences.txt -o vectors.npy
    """
    from crossling.box import folder
    from crossling.evaluate.asked import check_pooling
    from crossling.hub import local_folder

    check_pooling(pooling)
    local_folder(model or folder())
    _check_files(file)
    from crossling.evaluate.embedding import embed, read_vectors
    from crossling.load import load

    written = embed(load(model), file, out, layer=layer, pooling=pooling, half=half)
    rows, width = read_vectors(written).shape
    print(json.dumps({"out": str(written), "sentences": rows, "width": width}) if json_ else written)


def mine(
    first: Annotated[Path, typer.Argument(metavar="A", help="One sentence a line, plain or packed.")],
    second: Annotated[Path, typer.Argument(metavar="B", help="The same in the other language.")],
    model: Model = None,
    layer: Layer = None,
    pooling: Pooling = "mean",
    margin: Annotated[str, typer.Option(help="ratio, distance or absolute.")] = "ratio",
    neighbours: Annotated[int, typer.Option(help="That a margin is taken over.", min=1)] = 4,
    threshold: Annotated[float, typer.Option(help="Pairs that score more are printed.")] = 0.0,
    vectors: Annotated[
        list[Path] | None, typer.Option(help="Of A, and once more of B: .npy of crossling embed, instead of a model.")
    ] = None,
    faiss: Annotated[bool, typer.Option("--faiss", help="Search by clusters: faster, misses some.")] = False,
    json_: Json = False,
) -> None:
    """Translations in two piles of sentences, best first: score TAB source TAB target, each sentence at most once.

    Example: crossling mine german.txt english.txt --threshold 1.05
    """
    from crossling.box import folder
    from crossling.evaluate.asked import check_pooling
    from crossling.hub import local_folder

    if vectors and len(vectors) != 2:
        raise BadInput("--vectors: expected it twice, of A and of B")
    check_pooling(pooling)
    if not vectors:
        local_folder(model or folder())
    _check_files(first, second, *(vectors or ()))
    from crossling.evaluate.mining import mine
    from crossling.load import load

    found = mine(
        None if vectors else load(model),
        first,
        second,
        layer=layer,
        pooling=pooling,
        margin=margin,
        k=neighbours,
        threshold=threshold,
        vectors=(vectors[0], vectors[1]) if vectors else None,
        faiss=faiss,
    )
    for pair in found:
        if json_:
            print(json.dumps({"score": pair.score, "source": pair.source, "target": pair.target}, ensure_ascii=False))
        else:  # a tab inside a sentence would be a column
            print(f"{pair.score:.6f}", *(side.replace("\t", " ") for side in (pair.source, pair.target)), sep="\t")


def report(
    folders: Annotated[list[Path], typer.Argument(help="Runs, fine-tuned models, or folders of both.")],
    out: Annotated[
        Path, typer.Option("-o", "--out", help="The page to write, with Markdown beside it; *.md is Markdown alone.")
    ] = Path("report.html"),
) -> None:
    """One self-contained page: the runs side by side, and beside them what the papers published.

    Example: crossling report runs/xlm_e runs/xlm tuned -o report.html
    """
    from crossling.evaluate.report import report

    print(report(folders, out))


def bench(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME]...",
            help="step, recipes, attention, head, data, encode, evaluate, growth; all if none is given.",
        ),
    ] = None,
    corpora: Annotated[Path | None, typer.Option(help="Text for data to read; else embedded languages.")] = None,
    size: Annotated[
        str | None, typer.Option(help="tiny, small, base, large or xl; if not said base, on a CPU less than tiny.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="A file for the results; how cost grows is drawn beside it.")
    ] = None,
    json_: Json = False,
) -> None:
    """Speed and memory of the parts, each beside its peer, in one run.

    Example: crossling bench step attention -o benchmarks/results/step.json
    """
    from crossling.bench import bench
    from crossling.bench.results import Results, figure

    measured = bench(names or (), corpora, size)
    kept = Results(out, " ".join(["crossling", *sys.argv[1:]]), __version__) if out else None
    table = Table("bench", "ours", "peer", "ratio", "unit", "MFU", "GiB", "beside")
    try:
        for row in measured:
            if kept is not None:
                kept.add(row)
            if json_:
                print(json.dumps(row.dump()), flush=True)
            else:
                beside = f", {row.ratio:.3g}x {row.peer_name}" if row.ratio else ""
                say(f"{row.name}: {figure(row.ours)} {row.unit}{beside}")
            shares = [f"{share:.3g}{times}" if share else "" for share, times in ((row.ratio, "x"), (row.mfu, ""))]
            figures = [figure(value) for value in (row.ours, row.peer, row.peak_gib)]
            table.add_row(row.name, *figures[:2], shares[0], row.unit, shares[1], figures[2], row.peer_name)
    finally:  # what was measured before something failed
        if not json_ and table.rows:
            Console().print(table)


def _check_files(*files: Path) -> None:
    for file in files:
        if not file.exists() and not file.with_name(f"{file.name}.gz").exists():
            raise BadInput(f"{file}: no such file; check the name")


def _numbers(layers: str) -> list[int]:
    try:
        return [int(layer) for layer in layers.split(",")]
    except ValueError:
        raise BadInput(f"--layers {layers}: expected numbers with commas, such as 6,8") from None


def _print_json(rows: list[dict[str, object]]) -> None:
    for row in rows:
        print(json.dumps(row))


def _print_scores(rows: list[dict[str, object]]) -> None:
    """Means over languages and directions: by layer, the best one bold, where every layer was measured; the others
    together, with a column for each metric."""
    from crossling.evaluate.retrieval import by_list
    from crossling.evaluate.scores import summary

    swept: dict[tuple[str, ...], list[Summary]] = {}
    chosen: list[Summary] = []
    for found in summary([*rows, *by_list(rows)]):
        if 0 in found.by_layer:
            swept.setdefault((_set_name(found), found.metric, found.protocol), []).append(found)
        else:
            chosen.append(found)
    for (name, metric, protocol), models in swept.items():
        layers = sorted({layer for found in models for layer in found.by_layer})
        table = Table("model", *map(str, layers), title=f"{name}: {metric} ({protocol}) by layer, mean, %")
        for found in models:
            cells = [f"{found.by_layer[k]:.1f}" if k in found.by_layer else "" for k in layers]
            table.add_row(
                found.model,
                *(f"[bold]{c}[/]" if k == found.best_layer else c for k, c in zip(layers, cells, strict=True)),
            )
        Console().print(table)
    metrics: dict[str, tuple[str, ...]] = {
        task: tuple(dict.fromkeys(found.metric for found in chosen if found.task == task))
        for task in dict.fromkeys(found.task for found in chosen)
    }
    for own in dict.fromkeys(metrics.values()):
        _print_chosen([found for found in chosen if metrics[found.task] == own], own)


def _print_chosen(models: Sequence[Summary], metrics: Sequence[str]) -> None:
    values: dict[tuple[str, str, str, int], dict[str, float]] = {}
    for found in models:
        for layer, value in found.by_layer.items():
            values.setdefault((found.model, _set_name(found), found.protocol, layer), {})[found.metric] = value
    table = Table("model", "task", "protocol", "layer", *metrics, title="At the layer that the protocol names: mean, %")
    for (*names, layer), own in values.items():
        table.add_row(*names, str(layer), *(f"{own[metric]:.1f}" if metric in own else "" for metric in metrics))
    Console().print(table)


def _set_name(found: Summary) -> str:
    return found.task if found.split == "test" else f"{found.task} {found.split}"
