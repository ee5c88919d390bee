"""Charts as SVG text, drawn by Matplotlib: lines, scatter plots, density maps and word alignments.

The pictures have a transparent background, grey axes and eight colours that are readable on light and on dark pages.
They contain no scripts and no links. The same data gives the same bytes. Matplotlib is imported on first use.
"""

from __future__ import annotations

import html
import io
import math
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any

from crossling.core.progress import format_count

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours, except those that are hard to see on white or on black.
PALETTE = ("#2a80c8", "#d55e00", "#009e73", "#cc79a7", "#a87900", "#8860c8", "#7a7a7a", "#2a9fc0")
GREY = "#808080"
LINE_STYLES = ("-", "--", ":")  # one for every eight series
WIDTH, HEIGHT = 400, 240  # of one panel, in SVG units
CELL = 34  # side of a word pair in an alignment
# Style of every element, ids that occur in every chart, and empty groups.
NEEDLESS = r'(?s:<defs>\s*<style.*?</defs>)| id="[\w.]+_\d+"| transform="rotate\(-0 [^"]*"|(?m:^ +)|<g/>\n'
MAX_POINTS = 80  # of a series: more are averaged in groups to keep the page small
TABLE_ROWS = 10

Point = tuple[float, float]


@dataclass(frozen=True)
class Series:
    """A named line. `colour` counts through PALETTE."""

    name: str
    colour: int
    points: Sequence[Point]


@dataclass(frozen=True)
class LinePlot:
    """Data of one line chart. `level` is a value to compare with and its name."""

    title: str
    x_label: str
    y_label: str
    series: Sequence[Series]
    _: KW_ONLY
    from_zero: bool = False  # start the y axis at 0 and mark the points
    level: tuple[float, str] | None = None

    @property
    def svg(self) -> str:
        return line_chart([[self]], label=f"{self.title}, by {self.x_label}")

    @property
    def table(self) -> list[list[str]]:
        """The header, then at most ten points of every series, for readers who want numbers."""
        values = [dict(average_groups(each.points)) for each in self.series]
        positions = sorted({x for each in values for x in each})
        step = math.ceil(len(positions) / TABLE_ROWS) or 1
        rows = [
            [format_count(x), *(f"{each[x]:.4g}" if x in each else "–" for each in values)]
            for x in positions[::-1][::step][::-1]
        ]
        return [[self.x_label, *(each.name for each in self.series)], *rows]


@dataclass(frozen=True)
class Dot:
    """One model of a scatter plot. Published models have no colour."""

    name: str
    x: float
    y: float
    _: KW_ONLY
    colour: int | None = None
    reference: str = ""  # the paper and table of a published model


@dataclass(frozen=True)
class ScatterPlot:
    """Data of one scatter plot; the x axis is logarithmic."""

    title: str
    x_label: str
    y_label: str
    dots: Sequence[Dot]

    @property
    def svg(self) -> str:
        """Dots with their names where there is space for them; published models are hollow."""
        from matplotlib.ticker import FuncFormatter, NullFormatter

        with _figure(WIDTH, HEIGHT) as figure:
            axes = figure.subplots()
            axes.set_xscale("log")
            axes.margins(0.12, 0.12)
            for dot in self.dots:
                fill = "none" if dot.colour is None else _colour(dot.colour)
                edge = GREY if dot.colour is None else fill
                axes.plot(dot.x, dot.y, "o", markersize=6, markerfacecolor=fill, markeredgecolor=edge)
            _style_axes(axes, self.x_label, self.y_label)
            axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: format_count(x) if x < 1e12 else f"{x:.0e}"))
            axes.xaxis.set_minor_formatter(NullFormatter())
            _name_dots(figure, axes, self.dots)
            return _render(figure, self.title)

    @property
    def table(self) -> list[list[str]]:
        rows = [[dot.name, f"{dot.x:.3g}", f"{dot.y:.1f}", dot.reference or "measured here"] for dot in self.dots]
        return [["model", self.x_label, self.y_label, "source"], *rows]


def line_chart(
    rows: Sequence[Sequence[LinePlot]], *, label: str, legend: bool = False, standalone: bool = False
) -> str:
    """Draw panels of lines in rows. Several panels get their titles; `legend` names the series below."""
    columns = max(map(len, rows))
    names = {series.name for row in rows for plot in row for series in plot.series}
    legend_rows = math.ceil(len(names) / (2 * columns)) if legend else 0
    titled = len(rows) * columns > 1
    with _figure(columns * WIDTH, len(rows) * (HEIGHT + 24 * titled) + 17 * legend_rows) as figure:
        axes = figure.subplots(len(rows), columns, squeeze=False)
        for row, panels in zip(rows, axes, strict=True):
            for panel in panels[len(row) :]:
                panel.set_visible(False)
            for plot, panel in zip(row, panels, strict=False):
                _draw_lines(panel, plot)
                if titled:
                    panel.set_title(plot.title, loc="left", fontsize=12)
        if legend:
            handles, labels = axes[0][0].get_legend_handles_labels()
            figure.legend(
                handles, labels, loc="outside lower left", ncols=2 * columns, frameon=False, fontsize=9, handlelength=4
            )
        return _render(figure, label, standalone)


def density_map(
    label: str, names: Sequence[str], values: Sequence[Sequence[float | None]], low: float, high: float
) -> str:
    """Draw a square map on a logarithmic colour scale from `low` to `high`. Zeros are grey, None is blank."""
    from matplotlib.colors import ListedColormap, LogNorm, to_rgba

    side = 60 + 9 * len(names)
    with _figure(side + 60, side) as figure:
        axes = figure.subplots()
        shades = ListedColormap([to_rgba(PALETTE[0], 0.08 + 0.92 * step / 63) for step in range(64)])
        colours = shades.with_extremes(bad=(0, 0, 0, 0), under=to_rgba(GREY, 0.35))
        cells = [[math.nan if value is None else value or low / 10 for value in row] for row in values]
        image = axes.imshow(cells, cmap=colours, norm=LogNorm(low, high), interpolation="none")
        _name_cells(axes, names, names, rotation=90, size=7)
        bar = figure.colorbar(image, ax=axes, shrink=0.6)
        bar.outline.set_visible(False)
        bar.ax.tick_params(labelsize=8, which="both", length=0)
        return _render(figure, label)


def alignment_grid(alignment: Mapping[str, Any]) -> str:
    """Draw source words down and target words across, with the similarity of every two words.

    A dot is a predicted link. A frame is a gold link: solid if sure, dashed if only possible.
    """
    from matplotlib.colors import to_rgba
    from matplotlib.patches import Rectangle

    source, target, similarity = alignment["source"], alignment["target"], alignment["similarity"]
    values = [value for row in similarity for value in row]
    low, high = min(values, default=0.0), max(values, default=1.0)
    longest = [max(map(len, words), default=0) for words in (source, target)]
    with _figure(CELL * len(target) + 9 * longest[0] + 60, CELL * len(source) + 8 * longest[1] + 40) as figure:
        axes = figure.subplots()
        shades = [
            [to_rgba(PALETTE[0], 0.06 + 0.45 * (v - low) / ((high - low) or 1)) for v in row] for row in similarity
        ]
        if values:
            axes.imshow(shades, interpolation="none")
        _name_cells(axes, source, target, rotation=55, size=11)
        for row, line in enumerate(similarity):
            for column, value in enumerate(line):
                axes.text(column, row + 0.3, f"{value:.2f}", ha="center", va="center", fontsize=7.5)
        for row, column in sorted({*map(tuple, alignment["sure"]), *map(tuple, alignment["possible"])}):
            frame = Rectangle((column - 0.44, row - 0.44), 0.88, 0.88, fill=False, edgecolor=PALETTE[4], linewidth=2)
            axes.add_patch(frame).set_linestyle("-" if [row, column] in alignment["sure"] else "--")
        for row, column in alignment["predicted"]:
            axes.plot(column, row - 0.12, "o", color=PALETTE[1], markersize=8)
        return _render(figure, "word alignment")


def average_groups(points: Sequence[Point]) -> list[Point]:
    """Average neighboring points so that at most MAX_POINTS are left. The last position stays."""
    size = math.ceil(len(points) / MAX_POINTS) or 1
    groups = [points[start : start + size] for start in range(0, len(points), size)]
    return [(group[-1][0], sum(y for _, y in group) / len(group)) for group in groups]


def _draw_lines(axes: Axes, plot: LinePlot) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    for each in plot.series:
        if each.points:
            xs, ys = zip(*average_groups(each.points), strict=True)
            style = LINE_STYLES[each.colour // len(PALETTE) % len(LINE_STYLES)]
            marker = "o" if plot.from_zero else ""
            axes.plot(xs, ys, style + marker, color=_colour(each.colour), markersize=4, linewidth=1.8, label=each.name)
    if plot.level:
        value, name = plot.level
        axes.axhline(value, color=GREY, linestyle=":", linewidth=1.2)
        axes.annotate(name, (1, value), (0, 4), ("axes fraction", "data"), "offset points", ha="right", fontsize=9)
    if plot.from_zero:
        axes.set_ylim(bottom=0)
    _style_axes(axes, plot.x_label, plot.y_label)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(5))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: format_count(value)))


def _style_axes(axes: Axes, x_label: str, y_label: str) -> None:
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    axes.grid(axis="y", alpha=0.3, linewidth=0.8)
    axes.tick_params(which="both", length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)


def _name_cells(axes: Axes, rows: Sequence[str], columns: Sequence[str], rotation: int, size: int) -> None:
    axes.set_yticks(range(len(rows)), rows, fontsize=size)
    axes.set_xticks(range(len(columns)), columns, fontsize=size, rotation=rotation, ha="left", rotation_mode="anchor")
    axes.tick_params(top=True, labeltop=True, bottom=False, labelbottom=False, length=0)
    axes.spines[:].set_visible(False)


def _name_dots(figure: Figure, axes: Axes, dots: Sequence[Dot]) -> None:
    """Put each name beside its dot where nothing else is: right, left, above or below. Runs come first."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.transforms import Bbox

    canvas = FigureCanvasAgg(figure)
    canvas.draw()  # compute the layout
    centres = axes.transData.transform([(dot.x, dot.y) for dot in dots])
    taken = [Bbox.from_bounds(x - 4, y - 4, 8, 8) for x, y in centres]
    sides = ((7, 0, "left", "center"), (-7, 0, "right", "center"), (0, 6, "center", "bottom"), (0, -6, "center", "top"))
    for dot in sorted(dots, key=lambda dot: dot.colour is None):
        for x, y, horizontal, vertical in sides:
            name = axes.annotate(dot.name, (dot.x, dot.y), (x, y), textcoords="offset points", fontsize=8.5)
            name.set(ha=horizontal, va=vertical)
            area = name.get_window_extent(canvas.get_renderer())
            if figure.bbox.containsx(area.x1) and axes.bbox.containsx(area.x0) and not area.count_overlaps(taken):
                taken.append(area)
                break
            name.remove()


def _colour(number: int) -> str:
    return PALETTE[number % len(PALETTE)]


@contextmanager
def _figure(width: float, height: float) -> Iterator[Figure]:
    """Yield an empty figure of a size in SVG units, and apply the style of all charts."""
    import matplotlib
    from matplotlib.figure import Figure

    colours = dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), GREY)
    style: dict[Any, Any] = {**colours, "grid.color": GREY, "svg.fonttype": "none", "font.size": 12}
    with matplotlib.rc_context(style), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # only measured here: the browser has the glyphs
        yield Figure((width / 72, height / 72), layout="constrained")


def _render(figure: Figure, label: str, standalone: bool = False) -> str:
    """The SVG element alone: no clip paths, metadata, links or duplicate ids. A file needs its namespaces."""
    import matplotlib

    for artist in figure.findobj():
        artist.set_clip_on(False)
    buffer = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": label}):
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    start, _, body = buffer.getvalue().partition("<metadata>")
    body = body.partition("</metadata>")[2].replace(GREY, f"var(--soft, {GREY})")
    body = re.sub(NEEDLESS, "", re.sub("font-family: [^;]*", "font-family: system-ui, sans-serif", body))
    start = re.sub(r' (width|height|version)="[^"]*"', "", start[start.index("<svg") :].strip()[:-1])
    start = start if standalone else re.sub(r' xmlns(:xlink)?="[^"]*"', "", start)
    return f'{start} class="chart" role="img" aria-label="{html.escape(label)}">{body}'
