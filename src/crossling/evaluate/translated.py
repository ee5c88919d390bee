"""Scores of translators: every seed of an MT folder, in every direction, on every test set there is."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path

from crossling.distributed import speaks
from crossling.errors import BadInput, nearest
from crossling.evaluate import predictions, scores
from crossling.evaluate.asked import TRANSLATION
from crossling.evaluate.predictions import Predicted
from crossling.evaluate.scores import Row, Score
from crossling.metrics.bootstrap import interval
from crossling.metrics.translation import MEASURES, check_installed, signature
from crossling.progress import Progress
from crossling.translation.directions import Direction
from crossling.translation.parallel import Rows, read
from crossling.translation.translator import BEAM, Facts, Translator, facts, is_translator, seeds

DEV = "dev"
Tested = tuple[str, Direction, Rows]  # the name of a test set, a direction, and its rows


def evaluate_translator(
    folder: Path | str,
    data: Path | str,
    out: Path | str | None = None,
    recompute: bool = False,
    languages: Sequence[str] | None = None,
    beam: int = BEAM,
    length_penalty: float = 1.0,
) -> list[Row]:
    """Rows of every seed; with `out` they are added to `out`/scores.jsonl, and translations are kept in `out`/seed-N.
    `recompute` scores those that lie with the model anew, without it. `languages` are directions, or one side of them.
    """
    folder, data = Path(folder), Path(data)
    check_translator(folder, data)
    if out is not None:
        scores.check_place(Path(out))
    rows = []
    for seed in seeds(folder):
        keep = None if out is None or recompute else Path(out) / f"seed-{facts(seed).seed}"
        rows += score_seed(seed, data, recompute, languages, keep, beam, length_penalty)
    if out is not None and speaks():
        scores.add(Path(out) / "scores.jsonl", rows)
    return rows


def check_translator(model: Path | str, data: Path) -> None:
    """Refuses a model that does not translate."""
    check_installed()
    if not is_translator(Path(model)):
        raise BadInput(
            f"{model}: {TRANSLATION} takes a translator; make one, scored at once, with crossling finetune {model}"
            f" --task {TRANSLATION} --pairs LL-LL --data {data} -o MT"
        )


def score_seed(
    folder: Path,
    data: Path,
    recompute: bool = False,
    languages: Sequence[str] | None = None,
    keep: Path | None = None,  # translations
    beam: int = BEAM,
    length_penalty: float = 1.0,
) -> list[Row]:
    """Rows of one translator, on the test sets of its directions; where there is none, on what it was chosen by."""
    known = facts(folder)
    sets = _asked_for(tested(data, known.directions), languages, data)
    rows: list[Row] = []
    translator = None if recompute else Translator.load(folder)
    with Progress(f"score {TRANSLATION} {folder.name}", len(sets), shown=speaks()) as progress:
        for done, (split, direction, text) in enumerate(sets, start=1):
            if translator is None:
                said = _stored(folder, split, direction, text)
            else:
                said = translator.translate([source for source, _ in text], direction.target, beam, length_penalty)
            if said is not None:
                rows += score(known, split, direction, text, said, keep)
            progress.update(done, f"{split} {direction}")
    if not rows:
        raise BadInput(f"{folder}: no stored translations; leave --recompute out once")
    return rows


def tested(data: Path, directions: Sequence[Direction]) -> list[Tested]:
    """The test sets by name and direction, or dev where there is none."""
    text = read(data, directions, ("dev", "test"))
    found = [(split, direction, rows) for split, part in text.tests.items() for direction, rows in part.items()]
    found = found or [(DEV, direction, rows) for direction, rows in text.dev.items()]
    if not found:
        raise BadInput(f"{data}: there is no test or dev part for {', '.join(map(str, directions))}")
    return found


def _asked_for(sets: list[Tested], languages: Sequence[str] | None, where: Path) -> list[Tested]:
    """Those of the directions asked for, or with such a side."""
    names = {code for _, direction, _ in sets for code in (str(direction), direction.source, direction.target)}
    for language in languages or ():
        if language not in names:
            raise BadInput(f"{where}: no test set of {language!r}{nearest(language, names)}")
    return [each for each in sets if languages is None or {str(each[1]), each[1].source, each[1].target} & {*languages}]


def score(
    known: Facts, split: str, direction: Direction, text: Rows, said: Sequence[str], keep: Path | None = None
) -> list[Row]:
    """Rows of one direction; what was said is stored where it is to be kept."""
    gold = [target for _, target in text]
    statistics = {metric.label: metric.each(gold, said, direction.target) for metric in MEASURES}
    if keep is not None and speaks():
        each = (
            Predicted(str(row), one, {label: predictions.plain(found[row]) for label, found in statistics.items()})
            for row, one in enumerate(said)
        )
        predictions.write(keep, TRANSLATION, split, str(direction), each)
    rows = []
    for metric in MEASURES:
        statistics_NS = statistics[metric.label]
        low, high = interval(metric.value, statistics_NS)
        row = Score(
            model=known.model,
            task=TRANSLATION,
            protocol=metric.protocol,
            metric=metric.name,
            language=str(direction),
            examples=len(text),
            value=float(metric.value(statistics_NS.sum(axis=0))),
            setting=known.start,
            seed=known.seed,
            split=split,
            selected_on_test=split == DEV or None,
            tuned=f"lr {known.hyper.get('lr', 0):g}, {known.steps} steps",
            signature=signature(metric),
            low=low,
            high=high,
        )
        rows.append(row.row())
    return rows


def _stored(folder: Path, split: str, direction: Direction, text: Rows) -> list[str] | None:
    """What was said earlier; none where nothing was."""
    path = folder / predictions.FOLDER / TRANSLATION / f"{split}-{direction}.jsonl"
    if not path.is_file():
        warnings.warn(f"{folder}: no stored translations {direction} of {split}; left out", stacklevel=3)
        return None
    rows = predictions.read(path)
    if len(rows) != len(text):
        raise BadInput(f"{path}: {len(rows)} translations, and {split} has {len(text)} rows; leave --recompute out")
    return [str(row.prediction) for row in rows]
