"""Held-out sentences: benchmark candidates, excluded when training text has the same meaning.

Also the files of retrieval (Tatoeba) and gold word alignment, which known meaning makes exact.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count, islice
from math import ceil
from pathlib import Path
from typing import Generic, NamedTuple, Protocol, TypeVar

from crossling.core.errors import BadInput
from crossling.synthetic.frames import PRONOUN, Frame, is_name
from crossling.synthetic.language import Candidate, LanguageFamily, Word


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
    backward = {GoldLink(j, i, sure) for i, j, sure in _links_from(target, source)}
    return sorted(backward.union(_links_from(source, target)))


def _links_from(source: list[Word], target: list[Word]) -> Iterator[GoldLink]:
    """Yield the links of every word of `source`."""
    positions = {(word.node, word.feature): position for position, word in enumerate(target)}
    for i, word in enumerate(source):
        j = positions.get((word.node, word.feature))
        if j is not None:
            yield GoldLink(i, j, sure=not word.feature)
        else:
            clause = "clause." if word.node.startswith("clause.") else ""
            yield GoldLink(i, positions.get((word.node, ""), positions[clause + "verb", ""]), sure=False)


RETRIEVAL, ALIGNMENT = "retrieval", "alignment"
Pair = tuple[str, str]  # language codes
# The parts of every retrieval sentence: enough to identify it, while length and grammar do not.
RETRIEVAL_PARTS = ("verb", "agent", "agent.modifier", "patient", "patient.modifier", "time")
SPARE_FACTOR = 2  # candidates per requested sentence
MAX_TRIES = 1000  # samples per candidate before giving up
BATCH = 1000


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
        self._excluded: set[int | None] = set()  # None: training data that is no candidate
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
        self._excluded.add(self._by_key.get(frame.key()))

    def add_training_text(self, code: str, sentence: str) -> None:
        """Exclude candidates with the text of a training sentence, also by ambiguity or noise."""
        self._excluded.add(self._by_text[code].get(sentence))

    def _admit(self, group: SentenceGroup) -> bool:
        texts = [(code, one.text(code)) for one in group.sentences for code in one.renderings]
        keys = {one.frame.key() for one in group.sentences}
        if len(set(texts)) < len(texts) or any(sentence in self._by_text[code] for code, sentence in texts):
            return False
        if any(key in self._by_key for key in keys):  # `isdisjoint` would iterate over all of them
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
    excluded: set[int | None]

    def remaining(self) -> list[G]:
        """Return the requested candidates that are not in training data. Call it after all text is written."""
        left = [group for number, group in self.candidates if number not in self.excluded]
        if len(left) < self.wanted:
            raise BadInput(
                f"synth: only {len(left)} of {self.wanted} candidates for {self.part} are not in the training data. "
                "Request fewer sentences or examples, or more lemmas."
            )
        return left[: self.wanted]


def endless_frames(family: LanguageFamily, part: str) -> Iterator[Frame]:
    """Yield the sentences of documents without end for one named part of the benchmarks."""
    for document in endless_documents(family, part):
        yield from document


def endless_documents(family: LanguageFamily, part: str) -> Iterator[list[Frame]]:
    """Yield documents without end for one named part of the benchmarks."""
    for batch in count():
        yield from family.documents(f"{part}/{batch}", BATCH)


def gather_pools(family: LanguageFamily, heldout: HeldOut, wanted: Mapping[str, int]) -> list[CandidatePool[Candidate]]:
    """Collect single sentences for retrieval and word alignment: `wanted` has the number of each part."""
    rng = random.Random(f"{family.seed}/heldout")

    def samples(part: str) -> Iterator[Candidate | None]:
        for sampled in endless_frames(family, part):
            frame = FIT[part](sampled)
            yield None if frame is None or heldout.has_content(frame) else family.render(frame, rng)

    return [heldout.gather(part, number, samples(part)) for part, number in wanted.items()]


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
            lines = "".join(one.text(code) + "\n" for one in sentences)
            name = f"tatoeba.{pair[0]}-{pair[1]}"
            write_text(folder / "v1" / f"{name}.{code}", lines)
            write_text(folder / "translated" / code / f"{name}.{other}", lines)


def write_alignment(folder: Path, pairs: list[Pair], sentences: list[Candidate]) -> None:
    """Write `source words ||| target words`, and the links of each line to a gold file, counted from 1.

    `i-j` is a sure link and `ipj` a possible one. A sure link is also possible and is not repeated.
    """
    for source, target in pairs:
        name = f"{source}-{target}"
        texts, gold = "", ""
        for one in sentences:
            links = gold_links(one.renderings[source], one.renderings[target])
            texts += f"{one.text(source)} ||| {one.text(target)}\n"
            gold += " ".join(f"{i + 1}{'-' if sure else 'p'}{j + 1}" for i, j, sure in links) + "\n"
        write_text(folder / name / f"{name}.src-tgt", texts)
        write_text(folder / name / f"{name}.gold", gold)


def write_text(path: Path, content: str) -> None:
    """Write a file and create its folder. Lines end in a line feed on every system."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content, encoding="utf-8", newline="\n")
