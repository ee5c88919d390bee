"""Held-out sentences: benchmark candidates, excluded when training text has the same meaning.

Also the files of retrieval (Tatoeba) and gold word alignment, which known meaning makes exact.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count, islice
from math import ceil
from pathlib import Path
from typing import Generic, NamedTuple, Protocol, TypeVar

from crossling.core.errors import BadInput
from crossling.synthetic.documents import documents
from crossling.synthetic.frames import PRONOUN, Frame, is_name
from crossling.synthetic.language import SyntheticLanguage, Word, join_words
from crossling.synthetic.world import World


class GoldLink(NamedTuple):
    """Positions from 0; `sure` if both words are the content of one node, else a possible link."""

    source: int
    target: int
    sure: bool


def gold_links(source: list[Word], target: list[Word]) -> list[GoldLink]:
    """Return the gold word alignment of two renderings of one frame.

    Content words of one node are sure links. A function word is a possible link to the same feature on the other side,
    or to its content word if the other side has an affix or nothing. A dropped pronoun is linked to the verb.
    """
    found = {GoldLink(i, j, sure) for i, j, sure in _links_from(source, target)}
    found |= {GoldLink(j, i, sure) for i, j, sure in _links_from(target, source)}
    return sorted(found)


def _links_from(source: list[Word], target: list[Word]) -> list[GoldLink]:
    """Return the links of every word of `source`."""
    positions = {(word.node, word.feature): position for position, word in enumerate(target)}
    half = []
    for i, word in enumerate(source):
        j = positions.get((word.node, word.feature))
        if j is not None:
            half.append(GoldLink(i, j, sure=not word.feature))
        else:
            clause = "clause." if word.node.startswith("clause.") else ""
            carrier = positions.get((word.node, ""), positions[clause + "verb", ""])
            half.append(GoldLink(i, carrier, sure=False))
    return half


RETRIEVAL, ALIGNMENT = "retrieval", "alignment"
Pair = tuple[str, str]  # language codes
# The parts of every retrieval sentence: enough to identify it, while length and grammar do not.
RETRIEVAL_PARTS = ("verb", "agent", "agent.modifier", "patient", "patient.modifier", "time")
SPARE_FACTOR = 2  # candidates per requested sentence
MAX_TRIES = 1000  # samples per candidate before giving up
BATCH = 1000


@dataclass(frozen=True)
class Candidate:
    """A sentence that may be held out, rendered in all languages."""

    frame: Frame
    renderings: dict[str, list[Word]]

    @property
    def sentences(self) -> tuple[Candidate]:
        """The candidate as a group of one sentence."""
        return (self,)


class SentenceGroup(Protocol):
    """Sentences that are used together, such as a premise and its hypotheses."""

    @property
    def sentences(self) -> Sequence[Candidate]: ...


G = TypeVar("G", bound=SentenceGroup)


class HeldOut:
    """Registry of all candidates, and of those that occur in training data.

    No two groups have a sentence with the same content or the same rendering in any language. Sentences of one group
    have different renderings.
    """

    def __init__(self, codes: Sequence[str]) -> None:
        self._by_key: dict[tuple[tuple[str, str], ...], int] = {}
        self._by_text: dict[str, dict[str, int]] = {code: {} for code in codes}
        self._excluded: set[int] = set()
        self._groups = 0

    def gather(
        self, part: str, wanted: int, samples: Iterator[G | None], spare: float = SPARE_FACTOR
    ) -> CandidatePool[G]:
        """Collect candidates for a part of the benchmarks, with spares. Samples that are None are skipped."""
        many = ceil(spare * wanted)
        admitted: list[tuple[int, G]] = []
        for group in islice(samples, MAX_TRIES * many):
            if group is not None and self._admit(group):
                admitted.append((self._groups, group))
            if len(admitted) == many:
                break
        return CandidatePool(part, wanted, admitted, self._excluded)

    def has_content(self, frame: Frame) -> bool:
        """Return whether a candidate has this content."""
        return frame.key() in self._by_key

    def add_training_frame(self, frame: Frame) -> None:
        """Exclude candidates with the content of a training sentence."""
        group = self._by_key.get(frame.key())
        if group is not None:
            self._excluded.add(group)

    def add_training_text(self, code: str, sentence: str) -> None:
        """Exclude candidates with the text of a training sentence, also by ambiguity or noise."""
        group = self._by_text[code].get(sentence)
        if group is not None:
            self._excluded.add(group)

    def _admit(self, group: SentenceGroup) -> bool:
        texts = [(code, join_words(words)) for one in group.sentences for code, words in one.renderings.items()]
        keys = {one.frame.key() for one in group.sentences}
        if len(set(texts)) < len(texts) or any(sentence in self._by_text[code] for code, sentence in texts):
            return False
        if any(key in self._by_key for key in keys):
            return False
        self._groups += 1
        self._by_key |= dict.fromkeys(keys, self._groups)
        for code, sentence in texts:
            self._by_text[code][sentence] = self._groups
        return True


@dataclass(frozen=True)
class CandidatePool(Generic[G]):
    """The numbered candidates of one part of the benchmarks."""

    part: str
    wanted: int
    candidates: list[tuple[int, G]]
    excluded: set[int]

    def remaining(self) -> list[G]:
        """Return the requested candidates that are not in training data. Call it after all text is written."""
        left = [group for number, group in self.candidates if number not in self.excluded]
        if len(left) < self.wanted:
            raise BadInput(
                f"synth: only {len(left)} of {self.wanted} candidates for {self.part} are not in the training data. "
                "Request fewer sentences or examples, or more lemmas."
            )
        return left[: self.wanted]


def endless_documents(world: World, seed: int, part: str) -> Iterator[list[Frame]]:
    """Yield documents without end for one named part of the benchmarks."""
    for batch in count():
        yield from documents(world, seed, f"{part}/{batch}", BATCH)


class HeldOutSentences:
    """Single sentences of documents, for retrieval and word alignment."""

    def __init__(self, world: World, languages: list[SyntheticLanguage], seed: int, heldout: HeldOut) -> None:
        self.world, self.languages, self.seed, self.heldout = world, languages, seed, heldout
        self._rng = random.Random(f"{seed}/heldout")

    def gather(self, part: str, wanted: int) -> CandidatePool[Candidate]:
        return self.heldout.gather(part, wanted, self._samples(part))

    def _samples(self, part: str) -> Iterator[Candidate | None]:
        for document in endless_documents(self.world, self.seed, part):
            for sampled in document:
                frame = FIT[part](sampled)
                if frame is None or self.heldout.has_content(frame):
                    yield None
                else:
                    yield Candidate(frame, {one.code: one.render(frame, self._rng) for one in self.languages})


def _for_retrieval(frame: Frame) -> Frame | None:
    """Return the frame in plain grammar if it has exactly the retrieval parts, without names and pronouns.

    If tense, number, negation or modality differed, function words and affixes would identify a sentence. A model could
    then find translations without the meaning of any word.
    """
    concepts = frame.concepts()
    if tuple(concepts) != RETRIEVAL_PARTS or frame.patient is None:
        return None
    if any(concept == PRONOUN or is_name(concept) for concept in concepts.values()):
        return None
    agent, patient = (replace(entity, plural=False, definite=False) for entity in (frame.agent, frame.patient))
    return replace(frame, agent=agent, patient=patient, tense="past", negated=False, modality=None)


def _for_alignment(frame: Frame) -> Frame | None:
    return frame if len(frame.concepts()) >= 4 else None


FIT: dict[str, Callable[[Frame], Frame | None]] = {RETRIEVAL: _for_retrieval, ALIGNMENT: _for_alignment}


def write_retrieval(folder: Path, pairs: list[Pair], sentences: list[Candidate]) -> None:
    """Write two line-aligned files per pair to v1/, and the translation of each side to translated/CODE/."""
    for pair in pairs:
        for code, other in (pair, pair[::-1]):
            lines = "".join(join_words(one.renderings[code]) + "\n" for one in sentences)
            name = f"tatoeba.{pair[0]}-{pair[1]}"
            for path in (folder / "v1" / f"{name}.{code}", folder / "translated" / code / f"{name}.{other}"):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(lines, encoding="utf-8", newline="\n")


def write_alignment(folder: Path, pairs: list[Pair], sentences: list[Candidate]) -> None:
    """Write `source words ||| target words`, and the links of each line to a gold file, counted from 1.

    `i-j` is a sure link and `ipj` a possible one. A sure link is also possible and is not repeated.
    """
    for source, target in pairs:
        name = f"{source}-{target}"
        texts, gold = [], []
        for one in sentences:
            left, right = one.renderings[source], one.renderings[target]
            texts.append(f"{join_words(left)} ||| {join_words(right)}\n")
            marks = [f"{i + 1}{'-' if sure else 'p'}{j + 1}" for i, j, sure in gold_links(left, right)]
            gold.append(" ".join(marks) + "\n")
        (folder / name).mkdir(parents=True)
        (folder / name / f"{name}.src-tgt").write_text("".join(texts), encoding="utf-8", newline="\n")
        (folder / name / f"{name}.gold").write_text("".join(gold), encoding="utf-8", newline="\n")
