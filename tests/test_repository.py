"""Files around the package: workflows, issue forms, citation, and the map of the code in CONTRIBUTING."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from crossling import __version__

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "crossling"
GITHUB = ROOT / ".github"
SCHEMAS = {
    "github-workflows": sorted(GITHUB.glob("workflows/*.yml")),
    "github-issue-forms": [file for file in sorted(GITHUB.glob("ISSUE_TEMPLATE/*.yml")) if file.stem != "config"],
    "github-issue-config": [GITHUB / "ISSUE_TEMPLATE" / "config.yml"],
    "citation-file-format": [ROOT / "CITATION.cff"],
}


@pytest.mark.parametrize("schema", SCHEMAS)
def test_files_follow_their_schema(schema: str) -> None:
    pytest.importorskip("check_jsonschema", reason="needs the extra dev")
    assert SCHEMAS[schema]
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}"]
    done = subprocess.run([*command, *map(str, SCHEMAS[schema])], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_tests_run_on_every_supported_python() -> None:
    supported = re.findall(r"Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    workflow = (GITHUB / "workflows" / "tests.yml").read_text(encoding="utf-8")
    [matrix] = re.findall(r"python: \[(.*)\]", workflow)
    assert re.findall(r"3\.\d+", matrix) == supported


def test_targets_of_workflows_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for file in SCHEMAS["github-workflows"]:
        for target in re.findall(r"run: make (\w+)", file.read_text(encoding="utf-8")):
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"{file.name}: make {target}"


def test_the_citation_has_the_version_date_and_licence_of_the_release() -> None:
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {__version__}\n" in citation
    [date] = re.findall(r"^date-released: (.+)$", citation, re.MULTILINE)
    assert f"\n## [{__version__}] - {date}\n" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert "\nlicense: Apache-2.0\n" in citation
    assert 'license = "Apache-2.0"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def test_contributing_describes_every_package() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    table = text.partition("| package | content |")[2].partition("\n\n")[0]
    named = [
        name.rstrip("/") for row in table.splitlines()[2:] for name in re.findall(r"`([\w.]+/?)`", row.split("|")[1])
    ]
    packages = [folder.name for folder in PACKAGE.iterdir() if (folder / "__init__.py").is_file()]
    modules = [file.name for file in PACKAGE.glob("*.py") if not file.name.startswith("__")]
    assert sorted(named) == sorted([*packages, *modules])
