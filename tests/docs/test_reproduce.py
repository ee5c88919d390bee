"""The pages of docs/reproduce: miniatures are read in full, and settings and costs are those of the program.

`test_pages.py` runs the commands of the pages.
"""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import crossling as xl
from crossling.finetune.finetune_settings import check_overrides
from crossling.recipes.recipe import Recipe

from .page_blocks import read_page
from .prepared_files import prepare
from .published_files import write_large_shards

PAGES = Path(__file__).parents[2] / "docs" / "reproduce"
CHECKLIST = PAGES.parent / "research" / "papers-checklist.md"
SIZES = {
    "xlm-e": ("xlm_e", "base"),
    "xy-lent": ("xy_lent", "xl"),
    "infoxlm": ("infoxlm", "base"),
    "veco": ("veco", "large"),
}
GPUS = {"xlm-e": 64, "xy-lent": 512, "infoxlm": 64, "veco": 64}  # of the papers
START, END = "<!-- cost: checked by tests/docs/test_reproduce.py -->\n", "<!-- until here -->"


def recipe_of(page: str) -> Recipe:
    name, size = SIZES[page]
    return xl.recipes.RECIPES[name](size)


@pytest.mark.parametrize("page", SIZES)
def test_settings_are_those_of_the_recipe(page: str) -> None:
    settings = re.findall(r"^\| `([\w.]+=[^`]+)` \|", (PAGES / f"{page}.md").read_text(encoding="utf-8"), re.MULTILINE)
    recipe = recipe_of(page)
    assert len(settings) > 9
    assert [setting for setting in settings if recipe.set([setting]) != recipe] == []


@pytest.mark.parametrize("page", SIZES)
def test_every_task_has_the_grid_of_its_command(page: str) -> None:
    """The tests of the pages fine-tune one or two tasks, and with few grids."""
    blocks = (PAGES / f"{page}.md").read_text(encoding="utf-8").split("```")[1::2]
    commands = [
        (tasks[1].split() if (tasks := re.search(r"for task in (.*);", block)) else [task], grid)
        for block in blocks
        for task, grid in re.findall(r"--task (\S+) --grid (\S+)", block)
    ]
    assert commands
    for tasks, grid in commands:
        for task in tasks:
            check_overrides(task, grid, None, {})


@pytest.mark.parametrize(
    ("page", "languages", "rows"),
    [
        (
            "xlm-e",
            ["de", "en", "hi", "zh"],
            {"IITB": 1, "MultiUN": 2, "OpenSubtitles": 2, "WikiMatrix": 3, "ccaligned": 3},
        ),
        ("infoxlm", ["de", "en", "hi", "zh"], {"IITB": 1, "MultiUN": 2, "OpenSubtitles": 2, "WikiMatrix": 3}),
        ("xy-lent", ["de", "en", "hi", "zh"], {"ccaligned": 3, "ccmatrix": 3}),
        ("veco", ["de", "en", "hi", "zh"], {"MultiUN": 2, "OpenSubtitles": 3}),
    ],
)
def test_published_files_are_read_in_full(
    page: str, languages: list[str], rows: dict[str, int], tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    prepare(("downloads",), tmp_path, tmp_path_factory.getbasetemp() / "prepared-files")
    [block] = [block for block in read_page(PAGES / f"{page}.md").blocks if block.code.startswith("mkdir -p corpora")]
    subprocess.run(["bash", "-euo", "pipefail", "-c", block.code], cwd=tmp_path, check=True)
    corpora, skipped = xl.Corpora(tmp_path / "corpora"), Counter[str]()
    assert [text.language for text in corpora.text] == languages
    assert Counter(pairs.name for pairs in corpora.pairs) == rows
    assert all(len(list(pairs.rows(skipped))) > 5 for pairs in corpora.pairs)
    assert not skipped


def test_the_checklist_names_existing_tests_and_settings() -> None:
    text = CHECKLIST.read_text(encoding="utf-8")
    tests = set(re.findall(r"`(tests/[\w/.]+)`", text))
    assert len(tests) > 20
    assert {test for test in tests if not (PAGES.parents[1] / test).exists()} == set()
    for setting in re.findall(r"`((?:sampling|model|optimizer|dro)\.[\w.]+=\w+)`", text):
        xl.recipes.veco("large").set(["dro=on", setting])


def cost_table(folder: Path) -> str:
    """Return the table of the index."""
    shards = {}
    for size in (250_002, 500_002):
        shards[size] = folder / str(size)
        write_large_shards(shards[size], size)
    lines = [
        "| run | parameters | tokens | FLOPs (paper) | GPUs | memory | days on A100-80GB | days on H100 |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for page, (name, size) in SIZES.items():
        plans = [_plan(page, shards[500_002 if page == "xy-lent" else 250_002], gpu) for gpu in ("a100", "h100")]
        first = plans[0]
        tokens = first["tokens_per_step"] * recipe_of(page).steps
        days = [f"{plan['days']:.2f}" for plan in plans]
        memory = f"{first['memory_gib']:.0f} GiB" + (" (FSDP2)" if first["sharded"] else "")
        cells = [f"`{name}`, {size}", f"{first['parameters'] / 1e6:,.0f}M", f"{tokens / 1e9:,.0f}G"]
        cells += [f"{tokens * first['flops_per_token']['paper']:.1e}", str(GPUS[page]), memory, *days]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _plan(page: str, shards: Path, gpu: str) -> dict[str, Any]:
    name, size = SIZES[page]
    return xl.plan(name, shards, size=size, gpus=GPUS[page], device=gpu).dump()


def test_costs_are_those_of_plan(tmp_path: Path) -> None:
    table = (PAGES / "index.md").read_text(encoding="utf-8").partition(START)[2].partition(END)[0]
    assert table == cost_table(tmp_path)
