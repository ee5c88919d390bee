"""Tagging in the layouts of XTREME (POS, NER), and parallel text for translation.

Line i of `train.CODE`, `dev.CODE` or `test.CODE` is the same sentence in every language. None of it is in the corpora.
"""

from __future__ import annotations

import random
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import replace

from crossling.synthetic.frames import PRONOUN, Entity, Frame, is_name
from crossling.synthetic.language import Candidate, Word
from crossling.synthetic.task_data import TRAIN, LabeledTask, SyntheticTask
from crossling.synthetic.world import World

MIN_CONCEPTS = 5  # per sentence: shorter ones often occur elsewhere too


class SentenceTask(SyntheticTask[Candidate]):
    """Single sentences of documents."""

    def sample_groups(self, split: str) -> Iterator[Candidate | None]:
        rng = self.family.rng(f"{self.name}/{split}")
        for frame in self.frames(split):
            fitting = self.fit(frame, split, rng) if len(frame.concepts()) >= MIN_CONCEPTS else None
            yield self.family.render(fitting, rng) if fitting else None

    def fit(self, frame: Frame, split: str, rng: random.Random) -> Frame | None:  # noqa: ARG002
        """Return the frame to use for a sampled sentence, or None."""
        return frame


class TranslationTask(SentenceTask):
    name = "translation"

    def files(self, split: str, groups: list[Candidate]) -> Iterator[tuple[str, str]]:
        for code in self.family.codes:
            yield f"{split}.{code}", "".join(f"{one.text(code)}\n" for one in groups)


_FUNCTION_WORDS = {
    "AUX": ("past", "future", "can", "must", "want", "singular-verb", "plural-verb"),
    "PART": ("negation", "plural"),
    "DET": ("definite", "indefinite"),
    "ADP": ("accusative", "dative", "in", "near", "to", "from"),
    "SCONJ": ("because", "when", "if", "that"),
}
TAG_OF_FEATURE = {feature: tag for tag, features in _FUNCTION_WORDS.items() for feature in features}
_TAG_OF_PART = {"verb": "VERB", "modifier": "ADJ", "count": "NUM", "time": "ADV", "manner": "ADV"}


def pos_tag(word: Word, concept: str) -> str:
    """Return the universal POS tag of a word with this concept."""
    if word.feature:
        return TAG_OF_FEATURE[word.feature]
    part = word.node.rpartition(".")[2]
    if part in _TAG_OF_PART:
        return _TAG_OF_PART[part]
    if concept == PRONOUN:
        return "PRON"
    return "PROPN" if is_name(concept) else "NOUN"


PERSON, PLACE, ORGANISATION = "PER", "LOC", "ORG"
UNSEEN = 4  # one in four names is in no training sentence
TWO_WORDS = 0.5  # probability of a family name
ORGANISATION_PROBABILITY = 0.4  # that an organisation replaces a person as agent


def entity_type(entity: Entity) -> str:
    """Return PER, LOC, ORG or nothing. A thing with a name as modifier, such as goods of a town, is an organisation."""
    if entity.concept.startswith("name-"):
        return PERSON
    if entity.concept.startswith("town-"):
        return PLACE
    return ORGANISATION if entity.modifier and is_name(entity.modifier) else ""


def insert_names(frame: Frame, world: World, split: str, rng: random.Random) -> Frame:
    """Replace people, places and makers by names. The same word occurs in several entity types."""
    names = {
        kind: [name for rank, name in enumerate(members) if split != TRAIN or rank % UNSEEN]
        for kind, members in world.names.items()
    }

    def named(role: str, entity: Entity | None) -> Entity | None:
        if entity is None or entity.pronoun:
            return entity
        kind = world.class_of[entity.concept]
        if role == "agent" and (
            kind in ("goods", "tool") or (kind in ("person", "name") and rng.random() < ORGANISATION_PROBABILITY)
        ):
            bearer = rng.choice([*world.classes["goods"], *world.classes["tool"]])  # an organisation
            return Entity(bearer, definite=True, modifier=rng.choice(names[rng.choice(("name", "town"))]))
        if kind in ("person", "name"):
            first, last = rng.sample(names["name"], 2)
            return Entity(first, modifier=last if rng.random() < TWO_WORDS else None)
        return Entity(rng.choice(names["town"])) if role == "place" else entity

    clause = insert_names(frame.clause, world, split, rng) if frame.clause else None
    roles = {role: named(role, getattr(frame, role)) for role in ("agent", "patient", "recipient", "place")}
    return replace(frame, clause=clause, **roles)  # type: ignore[arg-type]


class TaggingTask(SentenceTask, LabeledTask[Candidate]):
    """Sentences of documents with a tag for every word."""

    def content(self, split: str, groups: list[Candidate], code: str, labeled: bool = True) -> str:  # noqa: ARG002
        written = ""
        for one in groups:
            words = one.renderings[code]
            tagged = zip(words, self.tags(one.frame, words), strict=True)
            written += "".join(word.text + f"\t{tag}" * labeled + "\n" for word, tag in tagged) + "\n"
        return written

    @abstractmethod
    def tags(self, frame: Frame, words: list[Word]) -> list[str]:
        """Return a tag for every word."""


class POSTask(TaggingTask):
    name = "udpos"

    def tags(self, frame: Frame, words: list[Word]) -> list[str]:
        concepts = frame.concepts()
        return [pos_tag(word, concepts.get(word.node, "")) for word in words]


class NERTask(TaggingTask):
    name = "panx"

    def fit(self, frame: Frame, split: str, rng: random.Random) -> Frame | None:
        named = insert_names(frame, self.family.world, split, rng)
        return named if any(_entity_types(named).values()) else None

    def tags(self, frame: Frame, words: list[Word]) -> list[str]:
        kinds = _entity_types(frame)
        tags: list[str] = []
        before = ""
        for word in words:
            node = word.node.removesuffix(".modifier")
            kind = "" if word.feature else kinds.get(node, "")
            tags.append(f"{'I' if node == before else 'B'}-{kind}" if kind else "O")
            before = node if kind else ""
        return tags


def _entity_types(frame: Frame, path: str = "") -> dict[str, str]:
    """Return the entity type by node."""
    found = {path + role: "" if entity.pronoun else entity_type(entity) for role, entity in frame.entities()}
    return found | (_entity_types(frame.clause, path + "clause.") if frame.clause else {})
