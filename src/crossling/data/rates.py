"""How often each language or corpus of some shards is drawn, and how long what is drawn will be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from crossling.data.shards import Bitext, Shards
from crossling.errors import BadInput, nearest
from crossling.sampling import MOST, Pair, Sampling


def rates(shards: Shards, stream: str, sampling: Sampling) -> dict[str, float]:
    """The probability of each language (`sw`) or of each corpus in a language pair (`opus en-sw`)."""
    check_focus(shards, sampling)
    if stream == "text":
        return sampling.of_text({language: entry["tokens"] for language, entry in shards.manifest["text"].items()})
    counts = pair_counts(shards, sampling.pivot)
    shares = sampling.of_pairs(counts)
    # Inside a language pair the corpora are drawn by their size.
    return {
        group_name(b): shares[pair] * b.pairs / counts[pair]
        for b in shards.bitexts
        if counts.get(pair := unordered(b.languages))
    }


def group_name(bitext: Bitext) -> str:
    """Of one corpus in one language pair: `opus en-sw`."""
    return f"{bitext.corpus} {'-'.join(bitext.languages)}"


def pair_counts(shards: Shards, pivot: str | None = None) -> dict[Pair, int]:
    """Translation pairs of every two languages, all corpora together; with a pivot, only those that contain it."""
    counts: Counter[Pair] = Counter()
    for bitext in shards.bitexts:
        counts[unordered(bitext.languages)] += bitext.pairs
    if pivot == MOST and counts:
        pivot = most_paired(counts)
    return {pair: n for pair, n in counts.items() if pivot is None or pivot in pair}


def most_paired(counts: Mapping[Pair, int]) -> str:
    """The language with the most pairs, of equals the first by name."""
    pairs: Counter[str] = Counter()
    for pair, n in counts.items():
        pairs.update(dict.fromkeys(pair, n))
    return min(pairs, key=lambda language: (-pairs[language], language))


def check_focus(shards: Shards, sampling: Sampling) -> None:
    """A language in focus must be there, in text or in pairs."""
    there = {language for language, entry in shards.manifest["text"].items() if entry["tokens"]}
    there |= {language for bitext in shards.bitexts if bitext.pairs for language in bitext.languages}
    for language in sorted(sampling.focused - there):
        raise BadInput(f"{shards.path}: sampling.focus={language} is not in these shards{nearest(language, there)}")


def unordered(languages: tuple[str, str]) -> Pair:
    """The name of two languages in any order."""
    first, second = sorted(languages)
    return first, second
