"""Charts as SVG text, drawn by Matplotlib: lines, scatter plots, density maps and word alignments.

The pictures have a transparent background. Text and axes use the colours `--ink` and `--soft` of the page; a picture
in its own file follows the light or dark scheme of the reader. At most six series are coloured and labelled at the end
of their line; all others are grey. There are no scripts and no links. The same data gives the same bytes. Matplotlib is
imported on first use.
"""

from __future__ import annotations

import base64
import html
import io
import math
import re
import textwrap
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any

from crossling.core.progress import format_count

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Six of Okabe and Ito's colours, which readers with any common colour blindness can distinguish. All others are grey.
PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
GREY, INK = "#808080", "#707070"  # of axes and of names; replaced by the colours of the page
WIDTH, HEIGHT = 360, 220  # of one panel, in SVG units
CELL = 34  # side of a word pair in an alignment
LABEL_WIDTH, LABEL_HEIGHT = 16, 0.085  # of a name at the end of a line: characters, and fraction of the axis
# Colours of a picture in its own file. Both pairs stay readable if the page around it has the other scheme.
SCHEMES = (
    "<style>svg.chart{--soft:#686e78;--ink:#62676f}"
    "@media(prefers-color-scheme:dark){svg.chart{--soft:#8d949e;--ink:#959ca6}}</style>"
)
# Style of every element, ids that occur in every chart, and empty groups.
NEEDLESS = r'(?s:<defs>\s*<style.*?</defs>)| id="[\w.]+_\d+"| transform="rotate\(-0 [^"]*"|(?m:^ +)|<g/>\n'
MANY_NAMES = 40  # rows of a density map with smaller cells
MAX_POINTS = 80  # of a series: more are averaged in groups to keep the page small
TABLE_ROWS = 10

Point = tuple[float, float]


@dataclass(frozen=True)
class Series:
    """A named line. `colour` counts through PALETTE; a series after the last colour is grey and has no label."""

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
    from_zero: bool = False  # start the y axis at 0
    marked: bool = False  # mark the points
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
            [_format_position(x), *(f"{each[x]:.4g}" if x in each else "–" for each in values)]
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
            axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: _format_position(x)))
            axes.xaxis.set_minor_formatter(NullFormatter())
            _name_dots(figure, axes, self.dots)
            return _render(figure, self.title)

    @property
    def table(self) -> list[list[str]]:
        rows = [[dot.name, f"{dot.x:.3g}", f"{dot.y:.1f}", dot.reference or "measured here"] for dot in self.dots]
        return [["model", self.x_label, self.y_label, "source"], *rows]


def _format_position(value: float) -> str:
    """Format a position on an axis: 2000 as `2k`, FLOPs as `2e+18`."""
    return format_count(value) if value < 1e12 else f"{value:.3g}"


def line_chart(
    rows: Sequence[Sequence[LinePlot]], *, label: str, legend: bool = False, standalone: bool = False
) -> str:
    """Draw panels of lines in rows.

    Args:
        rows: Panels. Several panels get their titles.
        label: Description of the picture for readers who do not see it.
        legend: List the names of the grey series below the panels. Coloured series have their name at their end.
        standalone: Return the content of an SVG file, which follows the light or dark scheme of the reader.
    """
    columns = max(map(len, rows))
    series = [each for row in rows for plot in row for each in plot.series]
    others = [*dict.fromkeys(each.name for each in series if each.colour >= len(PALETTE))] if legend else []
    notes = textwrap.wrap(f"Grey: {', '.join(others)}", columns * WIDTH // 6) if others else []
    titled = len(rows) * columns > 1
    with _figure(columns * WIDTH, len(rows) * (HEIGHT + 24 * titled) + 15 * len(notes)) as figure:
        axes = figure.subplots(len(rows), columns, squeeze=False)
        for row, panels in zip(rows, axes, strict=True):
            for panel in panels[len(row) :]:
                panel.set_visible(False)
            for plot, panel in zip(row, panels, strict=False):
                _draw_lines(panel, plot)
                if titled:
                    panel.set_title(plot.title, loc="left", fontsize=12)
        if notes:
            figure.supxlabel("\n".join(notes), x=0.01, ha="left", fontsize=9.5)
        return _render(figure, label, standalone)


def density_map(
    label: str, names: Sequence[str], values: Sequence[Sequence[float | None]], low: float, high: float
) -> str:
    """Draw a square map on a logarithmic colour scale from `low` to `high`. Zeros are grey, None is blank.

    Names have a height of 10 pixels.
    """
    cell = 14 if len(names) <= MANY_NAMES else 10
    margin, width = 20 + 6 * max(map(len, names)), cell * len(names)
    side, bar, low_line = margin + width, max(180, min(width, 240)), cell // 2 + 3
    shades = [[None if value is None else _shade(value, low, high) for value in row] for row in values]
    lines = [(margin + cell * k + low_line, html.escape(name)) for k, name in enumerate(names)]
    down = "".join(f'<text x="{margin - 4}" y="{y}">{name}</text>' for y, name in lines)
    across = "".join(f'<text x="{4 - margin}" y="{x}">{name}</text>' for x, name in lines)
    total, bottom, style = max(side, margin + bar) + 4, side + 26, 'font-family="system-ui, sans-serif" font-size="10"'
    parts = [
        f'<svg width="{total}" height="{bottom + 4}" class="chart map" role="img" aria-label="{html.escape(label)}"',
        f' fill="var(--soft, {GREY})" {style} data-margin="{margin}" data-cell="{cell}">',
        f'<text x="{margin}" y="9">second language</text>',
        f'<text transform="rotate(-90)" x="{-side}" y="9">first language</text>',
        f'<g text-anchor="end">{down}</g><g transform="rotate(-90)">{across}</g>',
        _image(shades, (margin, margin), (width, width)),
        _image([range(2, 34)], (margin, side + 6), (bar, 8)),
        f'<text x="{margin}" y="{bottom}">{low:.0e}, probability</text>',
        f'<text x="{margin + bar}" y="{bottom}" text-anchor="end">{high:.0e}</text></svg>',
    ]
    return "".join(parts)


def _shade(value: float, low: float, high: float) -> int:
    """Return the colour of a value in the pictures of `_image`: 1 for zero, 2 to 33 on a logarithmic scale."""
    if not value:
        return 1
    return 2 + round(31 * min(1.0, max(0.0, math.log(value / low) / math.log(high / low))))


def _image(cells: Sequence[Sequence[int | None]], corner: tuple[int, int], size: tuple[int, int]) -> str:
    """Return an image element with one pixel for each cell: 0 and None are transparent, 1 is grey, others are blue."""
    from PIL import Image, ImageColor

    image = Image.new("P", (len(cells[0]), len(cells)))
    image.putdata([cell or 0 for row in cells for cell in row])
    blue = ImageColor.getrgb(PALETTE[0])
    image.putpalette([*(0, 0, 0), *ImageColor.getrgb(GREY), *blue * 32])
    alphas = bytes([0, 90, *(round(255 * (0.08 + 0.92 * step / 31)) for step in range(32))])
    buffer = io.BytesIO()
    image.save(buffer, "PNG", transparency=alphas, optimize=True)
    data = base64.b64encode(buffer.getvalue()).decode()
    place = f'x="{corner[0]}" y="{corner[1]}" width="{size[0]}" height="{size[1]}" preserveAspectRatio="none"'
    return f'<image {place} style="image-rendering: pixelated" href="data:image/png;base64,{data}"/>'


def alignment_grid(alignment: Mapping[str, Any], name: str = "word alignment", items: str = "words") -> str:
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
        axes.set_ylabel(f"source {items}")
        axes.set_xlabel(f"target {items}")
        for row, line in enumerate(similarity):
            for column, value in enumerate(line):
                axes.text(column, row + 0.29, f"{value:.2f}", ha="center", va="center", fontsize=11, color=INK)
        for row, column in sorted({*map(tuple, alignment["sure"]), *map(tuple, alignment["possible"])}):
            frame = Rectangle((column - 0.44, row - 0.44), 0.88, 0.88, fill=False, edgecolor=PALETTE[4], linewidth=2)
            axes.add_patch(frame).set_linestyle("-" if [row, column] in alignment["sure"] else "--")
        for row, column in alignment["predicted"]:
            axes.plot(column, row - 0.12, "o", color=PALETTE[1], markersize=8)
        return _render(figure, name)


def attention_grid(attention: Mapping[str, Any]) -> str:
    """Draw the tokens that attend down, and those that they attend to across, with the weights."""
    words = {"source": attention["queries"], "target": attention["keys"], "similarity": attention["weights"]}
    return alignment_grid({**words, "sure": [], "possible": [], "predicted": []}, "attention", "tokens")


def average_groups(points: Sequence[Point]) -> list[Point]:
    """Average neighboring points so that at most MAX_POINTS are left. The last position stays."""
    size = math.ceil(len(points) / MAX_POINTS) or 1
    groups = [points[start : start + size] for start in range(0, len(points), size)]
    return [(group[-1][0], sum(y for _, y in group) / len(group)) for group in groups]


def _draw_lines(axes: Axes, plot: LinePlot) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    drawn = [(each, average_groups(each.points)) for each in plot.series if each.points]
    for each, points in drawn:
        is_coloured = each.colour < len(PALETTE)
        marker = "o" if (plot.from_zero or plot.marked) and is_coloured else ""
        [line] = axes.plot(*zip(*points, strict=True), "-" + marker, color=_colour(each.colour), markersize=4)
        line.set(linewidth=2 if is_coloured else 1, alpha=None if is_coloured else 0.6, zorder=2 + is_coloured)
    if plot.level:
        value, name = plot.level
        axes.axhline(value, color=GREY, linestyle=":", linewidth=1.2)
        axes.annotate(name, (1, value), (0, 4), ("axes fraction", "data"), "offset points", ha="right", fontsize=11)
    if plot.from_zero:
        axes.set_ylim(bottom=0)
    if len(drawn) > 1:
        _name_lines(axes, [(each, points[-1]) for each, points in drawn if each.colour < len(PALETTE)])
    _style_axes(axes, plot.x_label, plot.y_label)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(5))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: _format_position(value)))


def _name_lines(axes: Axes, ends: Sequence[tuple[Series, Point]]) -> None:
    """Put the name of each series right of the end of its line. Names that would overlap move apart."""
    low, high = axes.get_ylim()
    names = [textwrap.wrap(series.name, LABEL_WIDTH) or [""] for series, _ in ends]
    wanted = [(y - low) / ((high - low) or 1) for _, (_, y) in ends]
    heights = [LABEL_HEIGHT * len(lines) for lines in names]
    for (series, end), lines, place in zip(ends, names, spread_labels(wanted, heights), strict=True):
        leader = {"arrowstyle": "-", "color": _colour(series.colour), "linewidth": 1, "relpos": (0, 0.5)}
        axes.annotate(
            "\n".join(lines),
            end,
            (1.04, place),
            textcoords="axes fraction",
            va="center",
            fontsize=11,
            color=INK,
            linespacing=1.1,
            arrowprops={**leader, "shrinkA": 1, "shrinkB": 2},
            annotation_clip=False,
        )


def spread_labels(wanted: Sequence[float], heights: Sequence[float]) -> list[float]:
    """Return centres near the wanted ones at which labels of these heights do not overlap.

    They stay between 0 and 1 if there is space for all.
    """
    order = sorted(range(len(wanted)), key=lambda k: wanted[k])
    places, edge = [*wanted], -math.inf
    for k in order:
        places[k] = max(wanted[k], edge + heights[k] / 2)
        edge = places[k] + heights[k] / 2
    edge = 1.0
    for k in reversed(order):
        places[k] = min(places[k], edge - heights[k] / 2)
        edge = places[k] - heights[k] / 2
    return places


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
            name = axes.annotate(dot.name, (dot.x, dot.y), (x, y), textcoords="offset points", fontsize=11)
            name.set(ha=horizontal, va=vertical)
            area = name.get_window_extent(canvas.get_renderer())
            if figure.bbox.containsx(area.x1) and axes.bbox.containsx(area.x0) and not area.count_overlaps(taken):
                taken.append(area)
                break
            name.remove()


def _colour(number: int) -> str:
    return PALETTE[number] if number < len(PALETTE) else GREY


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
    matplotlib.rcParams["svg.hashsalt"] = label  # until the end of `_figure`
    figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    start, _, body = buffer.getvalue().partition("<metadata>")
    body = body.partition("</metadata>")[2]
    for colour, name in ((GREY, "--soft"), (INK, "--ink")):
        body = body.replace(colour, f"var({name}, {colour})")
    body = re.sub(NEEDLESS, "", re.sub("font-family: [^;]*", "font-family: system-ui, sans-serif", body))
    start = re.sub(r' (width|height|version)="[^"]*"', "", start[start.index("<svg") :].strip()[:-1])
    start = start if standalone else re.sub(r' xmlns(:xlink)?="[^"]*"', "", start)
    return f'{start} class="chart" role="img" aria-label="{html.escape(label)}">{SCHEMES * standalone}{body}'
