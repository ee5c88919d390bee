"""Pages in a real browser: a headless Chromium renders a page in frames of several widths and runs a script in each."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

BROWSER = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)
needs_browser = pytest.mark.skipif(BROWSER is None, reason="no Chromium here")
DARK = "--blink-settings=preferredColorScheme=0"
WIDTHS = (390, 1280)
# Facts of every page: overflow with everything unfolded, brightness ratio of text to background, sizes and links.
SCRIPT = """
const light = colour => {
  const parts = colour.match(/[\\d.]+/g).slice(0, 3).map(Number);
  const scale = colour.startsWith('color(') ? 1 : 255;
  const [r, g, b] = parts.map(p => p / scale).map(p => p <= 0.03928 ? p / 12.92 : ((p + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const ground = node => {
  for (; node; node = node.parentElement) {
    const colour = getComputedStyle(node).backgroundColor;
    if (!/, 0\\)$|transparent/.test(colour)) return colour;
  }
  return 'rgb(255, 255, 255)';
};
const facts = async frame => {
  const page = frame.contentDocument, root = page.documentElement;
  const folded = root.scrollWidth - root.clientWidth;
  const details = [...page.querySelectorAll('details')];
  details.forEach(each => { each.open = true; });
  const cells = [...page.querySelectorAll('td, th, p, h2, h3, li')].filter(node => node.textContent.trim());
  const readability = cells.map(node => {
    const [one, other] = [light(frame.contentWindow.getComputedStyle(node).color), light(ground(node))];
    const ratio = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    return {ratio, text: node.textContent.trim().slice(0, 40)};
  }).sort((a, b) => a.ratio - b.ratio)[0];
  const sizes = [...page.querySelectorAll('td, th, p, li, small')].map(n => parseFloat(getComputedStyle(n).fontSize));
  const unfolded = root.scrollWidth - root.clientWidth;
  const labels = [...page.querySelectorAll('svg.chart text')].filter(each => each.getBoundingClientRect().height).map(
    each => parseFloat(getComputedStyle(each).fontSize) * Math.hypot(each.getScreenCTM().a, each.getScreenCTM().b));
  details.forEach(each => { each.open = false; });
  const links = [...page.querySelectorAll('.contents a')];
  const astray = [];
  for (const link of links) {
    link.click();
    await new Promise(resolve => setTimeout(resolve, 20));
    const target = page.getElementById(link.getAttribute('href').slice(1));
    const top = target ? target.getBoundingClientRect().top : NaN;
    const isAtEnd = root.scrollHeight - frame.contentWindow.scrollY - frame.clientHeight < 2;
    if (!(top >= -1 && (top < 40 || isAtEnd && top < frame.clientHeight))) astray.push([link.textContent, top]);
  }
  frame.contentWindow.scrollTo(0, 0);
  return {width: frame.clientWidth, folded, unfolded, ground: light(ground(page.body)), readability,
          smallest: Math.min(...sizes), label: Math.min(...labels), links: links.length, astray,
          headings: [...page.querySelectorAll('h2')].map(h => h.textContent)};
};
onload = async () => {
  const found = [];
  for (const frame of document.querySelectorAll('iframe')) found.push({...await facts(frame), own: own(frame)});
  document.body.innerHTML = '<pre id="found"></pre>';
  document.getElementById('found').textContent = JSON.stringify(found);
};
"""


def measure_page(page: Path, folder: Path, script: str, *options: str) -> list[dict[str, Any]]:
    """Render a page in frames of all widths.

    Args:
        page: The HTML file.
        folder: Folder for files of the browser.
        script: A JavaScript function of a frame whose result is returned as `own`.
        options: Options of the browser.

    Returns:
        The facts of each frame. Fails if the page reports an error or loads anything.
    """
    style = "height: 900px; border: 0"
    frames = "".join(f'<iframe style="width: {w}px; {style}" src="{page.as_uri()}"></iframe>' for w in WIDTHS)
    outer = folder / "frames.html"
    scripts = f"<script>const own = {script};{SCRIPT}</script>"
    outer.write_text(f'<meta charset="utf-8"><body>{frames}{scripts}</body>', encoding="utf-8")
    command = [str(BROWSER), "--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder / 'profile'}"]
    command += ["--allow-file-access-from-files", "--enable-logging=stderr", "--virtual-time-budget=20000"]
    command += ["--window-size=1400,1000", *options]
    done = subprocess.run([*command, "--dump-dom", outer.as_uri()], capture_output=True, text=True, timeout=180)
    messages = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    assert not messages, messages
    match = re.search(r'<pre id="found">(.*?)</pre>', done.stdout, flags=re.S)
    assert match, done.stdout[-2000:] + done.stderr[-2000:]
    found: list[dict[str, Any]] = json.loads(html.unescape(match[1]))
    return found


def check_layout(found: list[dict[str, Any]], is_dark: bool) -> None:
    """Check that the page fits every width, is readable, has the right scheme, and that its contents lead somewhere."""
    assert [each["width"] for each in found] == [*WIDTHS]
    for each in found:
        assert each["folded"] <= 0, f"at {each['width']} px the page overflows"
        assert each["unfolded"] <= 0, f"at {each['width']} px the unfolded page overflows"
        assert each["readability"]["ratio"] > 3.5, each["readability"]
        assert each["smallest"] >= 11
        assert each["label"] >= 9.5
        assert each["links"] > 3
        assert not each["astray"]
        assert (each["ground"] < 0.05) == is_dark
