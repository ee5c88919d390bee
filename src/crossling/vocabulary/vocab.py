"""`crossling vocab`: a vocabulary for corpora, trained or made from another, and its report."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from crossling.corpora.corpus import Corpora
from crossling.errors import BadInput, nearest
from crossling.vocabulary import normalise, reuse, vocap
from crossling.vocabulary.report import describe
from crossling.vocabulary.sample import CHARACTERS, joined, smoothed_sample, survey
from crossling.vocabulary.vocabulary import SPECIAL, Vocabulary, check_place

ALLOCATIONS = ("joint", "vocap")
CACHE = ".vocap"  # beside the vocabulary: what was measured of each language


def vocab(
    corpora: Corpora,
    size: int | None,
    out: Path,
    alpha: float = 0.5,
    seed: int = 0,
    *,
    allocate: str | None = None,
    beta: float = 0.7,
    characters: int = CHARACTERS,
    workers: int = 2,
    source: Path | str | None = None,
    extend: bool = False,
    trim: bool = False,
) -> Vocabulary:
    """Make a vocabulary and write it with its report: pieces, coverage and fertility per language.

    Trained on a sample of `characters` with exponent `alpha`: `joint`ly (the default), or by `vocap` with `beta`. Or
    taken from `source`: as it is, `extend`ed for these corpora, or `trim`med to what they use.
    """
    out = Path(out)
    check_place(out)  # before the long part, too
    out.parent.mkdir(parents=True, exist_ok=True)
    _check_numbers(alpha, beta, characters)
    _check_choice(size, allocate, source, extend, trim)
    made = {
        **{"size": size, "alpha": alpha, "seed": seed, "allocate": allocate or "joint", "beta": beta},
        **{"characters": characters, "from": str(source) if source else None, "extend": extend, "trim": trim},
    }
    _check_earlier(out, made)
    pieces = size or 0  # there, wherever it is needed
    base = reuse.reuse(source) if source is not None else None
    seen = survey(corpora)
    columns: dict[str, dict[str, float]] = {}
    if base is None and allocate == "vocap":
        sample = smoothed_sample(corpora, seen.characters, alpha, characters, seed)
        found = vocap.vocap(sample, seen.shares(alpha), pieces - len(SPECIAL), out.parent / CACHE, beta, workers)
        vocabulary = Vocabulary.of(found.scores, normalise.character_map(seen.odd))
        columns = {language: {"allocated": n, "alp": found.alp[language]} for language, n in found.sizes.items()}
    elif base is None:
        vocabulary = Vocabulary.train(corpora, pieces, alpha, characters, seed, workers, seen)
    elif extend:
        sample = smoothed_sample(corpora, seen.characters, alpha, characters, seed)
        vocabulary = reuse.extend(base, joined(sample), pieces, workers, seen.odd)
    else:
        vocabulary = reuse.trim(base, corpora, size) if trim else base
    rows = describe(vocabulary, seen.excerpts)
    languages = {language: row | columns.get(language, {}) for language, row in rows.items()}
    vocabulary.save(out, {"size": vocabulary.size, "made": made, "languages": languages})
    return vocabulary


def _check_earlier(out: Path, made: Mapping[str, object]) -> None:
    """An earlier vocabulary is replaced by one made in the same way (of other text, say), and by no other."""
    file = out / "vocab.json"
    if not file.is_file():
        return
    try:
        earlier = json.loads(file.read_text(encoding="utf-8")).get("made")
    except (ValueError, AttributeError):
        earlier = None
    if earlier != made:
        raise BadInput(f"{out}: holds a vocabulary that was made otherwise; give another -o folder, or remove it")


def _check_numbers(alpha: float, beta: float, characters: int) -> None:
    if not 0 <= alpha <= 1:
        raise BadInput(f"--alpha {alpha}: expected a number from 0 (all languages alike) to 1 (as much as there is)")
    if not beta >= 0:
        raise BadInput(f"--beta {beta}: expected a number from 0 (all languages alike) up")
    if characters < 1:
        raise BadInput(f"--characters {characters}: expected a number from 1 up")


def _check_choice(size: int | None, allocate: str | None, source: Path | str | None, extend: bool, trim: bool) -> None:
    if allocate not in (None, *ALLOCATIONS):
        raise BadInput(f"--allocate {allocate}: there is no such way{nearest(allocate, ALLOCATIONS)}")
    if source is None:
        if extend or trim:
            raise BadInput(f"{'--extend' if extend else '--trim'} changes another vocabulary: say which with --from")
        if size is None:
            raise BadInput("--size is missing: training needs the number of pieces, for instance --size 32000")
        return
    if allocate is not None:
        raise BadInput(f"--allocate {allocate} is a way to train, and --from trains nothing: leave one of them out")
    if extend and trim:
        raise BadInput("--extend and --trim cannot go together: do one, and the other with --from its result")
    if extend and size is None:
        raise BadInput("--size is missing: --extend needs the number of pieces that there shall be in all")
    if size is not None and not extend and not trim:
        raise BadInput("--size goes with --extend or --trim: --from alone takes a vocabulary as large as it is")
