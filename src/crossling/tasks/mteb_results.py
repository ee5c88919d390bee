"""Results of MTEB as score rows. They are read from its JSON files, without the package.

    FOLDER/results/ORGANIZATION__MODEL/REVISION/TASK.json     (FOLDER: the cache of `mteb.evaluate`)
                                                model_meta.json

A row has the task's main score. Tasks that crossling scores too have its names: Tatoeba, BUCC and FLORES. Rows have the
protocol `mteb`, or `mteb-v2` for BUCC.v2.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from crossling.core.errors import BadInput
from crossling.corpora.languages import find_code
from crossling.tasks.readers import read_json
from crossling.tasks.scores import ScoreRow, add_scores, check_scores_folder

ORGANIZATION = "crossling"  # of models whose name has none
META = "model_meta.json"
DEPTHS = ("", "*/", "*/*/", "*/*/*/")  # of the folder of a revision: FOLDER/results/MODEL/REVISION
OUR_TASKS = {
    "Tatoeba": ("tatoeba", "mteb"),
    "BUCC": ("bucc2018", "mteb"),
    "BUCC.v2": ("bucc2018", "mteb-v2"),
    "FloresBitextMining": ("flores", "mteb"),
}
_BITEXT_METRICS = {"precision", "recall", "f1", "accuracy"}
# Metrics that are the main score of MTEB's tasks. Of two with an equal value, the first is meant.
_MAIN_METRICS = (
    "accuracy", "ap", "max_ap", "cosine_spearman", "spearman", "v_measure", "ndcg_at_10", "map_at_1000", "map", "mrr",
    "lrap", "f1", "recall_at_5",
)  # fmt: skip


def find_results(folder: Path) -> list[Path]:
    """Return the files with a result in a folder of MTEB: its cache, or the folder of a model or of a revision."""
    homes = sorted({file.parent for depth in DEPTHS for file in folder.glob(f"{depth}{META}")})
    return [file for home in homes for file in sorted(home.glob("*.json")) if file.name != META]


def read_results(folder: str | os.PathLike[str]) -> list[ScoreRow]:
    """Return one score row for each language and split of the results in a folder.

    Args:
        folder: Cache of `mteb.evaluate`, or the folder of a model or of a revision in it.

    Raises:
        BadInput: If the folder has no results, or a file is not a result of MTEB.

    Example:
        >>> [row["value"] for row in read_results("mteb_results") if row["task"] == "tatoeba"]
        [91.4]
    """
    files = find_results(Path(folder))
    if not files:
        raise BadInput(f"{folder}: no results of MTEB here, expected TASK.json beside {META}. Give the cache of MTEB.")
    return [row for file in files for row in _read_file(file)]


def add_results(folder: str | os.PathLike[str], out: str | os.PathLike[str]) -> list[ScoreRow]:
    """Add the results in a folder of MTEB to a scores.jsonl. A row replaces an older one of the same measurement.

    Args:
        folder: Cache of `mteb.evaluate`, or the folder of a model or of a revision in it.
        out: Folder of the scores.jsonl.

    Returns:
        The rows that were added.

    Raises:
        BadInput: If the folder has no results, or `out` is another kind of folder.

    Example:
        >>> rows = add_results("mteb_results", "scores")
    """
    rows = read_results(folder)
    check_scores_folder(Path(out))
    Path(out).mkdir(parents=True, exist_ok=True)
    add_scores(Path(out) / "scores.jsonl", rows)
    return rows


def _read_file(file: Path) -> Iterator[ScoreRow]:
    result, model = read_json(file), _model_name(file.parent)
    task = result.get("task_name") if isinstance(result, dict) else None
    scores = result.get("scores") if isinstance(result, dict) else None
    if not isinstance(task, str) or not isinstance(scores, dict):
        raise BadInput(f"{file}: no result of MTEB, expected 'task_name' and 'scores'. Remove the file.")
    name, protocol = OUR_TASKS.get(task, (task, "mteb"))
    for split, subsets in scores.items():
        for subset in subsets if isinstance(subsets, list) else [subsets]:
            where = f"{file}: split {split!r}"
            value = subset.get("main_score") if isinstance(subset, dict) else None
            if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
                raise BadInput(f"{where}: no number under 'main_score'. Run the task again.")
            row = {"model": model, "task": name, "protocol": protocol, "metric": _metric(subset, value)}
            yield {**row, **_language(subset), "setting": "training-free", "split": split, "value": 100 * value}


def _model_name(folder: Path) -> str:
    """Return the name of a model without the organization that it has only for MTEB."""
    meta = read_json(folder / META)
    name = meta.get("name") if isinstance(meta, dict) else None
    if not isinstance(name, str) or not name:
        raise BadInput(f"{folder / META}: no 'name' of the model. Run the task again.")
    return name.removeprefix(f"{ORGANIZATION}/")


def _metric(subset: Mapping[str, Any], value: float) -> str:
    """Return the metric whose value is the main score. Of equal ones, it is F1 for bitext mining."""
    numbers = {name: score for name, score in subset.items() if isinstance(score, int | float) and name != "main_score"}
    order = ("f1", *_MAIN_METRICS) if numbers.keys() == _BITEXT_METRICS else _MAIN_METRICS
    ranks = {name: order.index(name) if name in order else len(order) for name in numbers if numbers[name] == value}
    return min(ranks, key=lambda name: (ranks[name], name), default="main_score")


def _language(subset: Mapping[str, Any]) -> dict[str, str]:
    """Return the language of a row. Two languages are a pair with the direction of the queries, as `deu-eng`."""
    name, listed = str(subset.get("hf_subset", "default")), subset.get("languages")
    codes = [find_code(str(code)) or str(code) for code in listed] if isinstance(listed, list) else []
    if len(codes) == 1:
        return {"language": codes[0]}
    if len(codes) != 2:
        return {"language": find_code(name) or name}
    first, second = _order(name, codes)
    if "en" not in codes or first == second:
        return {"language": "-".join(sorted(codes)), "direction": f"{first}-{second}"}
    return {"language": first if second == "en" else second, "direction": "en-xx" if first == "en" else "xx-en"}


def _order(subset: str, codes: list[str]) -> list[str]:
    """Return the languages in the order of the name of the subset, such as `fra-eng`: queries first."""
    named = [find_code(part) for part in subset.split("-")]
    return codes[::-1] if named == codes[::-1] else codes
