"""`crossling vocab`: train a vocabulary or derive it from another one, and report on it per language."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import overload

import numpy as np

from crossling.core.errors import BadInput, suggestion
from crossling.core.jobs import Share
from crossling.core.locks import lock_file, output_lock
from crossling.corpora.corpus import Corpora, open_corpora
from crossling.corpora.languages import canonical_code
from crossling.vocabulary import text_normalization, vocap
from crossling.vocabulary.fast_vocabulary import FastVocabulary
from crossling.vocabulary.open_vocabulary import open_vocabulary
from crossling.vocabulary.text_sample import (
    CHARACTERS_PER_ENTRY,
    SAMPLE_CHARACTERS,
    SampleSettings,
    TextSample,
    sample_corpora,
)
from crossling.vocabulary.vocabulary import SPECIAL, Vocabulary, check_vocabulary_folder, read_report

EXTENSION_CHARACTERS = 5_000_000  # of the sample that new subwords are trained on
ALLOCATIONS = ("joint", "vocap")
CACHE = ".vocap"  # folder beside the vocabulary with the curves of each language


@overload
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
    focus: Sequence[str] = (),
    trim: bool = False,
) -> Vocabulary | FastVocabulary: ...


@overload
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
    focus: Sequence[str] = (),
    trim: bool = False,
    share: Share | None,
) -> Vocabulary | FastVocabulary | None: ...


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
    focus: Sequence[str] = (),
    trim: bool = False,
    share: Share | None = None,
) -> Vocabulary | FastVocabulary | None:
    """Make a vocabulary and write it to a folder, with a report per language in vocab.json.

    Trains on a sample of the corpora, or starts from the vocabulary `from_`: unchanged, extended or trimmed. Reads the
    text once. An interrupted call resumes.

    Args:
        corpora: Text of all languages, or its folder.
        out: Folder to write.
        size: Number of vocabulary entries, special tokens included. None to keep or trim `from_`.
        alpha: Exponent that smooths the sampling probabilities of the languages.
        seed: Seed of the sample.
        allocate: "joint" trains one vocabulary on all languages [default]. "vocap" allocates vocabulary capacity to
            each language by its average log probability.
        beta: Exponent of the language proportion in VoCap.
        characters: Size of the training sample [default: 40 million; for VoCap 1,250 for each entry if that is more; to
            extend 5 million].
        workers: Processes that read text, then threads (VoCap: processes) that train.
        from_: Vocabulary folder, run folder, Hugging Face folder or name on the hub to start from (option `--from`).
        extend: Add subwords for these corpora to `from_`, up to `size`.
        focus: With `extend`, add subwords of these languages only. [default: of all languages of the corpora]
        trim: Keep only the subwords of `from_` that these corpora use, at most `size`.
        share: Read only this share of the text. All machines use the same `out`; the last one to finish trains.

    Returns:
        The vocabulary, or None if another share is missing.

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
        characters = EXTENSION_CHARACTERS if extend else characters
    _check_numbers(alpha, beta, characters)
    _check_options(size, allocate, from_, extend=extend, trim=trim)
    focus = _check_focus(focus, corpora, extend)
    settings = {
        **{"size": size, "alpha": alpha, "seed": seed, "allocate": allocate or "joint", "beta": beta},
        **{"characters": characters, "from": str(from_) if from_ else None, "extend": extend, "trim": trim},
        **({"focus": [*focus]} if focus else {}),
    }
    _check_earlier(out, settings)
    with output_lock(out, share.label if share else ""):
        from crossling.vocabulary import reuse_vocabulary  # it imports transformers

        base = None if from_ is None else _load_base(from_, extend or trim)
        work = out.with_name(f".{out.name}.partial")
        sampling = SampleSettings(characters, alpha, seed)
        counted = base if trim and isinstance(base, Vocabulary) else None
        sample = sample_corpora(corpora, work, sampling, workers=workers, share=share, counted=counted)
        if sample is None:
            return None
        with lock_file(work / "training.lock", wait=False) as is_alone:  # two machines may finish at once
            if not is_alone:
                return None
            entries = size or 0  # never 0 where it is used
            allocation = None
            vocabulary: Vocabulary | FastVocabulary
            if isinstance(base, FastVocabulary):
                vocabulary = base
            elif base is not None and extend:
                clusters = sample.unnormalized_clusters
                new_lines = sample.lines_of(focus)
                vocabulary = reuse_vocabulary.extend(base, new_lines, entries, threads=workers, clusters=clusters)
            elif base is not None:
                vocabulary = reuse_vocabulary.trim(base, sample.token_counts, size) if trim else base
            elif allocate != "vocap":
                vocabulary = Vocabulary.from_sample(sample, entries, threads=workers, where=corpora.path)
            else:
                proportions, cache = sample.proportions(alpha), out.parent / CACHE
                allocation = vocap.allocate_capacity(
                    sample.lines, proportions, entries - len(SPECIAL), cache=cache, beta=beta, workers=workers
                )
                charsmap = text_normalization.build_charsmap(sample.unnormalized_clusters)
                vocabulary = Vocabulary.from_scores(allocation.scores, charsmap)
            _save(vocabulary, out, sample, allocation, settings)
            shutil.rmtree(work)
    return vocabulary


def _load_base(source: str | os.PathLike[str], is_changed: bool) -> Vocabulary | FastVocabulary:
    """Open the vocabulary to start from. Only a unigram vocabulary can be extended or trimmed."""
    from crossling.vocabulary.reuse_vocabulary import load_vocabulary

    return load_vocabulary(source) if is_changed else open_vocabulary(source)


def _save(
    vocabulary: Vocabulary | FastVocabulary,
    out: Path,
    sample: TextSample,
    allocation: vocap.Allocation | None,
    settings: Mapping[str, object],
) -> None:
    languages = describe_languages(vocabulary, sample.excerpts)
    if allocation is not None:
        for language, number in allocation.sizes.items():
            languages[language] |= {"allocated": number, "alp": allocation.alp[language]}
    vocabulary.save(out, {"size": vocabulary.size, "settings": settings, "languages": languages})


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


def _check_focus(focus: Sequence[str], corpora: Corpora, is_extended: bool) -> list[str]:
    """Return the canonical codes of the languages in focus."""
    codes = [canonical_code(code) for code in focus]
    if codes and not is_extended:
        raise BadInput(f"focus={','.join(codes)}: only to extend a vocabulary. Set extend, or omit it.")
    for code in codes:
        if code not in corpora.languages:
            raise BadInput(f"focus={code}: {corpora.path} has no text of it{suggestion(code, corpora.languages)}")
    return codes


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
