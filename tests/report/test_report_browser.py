"""The page in a browser: nothing overflows at any width, and the dark mode is dark and readable."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from crossling.report.report import report

from . import score_folders

BROWSER = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)
WIDTHS = (360, 768, 1280)
DARK = "--blink-settings=preferredColorScheme=0"
# Measures a page in a frame: its width, overflow, and the lowest brightness ratio of text to background.
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
onload = () => {
  const found = [...document.querySelectorAll('iframe')].map(frame => {
    const page = frame.contentDocument, root = page.documentElement;
    const cells = [...page.querySelectorAll('td, th, p, h2, h3, li')].filter(node => node.textContent.trim());
    const readability = cells.map(node => {
      const [one, other] = [light(frame.contentWindow.getComputedStyle(node).color), light(ground(node))];
      const ratio = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
      return {ratio, text: node.textContent.trim().slice(0, 40)};
    }).sort((a, b) => a.ratio - b.ratio)[0];
    const sizes = [...page.querySelectorAll('td, th, p, li, small')].map(n => parseFloat(getComputedStyle(n).fontSize));
    return {width: frame.clientWidth, scroll: root.scrollWidth, ground: light(ground(page.body)), readability,
            smallest: Math.min(...sizes), headings: [...page.querySelectorAll('h2')].map(h => h.textContent)};
  });
  document.body.innerHTML = '<pre id="found"></pre>';
  document.getElementById('found').textContent = JSON.stringify(found);
};
"""


def measure_page(page: Path, folder: Path, *options: str) -> list[dict[str, Any]]:
    """Render the page in frames of several widths and return its measurements."""
    text = html.escape(page.read_text(encoding="utf-8"))
    frames = "".join(
        f'<iframe style="width: {width}px; height: 900px; border: 0" srcdoc="{text}"></iframe>' for width in WIDTHS
    )
    outer = folder / "frames.html"
    outer.write_text(f'<meta charset="utf-8"><body>{frames}<script>{SCRIPT}</script></body>', encoding="utf-8")
    command = [str(BROWSER), "--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder / 'profile'}"]
    command += ["--virtual-time-budget=5000", "--window-size=1400,1000", *options, "--dump-dom", outer.as_uri()]
    page = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    match = re.search(r'<pre id="found">(.*?)</pre>', page, flags=re.S)
    assert match, page[-2000:]
    found: list[dict[str, Any]] = json.loads(html.unescape(match[1]))
    return found


@pytest.mark.soak
@pytest.mark.skipif(BROWSER is None, reason="no Chromium here")
def test_page_fits_and_is_readable_in_light_and_dark(tmp_path: Path) -> None:
    place = score_folders.make_folder(tmp_path / "measured", tasks=("xnli", "xquad"), examples=10)
    page = report([place], tmp_path / "report.html")
    for options in ((), (DARK,)):
        found = measure_page(page, tmp_path, *options)
        assert [each["width"] for each in found] == list(WIDTHS)
        for each in found:
            assert each["scroll"] <= each["width"], f"at {each['width']} px the page overflows"
            assert each["readability"]["ratio"] > 3.5, each["readability"]
            assert each["smallest"] >= 11
            assert "Leaderboard" in each["headings"]
            assert (each["ground"] < 0.05) == (DARK in options)
