"""Training of unigram subwords with SentencePiece."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import sentencepiece
from sentencepiece import sentencepiece_model_pb2 as proto

from crossling.core.progress import track
from crossling.corpora.corpus import Corpora
from crossling.sampling.marginals import temperature_sampling
from crossling.vocabulary.text_normalization import unnormalized_clusters

SAMPLE_CHARACTERS = 40_000_000  # Size of the sample, all languages together.
CHARACTERS_PER_ENTRY = 1250  # Least size of the sample of VoCap: 40 million at 32,000 entries, 625 million at 500,000.
MAX_LINE_CHARACTERS = 4096  # The cost of SentencePiece grows with the square of a long word.
EXCERPT_LINES = 1000  # Lines of each language in the report, up to twice as many.


@dataclass(frozen=True)
class TextStatistics:
    """Statistics of corpora: one pass over all of their text."""

    characters: dict[str, int]  # by language
    excerpts: dict[str, list[str]]  # by language, lines at equal distances
    unnormalized_clusters: frozenset[str]  # letters with marks that need a normalization rule

    def proportions(self, alpha: float) -> dict[str, float]:
        """Return the exponent-smoothed sampling probability of each language."""
        return temperature_sampling(self.characters, alpha)


def collect_statistics(corpora: Corpora) -> TextStatistics:
    """Read all text once and collect its statistics."""
    characters: dict[str, int] = {}
    excerpts: dict[str, list[str]] = {}
    clusters: set[str] = set()
    for language in track("read", corpora.languages):
        excerpt = _Excerpt(EXCERPT_LINES)
        characters[language] = 0
        for line in corpora.lines(language):
            characters[language] += len(line)
            clusters |= unnormalized_clusters(line)
            excerpt.add(line[:MAX_LINE_CHARACTERS])
        excerpts[language] = excerpt.lines
    return TextStatistics(characters, excerpts, frozenset(clusters))


def sample_lines(
    corpora: Corpora, characters: Mapping[str, int], *, alpha: float, budget: int = SAMPLE_CHARACTERS, seed: int = 0
) -> dict[str, list[str]]:
    """Sample lines of each language with exponent-smoothed probabilities.

    A line is kept with the probability of its language. A language smaller than its part of the budget is kept whole.

    Args:
        corpora: Text to sample from.
        characters: Number of characters of each language.
        alpha: Exponent that smooths the sampling probabilities.
        budget: Approximate number of characters to sample, all languages together.
        seed: Seed of the sample.

    Returns:
        The lines by language.
    """
    proportions = temperature_sampling(characters, alpha)
    sample = {}
    for index, language in enumerate(track("sample", corpora.languages)):
        probability = min(1.0, budget * proportions[language] / max(1, characters[language]))
        rng = np.random.default_rng([seed, index])
        lines = corpora.lines(language)
        kept = lines if probability == 1.0 else (line for line in lines if rng.random() < probability)
        sample[language] = [line[:MAX_LINE_CHARACTERS] for line in kept]
    return sample


def join_languages(sample: Mapping[str, Iterable[str]]) -> list[str]:
    """Return the lines of all languages in one list."""
    return [line for lines in sample.values() for line in lines]


class _Excerpt:
    """Lines at equal distances: all at first, then every second, every fourth. At least `count`, fewer than twice that.

    The stride doubles whenever the list is full.
    """

    def __init__(self, count: int) -> None:
        self.count, self.position, self.stride = count, 0, 1
        self.lines: list[str] = []

    def add(self, line: str) -> None:
        if self.position % self.stride == 0:
            self.lines.append(line)
            if len(self.lines) == 2 * self.count:
                self.lines, self.stride = self.lines[::2], 2 * self.stride
        self.position += 1


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
