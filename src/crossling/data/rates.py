"""How often each language or corpus of some shards is drawn, and how long what is drawn will be."""

from __future__ import annotations

from crossling.data.shards import Shards
from crossling.sampling import Pair, Sampling


def rates(shards: Shards, stream: str, sampling: Sampling) -> dict[str, float]:
    """The probability of each language (`sw`) or of each corpus in a language pair (`opus en-sw`)."""
    if stream == "text":
        return sampling.of_text({language: entry["tokens"] for language, entry in shards.manifest["text"].items()})
    counts = pair_counts(shards, sampling.pivot)
    shares = sampling.of_pairs(counts)
    # Inside a language pair the corpora are drawn by their size.
    return {
        f"{b.corpus} {'-'.join(b.languages)}": shares[pair] * b.pairs / counts[pair]
        for b in shards.bitexts
        if counts.get(pair := unordered(b.languages))
    }


def pair_counts(shards: Shards, pivot: str | None = None) -> dict[Pair, int]:
    """Translation pairs of every two languages, all corpora together; with a pivot, only those that contain it."""
    counts: dict[Pair, int] = {}
    for bitext in shards.bitexts:
        if pivot is None or pivot in bitext.languages:
            pair = unordered(bitext.languages)
            counts[pair] = counts.get(pair, 0) + bitext.pairs
    return counts


def unordered(languages: tuple[str, str]) -> Pair:
    """The name of two languages in any order."""
    first, second = sorted(languages)
    return first, second
