"""Checks of HTML pages and SVG charts that several tests share."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from xml.etree import ElementTree

LOADS_SOMETHING = re.compile(r"https?://|//[a-z]|url\(|@import|\bsrc=|<link|<script\s|\bfetch\(|\bimport\(|XMLHttp")
EMBEDDED = re.compile(r"""data:image/png;base64,[\w+/=\s]*|data-values="[^"]*"|'sha256-[^']*'|xmlns(:\w+)?="[^"]*\"""")


class HtmlPage(HTMLParser):
    """Tags, headings and text of a page. Fails if tags are not closed in order."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[str] = []
        self.anchors: list[str] = []  # ids of all elements
        self.links: list[str] = []
        self.headings: list[str] = []
        self.text = ""
        self.feed(page)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.anchors += [value for name, value in attributes if name == "id" and value]
        self.links += [value for name, value in attributes if name == "href" and value and tag == "a"]
        if tag not in ("meta", "input"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, _: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("script", "style"):
            return
        self.text += f"{data} "
        if self.open and self.open[-1] == "h2":
            self.headings.append(data)


def is_self_contained(page: str) -> bool:
    """True if a page or a picture loads nothing, not even a script."""
    return not LOADS_SOMETHING.search(EMBEDDED.sub("", page))


def chart_lines(svg: str) -> list[list[tuple[float, float]]]:
    """Return the points of every series of a line chart, in SVG units (y grows downwards)."""
    named = svg if "xmlns:xlink" in svg else svg.replace("<svg", '<svg xmlns:xlink="x"', 1)
    lines = []
    for path in ElementTree.fromstring(named).iterfind(".//{*}path"):
        style = path.attrib.get("style", "")
        # Axes, grid and uncoloured series are grey, which is a variable. Lines that lead to names are thinner.
        if "fill: none" in style and "stroke: #" in style and "stroke-width: 2" in style:
            numbers = [float(number) for number in re.findall(r"-?[\d.]+", path.attrib["d"])]
            lines.append(list(zip(numbers[::2], numbers[1::2], strict=True)))
    return lines


def chart_texts(svg: str) -> list[str]:
    """Return the texts of a chart."""
    return [text.strip() for text in re.findall(r"<text[^>]*>([^<]*)", svg)]
