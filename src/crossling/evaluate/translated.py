"""Scores of translators: every seed of an MT folder, in every direction, on every test set there is.

FOLDER/predictions/translation/SPLIT-LL-LL.jsonl    what was said
                               SPLIT-LL-LL.json     by which translator, of which text, and how it was looked for
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import xxhash

from crossling.corpora.languages import canonical
from crossling.disk import write_json
from crossling.distributed import speaks
from crossling.errors import BadInput, nearest
from crossling.evaluate import predictions, scores
from crossling.evaluate.asked import TRANSLATION
from crossling.evaluate.predictions import Predicted
from crossling.evaluate.scores import Row, Score
from crossling.evaluate.underway import UnderWay
from crossling.metrics.bootstrap import interval
from crossling.metrics.translation import MEASURES, check_installed, signature
from crossling.progress import Counted
from crossling.translation.directions import Direction, targets
from crossling.translation.parallel import Parallel, Rows, fingerprint, read
from crossling.translation.translator import BEAM, FACTS, Facts, Translator, decoding, facts, is_translator, seeds

DEV = "dev"
Tested = tuple[str, Direction, Rows]  # the name of a test set, a direction, and its rows


@dataclass(frozen=True)
class Said:
    """Whose translations they are, of what, and how they were looked for: equal ones are not made again."""

    translator: str  # a digest of all that is told of it, down to the digits of its dev scores
    text: str  # a fingerprint of sources and references
    beam: int
    length_penalty: float

    @property
    def decoding(self) -> str:
        return decoding(self.beam, self.length_penalty)


def evaluate_translator(
    folder: Path | str,
    data: Path | str,
    out: Path | str | None = None,
    recompute: bool = False,
    languages: Sequence[str] | None = None,
) -> list[Row]:
    """Rows of every seed; with `out` they are added to `out`/scores.jsonl, and translations are kept in `out`/seed-N.
    `recompute` scores those that lie with the model anew, without it. `languages` are directions, or one side of them.
    """
    folder, data = Path(folder), Path(data)
    check_translator(folder, data)
    if out is not None:
        scores.check_place(Path(out))
    text = read(data, facts(folder).directions, ("dev", "test"))
    rows = []
    for seed in seeds(folder):
        if recompute:
            rows += recomputed(seed, data, languages, text)
        else:
            keep = None if out is None else Path(out) / f"seed-{facts(seed).seed}"
            rows += score_seed(seed, data, languages, keep, text=text)
        if out is not None and speaks():
            scores.add(Path(out) / "scores.jsonl", rows)
    return rows


def check_translator(model: Path | str, data: Path) -> None:
    """Refuses a model that does not translate."""
    if not is_translator(Path(model)):
        raise BadInput(
            f"{model}: {TRANSLATION} takes a translator; make one, scored at once, with crossling finetune {model}"
            f" --task {TRANSLATION} --pairs LL-LL --data {data} -o MT"
        )
    check_installed(targets(facts(Path(model)).directions))


def tested(data: Path, directions: Sequence[Direction], text: Parallel | None) -> list[Tested]:
    """The test sets by name and direction, or dev where there is none; `text` is that of the data, if it was read
    already."""
    text = text or read(data, directions, ("dev", "test"))
    found = [(split, direction, rows) for split, part in text.tests.items() for direction, rows in part.items()]
    found = found or [(DEV, direction, rows) for direction, rows in text.dev.items()]
    if not found:
        raise BadInput(f"{data}: there is no test or dev part for {', '.join(map(str, directions))}")
    return found


def _asked_for(sets: list[Tested], languages: Sequence[str] | None, where: Path) -> list[Tested]:
    """Those of the directions asked for, or with such a side."""
    if languages is None:
        return sets
    names = {code for _, direction, _ in sets for code in (str(direction), direction.source, direction.target)}
    asked = {_spelt(language, names) for language in languages}
    for language in asked - names:
        raise BadInput(f"{where}: no test set of {language!r}{nearest(language, names)}")
    return [each for each in sets if {str(each[1]), each[1].source, each[1].target} & asked]


def _spelt(language: str, names: set[str]) -> str:
    """As directions are: `deu-eng` is `de-en`, and `deu` is `de`."""
    for reading in (str, Direction.parse, canonical):
        try:
            if (name := str(reading(language))) in names:
                return name
        except BadInput:
            continue
    return language


def score_seed(
    folder: Path,
    data: Path,
    languages: Sequence[str] | None = None,
    keep: Path | None = None,  # translations
    beam: int = BEAM,
    length_penalty: float = 1.0,
    reuse: bool = False,  # translations that lie with the model, of these very texts and looked for in this way
    text: Parallel | None = None,  # of the data, if it was read already
) -> list[Row]:
    """Rows of one translator, on the test sets of its directions; where there is none, on what it was chosen by. With
    `keep`, what was begun is gone on with."""
    known = facts(folder)
    sets = _asked_for(tested(data, known.directions, text), languages, data)
    by = _digest(folder)
    what = {"translator": by, "beam": beam, "length_penalty": length_penalty}
    work = UnderWay(keep, TRANSLATION, what) if keep is not None and speaks() else None
    rows: list[Row] = []
    told: dict[Path, Said] = {}
    translator = None
    sentences = sum(len(pairs) for _, _, pairs in sets)
    with Counted(f"score {TRANSLATION} {folder.name}", sentences, shown=speaks()) as progress:
        for split, direction, pairs in sets:
            begun = progress.done
            name, asked = f"{split}-{direction}", Said(by, fingerprint(pairs), beam, length_penalty)
            own = work.rows(name, asked.text) if work else None
            if own is None:
                said = _stored(folder, name) if reuse and _told(folder, name) == asked else None
                if said is None:
                    translator = translator or Translator.load(folder)
                    sources = [source for source, _ in pairs]
                    said = translator.translate(sources, direction.target, beam, length_penalty, progress.add)
                own = score(known, split, direction, pairs, said, asked.decoding, work.place if work else None)
                if work:
                    work.add(name, asked.text, own)
            rows += own
            if work:
                told[_facts_of(work.folder, name)] = asked
            progress.add(begun + len(pairs) - progress.done, f"{split} {direction}")
    if work:
        _finish(work, told)
    return rows


def recomputed(
    folder: Path, data: Path, languages: Sequence[str] | None = None, text: Parallel | None = None
) -> list[Row]:
    """Rows of what a translator has said earlier, without it; a set of which it has said nothing is left out."""
    known, by = facts(folder), _digest(folder)
    rows: list[Row] = []
    for split, direction, pairs in _asked_for(tested(data, known.directions, text), languages, data):
        name = f"{split}-{direction}"
        said, told = _stored(folder, name), _told(folder, name)
        if said is None:
            warnings.warn(f"{folder}: no stored translations {direction} of {split}; left out", stacklevel=3)
            continue
        if told is None or (told.translator, told.text) != (by, fingerprint(pairs)):
            raise BadInput(
                f"{_file(folder, name)}: these are not translations by this model of the {split} that lies in {data};"
                " leave --recompute out"
            )
        rows += score(known, split, direction, pairs, said, told.decoding)
    if not rows:
        raise BadInput(f"{folder}: no stored translations; leave --recompute out once")
    return rows


def score(
    known: Facts,
    split: str,
    direction: Direction,
    text: Rows,
    said: Sequence[str],
    decoded: str,  # in words
    keep: Path | None = None,
) -> list[Row]:
    """Rows of one direction; what was said is stored where it is to be kept."""
    gold = [target for _, target in text]
    statistics = {metric.label: metric.each(gold, said, direction.target) for metric in MEASURES}
    if keep is not None:
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
            tuned=f"{known.mark}, {decoded}",
            signature=signature(metric, direction.target),
            low=low,
            high=high,
        )
        rows.append(row.row())
    return rows


# ---- what was said ------------------------------------------------------------------------------------------


def _file(folder: Path, name: str) -> Path:
    return folder / predictions.FOLDER / TRANSLATION / f"{name}.jsonl"


def _facts_of(folder: Path, name: str) -> Path:
    return _file(folder, name).with_suffix(".json")


def _stored(folder: Path, name: str) -> list[str] | None:
    file = _file(folder, name)
    return [str(row.prediction) for row in predictions.read(file)] if file.is_file() else None


def _told(folder: Path, name: str) -> Said | None:
    """Nothing where they do not tell."""
    try:
        return Said(**json.loads(_facts_of(folder, name).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def _finish(work: UnderWay, told: Mapping[Path, Said]) -> None:
    """Wherever this is stopped, translations never lie beside what is told of others."""
    for file in told:
        file.unlink(missing_ok=True)
    work.finish()
    for file, said in told.items():
        write_json(file, asdict(said))


def _digest(folder: Path) -> str:
    return xxhash.xxh3_64_hexdigest((folder / FACTS).read_bytes())
