"""What the pieces of a new vocabulary were in an old one, so that embeddings can follow them.

A piece that was there is itself. Any other is what the old vocabulary cuts it into, as the beginning of a word or as
what follows inside one, whichever it is. Of such a cut a space that stands alone is left out, and so is what was
unknown: neither says anything about the piece, and many pieces would begin as one.
"""

from __future__ import annotations

from collections.abc import Sequence

from tokenizers import models
from transformers import PreTrainedTokenizerFast

from crossling.vocabulary.vocabulary import Vocabulary

SPACES = ("▁", "Ġ")  # of SentencePiece and of byte-level vocabularies
CARRIER = "a"  # put before what is not the beginning of a word, and taken off again


def origins(old: Vocabulary | PreTrainedTokenizerFast, new: Vocabulary) -> list[list[int]]:
    """For each id of the new vocabulary the old ids whose mean its embedding starts from; none where the old vocabulary
    has nothing like it.

    The old one may be of any kind that `tokenizers` knows: unigram, WordPiece, byte-level pairs.
    """
    fast = old.tokenizer() if isinstance(old, Vocabulary) else old
    special = [fast.cls_token_id, fast.pad_token_id, fast.sep_token_id, fast.unk_token_id, fast.mask_token_id]
    *first, mask = [[] if number is None else [number] for number in special]
    cut = _Cut(fast)
    return [*first, *map(cut, new.scores), mask]


class _Cut:
    """The old ids of a piece."""

    def __init__(self, fast: PreTrainedTokenizerFast) -> None:
        self.backend = fast.backend_tokenizer
        self.begin = self.inside = self.backend.model
        known = self.backend.get_vocab(with_added_tokens=False)
        special = set(fast.all_special_tokens)
        self.known_begin = self.known_inside = {p: i for p, i in known.items() if p not in special}
        if isinstance(self.begin, models.WordPiece):
            self.known_inside, self.inside = _continuing(self.begin, known)
        self.marks_words = isinstance(self.begin, models.Unigram)  # pieces are written as ours
        self.nothing = {fast.unk_token_id, *(known[space] for space in SPACES if space in known)}
        [self.carrier] = self._words(CARRIER)

    def __call__(self, piece: str) -> list[int]:
        if self.marks_words and piece in self.known_begin:
            return [self.known_begin[piece]]
        text = piece.replace("▁", " ")
        rest, words = (None, self._words(text)) if text.startswith(" ") else self._apart(text)
        ids = _ids(rest, self.known_inside, self.inside) if rest else []
        for word in words:
            ids += _ids(word, self.known_begin, self.begin)
        return [number for number in ids if number not in self.nothing]

    def _apart(self, text: str) -> tuple[str | None, Sequence[str]]:
        """What goes on with the word before, and the words that follow it (punctuation, or letters that each stand for
        themselves, may go on with none)."""
        first, *words = self._words(CARRIER + text)
        if not first.startswith(self.carrier):  # a mark that became one with the letter before
            return None, self._words(text)
        return first.removeprefix(self.carrier), words

    def _words(self, text: str) -> list[str]:
        if self.backend.normalizer is not None:
            text = self.backend.normalizer.normalize_str(text)
        if self.backend.pre_tokenizer is None:
            return [text]
        return [word for word, _ in self.backend.pre_tokenizer.pre_tokenize_str(text)]


def _ids(word: str, known: dict[str, int], model: models.Model) -> list[int]:
    return [known[word]] if word in known else [token.id for token in model.tokenize(word)]


def _continuing(model: models.WordPiece, known: dict[str, int]) -> tuple[dict[str, int], models.WordPiece]:
    """A model that begins as WordPiece goes on: its ##pieces are also what a word may begin with."""
    prefix = model.continuing_subword_prefix
    later = {piece: number for piece, number in known.items() if piece.startswith(prefix)}
    begins = {piece.removeprefix(prefix): number for piece, number in later.items()}
    unknown = {model.unk_token: known[model.unk_token]}
    return begins, models.WordPiece(
        begins | later | unknown,
        unk_token=model.unk_token,
        continuing_subword_prefix=prefix,
        max_input_chars_per_word=model.max_input_chars_per_word,
    )
