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
from crossling.synthetic.heldout import endless_documents
from crossling.synthetic.language import Candidate, Word, join_words
from crossling.synthetic.task_data import TEST, LabeledTask

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
            text = question.question.text(code)
            questions.append({"id": f"{name}-{number}", "question": text, "answers": answers if answered else []})
        return {"context": "\n".join(map(join_words, lines)), "qas": questions}


def span(words: list[Word], role: str) -> tuple[int, str]:
    """Return the start and text of the content words of a part, which are adjacent."""
    nodes = (role, f"{role}.modifier", f"{role}.count")
    positions = [position for position, word in enumerate(words) if word.node in nodes and not word.feature]
    answer = words[positions[0] : positions[-1] + 1]
    return len(join_words(words[: positions[0]])) + (positions[0] > 0), join_words(answer)


class QATask(LabeledTask[Paragraph]):
    name = "xquad"
    ending = "json"
    examples_per_group = QUESTIONS

    def sample_groups(self, split: str) -> Iterator[Paragraph | None]:
        part = f"{self.name}/{split}"
        rng = self.family.rng(part)
        for document in endless_documents(self.family, part):
            frames = [frame for frame in document if len(frame.concepts()) >= MIN_QA_CONCEPTS][:MAX_SENTENCES]
            questions = _questions(frames, rng) if len(frames) >= MIN_SENTENCES else []
            if len(questions) < QUESTIONS:
                yield None
                continue
            chosen = rng.sample(questions, QUESTIONS)
            context = tuple(self.family.render(frame, rng) for frame in frames)
            rendered = (SyntheticQuestion(self.family.render(frame, rng), at, role) for frame, at, role in chosen)
            yield Paragraph(context, tuple(rendered))

    def file_name(self, split: str, code: str) -> str:
        return f"{self.name}.{code}.json" if split == TEST else super().file_name(split, code)

    def content(self, split: str, groups: list[Paragraph], code: str, labeled: bool = True) -> str:
        named = [(f"{split}-{number}", group) for number, group in enumerate(groups)]
        data = [{"title": name, "paragraphs": [group.to_json(code, name, labeled)]} for name, group in named]
        return json.dumps({"version": "1.1", "data": data}, ensure_ascii=False) + "\n"


def _questions(frames: list[Frame], rng: random.Random) -> list[tuple[Frame, int, str]]:
    """Return every question with one answer in the context: its frame, the sentence and the questioned part."""
    events = [event for frame in frames for event in (frame, frame.clause) if event]
    found = []
    for number, frame in enumerate(frames):
        if frame.agent.pronoun or frame.linker == "that":
            continue
        for role in ROLES:
            answer = _concept(frame, role)
            # A pronoun does not name another candidate; only agents are pronouns.
            named = {_concept(event, role) for event in events if role != "agent" or not event.agent.pronoun}
            if answer is None or not named - {None, answer}:
                continue
            question = _question_frame(frame, role, rng)
            if sum(_fits(question, event) for event in events) == 1:
                found.append((question, number, role))
    return found


def _concept(frame: Frame, role: str) -> str | None:
    """Return the concept of a part, also of a pronoun. None if it is missing."""
    part: Entity | str | None = getattr(frame, role)
    return part.concept if isinstance(part, Entity) else part


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
    """Return whether a question may refer to an event. Modifiers and numbers are ignored."""
    pairs = [(_concept(question, role), _concept(event, role)) for role in ("verb", *ROLES, "manner")]
    return all(
        wanted is None or wanted == present or (wanted in QUESTION_WORDS and present is not None)
        for wanted, present in pairs
    )
