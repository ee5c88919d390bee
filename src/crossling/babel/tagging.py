"""Words and their tags, in the layouts of XTREME: parts of speech, and names of people, places and organisations."""

from __future__ import annotations

import random
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import replace

from crossling.babel.family import SPLITS, TRAIN, Family, file_name, translated_names
from crossling.babel.frame import PRONOUN, Entity, Frame, is_name
from crossling.babel.heldout import Candidate, told
from crossling.babel.language import Word
from crossling.babel.world import World

RICH = 5  # concepts of a sentence: what says less is likely to be said elsewhere too

# ---- parts of speech ----------------------------------------------------------------------------------------

_FUNCTION_WORDS = {
    "AUX": ("past", "future", "can", "must", "want", "singular-verb", "plural-verb"),
    "PART": ("negation", "plural"),
    "DET": ("definite", "indefinite"),
    "ADP": ("accusative", "dative", "in", "near", "to", "from"),
    "SCONJ": ("because", "when", "if", "that"),
}
TAG_OF_FEATURE = {feature: tag for tag, features in _FUNCTION_WORDS.items() for feature in features}
_TAG_OF_PART = {"verb": "VERB", "modifier": "ADJ", "count": "NUM", "time": "ADV", "manner": "ADV"}


def part_of_speech(word: Word, concept: str) -> str:
    """The universal tag of a word that says a concept, or a feature of it."""
    if word.feature:
        return TAG_OF_FEATURE[word.feature]
    part = word.node.rpartition(".")[2]
    if part in _TAG_OF_PART:
        return _TAG_OF_PART[part]
    if concept == PRONOUN:
        return "PRON"
    return "PROPN" if is_name(concept) else "NOUN"


# ---- names --------------------------------------------------------------------------------------------------

PERSON, PLACE, ORGANISATION = "PER", "LOC", "ORG"
UNSEEN = 4  # one of so many names is in no training sentence
TWO_WORDS = 0.5  # of those who have a family name too
OF_FIRMS = 0.4  # of the people who act: an organisation does so in their stead


def kind_of_name(entity: Entity) -> str:
    """What an entity is the name of, or nothing. What bears a name, such as goods of a town, is an organisation."""
    if entity.concept.startswith("name-"):
        return PERSON
    if entity.concept.startswith("town-"):
        return PLACE
    return ORGANISATION if entity.modifier and is_name(entity.modifier) else ""


def with_names(frame: Frame, world: World, split: str, rng: random.Random) -> Frame:
    """The frame with people, places and makers of things called by names: the same word is part of several kinds."""
    names = {
        kind: [name for rank, name in enumerate(members) if split != TRAIN or rank % UNSEEN]
        for kind, members in world.names.items()
    }

    def firm() -> Entity:
        bearer = rng.choice([*world.classes["goods"], *world.classes["tool"]])
        return Entity(bearer, definite=True, modifier=rng.choice(names[rng.choice(("name", "town"))]))

    def named(role: str, entity: Entity | None) -> Entity | None:
        if entity is None or entity.pronoun:
            return entity
        kind = world.class_of[entity.concept]
        acts = role == "agent"
        if acts and (kind in ("goods", "tool") or (kind in ("person", "name") and rng.random() < OF_FIRMS)):
            return firm()
        if kind in ("person", "name"):
            first, last = rng.sample(names["name"], 2)
            return Entity(first, modifier=last if rng.random() < TWO_WORDS else None)
        return Entity(rng.choice(names["town"])) if role == "place" else entity

    clause = with_names(frame.clause, world, split, rng) if frame.clause else None
    roles = {role: named(role, getattr(frame, role)) for role in ("agent", "patient", "recipient", "place")}
    return replace(frame, clause=clause, **roles)  # type: ignore[arg-type]


# ---- both ---------------------------------------------------------------------------------------------------


class Tagging:
    """Sentences of stories with a tag for every word."""

    name: str
    splits = SPLITS

    def __init__(self, family: Family) -> None:
        self.family = family

    def groups(self, examples: int) -> int:
        return max(1, examples)

    def draw(self, split: str) -> Iterator[Candidate | None]:
        part = f"{self.name}/{split}"
        rng = self.family.rng(part)
        for document in told(self.family.world, self.family.seed, part):
            for frame in document:
                fitting = self.fit(frame, split, rng) if len(frame.concepts()) >= RICH else None
                yield self.family.say(fitting, rng) if fitting else None

    def files(self, split: str, groups: list[Candidate]) -> Iterator[tuple[str, str]]:
        for code in self.family.codes:
            blocks = []
            for one in groups:
                words = one.renderings[code]
                tagged = zip(words, self.tags(one.frame, words), strict=True)
                blocks.append("".join(f"{word.text}\t{tag}\n" for word, tag in tagged) + "\n")
            yield file_name(self.family, split, code, "tsv"), "".join(blocks)
        for path, code in translated_names(self.family, split, "tsv"):
            yield path, "".join("".join(f"{word.text}\n" for word in one.renderings[code]) + "\n" for one in groups)

    @abstractmethod
    def fit(self, frame: Frame, split: str, rng: random.Random) -> Frame | None:
        """What is made of a sentence of a story, if it is of use."""

    @abstractmethod
    def tags(self, frame: Frame, words: list[Word]) -> list[str]:
        """A tag for every word."""


class PartsOfSpeech(Tagging):
    name = "udpos"

    def fit(self, frame: Frame, split: str, rng: random.Random) -> Frame | None:  # noqa: ARG002
        return frame

    def tags(self, frame: Frame, words: list[Word]) -> list[str]:
        concepts = frame.concepts()
        return [part_of_speech(word, concepts.get(word.node, "")) for word in words]


class Names(Tagging):
    name = "panx"

    def fit(self, frame: Frame, split: str, rng: random.Random) -> Frame | None:
        named = with_names(frame, self.family.world, split, rng)
        return named if any(_names(named).values()) else None

    def tags(self, frame: Frame, words: list[Word]) -> list[str]:
        kinds = _names(frame)
        tags: list[str] = []
        before = ""
        for word in words:
            node = word.node.removesuffix(".modifier")
            kind = "" if word.feature else kinds.get(node, "")
            tags.append(f"{'I' if node == before else 'B'}-{kind}" if kind else "O")
            before = node if kind else ""
        return tags


def _names(frame: Frame, path: str = "") -> dict[str, str]:
    """By node, what each entity is the name of."""
    found = {path + role: "" if entity.pronoun else kind_of_name(entity) for role, entity in frame.entities()}
    return found | (_names(frame.clause, path + "clause.") if frame.clause else {})
