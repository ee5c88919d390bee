"""`crossling vocab`: train a vocabulary or derive it from another one, and report on it per language."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path

import numpy as np

from crossling.core.errors import BadInput, suggestion
from crossling.core.locks import output_lock
from crossling.corpora.corpus import Corpora, open_corpora
from crossling.vocabulary import text_normalization, vocap
from crossling.vocabulary.fast_vocabulary import FastVocabulary
from crossling.vocabulary.open_vocabulary import open_vocabulary
from crossling.vocabulary.unigram import (
    CHARACTERS_PER_ENTRY,
    SAMPLE_CHARACTERS,
    collect_statistics,
    join_languages,
    sample_lines,
)
from crossling.vocabulary.vocabulary import SPECIAL, Vocabulary, check_vocabulary_folder, read_report

ALLOCATIONS = ("joint", "vocap")
CACHE = ".vocap"  # folder beside the vocabulary with the curves of each language


def vocab(
    corpora: Corpora | str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    size: int | None = None,
    alpha: float = 0.5,
    seed: int = 0,
    allocate: str | None = None,
    beta: float = 0.7,
    characters: int | None = None,
    workers: int = 2,
    from_: str | os.PathLike[str] | None = None,
    extend: bool = False,
    trim: bool = False,
) -> Vocabulary | FastVocabulary:
    """Make a vocabulary and write it to a folder, with a report per language in vocab.json.

    Trains on a sample of the corpora, or starts from the vocabulary `from_`: unchanged, extended or trimmed.

    Args:
        corpora: Text of all languages, or its folder.
        out: Folder to write.
        size: Number of vocabulary entries, special tokens included. None to keep or trim `from_`.
        alpha: Exponent that smooths the sampling probabilities of the languages.
        seed: Seed of the sample.
        allocate: "joint" trains one vocabulary on all languages [default]. "vocap" allocates vocabulary capacity to
            each language by its average log probability.
        beta: Exponent of the language proportion in VoCap.
        characters: Size of the training sample [default: 40 million; for VoCap 1,250 for each entry if that is more].
        workers: Processes (VoCap) or threads.
        from_: Vocabulary folder, run folder, Hugging Face folder or name on the hub to start from (option `--from`).
        extend: Add subwords for these corpora to `from_`, up to `size`.
        trim: Keep only the subwords of `from_` that these corpora use, at most `size`.

    Returns:
        The vocabulary.

    Raises:
        BadInput: If the options contradict each other, `out` holds anything else or is written by another process, or
            the text yields no such size.

    Example:
        >>> vocabulary = vocab("corpora", "vocab", size=32_000)
    """
    corpora, out = open_corpora(corpora), Path(out)
    check_vocabulary_folder(out)  # before the long computation, too
    out.parent.mkdir(parents=True, exist_ok=True)
    if characters is None:
        characters = max(SAMPLE_CHARACTERS, CHARACTERS_PER_ENTRY * (size or 0) if allocate == "vocap" else 0)
    _check_numbers(alpha, beta, characters)
    _check_options(size, allocate, from_, extend=extend, trim=trim)
    settings = {
        **{"size": size, "alpha": alpha, "seed": seed, "allocate": allocate or "joint", "beta": beta},
        **{"characters": characters, "from": str(from_) if from_ else None, "extend": extend, "trim": trim},
    }
    _check_earlier(out, settings)
    with output_lock(out):
        from crossling.vocabulary import reuse_vocabulary  # it imports transformers

        entries = size or 0  # never 0 where it is used
        base = None if from_ is None else _load_base(from_, extend or trim)
        statistics = collect_statistics(corpora)
        allocation = None
        vocabulary: Vocabulary | FastVocabulary
        if base is not None and not isinstance(base, Vocabulary):
            vocabulary = base
        elif base is not None and not extend:
            vocabulary = reuse_vocabulary.trim(base, corpora, size) if trim else base
        elif base is None and allocate != "vocap":
            options = {"characters": characters, "seed": seed, "threads": workers}
            vocabulary = Vocabulary.train(corpora, entries, alpha=alpha, statistics=statistics, **options)
        else:
            sample = sample_lines(corpora, statistics.characters, alpha=alpha, budget=characters, seed=seed)
            clusters = statistics.unnormalized_clusters
            if base is not None:
                lines = join_languages(sample)
                vocabulary = reuse_vocabulary.extend(base, lines, entries, threads=workers, clusters=clusters)
            else:
                cache, proportions = out.parent / CACHE, statistics.proportions(alpha)
                allocation = vocap.allocate_capacity(
                    sample, proportions, entries - len(SPECIAL), cache=cache, beta=beta, workers=workers
                )
                vocabulary = Vocabulary.from_scores(allocation.scores, text_normalization.build_charsmap(clusters))
        languages = describe_languages(vocabulary, statistics.excerpts)
        if allocation is not None:
            for language, number in allocation.sizes.items():
                languages[language] |= {"allocated": number, "alp": allocation.alp[language]}
        vocabulary.save(out, {"size": vocabulary.size, "settings": settings, "languages": languages})
    return vocabulary


def _load_base(source: str | os.PathLike[str], is_changed: bool) -> Vocabulary | FastVocabulary:
    """Open the vocabulary to start from. Only a unigram vocabulary can be extended or trimmed."""
    from crossling.vocabulary.reuse_vocabulary import load_vocabulary

    return load_vocabulary(source) if is_changed else open_vocabulary(source)


def _check_earlier(out: Path, settings: Mapping[str, object]) -> None:
    """Refuse to replace a vocabulary that was made with other settings. Other text is no reason to refuse."""
    try:
        report = read_report(out)
    except BadInput:  # unreadable or of an older format
        report = {}
    if report is not None and report.get("settings") != settings:
        raise BadInput(
            f"{out}: holds a vocabulary that was made with other settings. Give another output folder, or remove it."
        )


def _check_numbers(alpha: float, beta: float, characters: int) -> None:
    if not 0 <= alpha <= 1:
        raise BadInput(f"alpha={alpha}: expected a number from 0 (uniform) to 1 (proportional to the text).")
    if not beta >= 0:
        raise BadInput(f"beta={beta}: expected a number of at least 0 (uniform).")
    if characters < 1:
        raise BadInput(f"characters={characters}: expected a number of at least 1.")


def _check_options(
    size: int | None, allocate: str | None, source: str | os.PathLike[str] | None, *, extend: bool, trim: bool
) -> None:
    if allocate not in (None, *ALLOCATIONS):
        raise BadInput(f"allocate={allocate}: unknown allocation{suggestion(allocate, ALLOCATIONS)}")
    if source is None:
        if extend or trim:
            option = "extend" if extend else "trim"
            raise BadInput(f"{option}: no vocabulary to start from. Name it as `from` (in Python `from_`).")
        if size is None:
            raise BadInput(
                "size: missing. Training needs the number of vocabulary entries. Set for instance size=32000."
            )
        return
    if allocate is not None:
        raise BadInput(f"allocate={allocate}: only for training, and {source} is not trained. Omit one of them.")
    if extend and trim:
        raise BadInput("extend and trim: they exclude each other. Use one of them, then the other on its result.")
    if extend and size is None:
        raise BadInput("size: missing. Set the new number of entries to extend a vocabulary.")
    if size is not None and not extend and not trim:
        raise BadInput(f"size={size}: {source} is kept unchanged. Omit size, or set extend or trim.")


def describe_languages(
    vocabulary: Vocabulary | FastVocabulary, excerpts: Mapping[str, Sequence[str]]
) -> dict[str, dict[str, float]]:
    """Return a report row per language: subwords used, coverage, fertility and tokens per character.

    Coverage is the part of the tokens that are known, fertility the number of tokens per word. White space separates
    words, so fertility has no meaning for languages that write without it.
    """
    return {language: _describe(vocabulary, lines) for language, lines in excerpts.items()}


def _describe(vocabulary: Vocabulary | FastVocabulary, lines: Sequence[str]) -> dict[str, float]:
    ids = np.fromiter(chain.from_iterable(vocabulary.encode(lines)), dtype=np.int64)
    words = [word for line in lines for word in line.split()]
    return {
        "subwords": int(np.unique(ids).size),
        "coverage": round(float(np.count_nonzero(ids != vocabulary.special.unk)) / max(1, ids.size), 5),
        "fertility": round(ids.size / max(1, len(words)), 3),
        "per_character": round(ids.size / max(1, sum(map(len, words))), 3),
    }
