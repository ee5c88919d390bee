"""Questions on stories, in SQuAD's layout: who did it, to what, where and when?

A text is some sentences of one story. A question tells an event of it again, with one part asked for and some left out.
It fits one event of the text alone, and the text has another candidate: someone else who acts, another place or time.
So the answer cannot be told from its kind; one has to read.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from crossling.babel.family import SPLITS, TEST, Family, file_name, translated_names
from crossling.babel.frame import ASKED, WHAT, WHEN, Entity, Frame
from crossling.babel.heldout import Candidate, told
from crossling.babel.language import Word, text

QUESTIONS = 3  # on every text
FEWEST, MOST = 4, 6  # sentences of a text
RICH = 6  # concepts of a sentence: what says less is likely to be said elsewhere too
LEFT_OUT = 0.4  # how often a part that is not asked for is
ROLES = ("agent", "patient", "recipient", "place", "time")


@dataclass(frozen=True)
class Question:
    """What is asked, and where the answer stands: which sentence, which node of its frame."""

    asked: Candidate
    sentence: int
    role: str


@dataclass(frozen=True)
class Text:
    sentences: tuple[Candidate, ...]
    questions: tuple[Question, ...]

    def to_json(self, code: str, name: str, answered: bool = True) -> dict[str, Any]:
        """A paragraph of SQuAD; sentences stand on lines of their own, as languages here have no full stops."""
        lines = [one.renderings[code] for one in self.sentences]
        starts = [sum(len(text(line)) + 1 for line in lines[:number]) for number in range(len(lines))]
        questions = []
        for number, question in enumerate(self.questions):
            start, answer = span(lines[question.sentence], question.role)
            answers = [{"text": answer, "answer_start": starts[question.sentence] + start}]
            asked = text(question.asked.renderings[code])
            questions.append({"id": f"{name}-{number}", "question": asked, "answers": answers if answered else []})
        return {"context": "\n".join(map(text, lines)), "qas": questions}


def span(words: list[Word], role: str) -> tuple[int, str]:
    """The content words of a part, which stand together, and how many characters are before them."""
    nodes = (role, f"{role}.modifier", f"{role}.count")
    places = [place for place, word in enumerate(words) if word.node in nodes and not word.feature]
    answer = words[places[0] : places[-1] + 1]
    return len(text(words[: places[0]])) + (places[0] > 0), text(answer)


class Answering:
    name = "xquad"
    splits = SPLITS

    def __init__(self, family: Family) -> None:
        self.family = family

    def groups(self, examples: int) -> int:
        return max(1, examples // QUESTIONS)

    def draw(self, split: str) -> Iterator[Text | None]:
        part = f"{self.name}/{split}"
        rng = self.family.rng(part)
        for document in told(self.family.world, self.family.seed, part):
            frames = [frame for frame in document if len(frame.concepts()) >= RICH][:MOST]
            asked = _questions(frames, rng) if len(frames) >= FEWEST else []
            if len(asked) < QUESTIONS:
                yield None
                continue
            chosen = rng.sample(asked, QUESTIONS)
            yield Text(
                tuple(self.family.say(frame, rng) for frame in frames),
                tuple(Question(self.family.say(frame, rng), number, role) for frame, number, role in chosen),
            )

    def files(self, split: str, groups: list[Text]) -> Iterator[tuple[str, str]]:
        def squad(code: str, answered: bool = True) -> str:
            data = [
                {"title": name, "paragraphs": [group.to_json(code, name, answered)]}
                for name, group in ((f"{split}-{number}", group) for number, group in enumerate(groups))
            ]
            return json.dumps({"version": "1.1", "data": data}, ensure_ascii=False) + "\n"

        for code in self.family.codes:
            name = f"{self.name}.{code}.json" if split == TEST else file_name(self.family, split, code, "json")
            yield name, squad(code)
        for path, code in translated_names(self.family, split, "json"):
            yield path, squad(code, answered=False)


def _questions(frames: list[Frame], rng: random.Random) -> list[tuple[Frame, int, str]]:
    """Every question that the text answers once: the frame of the question, the sentence, the part asked for."""
    events = [event for frame in frames for event in (frame, frame.clause) if event]
    found = []
    for number, frame in enumerate(frames):
        if frame.agent.pronoun or frame.linker == "that":
            continue
        for role in ROLES:
            answer = _part(frame, role)
            if answer is None or not any(_part(event, role) not in (None, answer) for event in events):
                continue
            question = _asking(frame, role, rng)
            if sum(_fits(question, event) for event in events) == 1:
                found.append((question, number, role))
    return found


def _part(frame: Frame, role: str) -> str | None:
    """The concept of a part, if it is said."""
    part: Entity | str | None = getattr(frame, role)
    if isinstance(part, Entity):
        return None if part.pronoun else part.concept
    return part


def _asking(frame: Frame, role: str, rng: random.Random) -> Frame:
    """The event with one part asked for; of the others the verb keeps those it asks for, known by now."""
    changes: dict[str, Any] = {"linker": None, "clause": None}
    for other in ("agent", "patient", "recipient", "place"):
        entity = getattr(frame, other)
        if entity is not None and entity.modifier and rng.random() < LEFT_OUT:
            entity = replace(entity, modifier=None)
        changes[other] = entity and replace(entity, definite=True)
    for other in ("place", "time", "manner"):
        if rng.random() < LEFT_OUT:
            changes[other] = None
    changes[role] = WHEN if role == "time" else Entity(WHAT)
    if changes["place"] is None:
        changes["relation"] = None
    return replace(frame, **changes)


def _fits(question: Frame, event: Frame) -> bool:
    """Whether an event may be meant; who is called by a pronoun may be, and kinds and numbers are no help."""
    if question.verb != event.verb:
        return False
    for role in (*ROLES, "manner"):
        asked, there = (getattr(one, role) for one in (question, event))
        if asked is None:
            continue
        if there is None:
            return False
        concepts = [one.concept if isinstance(one, Entity) else one for one in (asked, there)]
        if concepts[0] not in ASKED and concepts[0] != concepts[1]:
            return False
    return True
