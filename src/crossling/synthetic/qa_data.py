"""Question answering in the layout of SQuAD: who did it, to what, where and when?

A context is some sentences of one document. A question repeats an event with one part questioned and some omitted. It
fits exactly one event, and the context has another candidate for the answer: another agent, place or time. So the type
of the answer is not enough.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from crossling.synthetic.frames import QUESTION_WORDS, WHAT, WHEN, Entity, Frame
from crossling.synthetic.heldout import Candidate, endless_documents
from crossling.synthetic.language import Word, join_words
from crossling.synthetic.task_data import SPLITS, TEST, LanguageFamily, task_file_name, translated_file_names

QUESTIONS = 3  # per context
MIN_SENTENCES, MAX_SENTENCES = 4, 6  # of a context
MIN_QA_CONCEPTS = 6  # per sentence: shorter ones often occur elsewhere too
OMISSION_PROBABILITY = 0.4  # of a part that is not questioned
ROLES = ("agent", "patient", "recipient", "place", "time")


@dataclass(frozen=True)
class SyntheticQuestion:
    """A question, and its answer: a sentence and a node of its frame."""

    question: Candidate
    sentence: int
    role: str


@dataclass(frozen=True)
class Paragraph:
    """A context with its questions."""

    sentences: tuple[Candidate, ...]
    questions: tuple[SyntheticQuestion, ...]

    def to_json(self, code: str, name: str, answered: bool = True) -> dict[str, Any]:
        """Return a SQuAD paragraph, one sentence a line, since these languages have no full stops."""
        lines = [one.renderings[code] for one in self.sentences]
        starts = [sum(len(join_words(line)) + 1 for line in lines[:number]) for number in range(len(lines))]
        questions = []
        for number, question in enumerate(self.questions):
            start, answer = span(lines[question.sentence], question.role)
            answers = [{"text": answer, "answer_start": starts[question.sentence] + start}]
            question_text = join_words(question.question.renderings[code])
            questions.append(
                {"id": f"{name}-{number}", "question": question_text, "answers": answers if answered else []}
            )
        return {"context": "\n".join(map(join_words, lines)), "qas": questions}


def span(words: list[Word], role: str) -> tuple[int, str]:
    """Return the start and text of the content words of a part, which are adjacent."""
    nodes = (role, f"{role}.modifier", f"{role}.count")
    positions = [position for position, word in enumerate(words) if word.node in nodes and not word.feature]
    answer = words[positions[0] : positions[-1] + 1]
    return len(join_words(words[: positions[0]])) + (positions[0] > 0), join_words(answer)


class QATask:
    name = "xquad"
    splits = SPLITS

    def __init__(self, family: LanguageFamily) -> None:
        self.family = family

    def groups(self, examples: int) -> int:
        return max(1, examples // QUESTIONS)

    def sample_groups(self, split: str) -> Iterator[Paragraph | None]:
        part = f"{self.name}/{split}"
        rng = self.family.rng(part)
        for document in endless_documents(self.family.world, self.family.seed, part):
            frames = [frame for frame in document if len(frame.concepts()) >= MIN_QA_CONCEPTS][:MAX_SENTENCES]
            questions = _questions(frames, rng) if len(frames) >= MIN_SENTENCES else []
            if len(questions) < QUESTIONS:
                yield None
                continue
            chosen = rng.sample(questions, QUESTIONS)
            yield Paragraph(
                tuple(self.family.render(frame, rng) for frame in frames),
                tuple(
                    SyntheticQuestion(self.family.render(frame, rng), number, role) for frame, number, role in chosen
                ),
            )

    def files(self, split: str, groups: list[Paragraph]) -> Iterator[tuple[str, str]]:
        def squad(code: str, answered: bool = True) -> str:
            data = [
                {"title": name, "paragraphs": [group.to_json(code, name, answered)]}
                for name, group in ((f"{split}-{number}", group) for number, group in enumerate(groups))
            ]
            return json.dumps({"version": "1.1", "data": data}, ensure_ascii=False) + "\n"

        for code in self.family.codes:
            name = f"{self.name}.{code}.json" if split == TEST else task_file_name(self.family, split, code, "json")
            yield name, squad(code)
        for path, code in translated_file_names(self.family, split, "json"):
            yield path, squad(code, answered=False)


def _questions(frames: list[Frame], rng: random.Random) -> list[tuple[Frame, int, str]]:
    """Return every question with one answer in the context: its frame, the sentence and the questioned part."""
    events = [event for frame in frames for event in (frame, frame.clause) if event]
    found = []
    for number, frame in enumerate(frames):
        if frame.agent.pronoun or frame.linker == "that":
            continue
        for role in ROLES:
            answer = _part(frame, role)
            if answer is None or not any(_part(event, role) not in (None, answer) for event in events):
                continue
            question = _question_frame(frame, role, rng)
            if sum(_fits(question, event) for event in events) == 1:
                found.append((question, number, role))
    return found


def _part(frame: Frame, role: str) -> str | None:
    """Return the concept of a part, or None if it is missing or a pronoun."""
    part: Entity | str | None = getattr(frame, role)
    if isinstance(part, Entity):
        return None if part.pronoun else part.concept
    return part


def _question_frame(frame: Frame, role: str, rng: random.Random) -> Frame:
    """Return the event as a question: one part replaced, optional parts perhaps omitted, entities definite."""
    changes: dict[str, Any] = {"linker": None, "clause": None}
    for other in ("agent", "patient", "recipient", "place"):
        entity = getattr(frame, other)
        if entity is not None and entity.modifier and rng.random() < OMISSION_PROBABILITY:
            entity = replace(entity, modifier=None)
        changes[other] = entity and replace(entity, definite=True)
    for other in ("place", "time", "manner"):
        if rng.random() < OMISSION_PROBABILITY:
            changes[other] = None
    changes[role] = WHEN if role == "time" else Entity(WHAT)
    if changes["place"] is None:
        changes["relation"] = None
    return replace(frame, **changes)


def _fits(question: Frame, event: Frame) -> bool:
    """Return whether a question may refer to an event. Pronouns match anything; modifiers and numbers are ignored."""
    if question.verb != event.verb:
        return False
    for role in (*ROLES, "manner"):
        questioned, present = (getattr(one, role) for one in (question, event))
        if questioned is None:
            continue
        if present is None:
            return False
        concepts = [one.concept if isinstance(one, Entity) else one for one in (questioned, present)]
        if concepts[0] not in QUESTION_WORDS and concepts[0] != concepts[1]:
            return False
    return True
