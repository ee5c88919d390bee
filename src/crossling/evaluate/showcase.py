"""`showcase.json`: examples for a person to look at, shown on the report page.

Every part may be absent; a part that is there is whole.

    {"title": "...", "subtitle": "...", "command": "crossling demo",
     "facts": {"seed": "0", "cost": "4 minutes on 2 cores"},         label -> text, for the foot of the page
     "chance": 0.25,                                                 retrieval by guessing, in percent
     "alignment": {"source": ["word", ...], "target": ["word", ...],
                   "similarity": [[0.3, ...], ...],                  a row for each source word
                   "predicted": [[i, j], ...],                       links, counted from 0
                   "sure": [[i, j], ...], "possible": [[i, j], ...],
                   "languages": ["qaa", "qab"], "model": "runs/xlm_e"},
     "neighbours": [{"query": "...", "language": "qaa", "truth": "...",
                     "candidates": [{"text": "...", "score": 0.81, "right": true}, ...]}, ...],      nearest first
     "detection": {"auc": 0.83,
                   "sentences": [{"tokens": [...], "replaced": [false, ...], "probability": [0.1, ...]}, ...]}}
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from crossling.errors import BadInput

Showcase = dict[str, Any]

NUMBER = (int, float)
_LINKS = [[int]]
_PARTS: dict[str, Any] = {
    "title": str,
    "subtitle": str,
    "command": str,
    "facts": {...: str},
    "chance": NUMBER,
    "alignment": {
        "source": [str],
        "target": [str],
        "similarity": [[NUMBER]],
        "predicted": _LINKS,
        "sure": _LINKS,
        "possible": _LINKS,
        "languages": [str],
        "model": str,
    },
    "neighbours": [
        {"query": str, "language": str, "truth": str, "candidates": [{"text": str, "score": NUMBER, "right": bool}]}
    ],
    "detection": {"auc": NUMBER, "sentences": [{"tokens": [str], "replaced": [bool], "probability": [NUMBER]}]},
}


def read(path: Path) -> Showcase:
    try:
        showcase = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise BadInput(f"{path}: line {error.lineno} is not JSON; write the file again") from None
    if not isinstance(showcase, dict):
        raise BadInput(f"{path}: expected an object; write the file again")
    for part in _PARTS.keys() & showcase.keys():
        _check(showcase[part], _PARTS[part], part, path)
    if "alignment" in showcase:
        _check_grid(showcase["alignment"], path)
    for sentence in showcase.get("detection", {}).get("sentences", []):
        if len({len(sentence[name]) for name in ("tokens", "replaced", "probability")}) > 1:
            raise BadInput(f"{path}: detection: expected as many 'replaced' and 'probability' as tokens")
    return showcase


def _check(value: Any, shape: Any, place: str, path: Path) -> None:
    """`value` against a shape: a type, [shape of each item], {name: shape}, or {...: shape} for any names."""
    if isinstance(shape, list):
        _expect(isinstance(value, list), "a list", place, path)
        for index, item in enumerate(value):
            _check(item, shape[0], f"{place}[{index}]", path)
    elif isinstance(shape, dict):
        _expect(isinstance(value, dict), "an object", place, path)
        for name in value if ... in shape else shape:
            _expect(name in value, f"a field {name!r}", place, path)
            _check(value[name], shape.get(..., shape.get(name)), f"{place}.{name}", path)
    else:
        right = isinstance(value, shape) and (shape is bool or not isinstance(value, bool))
        name = {str: "text", bool: "true or false", int: "a whole number"}.get(shape, "a number")
        _expect(right, name, place, path)


def _check_grid(alignment: dict[str, Any], path: Path) -> None:
    rows, columns = len(alignment["source"]), len(alignment["target"])
    similarity = alignment["similarity"]
    fits = len(similarity) == rows and all(len(row) == columns for row in similarity)
    _expect(fits, f"{rows} rows of {columns} numbers", "alignment.similarity", path)
    for kind in ("predicted", "sure", "possible"):
        inside = all(len(link) == 2 and 0 <= link[0] < rows and 0 <= link[1] < columns for link in alignment[kind])
        _expect(inside, "links [i, j] inside the sentences, counted from 0", f"alignment.{kind}", path)


def _expect(holds: bool, what: str, place: str, path: Path) -> None:
    if not holds:
        raise BadInput(f"{path}: {place}: expected {what}; see the schema in crossling.evaluate.showcase")
