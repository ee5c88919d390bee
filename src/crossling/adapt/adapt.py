"""`adapt`: from files of a language to an encoder that knows it, with scores before and after.

The stages follow each other: prepare text, score, extend the vocabulary, tokenize, train, export, score again. Each
stores its result in OUT/work, so that an interrupted call resumes. The settings are stored before training. OUT/work
has text of the user, so it is deleted at the end.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from crossling.adapt.adapt_request import AdaptRequest
from crossling.adapt.adapt_settings import AdaptSettings, split_assignments
from crossling.adapt.adapt_stages import Stages, settings_lines
from crossling.adapt.adapted_folder import RESULT, RESULT_FORMAT, WORK, is_published
from crossling.adapt.held_out_scores import Change
from crossling.core import progress
from crossling.core.errors import BadInput
from crossling.core.files import check_format, read_json, write_json
from crossling.core.locks import output_lock
from crossling.core.progress import format_duration, print_status
from crossling.core.resumable import check_output_folder, working_folder

PathOrName = str | os.PathLike[str]
Files = PathOrName | Sequence[PathOrName]
REQUEST = "request.json"


@dataclass(frozen=True, kw_only=True)
class Adaptation:
    """Result of `adapt`.

    Attributes:
        folder: The adapted model, or None after a dry run.
        settings: Settings of the adaptation.
        reasons: Reason for each setting.
        changes: Measures on held-out text before and after. Empty after a dry run.
        seconds: Time of the adaptation, or the estimated time of training after a dry run.
    """

    folder: Path | None
    settings: AdaptSettings
    reasons: dict[str, str]
    changes: list[Change] = field(default_factory=list)
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """Return the JSON values."""
        changes = [change.to_json() for change in self.changes]
        return {**asdict(self), "folder": None if self.folder is None else str(self.folder), "changes": changes}


def adapt(
    model: PathOrName,
    out: PathOrName,
    *,
    text: Files = (),
    pairs: Files = (),
    language: str | None = None,
    pair: str | None = None,
    replay: Files = (),
    minutes: float | None = None,
    lora: int | None = None,
    set: Sequence[str] = (),
    seed: int = 0,
    dry_run: bool = False,
) -> Adaptation:
    """Adapt an encoder to the languages of some files. An interrupted call resumes when it is repeated.

    Cleans the text, holds out a part of it, extends the vocabulary if that helps, continues training, and scores the
    model before and after. Every choice is printed with its reason.

    Args:
        model: Encoder to adapt: `bundled`, a run, an exported folder, a Hugging Face encoder or hub name.
        out: Folder to write, which becomes a Hugging Face and Sentence Transformers folder.
        text: Files of text, of any kind that `ingest` reads, or folders with them.
        pairs: Files of translations, or folders with them.
        language: Language of the text. [default: by file names and headers]
        pair: Languages of the translations, such as `en-sw`. [default: by file names and headers]
        replay: Files, or a folder of corpora, of languages to keep. [default: a small sample of 47 languages in the
            package, on which the original model is the teacher]
        minutes: Training time to aim at. The number of steps follows from the measured time of a few steps, so a
            machine with other work can take longer.
        lora: Train LoRA matrices of this rank in place of all weights, for Hugging Face models. Needs the extra `lora`.
        set: `key=value` settings: one of the printed choices (`epochs=5`), or of a recipe (`xlco.temperature=0.1`).
        seed: Seed of new weights and of sampling.
        dry_run: Print the settings and the estimated time, and write nothing.

    Returns:
        Settings with reasons, and the measures before and after.

    Raises:
        BadInput: A file, a language or the model cannot be used, or `out` has another adaptation.

    Example:
        >>> result = xl.adapt("bundled", "icelandic", pairs=["bitext.csv"], pair="en-is")
        >>> [(each.language, each.before, each.after) for each in result.changes if each.role == "new"]
    """
    request = AdaptRequest(
        model=os.fspath(model),
        text=_paths(text),
        pairs=_paths(pairs),
        replay=_paths(replay),
        language=language,
        pair=pair,
        minutes=minutes,
        lora=lora,
        assignments=tuple(set),
        seed=seed,
    )
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise BadInput("adapt: cannot run under torchrun. Start one plain process.")
    request.check()
    split_assignments(request.assignments)
    out = Path(out)
    if dry_run:
        with tempfile.TemporaryDirectory(prefix="crossling-") as folder:
            return _plan(Stages(request, Path(folder), Path(folder) / WORK))
    check_output_folder(out, holds=[RESULT, WORK], command="crossling adapt")
    with output_lock(out):
        description = request.description()
        _check_same_request(out, description)
        finished = _read_finished(out)
        if finished is not None:
            shutil.rmtree(out / WORK, ignore_errors=True)
            return finished
        stages = Stages(request, out, out / WORK)
        stages.load_model()  # before anything is written
        with working_folder(out / WORK):
            write_json(out / WORK / REQUEST, description)
            result = _run(stages, out)
        shutil.rmtree(out / WORK)
        return result


def _run(stages: Stages, out: Path) -> Adaptation:
    started = progress.command_started or time.perf_counter()
    stages.prepare()
    before = stages.score_before()
    settings, reasons = stages.settings()
    for line in settings_lines(settings, reasons):
        print_status(line)
    stages.train(settings)
    changes = stages.publish(settings, reasons, before, started)
    return Adaptation(
        folder=out, settings=settings, reasons=reasons, changes=changes, seconds=time.perf_counter() - started
    )


def _plan(stages: Stages) -> Adaptation:
    stages.load_model()
    stages.prepare()
    settings, reasons = stages.settings()
    for line in settings_lines(settings, reasons):
        print_status(line)
    seconds = settings.steps * stages.seconds_per_step(settings)
    print_status(f"training: about {format_duration(seconds)} on this machine; nothing was written")
    return Adaptation(folder=None, settings=settings, reasons=reasons, seconds=seconds)


def _paths(files: Files) -> tuple[str, ...]:
    if isinstance(files, str | os.PathLike):
        return (os.fspath(files),)
    return tuple(os.fspath(file) for file in files)


def _check_same_request(out: Path, description: dict[str, Any]) -> None:
    if (out / WORK / REQUEST).is_file():
        stored = read_json(out / WORK / REQUEST)
    elif (out / RESULT).is_file():
        stored = read_json(out / RESULT).get("request", {})
    else:
        return
    changed = sorted(name for name in description if stored.get(name) != description[name])
    if changed:
        found = ", ".join("content of the files or the model" if name == "digests" else name for name in changed)
        raise BadInput(
            f"{out}: holds an adaptation with other options (different: {found}). Repeat the original command to resume"
            " it, or give another folder."
        )


def _read_finished(out: Path) -> Adaptation | None:
    """Return the result of a finished adaptation, if there is one."""
    file = out / RESULT
    if not file.is_file():
        return None
    stored = read_json(file)
    check_format(file, stored.get("format"), RESULT_FORMAT, "Adapt again, into another folder.")
    if not is_published(out, stored):
        return None
    return Adaptation(
        folder=out,
        settings=AdaptSettings(**stored["settings"]),
        reasons=stored["reasons"],
        changes=[Change(**each) for each in stored["changes"]],
        seconds=stored["seconds"],
    )
