"""Sentences to hold out, and training text without them: equal sentences and near-duplicates are removed.

Two sentences are near-duplicates if their plain forms have at least 80% of their character trigrams in common. The
search is exact: of any 21% of the trigrams of a held-out sentence, a near-duplicate has at least one. So only its
rarest trigrams are indexed.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

import xxhash

from crossling.cleaning.plain_text import plain_form

SIMILARITY = 0.8  # least Jaccard index of the trigrams of near-duplicates
MIN_TRIGRAMS = 8  # shorter sentences are removed only if they are equal


def content_key(*texts: str) -> int:
    """Return a number by which rows are chosen at random, the same wherever the row stands."""
    return xxhash.xxh3_64_intdigest("\t".join(texts).encode())


def smallest_keys(keys: Iterable[int], number: int) -> set[int]:
    """Return the smallest `number` distinct keys."""
    return set(sorted(set(keys))[:number])


class HeldOutIndex:
    """Held-out sentences, to find training text that is equal or nearly equal to one of them.

    Args:
        sentences: All held-out sentences, of any language.

    Example:
        >>> "The white house." in HeldOutIndex(["the white house"])
        True
    """

    def __init__(self, sentences: Iterable[str]) -> None:
        self.forms = {form for sentence in sentences if (form := plain_form(sentence))}
        self.trigrams: list[frozenset[str]] = []
        frequencies = Counter(trigram for form in self.forms for trigram in _trigrams(form))
        self.found_by: defaultdict[str, list[int]] = defaultdict(list)
        for form in sorted(self.forms):
            trigrams = _trigrams(form)
            if len(trigrams) < MIN_TRIGRAMS:
                continue
            rare_first = sorted(trigrams, key=lambda trigram: (frequencies[trigram], trigram))
            for trigram in rare_first[: math.floor((1 - SIMILARITY) * len(trigrams) + 1e-9) + 1]:
                self.found_by[trigram].append(len(self.trigrams))
            self.trigrams.append(trigrams)

    def __contains__(self, sentence: str) -> bool:
        form = plain_form(sentence)
        if form in self.forms:
            return True
        trigrams = _trigrams(form)
        if len(trigrams) < MIN_TRIGRAMS:
            return False
        candidates = {number for trigram in trigrams for number in self.found_by.get(trigram, ())}
        return any(_jaccard(trigrams, self.trigrams[number]) >= SIMILARITY for number in candidates)

    def has_any(self, sentences: Sequence[str]) -> bool:
        """Return True if one of the sentences is a held-out one, or nearly."""
        return any(sentence and sentence in self for sentence in sentences)


def _trigrams(form: str) -> frozenset[str]:
    return frozenset(form[start : start + 3] for start in range(len(form) - 2))


def _jaccard(one: frozenset[str], other: frozenset[str]) -> float:
    common = len(one & other)
    return common / (len(one) + len(other) - common)
