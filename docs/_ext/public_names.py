"""Sphinx extension for type hints: they link to public names, and have no bounds.

`crossling.recipes.recipe.Recipe` links to `crossling.Recipe`. `Annotated[int, Bounds(...)]` becomes `int`: the page of
settings has the bounds.
"""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

from crossling import __all__ as public_names

_ANNOTATED = re.compile(r"~?[\w.]*Annotated\[(.*?), ~?[\w.]*Bounds\(.*?\)\]")


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect to the events of Sphinx and autodoc."""
    app.connect("missing-reference", _resolve)
    app.connect("doctree-read", _replace_hyphens)
    app.connect("autodoc-process-signature", _remove_bounds, priority=900)  # after autodoc has stored the hints
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _replace_hyphens(_: Sphinx, page: nodes.document) -> None:
    """Write a dash between a parameter and its description, where Sphinx has two hyphens."""
    for text in [node for node in page.findall(nodes.Text) if node.astext() == " -- "]:
        text.parent.replace(text, nodes.Text(" – "))


def _remove_bounds(app: Sphinx, _: str, name: str, *__: Any) -> None:
    hints = app.env.current_document.autodoc_annotations.get(name, {})
    hints.update({argument: _ANNOTATED.sub(r"\1", hint) for argument, hint in hints.items()})


def _resolve(
    app: Sphinx, environment: BuildEnvironment, reference: pending_xref, content: nodes.Node
) -> nodes.Node | None:
    name = reference.get("reftarget", "").rpartition(".")[2]
    if reference.get("refdomain") != "py" or name not in public_names:
        return None
    python = environment.domains.python_domain
    found = python.find_obj(environment, None, None, f"crossling.{name}", None)
    if not found:
        return None
    full_name, entry = found[0]
    page = reference.get("refdoc", environment.docname)
    return nodes.reference(
        "", "", content, refuri=f"{app.builder.get_relative_uri(page, entry.docname)}#{entry.node_id}", internal=True,
        reftitle=full_name,
    )  # fmt: skip
