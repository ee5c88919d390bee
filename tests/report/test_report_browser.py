"""The report page in a browser: layout at phone and desktop width, light and dark, sorting and contents."""

from __future__ import annotations

from pathlib import Path

import pytest

from crossling.report.report import report

from ..browser import DARK, check_layout, measure_page, needs_browser
from . import score_folders

# Sorts the first leaderboard by its last column: from the highest, from the lowest, and as it was.
SORT = """frame => {
  const page = frame.contentDocument, table = page.querySelector('table.leaderboard');
  const last = table.tHead.rows[0].cells.length - 1, header = table.tHead.rows[0].cells[last];
  const button = header.querySelector('button');
  const read = () => ({
    aria: header.getAttribute('aria-sort'),
    bodies: [...table.tBodies].map(body => [...body.rows].map(row => row.cells[last]?.textContent ?? 'divide')),
  });
  const states = [read()];
  for (let k = 0; k < 3; k++) { button.click(); states.push(read()); }
  button.focus();
  return {states, focused: page.activeElement === button, role: button.tagName};
}"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("browser")
    place = score_folders.make_folder(folder / "measured", tasks=("xnli", "xquad"), examples=10)
    return report([place], folder / "report.html")


@needs_browser
@pytest.mark.parametrize("options", [(), (DARK,)], ids=["light", "dark"])
def test_page_fits_is_readable_and_has_working_contents(page: Path, tmp_path: Path, options: tuple[str, ...]) -> None:
    found = measure_page(page, tmp_path, SORT, *options)
    check_layout(found, is_dark=DARK in options)
    for each in found:
        assert {"Leaderboard", "Runs", "Task by task", "Significance", "Footnotes"} <= {*each["headings"]}
        check_sorting(each["own"]["states"])
        assert each["own"]["focused"]
        assert each["own"]["role"] == "BUTTON"  # which Enter and Space press as well


def check_sorting(states: list[dict[str, list[list[str]] | str | None]]) -> None:
    assert [state["aria"] for state in states] == [None, "descending", "ascending", None]
    before, falling, rising, after = (state["bodies"] for state in states)
    assert before == after != rising
    assert isinstance(falling, list)
    assert isinstance(rising, list)
    for bodies, sign in ((falling, -1), (rising, 1)):
        runs, (divider, *published) = bodies
        assert divider == "divide"
        for cells in (runs, published):
            values = [float(cell[:4]) for cell in cells if cell != "–"]
            assert [sign * value for value in values] == sorted(sign * value for value in values)
            assert set(cells[len(values) :]) <= {"–"}  # missing numbers come last in both directions
