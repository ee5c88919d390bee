"""The page of a plan with 100 languages in a browser: layout, filter, sorting, maps."""

from __future__ import annotations

from pathlib import Path

import pytest

from crossling.planning import plan

from ..browser import DARK, check_layout, measure_page, needs_browser
from .fake_shards import hundred_languages, recipe, shards_of

USE = """frame => {
  const page = frame.contentDocument, table = page.getElementById('pair-table');
  const names = () => [...table.tBodies[0].rows].map(row => row.cells[0].textContent);
  const column = k => [...table.tBodies[0].rows].map(row => Number(row.cells[k].textContent.replaceAll(',', '')));
  const status = () => page.getElementById('pair-count').textContent;
  const result = {first: names().length, status: status()};
  const filter = page.getElementById('pair-filter');
  filter.value = 'sw';
  filter.dispatchEvent(new Event('input'));
  result.filtered = names();
  filter.value = 'sw en';
  filter.dispatchEvent(new Event('input'));
  result.pair = names();
  filter.value = '';
  filter.dispatchEvent(new Event('input'));
  table.tHead.rows[0].cells[3].querySelector('button').click();
  result.sorted = column(3);
  result.aria = table.tHead.rows[0].cells[3].getAttribute('aria-sort');
  page.getElementById('pair-more').click();
  result.more = status();
  const group = [...page.querySelectorAll('.maps')].at(-1), figures = [...group.querySelectorAll('figure')];
  const visible = () => figures.map(each => !each.hidden);
  result.maps = [visible()];
  group.querySelectorAll('.rules button')[1].click();
  result.maps.push(visible());
  const map = figures[1].querySelector('svg'), {left, top} = map.getBoundingClientRect(), {margin, cell} = map.dataset;
  const at = k => Number(margin) + cell * (k + 0.5);
  const languages = [...map.querySelectorAll('[text-anchor="end"] text')].map(each => each.textContent);
  map.dispatchEvent(new PointerEvent('pointermove', {clientX: left + at(1), clientY: top + at(0)}));
  return {...result, value: group.querySelector('output').textContent, languages: languages.slice(0, 2)};
}"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("browser") / "plan.html"
    plan(recipe(), shards_of(*hundred_languages()), out)
    return out


@needs_browser
@pytest.mark.parametrize("options", [(), (DARK,)], ids=["light", "dark"])
def test_page_of_a_hundred_languages_fits_and_works(page: Path, tmp_path: Path, options: tuple[str, ...]) -> None:
    found = measure_page(page, tmp_path, USE, *options)
    check_layout(found, is_dark=DARK in options)
    counts, _ = hundred_languages()
    for each in (frame["own"] for frame in found):
        assert (each["first"], each["status"]) == (100, "100 of 4,950 pairs shown")
        assert len(each["filtered"]) == 99
        assert all("sw" in name.split("-") for name in each["filtered"])
        assert each["pair"] == ["en-sw"]
        assert each["aria"] == "descending"
        assert each["sorted"] == sorted(each["sorted"], reverse=True)
        assert each["more"] == "1,000 of 4,950 pairs shown"
        assert each["maps"] == [[False, False, True], [False, True, False]]  # first the rule of the recipe, alpha
        a, b = each["languages"]
        count = counts.get((a, b), counts.get((b, a)))
        assert each["value"].startswith(f"{a} → {b}: alpha ")
        assert each["value"].endswith(f"{count:,} sentence pairs")
