"""Draw the pictures of the documentation, from formulas and from stored results. publish.py writes those of labs.

    python experiments/pictures.py [--root FOLDER]

Writes docs/pictures/NAME.svg for every name in PICTURES. The pictures have a transparent background and a grey that is
legible on light and on dark pages. The same code gives the same bytes.
"""

from __future__ import annotations

import argparse
import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from crossling.bench.bench_results import growth_chart
from crossling.core.files import atomic_file
from crossling.core.hardware import ACCELERATORS
from crossling.data.packing import best_fit_rows
from crossling.model.position import relative_position_bucket
from crossling.planning.estimate import RunEstimate, estimate_run, fit_to_memory
from crossling.recipes import xlm_e
from crossling.recipes.network import ObjectiveLoad, build_meta_network
from crossling.sampling import best_response, m2m, temperature_sampling, xy_lent

ROOT = Path(__file__).parent.parent
GREY = "#7a7a7a"
# Okabe and Ito's colours, those that are visible on white and on black.
BLUE, ORANGE, GREEN, PINK = "#0081c9", "#d55e00", "#009e73", "#cc79a7"
# The style element and the ids of groups. Ids of markers stay: they are referred to.
NEEDLESS = r'(?s:<defs>\s*<style.*?</defs>)| id="[\w.]+_\d+"|(?m:^ +)'
STYLE = {
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), GREY),
    **{"grid.color": GREY, "svg.fonttype": "none", "font.size": 12},
}
LANGUAGES = {"en": 1000, "de": 300, "hi": 60, "sw": 10, "yo": 1}  # millions of tokens
PAIRS = {
    ("en", "de"): 800,
    ("en", "ta"): 60,
    ("en", "sw"): 40,
    ("de", "ta"): 20,
    ("de", "sw"): 10,
    ("sw", "ta"): 2,
}
TEMPERATURE = 5
RULES = {"data": GREY, "alpha": BLUE, "m2m": ORANGE, "xy_lent": GREEN}
GROUP_LOSSES = np.linspace(1.0, 3.0, 9)  # of nine corpora of equal size
RHOS = {0.01: GREEN, 0.05: BLUE, 0.2: ORANGE}
BUCKETS, MAX_DISTANCE = 32, 128
LENGTHS = (61, 50, 44, 40, 33, 30, 28, 22, 21, 19, 14, 12, 9, 8, 5)  # of sequences
ROW = 64
RESULTS = ROOT / "experiments" / "results"
PAPER_VOCABULARY = 250_002
CLUSTER = {"base": BLUE, "large": ORANGE, "xl": GREEN}  # sizes of XLM-E
GPU_COUNTS = (1, 8, 16, 64, 128, 512)
TRANSLATORS = {  # name and colour of each initialization
    "veco": ("VECO", BLUE),
    "xlm": ("MLM+TLM", ORANGE),
    "random": ("random", GREY),
    "control": ("control: bitext first", GREEN),
    "third": ("VECO, a third of the steps", PINK),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--root", type=Path, default=ROOT, help="folder of the repository")
    folder = parser.parse_args().root / "docs" / "pictures"
    for name, draw in PICTURES.items():
        with atomic_file(folder / f"{name}.svg") as file:
            file.write_text(draw(), encoding="utf-8")
        print(folder / f"{name}.svg")


@contextmanager
def new_figure(width: float, height: float) -> Iterator[Figure]:
    """Yield an empty figure of a size in SVG units."""
    with rc_context(STYLE):
        yield Figure((width / 72, height / 72), layout="constrained")


def render(figure: Figure, label: str) -> str:
    """Return a figure as an SVG file with a transparent background."""
    for artist in figure.findobj():
        artist.set_clip_on(False)
    buffer = io.StringIO()
    with rc_context({"svg.hashsalt": label}):
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :].replace("<svg", f'<svg role="img" aria-label="{escape(label)}"', 1)
    text = re.sub(r"(?s)<metadata>.*?</metadata>", "", text)
    text = re.sub("font-family: [^;]*", "font-family: system-ui, sans-serif", text)
    return re.sub(r"\n\s*\n", "\n", re.sub(NEEDLESS, "", text))


def style_axes(axes: Axes, x_label: str, y_label: str = "", grid: str = "y") -> None:
    """Label the axes and remove what is not data."""
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    axes.grid(axis=grid, alpha=0.3, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(which="both", length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)


def name_line(axes: Axes, text: str, end: tuple[float, float], colour: str = GREY) -> None:
    """Write a text to the right of a point."""
    axes.annotate(text, end, (8, 0), textcoords="offset points", va="center", color=colour)


def dot_chart(
    panels: Mapping[str, Mapping[str, Sequence[float]]], *, label: str, highlighted: Mapping[str, str], lowest: float
) -> str:
    """Draw one row for each name: every value as a ring, their mean as a dot with its figure.

    Args:
        panels: Values of each name, by the label of the x axis. All panels have the same names.
        label: Description of the picture.
        highlighted: Colour of some names. The others are grey.
        lowest: Start of all x axes.
    """
    names = [*next(iter(panels.values()))]
    with new_figure(340 * len(panels), 60 + 26 * len(names)) as figure:
        for axes, (title, rows) in zip(
            figure.subplots(1, len(panels), sharey=True, squeeze=False)[0], panels.items(), strict=True
        ):
            for row, (name, values) in enumerate(rows.items()):
                if values:
                    colour, mean = highlighted.get(name, GREY), float(np.mean(values))
                    axes.hlines(row, lowest, mean, color=colour, alpha=0.5, linewidth=1.6)
                    axes.plot(values, [row] * len(values), "o", color=colour, markersize=8, markerfacecolor="none")
                    axes.plot(mean, row, "o", color=colour, markersize=5)
                    name_line(axes, f"{mean:.1f}", (max(values), row))
            axes.set_yticks(range(len(names)), names)
            axes.set_ylim(len(names) - 0.5, -0.5)
            highest = max(value for values in rows.values() for value in values)
            axes.set_xlim(lowest, highest * 1.15)
            style_axes(axes, title, grid="x")
        return render(figure, label)


def draw_temperature() -> str:
    """Draw the probability of each language by the exponent."""
    alphas = np.linspace(0, 1, 41)
    by_alpha = [temperature_sampling(LANGUAGES, float(alpha)) for alpha in alphas]
    with new_figure(520, 300) as figure:
        axes = figure.subplots()
        for language, colour in zip(LANGUAGES, (BLUE, ORANGE, GREEN, PINK, GREY), strict=True):
            values = [100 * each[language] for each in by_alpha]
            axes.plot(alphas, values, color=colour, linewidth=2)
            name_line(axes, f"{language}, {LANGUAGES[language]}M tokens", (1, values[-1]), colour)
        axes.axvline(0.7, color=GREY, linestyle=":", linewidth=1.2)
        axes.annotate("default 0.7", (0.7, 0.08), (-4, 0), textcoords="offset points", ha="right")
        axes.set_xlim(0, 1.3)
        axes.set_yscale("log")
        axes.set_yticks([0.1, 1, 10, 100], ["0.1", "1", "10", "100"])
        axes.set_xticks([0, 0.25, 0.5, 0.75, 1])
        style_axes(axes, "exponent α (0: uniform, 1: as the data)", "sampling probability, %")
        return render(figure, "Sampling probability of five languages by the exponent alpha")


def pair_rules() -> dict[str, dict[tuple[str, str], float]]:
    """Return the probability of each pair of the example, by rule."""
    return {
        "data": temperature_sampling(PAIRS, 1.0),
        "alpha": temperature_sampling(PAIRS, 1 / TEMPERATURE),
        "m2m": m2m(PAIRS, TEMPERATURE),
        "xy_lent": xy_lent(PAIRS, TEMPERATURE),
    }


def draw_pair_rules() -> str:
    """Draw the probabilities of the pairs of the example, one panel a rule."""
    with new_figure(720, 250) as figure:
        for axes, (rule, probabilities) in zip(
            figure.subplots(1, len(RULES), sharey=True, sharex=True), pair_rules().items(), strict=True
        ):
            for row, probability in enumerate(probabilities.values()):
                axes.barh(row, 100 * probability, color=RULES[rule], height=0.66)
                text = f"{100 * probability:.1f}" if probability > 5e-4 else "never"
                name_line(axes, text, (100 * probability, row))
            axes.set_yticks(range(len(PAIRS)), [f"{a}-{b}  ({count})" for (a, b), count in PAIRS.items()])
            axes.set_ylim(len(PAIRS) - 0.5, -0.5)
            axes.set_xlim(0, 115)
            axes.set_xticks([0, 50, 100])
            axes.set_title(rule, fontsize=12)
            style_axes(axes, "% of all pairs", grid="x")
        return render(figure, "Sampling probability of six language pairs by the data and by three rules")


def draw_robust_sampling() -> str:
    """Draw the best response to the losses of nine corpora of equal size."""
    losses = {str(group): float(loss) for group, loss in enumerate(GROUP_LOSSES)}
    p = dict.fromkeys(losses, 1 / len(losses))
    with new_figure(520, 280) as figure:
        axes = figure.subplots()
        for rho, colour in RHOS.items():
            q = best_response(p, losses, rho)
            ratios = [q[group] / p[group] for group in p]
            axes.plot(GROUP_LOSSES, ratios, "o-", color=colour, markersize=4, linewidth=2)
            name_line(axes, f"ρ = {rho}", (GROUP_LOSSES[-1], ratios[-1]), colour)
        axes.axhline(1, color=GREY, linestyle=":", linewidth=1.2)
        axes.set_xlim(0.9, 3.4)
        axes.set_ylim(bottom=0)
        axes.set_xticks([1, 1.5, 2, 2.5, 3])
        style_axes(axes, "loss of the corpus", "new probability / old")
        return render(figure, "Change of sampling probability by the loss of a corpus, for three values of rho")


def draw_position_buckets() -> str:
    """Draw the bucket of every distance."""
    distances = torch.arange(-MAX_DISTANCE - 32, MAX_DISTANCE + 33)
    numbers = relative_position_bucket(distances, BUCKETS, MAX_DISTANCE)
    with new_figure(560, 260) as figure:
        axes = figure.subplots()
        for is_right, colour, name in ((False, BLUE, "keys to the left"), (True, ORANGE, "keys to the right")):
            side = (distances > 0) if is_right else (distances <= 0)
            axes.step(distances[side].numpy(), numbers[side].numpy(), where="mid", color=colour, linewidth=2)
            x, y = (40, 20) if is_right else (-40, 4)
            axes.annotate(name, (x, y), ha="center")
        axes.set_xticks([-128, -64, -8, 8, 64, 128])
        axes.set_yticks([0, 8, 15, 17, 24, 31])
        style_axes(axes, "distance: key − query, in tokens", "bucket")
        return render(figure, "Bucket of each relative distance: exact up to 7, then logarithmic up to 128")


def draw_packing() -> str:
    """Draw the same sequences padded to one length and packed by best fit."""
    padded = [[index] for index in range(len(LENGTHS))]
    packed = best_fit_rows(LENGTHS, ROW)
    with new_figure(620, 300) as figure:
        for axes, (title, rows) in zip(
            figure.subplots(1, 2), {"padded": padded, "packed": packed}.items(), strict=True
        ):
            tokens = sum(LENGTHS)
            for row, sequences in enumerate(rows):
                start = 0
                axes.barh(row, ROW, color=GREY, alpha=0.2, height=0.8)
                for index in sequences:
                    colour = (BLUE, ORANGE, GREEN)[index % 3]
                    axes.barh(row, LENGTHS[index], left=start, color=colour, height=0.8, edgecolor=GREY, linewidth=0.8)
                    start += LENGTHS[index]
            axes.set_ylim(len(padded) - 0.4, -0.6)
            axes.set_yticks([])
            used = 100 * tokens / (ROW * len(rows))
            axes.set_title(f"{title}: {len(rows)} rows, {used:.0f}% tokens", fontsize=12)
            axes.set_xticks([0, 16, 32, 48, 64])
            style_axes(axes, "position in the row", grid="x")
        return render(figure, f"{len(LENGTHS)} sequences padded to rows of {ROW} tokens, and packed by best fit")


def draw_translators(file: str, drop: float = 0) -> str:
    """Draw dev BLEU by step of the translators of a result file. Names of shorter runs stand `drop` below their end."""
    runs = json.loads((RESULTS / file).read_text(encoding="utf-8"))["runs"]
    last = max(run["steps"] for run in runs)
    highest = max(point["bleu"] for run in runs for point in run["curve"])
    with new_figure(640, 320) as figure:
        axes = figure.subplots()
        lowest_label = highest * 1.2
        for run in sorted(runs, key=lambda run: -run["curve"][-1]["bleu"]):
            (name, colour), curve = TRANSLATORS[run["start"]], run["curve"]
            axes.plot([p["step"] for p in curve], [p["bleu"] for p in curve], color=colour, linewidth=1.8)
            end = curve[-1]["step"], curve[-1]["bleu"] - drop
            if run["steps"] == last:  # labels at the right must not overlap
                lowest_label = min(curve[-1]["bleu"], lowest_label - highest / 14)
                end = last, lowest_label
            name_line(axes, name, end, colour)
        axes.set_xlim(0, last * 1.32)
        axes.set_ylim(bottom=0)
        axes.set_xticks(np.linspace(0, last, 6))
        style_axes(axes, "steps", "dev BLEU")
        return render(figure, "Dev BLEU by step of translators with different initializations")


def scaling() -> dict[str, list[RunEstimate]]:
    """Return the prediction for each size of XLM-E on each number of H100, with full sequences as published."""
    found: dict[str, list[RunEstimate]] = {}
    for size in CLUSTER:
        recipe = xlm_e(size)
        net = build_meta_network(recipe, PAPER_VOCABULARY)
        loads = {
            name: ObjectiveLoad(objective.examples_per_step(objective.length), objective.length)
            for name, objective in recipe.objectives.items()
        }
        for gpus in GPU_COUNTS:
            fitting = fit_to_memory(recipe, net, loads, ACCELERATORS["h100"], gpus=gpus) or recipe
            estimate = estimate_run(fitting, net, loads, ACCELERATORS["h100"], gpus=gpus)
            found.setdefault(size, []).append(estimate)
    return found


def draw_scaling() -> str:
    """Draw the part of the time in which GPUs compute, by their number."""
    with new_figure(560, 300) as figure:
        axes = figure.subplots()
        for (size, estimates), shift in zip(scaling().items(), (-3, 6, 0), strict=True):
            values = [100 * (1 - estimate.waiting) for estimate in estimates]
            axes.plot(GPU_COUNTS, values, "o-", color=CLUSTER[size], linewidth=2, markersize=4)
            name_line(axes, size, (GPU_COUNTS[-1], values[-1] + shift), CLUSTER[size])
        axes.set_xscale("log", base=2)
        axes.set_xticks(GPU_COUNTS, [str(gpus) for gpus in GPU_COUNTS])
        axes.minorticks_off()
        axes.set_xlim(0.9, 1000)
        axes.set_ylim(0, 105)
        style_axes(axes, "H100 GPUs, 8 a machine", "time spent computing, %")
        return render(figure, "Predicted efficiency of XLM-E Base, Large and XL by the number of GPUs")


def draw_growth() -> str:
    """Draw the growth of time and memory by the rows of `crossling bench growth`."""
    rows = json.loads((RESULTS / "2026-11-15-speed-growth.json").read_text(encoding="utf-8"))["rows"]
    return growth_chart(rows) or ""


PICTURES: dict[str, Any] = {
    "temperature": draw_temperature,
    "pair-rules": draw_pair_rules,
    "robust-sampling": draw_robust_sampling,
    "position-buckets": draw_position_buckets,
    "packing": draw_packing,
    "translators-synthetic": partial(draw_translators, "2026-11-15-translators-embedded.json"),
    "translators-multi30k": partial(draw_translators, "2026-11-16-translators-from-a-model.json", drop=6),
    "growth": draw_growth,
    "scaling": draw_scaling,
}

if __name__ == "__main__":
    main()
