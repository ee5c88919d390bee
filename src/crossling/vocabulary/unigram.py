"""SentencePiece's trainer: lines in, pieces with their log probabilities out."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable

import numpy as np
import sentencepiece
from sentencepiece import sentencepiece_model_pb2 as proto

from crossling.vocabulary.sample import LONGEST

COVERAGE = 0.9995  # of all characters in the text; the rest, rare ones, get no piece
Scores = dict[str, float]  # log probability by piece


class DoesNotFit(Exception):
    """No vocabulary of this size can be made of this text; says what the text does instead."""


def train(lines: Iterable[str], size: int, threads: int = 1, at_most: bool = False) -> Scores:
    """`size` pieces beside the special ones; with `at_most` as many as the text yields, where those are fewer.

    The lines should be in NFKC where text will be; SentencePiece's own rules are applied to them here.
    """
    stream = io.BytesIO()
    listed = list(lines)
    # In another order: SentencePiece looks at every repeated stretch of the whole, line ends included, and a passage
    # that comes twice (the same English beside French and beside German) would keep it for hours.
    order = np.random.default_rng(0).permutation(len(listed)).tolist()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=(listed[place] for place in order),
            model_writer=stream,
            model_type="unigram",
            vocab_size=size + 3,  # <unk>, <s> and </s>
            character_coverage=COVERAGE,
            hard_vocab_limit=not at_most,
            num_threads=threads,
            max_sentence_length=LONGEST * 4,
            input_sentence_size=0,
            minloglevel=2,
        )
    except RuntimeError as error:
        raise DoesNotFit(_remedy(error)) from None
    model = proto.ModelProto()
    model.ParseFromString(stream.getvalue())
    return {p.piece: exact(p.score) for p in model.pieces if p.type == proto.ModelProto.SentencePiece.NORMAL}


def exact(score: float) -> float:
    """A score near this one whose sums are exact, up to some 30,000 pieces in a line.

    SentencePiece adds scores in 32 bits over a line, `tokenizers` in 64 over a word. Of two segmentations that are
    equally good (`.` `...` and `...` `.`) each would take another by its rounding, were there any to do.
    """
    return round(score * 64) / 64


def _remedy(error: RuntimeError) -> str:
    """SentencePiece's messages carry source file, line, the failed condition, and sizes without two special pieces."""
    if found := re.search(r"required_chars\. \d+ vs (\d+)", str(error)):
        return f"needs {int(found[1]) + 2} or more for its characters alone: give a larger --size"
    if found := re.search(r"set it to a value <= (\d+)", str(error)):
        return f"yields {int(found[1]) + 2} at most: give a smaller --size or more text"
    return "is refused by SentencePiece: give another --size or more text"
