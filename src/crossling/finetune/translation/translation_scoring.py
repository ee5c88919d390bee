"""Scores of translators: every seed of an MT folder, in every direction, on every test set.

FOLDER/predictions/translation/SPLIT-LL-LL.jsonl    translations
                               SPLIT-LL-LL.json     translator, text and beam search that they come from
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import xxhash

from crossling.core.distributed import is_main_process
from crossling.core.errors import BadInput, suggestion
from crossling.core.files import write_json
from crossling.core.progress import Progress
from crossling.finetune.finetune_scoring import build_score_rows, score_seeds, write_prediction_file
from crossling.finetune.translation.parallel_text import (
    DEV,
    Direction,
    ParallelText,
    SentencePairs,
    pairs_fingerprint,
    parse_directions,
    read_parallel_text,
    target_languages,
)
from crossling.finetune.translation.translator import DEFAULT_BEAM, TRANSLATOR_INFO, Translator, TranslatorInfo
from crossling.tasks import predictions
from crossling.tasks.benchmark_files import TRANSLATION, language_names, normalize_language
from crossling.tasks.predictions import PartialResults
from crossling.tasks.scores import ScoreRow
from crossling.tasks.translation_metrics import TRANSLATION_METRICS, check_sacrebleu, metric_signature


class ScoredSet(NamedTuple):
    """One direction of a test set."""

    split: str  # name of the test set, or dev
    direction: Direction
    pairs: SentencePairs

    @property
    def name(self) -> str:
        return f"{self.split}-{self.direction}"


@dataclass(frozen=True)
class DecodingInfo:
    """Translator, text and beam search of translations. Stored translations with equal info are used again."""

    translator: str  # hash of translator.json, which includes the digits of the dev scores
    text: str  # fingerprint of sources and references
    beam: int
    length_penalty: float

    @property
    def decoding(self) -> str:
        """Beam search in words: `beam 5`, or `beam 5, length penalty 0.6`."""
        penalty = "" if self.length_penalty == 1 else f", length penalty {self.length_penalty:g}"
        return f"beam {self.beam}{penalty}"


def evaluate_translator(
    folder: str | os.PathLike[str],
    data: str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    *,
    recompute: bool = False,
    languages: Sequence[str] | None = None,
) -> list[ScoreRow]:
    """Score every seed of an MT folder.

    Args:
        folder: MT folder, or the folder of one seed.
        data: Folder of parallel text.
        out: Add the scores to `out`/scores.jsonl, and write the translations to `out`/seed-N.
        recompute: Score the translations stored with the model, without running it.
        languages: Directions to score, or languages that are one side of them. [default: all]
    """
    folder, data = Path(folder), Path(data)
    check_translator(folder, data)
    text = read_parallel_text(data, parse_directions(TRANSLATOR_INFO.read(folder).directions), ("dev", "test"))

    def score_seed(seed: Path, seed_out: Path | None) -> list[ScoreRow]:
        if recompute:
            return rescore_stored(seed, data, languages, text)
        return score_translator_seed(seed, data, languages, out=seed_out, text=text)

    return score_seeds(TRANSLATOR_INFO, folder, out, score_seed)


def check_translator(model: str | os.PathLike[str], data: Path) -> None:
    """Refuse a model that is no translator."""
    if not TRANSLATOR_INFO.exists(Path(model)):
        raise BadInput(
            f"{model}: {TRANSLATION} needs a translator. Train and score one with crossling finetune {model}"
            f" --task {TRANSLATION} --directions LL-LL --data {data} -o MT"
        )
    check_sacrebleu(target_languages(parse_directions(TRANSLATOR_INFO.read(Path(model)).directions)))


def find_test_sets(data: Path, directions: Sequence[Direction], text: ParallelText | None) -> list[ScoredSet]:
    """Return the test sets by name and direction, or the dev sets if there are none.

    Args:
        data: Folder of parallel text.
        directions: Directions of the translator.
        text: Contents of the folder, if it was read before.
    """
    text = text or read_parallel_text(data, directions, ("dev", "test"))
    found = [
        ScoredSet(split, direction, pairs) for split, part in text.tests.items() for direction, pairs in part.items()
    ]
    found = found or [ScoredSet(DEV, direction, pairs) for direction, pairs in text.dev.items()]
    if not found:
        names = ", ".join(map(str, directions))
        raise BadInput(f"{data}: no test or dev set for {names}. Add test.LL or dev.LL of both languages.")
    return found


def _filter_sets(sets: list[ScoredSet], languages: Sequence[str] | None, data: Path) -> list[ScoredSet]:
    """Return the test sets of the requested directions, or of directions with a requested language."""
    if languages is None:
        return sets
    names = language_names(str(scored.direction) for scored in sets)
    requested = {normalize_language(language, names) for language in languages}
    for language in requested - names:
        raise BadInput(f"{data}: no test set of {language!r}{suggestion(language, names)}")
    return [scored for scored in sets if language_names([str(scored.direction)]) & requested]


def score_translator_seed(
    folder: Path,
    data: Path,
    languages: Sequence[str] | None = None,
    *,
    out: Path | None = None,
    beam: int = DEFAULT_BEAM,
    length_penalty: float = 1.0,
    reuse: bool = False,
    text: ParallelText | None = None,
) -> list[ScoreRow]:
    """Score one translator on the test sets of its directions, or on the dev sets if there are none.

    Args:
        folder: Folder of the translator.
        data: Folder of parallel text.
        languages: Directions to score, or languages that are one side of them. [default: all]
        out: Write translations to this folder, and resume an interrupted evaluation.
        beam: Beam size.
        length_penalty: Exponent of the length in the beam search.
        reuse: Use stored translations of the same text by the same translator and beam search.
        text: Contents of `data`, if it was read before.
    """
    info = TRANSLATOR_INFO.read(folder)
    sets = _filter_sets(find_test_sets(data, parse_directions(info.directions), text), languages, data)
    digest = _translator_digest(folder)
    description = {"translator": digest, "beam": beam, "length_penalty": length_penalty}
    partial = PartialResults(out, TRANSLATION, description) if out is not None and is_main_process() else None
    rows: list[ScoreRow] = []
    decoding_files: dict[Path, DecodingInfo] = {}
    translator = None
    sentences = sum(len(test_set.pairs) for test_set in sets)
    with Progress(f"score {TRANSLATION} {folder.name}", sentences, enabled=is_main_process()) as progress:
        for test_set in sets:
            before, name = progress.done, test_set.name
            decoding = DecodingInfo(digest, pairs_fingerprint(test_set.pairs), beam, length_penalty)
            new = partial.done(name, decoding.text) if partial else None
            if new is None:
                is_stored = reuse and _read_decoding_info(folder, name) == decoding
                translations = _stored_translations(folder, name) if is_stored else None
                if translations is None:
                    translator = translator or Translator.load(folder)
                    translations = translator.translate(
                        [source for source, _ in test_set.pairs],
                        test_set.direction.target,
                        beam=beam,
                        length_penalty=length_penalty,
                        on_progress=progress.advance,
                    )
                place = partial.folder if partial else None
                new = score_direction(info, test_set, translations, decoding=decoding.decoding, out=place)
                if partial:
                    partial.record(name, new, decoding.text)
            rows += new
            if partial:
                decoding_files[_decoding_file(partial.results, name)] = decoding
            progress.advance(before + len(test_set.pairs) - progress.done, f"{test_set.split} {test_set.direction}")
    if partial:
        _finish(partial, decoding_files)
    return rows


def rescore_stored(
    folder: Path, data: Path, languages: Sequence[str] | None = None, text: ParallelText | None = None
) -> list[ScoreRow]:
    """Score stored translations without running the translator. Skip test sets without any."""
    info, digest = TRANSLATOR_INFO.read(folder), _translator_digest(folder)
    rows: list[ScoreRow] = []
    for test_set in _filter_sets(find_test_sets(data, parse_directions(info.directions), text), languages, data):
        translations, decoding = _stored_translations(folder, test_set.name), _read_decoding_info(folder, test_set.name)
        if translations is None:
            warnings.warn(
                f"{folder}: no stored translations of {test_set.split} {test_set.direction}; skipped", stacklevel=3
            )
            continue
        if decoding is None or (decoding.translator, decoding.text) != (digest, pairs_fingerprint(test_set.pairs)):
            raise BadInput(
                f"{_translations_file(folder, test_set.name)}: these are not this model's translations of"
                f" {test_set.split} in {data}. Run without --recompute."
            )
        rows += score_direction(info, test_set, translations, decoding=decoding.decoding)
    if not rows:
        raise BadInput(f"{folder}: no stored translations. Run once without --recompute.")
    return rows


def score_direction(
    info: TranslatorInfo, test_set: ScoredSet, translations: Sequence[str], *, decoding: str, out: Path | None = None
) -> list[ScoreRow]:
    """Return the scores of one direction.

    Args:
        info: Description of the translator.
        test_set: Sources and references.
        translations: Translation of each source.
        decoding: Beam search in words.
        out: Write the translations to this folder.
    """
    split, direction, pairs = test_set
    references = [target for _, target in pairs]
    statistics = {m.label: m.statistics(references, translations, direction.target) for m in TRANSLATION_METRICS}
    if out is not None:
        ids = [str(row) for row in range(len(pairs))]
        write_prediction_file(
            out, TRANSLATION, split, str(direction), ids=ids, predicted=translations, statistics=statistics
        )
    return build_score_rows(
        TRANSLATION_METRICS,
        statistics,
        model=info.model,
        task=TRANSLATION,
        language=str(direction),
        setting=info.init,
        seed=info.seed,
        split=split,
        selected_on_test=split == DEV or None,
        tuned=f"{info.description}, {decoding}",
        signature=lambda metric: metric_signature(metric, direction.target),
    )


# ---- stored translations ------------------------------------------------------------------------------------


def _translations_file(folder: Path, name: str) -> Path:
    return folder / predictions.PREDICTIONS_FOLDER / TRANSLATION / f"{name}.jsonl"


def _decoding_file(folder: Path, name: str) -> Path:
    return _translations_file(folder, name).with_suffix(".json")


def _stored_translations(folder: Path, name: str) -> list[str] | None:
    file = _translations_file(folder, name)
    return [str(row.prediction) for row in predictions.read_predictions(file)] if file.is_file() else None


def _read_decoding_info(folder: Path, name: str) -> DecodingInfo | None:
    try:
        return DecodingInfo(**json.loads(_decoding_file(folder, name).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def _finish(partial: PartialResults, decoding_files: Mapping[Path, DecodingInfo]) -> None:
    """Publish translations and their decoding info, so that no interruption leaves info of other translations."""
    for file in decoding_files:
        file.unlink(missing_ok=True)
    partial.finish()
    for file, decoding in decoding_files.items():
        write_json(file, asdict(decoding))


def _translator_digest(folder: Path) -> str:
    return xxhash.xxh3_64_hexdigest((folder / TRANSLATOR_INFO.name).read_bytes())
