"""A vocabulary from another: as it is, with more pieces, or with those that are needed only.

Pieces keep their strings and their order, so that embeddings can follow them. What was done to text before it was cut
stays what it was: the rules of the original are kept, odd ones too.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import models
from transformers import AutoTokenizer

from crossling.corpora.corpus import Corpora
from crossling.errors import BadInput
from crossling.hub import TOKENIZER, model_folder
from crossling.progress import Progress
from crossling.vocabulary import normalise, unigram
from crossling.vocabulary.unigram import Scores
from crossling.vocabulary.vocabulary import SPECIAL, UNK, Vocabulary

# New pieces get the probabilities they would have if this part of all text were in the new languages. With more,
# they also change how the old ones are written; with less, the new ones fall back to old pieces.
SHARE = 0.02


# ---- as it is ------------------------------------------------------------------------------------------------


def reuse(model: Path | str) -> Vocabulary:
    """The vocabulary of a VOCAB folder, a run, a Hugging Face folder or a hub name, every id as it is there."""
    for folder in (Path(model), Path(model) / "vocab"):
        if (folder / "sentencepiece.model").is_file():
            return Vocabulary.load(folder)
    return _converted(_backend(model), model)


def check_tokenizer(folder: Path, name: Path | str) -> None:
    """Of a folder with none of these files `transformers` makes a tokenizer that knows nothing but special tokens."""
    if not any(any(folder.glob(file)) for file in ("tokenizer.json", "vocab.txt", "vocab.json", "*.model")):
        raise BadInput(f"{name}: no tokenizer here (expected tokenizer.json); give a folder that has one")


def _backend(model: Path | str) -> dict[str, Any]:
    """What `transformers` makes of it: tokenizer.json, or a file of SentencePiece with the ids of its kind."""
    folder = model_folder(model, TOKENIZER)
    check_tokenizer(folder, model)
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        found: dict[str, Any] = json.loads(tokenizer.backend_tokenizer.to_str())
    except Exception as error:  # each kind of tokenizer has its own errors
        raise BadInput(f"{model}: transformers finds no tokenizer here ({_first_line(error)})") from None
    return found


def _converted(backend: dict[str, Any], model: Path | str) -> Vocabulary:
    kind = backend["model"]["type"]
    if kind != "Unigram":
        raise BadInput(
            f"{model}: its tokenizer is of the kind {kind}; only unigram vocabularies of SentencePiece can be reused"
        )
    entries = {piece: float(score) for piece, score in backend["model"]["vocab"]}
    added = sorted((token["id"], token["content"]) for token in backend["added_tokens"])
    entries |= {token: 0.0 for _, token in added if token not in entries}
    pieces = list(entries)
    if (*pieces[:4], *pieces[-1:]) != SPECIAL or backend["model"]["unk_id"] != UNK:
        raise BadInput(
            f"{model}: the special pieces must be {', '.join(SPECIAL[:4])} first and <mask> last, as in XLM-R,"
            f" found {', '.join(pieces[:4])} and {''.join(pieces[-1:])}; train a vocabulary instead"
        )
    rules, name = _rules(backend["normalizer"], model)
    return Vocabulary.of({piece: entries[piece] for piece in pieces[4:-1]}, rules, name)


def _rules(normalizer: dict[str, Any] | None, model: Path | str) -> tuple[bytes, str]:
    """The compiled rules of SentencePiece in a chain of normalizers, and whose they are."""
    chain = (normalizer["normalizers"] if normalizer["type"] == "Sequence" else [normalizer]) if normalizer else []
    kinds = [step["type"] for step in chain]
    if strange := sorted({*kinds} - {"NFKC", "Precompiled", "Replace", "Strip"}):
        raise BadInput(f"{model}: its tokenizer changes text by {', '.join(strange)}, which SentencePiece cannot do")
    name = normalise.NAME if kinds[:1] == ["NFKC"] else "nmt_nfkc"
    maps = [base64.b64decode(step["precompiled_charsmap"]) for step in chain if step["type"] == "Precompiled"]
    return (maps[0] if maps else b""), name


# ---- with more pieces ----------------------------------------------------------------------------------------


def extend(old: Vocabulary, lines: Sequence[str], size: int, threads: int = 1, odd: Iterable[str] = ()) -> Vocabulary:
    """`size` pieces in all: the old ones, then those with which the lines get shortest.

    Clusters of letters and marks that are `odd` get their rules, where the rules are ours.
    """
    room = size - old.size
    if room <= 0:
        raise BadInput(f"--size {size}: there are {old.size} pieces already; give a larger --size to add some")
    new = _candidates(old, lines, room, threads)
    cut = models.Unigram([*((piece, 0.0) for piece in SPECIAL[:4]), *old.scores.items()], unk_id=UNK)

    def saved(piece: str) -> float:
        """Of all pieces, the part that this one saves; unknown characters, which come first, save most."""
        if len(piece) == 1:
            return math.inf
        tokens = cut.tokenize(piece)
        length = len(piece) if any(token.id == UNK for token in tokens) else len(tokens)
        return math.exp(new[piece]) * (length - 1)

    best = sorted(new, key=lambda piece: (-saved(piece), piece))[:room]
    scores = {piece: unigram.exact(new[piece] + math.log(SHARE)) for piece in best}
    rules = normalise.character_map(odd, old.rules) if old.rules_name == normalise.NAME else old.rules
    return Vocabulary.of(old.scores | scores, rules, old.rules_name)


def _candidates(old: Vocabulary, lines: Sequence[str], room: int, threads: int) -> Scores:
    """At least `room` pieces of a vocabulary of the lines alone that are not among the old, and not many more."""
    text = old.normalised(lines)
    size = room
    while True:
        try:
            own = unigram.train(text, size, threads, at_most=True)
        except unigram.DoesNotFit:  # not even its characters: most of them are known already
            own = {}
        new = {piece: score for piece, score in own.items() if piece not in old.scores}
        if len(new) >= room:
            return new
        if (own and len(own) < size) or size > sum(map(len, text)):
            raise BadInput(
                f"the text yields {len(new)} new pieces: give --size {old.size + len(new)} or less, or more text"
            )
        size += max(room - len(new), size // 4)


# ---- with those that are needed only -------------------------------------------------------------------------


def trim(old: Vocabulary, corpora: Corpora, size: int | None = None) -> Vocabulary:
    """Only the pieces in which the corpora are written, which changes nothing about how; at most `size`, the most used.

    All characters of those pieces stay. So does the piece with the lowest score, by which an unknown character is
    weighed.
    """
    counts = dict(zip(old.scores, _used(old, corpora)[UNK + 1 : -1].tolist(), strict=True))
    used = [piece for piece, count in counts.items() if count]
    kept = {character for piece in used for character in piece if character in counts}
    kept.add(min(old.scores, key=lambda piece: old.scores[piece]))
    room = len(used) if size is None else size - len(SPECIAL) - len(kept)
    if room < 0:
        raise BadInput(
            f"--size {size} is too small: the characters of this text alone need {len(kept) + len(SPECIAL)}; give that"
            " or more"
        )
    kept.update(sorted((piece for piece in used if piece not in kept), key=lambda piece: -counts[piece])[:room])
    return Vocabulary.of({p: score for p, score in old.scores.items() if p in kept}, old.rules, old.rules_name)


def _used(vocabulary: Vocabulary, corpora: Corpora) -> np.ndarray:
    """How often each id is used in all of the corpora."""
    counts = np.zeros(vocabulary.size, dtype=np.int64)
    with Progress("trim", len(corpora.languages)) as progress:
        for done, language in enumerate(corpora.languages, start=1):
            counts += vocabulary.counts(corpora.lines(language))
            progress.update(done, language)
    return counts


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
