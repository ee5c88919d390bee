"""Training of unigram subwords with SentencePiece."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable

import numpy as np
import sentencepiece
from sentencepiece import sentencepiece_model_pb2 as proto

from crossling.vocabulary.text_sample import MAX_LINE_CHARACTERS

CHARACTER_COVERAGE = 0.9995  # part of the characters in the text that become subwords; the rest are rare
SubwordScores = dict[str, float]  # log probability by subword


class UnattainableSize(Exception):
    """Raised if a text yields no vocabulary of the requested size. The message names the limit and the fix."""


def train(lines: Iterable[str], size: int, threads: int = 1, *, at_most: bool = False) -> SubwordScores:
    """Train `size` subwords, not counting special tokens.

    Args:
        lines: Text, in NFKC if the text to encode will be. SentencePiece applies its own rules in addition.
        size: Number of subwords.
        threads: Threads of SentencePiece.
        at_most: Return fewer subwords if the text yields fewer.

    Returns:
        The log probability of each subword.
    """
    stream = io.BytesIO()
    text = list(lines)
    # Shuffled: SentencePiece examines every repeated substring of the whole text, across line ends. A passage that
    # occurs twice (the same English beside French and beside German) would take hours.
    order = np.random.default_rng(0).permutation(len(text)).tolist()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=(text[index] for index in order),
            model_writer=stream,
            model_type="unigram",
            vocab_size=size + 3,  # <unk>, <s> and </s>
            character_coverage=CHARACTER_COVERAGE,
            hard_vocab_limit=not at_most,
            num_threads=threads,
            max_sentence_length=MAX_LINE_CHARACTERS * 4,
            input_sentence_size=0,
            minloglevel=2,
        )
    except RuntimeError as error:
        raise UnattainableSize(_explain(error)) from None
    model = proto.ModelProto()
    model.ParseFromString(stream.getvalue())
    normal = proto.ModelProto.SentencePiece.NORMAL
    return {entry.piece: round_score(entry.score) for entry in model.pieces if entry.type == normal}


def round_score(score: float) -> float:
    """Round a score to 1/64, so that sums of up to about 30,000 scores are exact.

    SentencePiece adds scores in 32 bits over a line, `tokenizers` in 64 bits over a word. With rounding errors, they
    would choose different segmentations among equally good ones (`.` `...` and `...` `.`).
    """
    return round(score * 64) / 64


def _explain(error: RuntimeError) -> str:
    """Translate a message of SentencePiece, whose sizes lack two special tokens."""
    if match := re.search(r"required_chars\. \d+ vs (\d+)", str(error)):
        return f"Its characters alone need {int(match[1]) + 2} entries: give a larger size."
    if match := re.search(r"set it to a value <= (\d+)", str(error)):
        return f"It yields at most {int(match[1]) + 2} entries: give a smaller size or more text."
    return "SentencePiece refuses it: give another size or more text."
