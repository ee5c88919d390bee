"""The documentation site: generated reference pages are complete, and the site builds without a warning."""

from __future__ import annotations

import html
import json
import re
import shlex
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from shutil import which
from types import ModuleType

import pytest
import typer.main

import crossling
from crossling.adapt import adapted_folder
from crossling.cleaning.stored_arrays import CLEANING_FORMAT
from crossling.cli.app import app
from crossling.core.settings import flatten
from crossling.data.shards import SHARD_FORMAT
from crossling.data.teacher_vectors import TEACHER_FORMAT
from crossling.finetune.finetune_settings import FinetuneSettings, TranslationSettings
from crossling.finetune.translation.translator import TRANSLATOR_INFO
from crossling.finetune.tuned_model import TUNED_INFO
from crossling.lab import lab_plan
from crossling.recipes import get_recipe
from crossling.recipes.recipe import OBJECTIVES
from crossling.tasks.registry import DATASETS
from crossling.tasks.scores import SCORES_FORMAT
from crossling.train import checkpoint, resampling, run_folder
from crossling.vocabulary.vocabulary import VOCABULARY_FORMAT
from tests.load_script import load_script

pytest.importorskip("sphinx", reason="needs the extra docs")

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
BROWSER = next((found for name in ("chromium", "chromium-browser", "google-chrome") if (found := which(name))), None)
PHONE = 390  # pixels
# Opens every page in a frame of this width, and writes the width that its content takes.
MEASURE = f"""<script>
onload = async () => {{
  const widths = {{}};
  for (const page of PAGES) {{
    const frame = document.createElement("iframe");
    frame.style = "width: {PHONE}px; height: 800px; border: 0";
    frame.src = page;
    document.body.append(frame);
    await new Promise(done => frame.onload = done);
    widths[page] = frame.contentDocument.documentElement.scrollWidth;
    frame.remove();
  }}
  document.body.innerHTML = "<pre id='widths'></pre>";
  document.getElementById("widths").textContent = JSON.stringify(widths);
}};
</script><body></body>"""


@pytest.fixture(scope="module")
def pages() -> ModuleType:
    """The extension that fills the generated pages."""
    return load_script("docs/_ext/generated_pages.py")


def fill(pages: ModuleType, name: str) -> str:
    return str(pages.fill((DOCS / "reference" / f"{name}.md").read_text(encoding="utf-8")))


def rows(text: str) -> dict[str, list[str]]:
    """Return the other cells of each row of a Markdown table by the first one."""
    cells = [re.split(r"(?<!\\\\)\|", line)[1:-1] for line in text.splitlines() if line.startswith("| `")]
    return {row[0].strip(" `"): [cell.strip() for cell in row[1:]] for row in cells}


def test_generated_pages_have_no_marker_left(pages: ModuleType) -> None:
    for page in pages.PAGES:
        source = (DOCS / f"{page}.md").read_text(encoding="utf-8")
        assert "% generated: " in source
        assert "% generated: " not in pages.fill(source)


def test_every_command_with_every_option(pages: ModuleType) -> None:
    text = fill(pages, "cli")
    for name, command in typer.main.get_command(app).commands.items():  # type: ignore[attr-defined]
        part = re.split(r"^##", text.partition(f"### crossling {name}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]
        assert f"crossling {name}" in part
        assert "```bash\n" in part, f"{name} has no example"
        for parameter in command.params:
            assert (parameter.opts[-1] if parameter.param_type_name == "option" else parameter.metavar) in part
            assert parameter.help.partition(" [")[0] in part.replace("\\", "")


def test_examples_of_commands_can_be_parsed(pages: ModuleType) -> None:
    program = typer.main.get_command(app)
    full = ""
    for example in re.findall(r"^```bash\n(.*)\n```$", fill(pages, "cli"), re.MULTILINE):
        _, _, command = example.partition("crossling ")
        name, *arguments = shlex.split(command.replace(f"{command.split()[0]} ...", full))
        program.commands[name].make_context(name, arguments)  # type: ignore[attr-defined]
        full = command


def test_every_setting_of_a_recipe_has_a_description(pages: ModuleType) -> None:
    described = rows(fill(pages, "settings").partition("## Values by recipe")[0])
    everything = get_recipe("xlm_e").set([f"{name}=on" for name in (*OBJECTIVES, "dro")])
    keys = {key for key, _ in flatten(everything)} - {"name"}
    assert set(described) == keys
    assert not [key for key, cells in described.items() if len(cells[0]) < 10]


@pytest.mark.parametrize(("cls", "heading"), [(FinetuneSettings, "Fine-tuning"), (TranslationSettings, "Translation")])
def test_every_setting_of_finetuning_has_a_description(pages: ModuleType, cls: type, heading: str) -> None:
    described = rows(fill(pages, "settings").partition(f"\n## {heading}\n")[2].partition("\n## ")[0])
    assert set(described) == {field.name for field in fields(cls)}
    assert not [key for key, cells in described.items() if len(cells[0]) < 10]


def test_values_of_recipes_are_those_of_the_program(pages: ModuleType) -> None:
    values = rows(fill(pages, "settings").partition("## Values by recipe")[2].partition("\n## ")[0])
    assert values["steps"] == [f"{build().steps:,}" for build in crossling.recipes.RECIPES.values()]
    assert values["xlco"] == ["on" if build().xlco else "off" for build in crossling.recipes.RECIPES.values()]


def test_every_dataset_is_listed(pages: ModuleType) -> None:
    found = rows(fill(pages, "datasets").partition("## Data sets for fine-tuning")[2].partition("### Translated")[0])
    assert set(found) == set(DATASETS)
    assert "xnli/{train,dev,test}-LL.tsv" in found["xnli"][0]


def test_figures_of_the_bundled_model(pages: ModuleType) -> None:
    text = fill(pages, "bundled-model")
    assert "| Tatoeba, accuracy in % | 56.90 | 56.91 |" in text
    assert rows(text)["de"][0] == "90.2"


def test_every_public_name_is_in_the_api_reference() -> None:
    text = (DOCS / "reference" / "api.md").read_text(encoding="utf-8")
    named = re.findall(r"^\.\. auto(?:class|function|exception):: (\w+)$", text, re.MULTILINE)
    recipes = {*dir(crossling.recipes)} - {"RECIPES"}
    assert sorted(named) == sorted(({*crossling.__all__} | recipes) - {"recipes"})


def test_format_versions_are_those_of_the_program() -> None:
    text = (DOCS / "reference" / "formats.md").read_text(encoding="utf-8").partition("## Format versions")[2]
    versions = [int(version) for version in re.findall(r"\| (\d+) \|$", text, re.MULTILINE)]
    assert versions == [
        *(CLEANING_FORMAT, VOCABULARY_FORMAT, SHARD_FORMAT, TEACHER_FORMAT, run_folder.FORMAT, checkpoint.FORMAT),
        *(resampling.FORMAT, TUNED_INFO.version, SCORES_FORMAT, adapted_folder.RESULT_FORMAT, lab_plan.FORMAT),
    ]
    assert TUNED_INFO.version == TRANSLATOR_INFO.version


def test_pages_that_the_code_names_exist() -> None:
    files = [file for folder in ("src", "tests", "examples", "experiments") for file in (ROOT / folder).rglob("*.py")]
    named = {name for file in files for name in re.findall(r"\bdocs/[\w/-]+\.md\b", file.read_text(encoding="utf-8"))}
    assert {name for name in named if not (ROOT / name).exists()} == {"docs/new.md"}  # of a test of the wording check


def test_formulas_become_mathml(tmp_path: Path) -> None:
    (tmp_path / "conf.py").write_text(
        f"import sys; sys.path.insert(0, {str(DOCS / '_ext')!r})\n"
        'extensions = ["myst_parser", "mathml"]\nmyst_enable_extensions = ["dollarmath"]\n'
        'html_math_renderer = "mathml"\n',
        encoding="utf-8",
    )
    text = "# A\n\nInline $x_i, \\dots$.\n\n$$\n\\sum_i x_i\n$$\n\n$\\bad{$\n"
    (tmp_path / "index.md").write_text(text, encoding="utf-8")
    done = build(tmp_path, tmp_path / "out")
    page = (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    assert page.count("<math ") == 2
    assert not re.search(r"<script[^>]+mathjax", page, re.IGNORECASE)
    assert "cannot convert the formula" in done.stderr


def test_the_site(tmp_path: Path) -> None:
    """One test, because the site takes 20 seconds to build."""
    done = build(DOCS, tmp_path / "site", "-n")
    pages = sorted(file.relative_to(tmp_path / "site").as_posix() for file in (tmp_path / "site").rglob("*.html"))
    assert "reference/api.html" in pages
    for page in pages:
        check_independence(tmp_path / "site" / page)
    if BROWSER:
        check_widths(tmp_path / "site", pages)
        found = open_page(f"{(tmp_path / 'site' / 'search.html').as_uri()}?q=text_alpha")
        assert "reference/settings.html" in found.partition('id="search-results"')[2]
    assert not done.stderr


def check_independence(file: Path) -> None:
    """Check that a page loads nothing from elsewhere, and has the version in its footer."""
    text = file.read_text(encoding="utf-8")
    assert not re.findall(r"<(?:script|link|img)[^>]+(?:src|href)=\"(https?:[^\"]+)\"", text), file
    assert f"Version {crossling.__version__}" in text, file


def check_widths(folder: Path, pages: list[str]) -> None:
    """Check that no page scrolls sideways on a phone."""
    measure = folder / "measure.html"
    measure.write_text(MEASURE.replace("PAGES", json.dumps(pages)), encoding="utf-8")
    local = ["--disable-web-security", "--allow-file-access-from-files", f"--user-data-dir={folder.parent / 'browser'}"]
    text = open_page(measure.as_uri(), *local)
    widths = json.loads(html.unescape(text.partition('<pre id="widths">')[2].partition("</pre>")[0]))
    assert set(widths) == set(pages)
    assert not {page: width for page, width in widths.items() if width > PHONE}


def open_page(address: str, *options: str) -> str:
    """Return a page as the browser has it after its scripts have run."""
    assert BROWSER is not None
    fixed = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=60000", "--dump-dom"]
    command = [BROWSER, *fixed, *options, address]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout


def build(source: Path, out: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sphinx", "-q", *options, "-d", str(out / ".doctrees"), str(source), str(out)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
