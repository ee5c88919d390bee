"""Amounts of new text for each objective, and the number of times that a training reads it."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import islice

from crossling.adapt.adapt_settings import AdaptSettings
from crossling.adapt.prepare_text import PreparedText
from crossling.corpora.corpus import Corpora
from crossling.corpora.languages import parse_pair
from crossling.vocabulary.open_vocabulary import AnyVocabulary

SAMPLE_LINES = 2000
EXTENDED_FERTILITY = 2.0  # tokens per word after new entries: 1.8 to 2.2 were measured
MOST_SHORTENED = 0.5  # part of the tokens that new entries leave, at least


@dataclass(frozen=True, kw_only=True)
class Streams:
    """Amounts to sample so that the new text is read once. Replayed examples count, and tokens are estimated.

    Attributes:
        pairs: Translation pairs.
        pair_tokens: Tokens of these pairs.
        text_tokens: Tokens of text.
    """

    pairs: float
    pair_tokens: float
    text_tokens: float

    def passes(self, settings: AdaptSettings) -> dict[str, float]:
        """Return how often each stream is read."""
        amounts = {
            "xlco": ("pairs", settings.pairs, self.pairs),
            "tlm": ("pairs for TLM", settings.tlm_tokens, self.pair_tokens),
            "mlm": ("text for MLM", settings.tokens, self.text_tokens),
        }
        return {
            name: settings.steps * of_step / whole
            for objective, (name, of_step, whole) in amounts.items()
            if settings.has(objective) and whole
        }

    def describe(self, settings: AdaptSettings) -> str:
        """Return how often each stream is read, in words."""
        times = [f"{name} {number:.2g} times" for name, number in self.passes(settings).items()]
        return f"reads {', '.join(times)}" if times else "reads no new text"


def measure_streams(
    vocabulary: AnyVocabulary,
    new: PreparedText,
    focus: Collection[str],
    *,
    is_extended: bool,
    replay: PreparedText | None,
    replayed: float,
) -> Streams:
    """Return the streams of the languages in focus.

    Args:
        vocabulary: Vocabulary of the model.
        new: Text of the new languages.
        focus: Languages to learn.
        is_extended: The vocabulary gets new entries, so words of the focus have fewer tokens.
        replay: Text of the languages to keep.
        replayed: Part of the examples that are of this text.
    """

    def mean_tokens(language: str, lines: Iterable[str]) -> float:
        sample = list(islice(filter(None, lines), SAMPLE_LINES))
        tokens = sum(map(len, vocabulary.encode(sample))) if sample else 0
        if is_extended and language in focus:
            words = sum(len(line.split()) for line in sample)
            tokens = min(tokens, max(int(MOST_SHORTENED * tokens), int(EXTENDED_FERTILITY * words)))
        return tokens / max(1, len(sample)) + 1  # </s>

    corpora = Corpora(new.train)
    text = sum(
        new.lines[each.language] * mean_tokens(each.language, each.lines())
        for each in corpora.text
        if each.language in focus
    )
    sides: dict[str, float] = {}
    for bitext in corpora.pairs:
        for side, language in enumerate(bitext.languages):
            sides.setdefault(language, mean_tokens(language, (row[side] for row in bitext.rows())))
    for multi in corpora.multi:
        for language in multi.languages:
            sides.setdefault(language, mean_tokens(language, multi.lines(language)))
    counts = {pair: count for pair, count in new.pairs.items() if {*parse_pair(pair)} & {*focus}}
    tokens = sum(count * (1 + sum(sides[code] for code in parse_pair(pair))) for pair, count in counts.items())
    of_pairs = 1 - (replayed if replay is not None and any(replay.pairs.values()) else 0.0)
    of_text = 1 - (replayed if replay is not None and any(replay.lines.values()) else 0.0)
    share = {"pairs": max(of_pairs, 1e-6), "text": max(of_text, 1e-6)}
    return Streams(
        pairs=sum(counts.values()) / share["pairs"],
        pair_tokens=tokens / share["pairs"],
        text_tokens=text / share["text"],
    )
