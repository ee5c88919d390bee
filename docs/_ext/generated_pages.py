"""Sphinx extension that fills pages from the program, so that they cannot contradict it.

A line `% generated: NAME` of a page is replaced by the Markdown that the function of this name returns.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

import bundled_page
import cli_page
import datasets_page
import settings_page
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

SOURCES: dict[str, Callable[[], str]] = {
    "commands": cli_page.commands,
    "settings": settings_page.pretraining_settings,
    "recipe values": settings_page.recipe_values,
    "finetuning settings": settings_page.finetuning_settings,
    "embedding settings": settings_page.embedding_settings,
    "translation settings": settings_page.translation_settings,
    "datasets": datasets_page.datasets,
    "dataset defaults": datasets_page.default_settings,
    "translated files": datasets_page.translated_files,
    "bundled scores": bundled_page.scores,
    "bundled languages": bundled_page.scores_by_language,
    "bundled data": bundled_page.training_data,
    "bundled excluded": bundled_page.excluded_data,
    "bundled commands": bundled_page.commands,
}
PAGES = ("reference/cli", "reference/settings", "reference/datasets", "reference/bundled-model")
_MARKER = re.compile(r"^% generated: (.+)$", re.MULTILINE)


def setup(app: Sphinx) -> dict[str, Any]:
    """Fill the markers when a page is read."""
    app.connect("source-read", _fill_page)
    app.connect("env-get-outdated", _outdated_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def fill(text: str) -> str:
    """Return a page with its markers replaced."""
    return _MARKER.sub(lambda marker: SOURCES[marker[1]](), text)


def _fill_page(_: Sphinx, page: str, content: list[str]) -> None:
    if page in PAGES:
        content[0] = fill(content[0])


def _outdated_pages(_: Sphinx, environment: BuildEnvironment, *__: set[str]) -> Iterable[str]:
    """Return the pages to read again although their file is unchanged: the program may have changed."""
    return [page for page in PAGES if page in environment.all_docs]
