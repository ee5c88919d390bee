"""Documents: a topic, a place, a small recurring cast, and a sequence of times."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

from crossling.synthetic.frames import TENSES, Entity, Frame, is_name
from crossling.synthetic.world import GENERAL, TOPICS, World

LINKERS = ("because", "when", "if")
MODALITIES = ("can", "must", "want")
SHORTEST, LONGEST = 4, 9
MAX_CONCEPTS_WITH_CLAUSE = 5  # largest number of concepts of a sentence that gets a clause


def documents(world: World, seed: int, part: str, sentences: int) -> Iterator[list[Frame]]:
    """Yield the documents of one named part of the data, `sentences` frames in total. Deterministic."""
    # The general domain has no name in the key, so that its data stay the same.
    domain = "" if world.domain is GENERAL else f"{world.domain.name}/"
    rng = random.Random(f"{seed}/documents/{domain}{part}")
    left = sentences
    while left > 0:
        document = DocumentGenerator(world, rng).generate(min(left, rng.randint(SHORTEST, LONGEST)))
        left -= len(document)
        yield document


class DocumentGenerator:
    """Generator of one document."""

    def __init__(self, world: World, rng: random.Random) -> None:
        self.world, self.domain, self.rng = world, world.domain, rng
        self.topic = rng.randrange(TOPICS)
        self.tense = rng.choices(TENSES, self.domain.tenses)[0]
        self.cast = [self._new_agent() for _ in range(3)]
        self.place = world.member(("place",) if rng.random() < 1 - self.domain.towns else ("town",), self.topic, rng)
        self.known: set[str] = set()
        self.last_agent: Entity | None = None

    def generate(self, sentences: int) -> list[Frame]:
        times = [self.world.member(("time",), self.topic, self.rng) for _ in range(sentences)]
        times.sort(key=self.world.calendar.__getitem__)
        return [self._sentence(time) for time in times]

    def _new_agent(self) -> Entity:
        rng = self.rng
        if rng.random() < self.domain.named:
            return Entity(self.world.member(("name",), self.topic, rng))
        return Entity(self.world.member(self.domain.cast, self.topic, rng), plural=rng.random() < 0.25)

    def _sentence(self, time: str) -> Frame:
        frame = self._event(self.world.verb(self.topic, self.rng), time)
        if self.world.verb_class(frame.verb).complement:
            return replace(frame, linker="that", clause=self._subordinate())
        if self.rng.random() < self.domain.clauses and len(frame.concepts()) <= MAX_CONCEPTS_WITH_CLAUSE:
            return replace(frame, linker=self.rng.choice(LINKERS), clause=self._subordinate())
        return frame

    def _subordinate(self) -> Frame:
        """Generate a short event, whose verb takes neither a clause nor a recipient."""
        verb = self.world.verb(self.topic, self.rng)
        while self.world.verb_class(verb).complement or self.world.verb_class(verb).recipients:
            verb = self.world.verb(self.topic, self.rng)
        return self._event(verb, None)

    def _event(self, verb: str, time: str | None) -> Frame:
        """Generate an event. Only a main clause has a `time`, and with it optional parts."""
        rng, verb_class = self.rng, self.world.verb_class(verb)
        agent = self._agent(verb_class.agents)
        patient = self._other(verb, verb_class.patients, agent) if verb_class.patients else None
        recipient = self._other(verb, verb_class.recipients, agent) if verb_class.recipients else None
        alone = patient is None and not verb_class.complement
        place = self._place() if alone or (time and rng.random() < 0.45) else None
        manner = self.world.companion(verb, ("manner",), self.topic, rng) if time and rng.random() < 0.25 else None
        return Frame(
            verb,
            agent,
            patient=patient,
            recipient=recipient,
            place=place,
            relation=rng.choice(verb_class.relations) if place else None,
            # A sentence has at least four concepts: without patient and place it has a time.
            time=time if alone or place is None or rng.random() < 0.4 else None,
            manner=manner,
            tense=self.tense,
            negated=rng.random() < 0.12,
            modality=rng.choice(MODALITIES) if rng.random() < 0.15 else None,
        )

    def _agent(self, classes: tuple[str, ...]) -> Entity:
        allowed = (*classes, "name") if "person" in classes else classes
        fitting = [one for one in self.cast if self.world.class_of[one.concept] in allowed]
        if not fitting:
            self.cast[-1] = Entity(self.world.member(classes, self.topic, self.rng))
            fitting = self.cast[-1:]
        agent = self.rng.choice(fitting)
        if agent is self.last_agent and self.rng.random() < self.domain.pronouns:
            return replace(agent, pronoun=True)
        self.last_agent = agent
        return self._mention(agent)

    def _other(self, verb: str, classes: tuple[str, ...], agent: Entity) -> Entity:
        """Sample a participant other than the agent that fits the verb."""
        concept = agent.concept
        while concept == agent.concept:
            concept = self.world.companion(verb, classes, self.topic, self.rng)
        many = self.rng.random()
        count = self.rng.randint(2, 12) if many < self.domain.counted else None
        return self._mention(Entity(concept, plural=many < 0.3, count=count))

    def _place(self) -> Entity:
        is_new = self.rng.random() < 0.3
        return self._mention(Entity(self.world.member(("place",), self.topic, self.rng) if is_new else self.place))

    def _mention(self, one: Entity) -> Entity:
        """Mark a known entity as definite and perhaps add a modifier. Names stay as they are."""
        if is_name(one.concept):
            return one
        definite = one.concept in self.known
        self.known.add(one.concept)
        modified = self.rng.random() < (0.15 if definite else 0.45)
        modifier = self.world.modifier(one.concept, self.rng) if modified else None
        return replace(one, definite=definite, modifier=modifier)
