"""Vocabularies derived from another one: loaded unchanged, extended with subwords, or trimmed to those in use.

Subwords keep their strings and their order, so that embeddings can be copied. The normalization rules of the original
are kept as well.
"""

from __future__ import annotations

import base64
import json
import math
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import models
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from crossling.bundled import resolve_model
from crossling.core.errors import BadInput, first_line
from crossling.core.hub import TOKENIZER_FILES, get_model_folder, quiet_transformers
from crossling.core.progress import print_status
from crossling.vocabulary import text_normalization, unigram
from crossling.vocabulary.unigram import SubwordScores
from crossling.vocabulary.vocabulary import SPECIAL, UNK, Vocabulary, check_special_tokens

# Part of all text that is assumed to be in the new languages, for the probabilities of new subwords. A larger value
# changes the segmentation of the old languages. A smaller one segments the new languages into old subwords.
NEW_TEXT_PROPORTION = 0.02


# ---- load ----------------------------------------------------------------------------------------------------


def load_vocabulary(model: str | os.PathLike[str]) -> Vocabulary:
    """Load the vocabulary of a vocabulary folder, a run, a Hugging Face folder or a hub name, with unchanged ids."""
    for folder in (Path(model), Path(model) / "vocab"):
        if (folder / "sentencepiece.model").is_file():
            return Vocabulary.load(folder)
    name = os.fspath(model)
    return _convert(_load_backend(name), name)


def check_tokenizer(folder: Path, name: str | Path) -> None:
    """Raise BadInput if a folder has no tokenizer files.

    `transformers` would create a tokenizer that knows special tokens only.
    """
    if not any(any(folder.glob(file)) for file in ("tokenizer.json", "vocab.txt", "vocab.json", "*.model")):
        raise BadInput(f"{name}: no tokenizer (expected tokenizer.json). Give a folder that has one.")


def _load_backend(model: str) -> dict[str, Any]:
    """Return the JSON form of the fast tokenizer, which `transformers` converts from SentencePiece if necessary."""
    folder = get_model_folder(resolve_model(model), TOKENIZER_FILES)
    check_tokenizer(folder, model)
    try:
        with quiet_transformers():  # it does not know our type of model unless the model package is imported
            tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        backend: dict[str, Any] = json.loads(tokenizer.backend_tokenizer.to_str())
    except Exception as error:  # each type of tokenizer raises its own errors
        reason = first_line(error)
        raise BadInput(f"{model}: transformers cannot load the tokenizer ({reason}). Give another model.") from None
    return backend


def _convert(backend: dict[str, Any], model: str) -> Vocabulary:
    kind = backend["model"]["type"]
    if kind != "Unigram":
        raise BadInput(f"{model}: {kind} tokenizer, expected a unigram vocabulary of SentencePiece. Train one instead.")
    scores = {subword: float(score) for subword, score in backend["model"]["vocab"]}
    added = sorted((token["id"], token["content"]) for token in backend["added_tokens"])
    scores |= {token: 0.0 for _, token in added if token not in scores}
    entries = list(scores)
    check_special_tokens(entries, model, "Train a vocabulary instead.")
    if (unk_id := backend["model"]["unk_id"]) != UNK:
        raise BadInput(f"{model}: id {unk_id} for unknown text, expected {UNK}. Train a vocabulary instead.")
    charsmap, name = _read_charsmap(backend["normalizer"], model)
    return Vocabulary.from_scores({entry: scores[entry] for entry in entries[4:-1]}, charsmap, name)


def _read_charsmap(normalizer: dict[str, Any] | None, model: str) -> tuple[bytes, str]:
    """Return the compiled rules of SentencePiece in a chain of normalizers, and the name of the rules."""
    chain = (normalizer["normalizers"] if normalizer["type"] == "Sequence" else [normalizer]) if normalizer else []
    kinds = [step["type"] for step in chain]
    if unsupported := sorted({*kinds} - {"NFKC", "Precompiled", "Replace", "Strip"}):
        raise BadInput(
            f"{model}: its tokenizer normalizes text with {', '.join(unsupported)}, which SentencePiece cannot do."
            " Train a vocabulary instead."
        )
    name = text_normalization.NAME if kinds[:1] == ["NFKC"] else "nmt_nfkc"
    charsmaps = [base64.b64decode(step["precompiled_charsmap"]) for step in chain if step["type"] == "Precompiled"]
    return (charsmaps[0] if charsmaps else b""), name


# ---- extend --------------------------------------------------------------------------------------------------


def extend(
    old: Vocabulary, lines: Sequence[str], size: int, *, threads: int = 1, clusters: Iterable[str] = ()
) -> Vocabulary:
    """Add the subwords that shorten the segmentation of the lines most.

    Args:
        old: Vocabulary to extend.
        lines: Text of the new languages.
        size: Number of vocabulary entries afterwards.
        threads: Threads of SentencePiece.
        clusters: Letters with marks that need a normalization rule. Ignored if the rules are not our own.

    Returns:
        The old entries, then the new ones.
    """
    number = size - old.size
    if number <= 0:
        raise BadInput(f"size {size}: the vocabulary already has {old.size} entries. Give a larger size.")
    new = _train_candidates(old, lines, number, threads)
    model = models.Unigram([*((token, 0.0) for token in SPECIAL[:4]), *old.scores.items()], unk_id=UNK)

    def tokens_saved(subword: str) -> float:
        """Return the part of all tokens that this subword saves. Unknown characters come first."""
        if len(subword) == 1:
            return math.inf
        tokens = model.tokenize(subword)
        length = len(subword) if any(token.id == UNK for token in tokens) else len(tokens)
        return math.exp(new[subword]) * (length - 1)

    best = sorted(new, key=lambda subword: (-tokens_saved(subword), subword))[:number]
    scores = {subword: unigram.round_score(new[subword] + math.log(NEW_TEXT_PROPORTION)) for subword in best}
    is_own = old.normalizer_name == text_normalization.NAME
    charsmap = text_normalization.build_charsmap(clusters, old.charsmap) if is_own else old.charsmap
    return Vocabulary.from_scores(old.scores | scores, charsmap, old.normalizer_name)


def _train_candidates(old: Vocabulary, lines: Sequence[str], number: int, threads: int) -> SubwordScores:
    """Train a vocabulary of the lines alone that has at least `number` subwords beside the old ones.

    Most of its subwords may be old ones. At first their number is taken to be that of the old subwords in use, so that
    one training is usually enough: SentencePiece takes nearly as long for a small vocabulary as for a large one.
    """
    text = old.normalize(lines)
    size = number + int(np.count_nonzero(old.count_tokens(lines)))
    while True:
        print_status(f"vocabulary: training {size:,} candidates on {sum(map(len, text)):,} characters")
        try:
            trained = unigram.train(text, size, threads, at_most=True)
        except unigram.UnattainableSize:  # too small for its characters, most of which are known already
            trained = {}
        new = {subword: score for subword, score in trained.items() if subword not in old.scores}
        if len(new) >= number:
            return new
        if (trained and len(trained) < size) or size > sum(map(len, text)):
            raise BadInput(
                f"the text yields {len(new)} new subwords. Give size {old.size + len(new)} or less, or more text."
            )
        size += max(2 * (number - len(new)), size // 2)


# ---- trim ----------------------------------------------------------------------------------------------------


def trim(old: Vocabulary, token_counts: np.ndarray, size: int | None = None) -> Vocabulary:
    """Keep the subwords that a text uses, which leaves its segmentation unchanged; the `size` most frequent ones.

    All characters of these subwords are kept. So is the subword with the lowest score, which determines the score of an
    unknown character.
    """
    counts = dict(zip(old.scores, token_counts[UNK + 1 : -1].tolist(), strict=True))
    used = [subword for subword, count in counts.items() if count]
    kept = {character for subword in used for character in subword if character in counts}
    kept.add(min(old.scores, key=lambda subword: old.scores[subword]))
    number = len(used) if size is None else size - len(SPECIAL) - len(kept)
    if number < 0:
        raise BadInput(
            f"size {size} is too small: the characters of this text alone need {len(kept) + len(SPECIAL)} entries."
            " Give that size or more."
        )
    others = sorted((subword for subword in used if subword not in kept), key=lambda subword: -counts[subword])
    kept.update(others[:number])
    scores = {subword: score for subword, score in old.scores.items() if subword in kept}
    return Vocabulary.from_scores(scores, old.charsmap, old.normalizer_name)


# Mapping from the subwords of a new vocabulary to token ids of an old one, to initialize embeddings.
#
# A subword of the old vocabulary maps to itself. A new one maps to the tokens into which the old tokenizer splits it,
# at the start of a word or inside one. Single spaces and unknown tokens are dropped: they carry no information, and
# many subwords would get the same embedding.


SPACES = ("▁", "Ġ")  # of SentencePiece and of byte-level vocabularies
CARRIER = "a"  # letter put before a subword that does not start a word, and removed afterwards


def map_tokens(old: Vocabulary | PreTrainedTokenizerFast, new: Vocabulary) -> list[list[int]]:
    """Return, for each id of the new vocabulary, the old ids whose mean initializes its embedding.

    The list is empty if the old vocabulary has no similar token. The old tokenizer may be of any type that `tokenizers`
    supports: unigram, WordPiece, byte-level BPE.
    """
    fast = old.tokenizer() if isinstance(old, Vocabulary) else old
    special = [fast.cls_token_id, fast.pad_token_id, fast.sep_token_id, fast.unk_token_id, fast.mask_token_id]
    *first, mask = [[] if number is None else [number] for number in special]
    mapper = _SubwordMapper(fast)
    return [*first, *map(mapper.old_ids, new.scores), mask]


class _SubwordMapper:
    def __init__(self, fast: PreTrainedTokenizerFast) -> None:
        self.backend = fast.backend_tokenizer
        self.start_model = self.inside_model = self.backend.model
        ids = self.backend.get_vocab(with_added_tokens=False)
        special = set(fast.all_special_tokens)
        self.start_ids = self.inside_ids = {token: number for token, number in ids.items() if token not in special}
        if isinstance(self.start_model, models.WordPiece):
            self.inside_ids, self.inside_model = _continuation_model(self.start_model, ids)
        self.is_unigram = isinstance(self.start_model, models.Unigram)  # spelled as our subwords are
        self.dropped_ids = {fast.unk_token_id, *(ids[space] for space in SPACES if space in ids)}
        [self.carrier] = self._split_words(CARRIER)

    def old_ids(self, subword: str) -> list[int]:
        if self.is_unigram and subword in self.start_ids:
            return [self.start_ids[subword]]
        text = subword.replace("▁", " ")
        rest, words = (None, self._split_words(text)) if text.startswith(" ") else self._split_continuation(text)
        ids = _tokenize_word(rest, self.inside_ids, self.inside_model) if rest else []
        for word in words:
            ids += _tokenize_word(word, self.start_ids, self.start_model)
        return [number for number in ids if number not in self.dropped_ids]

    def _split_continuation(self, text: str) -> tuple[str | None, Sequence[str]]:
        """Return the part that continues the word before, and the words after it.

        Punctuation, and letters that are words of their own, continue no word.
        """
        first, *words = self._split_words(CARRIER + text)
        if not first.startswith(self.carrier):  # a mark that was composed with the carrier
            return None, self._split_words(text)
        return first.removeprefix(self.carrier), words

    def _split_words(self, text: str) -> list[str]:
        if self.backend.normalizer is not None:
            text = self.backend.normalizer.normalize_str(text)
        if self.backend.pre_tokenizer is None:
            return [text]
        return [word for word, _ in self.backend.pre_tokenizer.pre_tokenize_str(text)]


def _tokenize_word(word: str, ids: dict[str, int], model: models.Model) -> list[int]:
    return [ids[word]] if word in ids else [token.id for token in model.tokenize(word)]


def _continuation_model(model: models.WordPiece, ids: dict[str, int]) -> tuple[dict[str, int], models.WordPiece]:
    """Return a model for the inside of words: tokens such as ##ing may also be its first token."""
    prefix = model.continuing_subword_prefix
    later = {token: number for token, number in ids.items() if token.startswith(prefix)}
    first = {token.removeprefix(prefix): number for token, number in later.items()}
    unknown = {model.unk_token: ids[model.unk_token]}
    return first, models.WordPiece(
        first | later | unknown,
        unk_token=model.unk_token,
        continuing_subword_prefix=prefix,
        max_input_chars_per_word=model.max_input_chars_per_word,
    )
