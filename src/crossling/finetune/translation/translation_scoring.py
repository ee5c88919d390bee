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
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

from crossling.core.distributed import is_main_process
from crossling.core.errors import BadInput, suggestion
from crossling.core.files import write_json
from crossling.core.progress import Progress
from crossling.finetune.finetune_scoring import ResumableScores, predictions_file, score_predictions, score_seeds
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
from crossling.model.fingerprint import stored_fingerprint
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

    weights: str  # fingerprint of the translator's weights
    text: str  # fingerprint of sources and references
    beam: int
    length_penalty: float

    @property
    def description(self) -> str:
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
            return rescore_stored(seed, data, text, languages)
        return score_translator_seed(seed, data, text, languages, out=seed_out)

    return score_seeds(TRANSLATOR_INFO, folder, out, score_seed)


def check_translator(model: str | os.PathLike[str], data: Path) -> None:
    """Refuse a model that is no translator."""
    if not TRANSLATOR_INFO.exists(Path(model)):
        raise BadInput(
            f"{model}: {TRANSLATION} needs a translator. Train and score one with crossling finetune {model}"
            f" --task {TRANSLATION} --directions LL-LL --data {data} -o MT"
        )
    check_sacrebleu(target_languages(parse_directions(TRANSLATOR_INFO.read(Path(model)).directions)))


def find_test_sets(
    data: Path, directions: Sequence[Direction], text: ParallelText | None, languages: Sequence[str] | None = None
) -> list[ScoredSet]:
    """Return the test sets by name and direction, or the dev sets if there are none.

    Args:
        data: Folder of parallel text.
        directions: Directions of the translator.
        text: Contents of the folder, if it was read before.
        languages: Directions to return, or languages that are one side of them. [default: all]
    """
    text = text or read_parallel_text(data, directions, ("dev", "test"))
    splits = text.tests if any(text.tests.values()) else {DEV: text.dev}
    found = [ScoredSet(split, direction, pairs) for split, part in splits.items() for direction, pairs in part.items()]
    if not found:
        names = ", ".join(map(str, directions))
        raise BadInput(f"{data}: no test or dev set for {names}. Add test.LL or dev.LL of both languages.")
    if languages is None:
        return found
    known = language_names(str(each.direction) for each in found)
    requested = {normalize_language(language, known) for language in languages}
    for language in requested - known:
        raise BadInput(f"{data}: no test set of {language!r}{suggestion(language, known)}")
    return [each for each in found if language_names([str(each.direction)]) & requested]


def score_translator_seed(
    folder: Path,
    data: Path,
    text: ParallelText | None = None,
    languages: Sequence[str] | None = None,
    *,
    out: Path | None = None,
    beam: int = DEFAULT_BEAM,
    length_penalty: float = 1.0,
    reuse: bool = False,
) -> list[ScoreRow]:
    """Score one translator on the test sets of its directions, or on the dev sets if there are none.

    Args:
        folder: Folder of the translator.
        data: Folder of parallel text.
        text: Contents of `data`, if it was read before.
        languages: Directions to score, or languages that are one side of them. [default: all]
        out: Write translations to this folder, and resume an interrupted evaluation.
        beam: Beam size.
        length_penalty: Exponent of the length in the beam search.
        reuse: Use stored translations of the same text by the same translator and beam search.
    """
    info = TRANSLATOR_INFO.read(folder)
    sets = find_test_sets(data, parse_directions(info.directions), text, languages)
    weights = stored_fingerprint(folder)
    description = {"translator": asdict(info), "weights": weights, "beam": beam, "length_penalty": length_penalty}
    results, decodings = ResumableScores(out, TRANSLATION, description), dict[str, DecodingInfo]()
    load_translator = cache(partial(Translator.load, folder))

    def score(test_set: ScoredSet, decoding: DecodingInfo, place: Path | None) -> list[ScoreRow]:
        is_stored = reuse and _read_decoding_info(folder, test_set.name) == decoding
        translations = _stored_translations(folder, test_set.name) if is_stored else None
        if translations is None:
            translations = load_translator().translate(
                [source for source, _ in test_set.pairs],
                test_set.direction.target,
                beam=beam,
                length_penalty=length_penalty,
                on_progress=progress.advance,
            )
        return score_direction(info, test_set, translations, decoding, place)

    sentences = sum(len(test_set.pairs) for test_set in sets)
    with Progress(f"score {TRANSLATION} {folder.name}", sentences, enabled=is_main_process()) as progress:
        for test_set in sets:
            before = progress.done
            decoding = DecodingInfo(weights, pairs_fingerprint(test_set.pairs), beam, length_penalty)
            results.add(test_set.name, decoding.text, partial(score, test_set, decoding))
            decodings[test_set.name] = decoding
            progress.advance(before + len(test_set.pairs) - progress.done, f"{test_set.split} {test_set.direction}")
    if results.partial:
        _finish(results.partial, decodings)
    return results.rows


def rescore_stored(
    folder: Path, data: Path, text: ParallelText | None = None, languages: Sequence[str] | None = None
) -> list[ScoreRow]:
    """Score stored translations without running the translator. Skip test sets without any."""
    info, weights = TRANSLATOR_INFO.read(folder), stored_fingerprint(folder)
    rows: list[ScoreRow] = []
    for test_set in find_test_sets(data, parse_directions(info.directions), text, languages):
        translations, decoding = _stored_translations(folder, test_set.name), _read_decoding_info(folder, test_set.name)
        if translations is None:
            warnings.warn(
                f"{folder}: no stored translations of {test_set.split} {test_set.direction}; skipped", stacklevel=3
            )
            continue
        if decoding is None or (decoding.weights, decoding.text) != (weights, pairs_fingerprint(test_set.pairs)):
            raise BadInput(
                f"{predictions_file(folder, TRANSLATION, test_set.name)}: these are not this model's translations of"
                f" {test_set.split} in {data}. Run without recompute."
            )
        rows += score_direction(info, test_set, translations, decoding)
    if not rows:
        raise BadInput(f"{folder}: no stored translations. Run once without recompute.")
    return rows


def score_direction(
    info: TranslatorInfo,
    test_set: ScoredSet,
    translations: Sequence[str],
    decoding: DecodingInfo,
    out: Path | None = None,
) -> list[ScoreRow]:
    """Return the scores of one direction, and write the translations to `out`."""
    split, direction, pairs = test_set
    return score_predictions(
        TRANSLATION_METRICS,
        [target for _, target in pairs],
        translations,
        ids=[str(row) for row in range(len(pairs))],
        text_language=direction.target,
        out=out,
        model=info.model,
        task=TRANSLATION,
        language=str(direction),
        setting=info.init,
        seed=info.seed,
        split=split,
        selected_on_test=split == DEV or None,
        tuned=f"{info.description}, {decoding.description}",
        signature=lambda metric: metric_signature(metric, direction.target),
    )


# ---- stored translations ------------------------------------------------------------------------------------


def _decoding_file(folder: Path, name: str) -> Path:
    return predictions_file(folder, TRANSLATION, name).with_suffix(".json")


def _stored_translations(folder: Path, name: str) -> list[str] | None:
    file = predictions_file(folder, TRANSLATION, name)
    return [str(row.prediction) for row in predictions.read_predictions(file)] if file.is_file() else None


def _read_decoding_info(folder: Path, name: str) -> DecodingInfo | None:
    try:
        return DecodingInfo(**json.loads(_decoding_file(folder, name).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def _finish(partial: PartialResults, decodings: Mapping[str, DecodingInfo]) -> None:
    """Publish translations and their decoding info, so that no interruption leaves info of other translations."""
    files = {_decoding_file(partial.results, name): decoding for name, decoding in decodings.items()}
    for file in files:
        file.unlink(missing_ok=True)
    partial.finish()
    for file, decoding in files.items():
        write_json(file, asdict(decoding))
