"""Sphinx extension that writes formulas as MathML, which browsers show without a script or a font from elsewhere."""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.util import logging

_logger = logging.getLogger(__name__)
# Commands that docutils does not know, with what it knows. Browsers choose the style of a formula themselves.
_REPLACEMENTS = {r"\\dots(?![a-zA-Z])": r"\\ldots", r"\\(textstyle|displaystyle)(?![a-zA-Z])\s*": ""}


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the math renderer `mathml`."""
    app.add_html_math_renderer("mathml", (_write_inline, None), (_write_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _write_inline(translator: Any, node: nodes.math) -> None:
    translator.body.append(_convert(node, as_block=False))
    raise nodes.SkipNode


def _write_block(translator: Any, node: nodes.math_block) -> None:
    translator.body.append(f'<div class="math">{_convert(node, as_block=True)}</div>\n')
    raise nodes.SkipNode


def _convert(node: nodes.Element, as_block: bool) -> str:
    """Return the MathML of a formula. One that docutils cannot convert is a warning, which `make docs` refuses."""
    formula = node.astext()
    for pattern, replacement in _REPLACEMENTS.items():
        formula = re.sub(pattern, replacement, formula)
    try:
        return str(tex2mathml(formula, as_block=as_block))
    except (MathError, SyntaxError) as error:
        _logger.warning("cannot convert the formula %r: %s", formula, error, location=node)
        return ""
