"""The result: a Hugging Face and Sentence Transformers folder with a card, scores, and a report page.

    OUT/ config.json ...      as `crossling export` writes it
         adapt.json           settings with their reasons, changes on held-out text, time
         scores.jsonl         report.html  report.md

While the adaptation is not finished, OUT/work has its text, vocabulary, shards and run.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from crossling.adapt.adapt_settings import AdaptSettings
from crossling.adapt.held_out_scores import Change, describe_forgetting
from crossling.core.files import read_json, template_environment, write_json
from crossling.core.progress import format_duration
from crossling.core.resumable import file_fingerprint
from crossling.export.model_copy import EXPORT_INFO
from crossling.report.report import report
from crossling.tasks import scores
from crossling.tasks.scores import ScoreRow

RESULT, RESULT_FORMAT = "adapt.json", 1
WORK = "work"
OWN_FILES = (RESULT, "scores.jsonl", "report.html", "report.md", "showcase.json")


def publish_folder(exported: Path, out: Path) -> None:
    """Copy an export into the output folder, the weights last, so that an incomplete folder does not open."""
    files = sorted(path.relative_to(exported) for path in exported.rglob("*") if path.is_file())
    for file in sorted(files, key=lambda file: file.name.endswith((".safetensors", "config.json"))):
        target = out / file
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f".{target.name}.new")
        shutil.copyfile(exported / file, temporary)
        temporary.replace(target)
    info = read_json(out / EXPORT_INFO)
    write_json(out / EXPORT_INFO, {**info, "files": sorted({*info["files"], *OWN_FILES})})


def declare_cls_pooling(folder: Path) -> None:
    """Let an exported folder declare the first token as its sentence vector, as the original model did."""
    file = folder / "1_Pooling" / "config.json"
    width = read_json(file)["word_embedding_dimension"]
    write_json(file, {"word_embedding_dimension": width, "pooling_mode_cls_token": True})


def write_card(out: Path, model: str, settings: AdaptSettings, changes: Sequence[Change]) -> None:
    """Add a section about the adaptation to the model card, unless it is there."""
    environment = template_environment(Path(__file__).parent, escape=False)
    section = environment.get_template("adaptation_card.md.jinja").render(
        model=Path(model).name, settings=settings, changes=changes, forgetting=describe_forgetting(changes)
    )
    card = out / "README.md"
    text = card.read_text(encoding="utf-8").partition("\n## Adaptation\n")[0].rstrip("\n")
    card.write_text(f"{text}\n\n{section}", encoding="utf-8")


def write_report(out: Path, model: str, rows: Sequence[ScoreRow], changes: Sequence[Change], seconds: float) -> None:
    """Write scores.jsonl and the report page."""
    (out / "scores.jsonl").unlink(missing_ok=True)
    scores.add_scores(out / "scores.jsonl", rows)
    new = [change for change in changes if change.role == "new"]
    facts = {f"{each.language}, {each.measure}": f"{each.before:.2f} before, {each.after:.2f} after" for each in new}
    page = {
        "title": f"{out.resolve().name}: {Path(model).name} adapted",
        "subtitle": "Before and after on held-out sentences, which training never read nor anything like them. "
        + describe_forgetting(changes),
        "command": "crossling adapt",
        "facts": {**facts, "time of the adaptation": format_duration(seconds)},
    }
    write_json(out / "showcase.json", page)
    report([out], out / "report.html")


def write_result(out: Path, values: Mapping[str, Any]) -> None:
    """Write adapt.json, which marks the adaptation as finished."""
    weights = {file.name: file_fingerprint(file) for file in sorted(out.glob("*.safetensors"))}
    write_json(out / RESULT, {"format": RESULT_FORMAT, **values, "weights": weights})


def is_published(out: Path, stored: Mapping[str, Any]) -> bool:
    """Return True if the weights in the folder are those of the stored result."""
    return all(
        (out / name).is_file() and file_fingerprint(out / name) == digest for name, digest in stored["weights"].items()
    )
