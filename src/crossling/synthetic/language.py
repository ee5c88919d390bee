"""A language renders frames as words in order, each with the node of the frame that it expresses."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from crossling.synthetic.documents import documents
from crossling.synthetic.frames import QUESTION_WORDS, Entity, Frame, is_name
from crossling.synthetic.grammar import REORDERED, TEMPLATES, Grammar, language_profiles
from crossling.synthetic.lexicon import PRONOUNS, AncestorLanguage, Lexicon, derive_lexicon
from crossling.synthetic.phonology import write
from crossling.synthetic.world import World

FIRST_SYNONYM = 0.75  # probability of the first of two synonyms


class Word(NamedTuple):
    """A written word, its node of the frame, and for function words the feature they express."""

    text: str
    node: str
    feature: str = ""


@dataclass(frozen=True, kw_only=True)
class SyntheticLanguage:
    code: str
    family: int
    script: str
    grammar: Grammar
    lexicon: Lexicon
    _written: dict[tuple[str, tuple[str, ...]], str] = field(default_factory=dict, repr=False, compare=False)

    def render(self, frame: Frame, rng: random.Random, reordered: bool = False) -> list[Word]:
        """Render a frame as a sentence. `rng` chooses among synonyms and, where order is free, among orders.

        `reordered` gives a paraphrase: the time is at a position that other sentences never have.
        """
        words = self._clause(frame, "", REORDERED if reordered else TEMPLATES, rng)
        if frame.clause is None or frame.linker is None:
            return words
        linker = self._function(frame.linker, "clause")
        clause = self._clause(frame.clause, "clause.", TEMPLATES, rng)
        return [*clause, *linker, *words] if self.grammar.head_final else [*words, *linker, *clause]

    def _clause(
        self, frame: Frame, path: str, templates: Mapping[str, tuple[str, ...]], rng: random.Random
    ) -> list[Word]:
        parts = {"S": self._phrase(frame.agent, path + "agent", "", rng), "V": self._verb(frame, path, rng)}
        if frame.patient:
            parts["O"] = self._phrase(frame.patient, path + "patient", "accusative", rng)
        if frame.recipient:
            parts["R"] = self._phrase(frame.recipient, path + "recipient", "dative", rng)
        if frame.place and frame.relation:
            parts["P"] = self._phrase(frame.place, path + "place", frame.relation, rng)
        if frame.time:
            parts["T"] = [self._content(frame.time, path + "time", (), rng)]
        if frame.manner:
            parts["M"] = [self._content(frame.manner, path + "manner", (), rng)]
        template = rng.choice(templates[self.grammar.order])
        return [word for slot in template if slot in parts for word in parts[slot]]

    def _phrase(self, entity: Entity, node: str, case: str, rng: random.Random) -> list[Word]:
        """Render a noun phrase; `case` is the feature that marks its role, empty for the subject."""
        grammar = self.grammar
        if entity.pronoun:
            return [] if grammar.agreement else [self._content(PRONOUNS[entity.plural], node, (), rng)]
        number, article = "plural" if entity.plural else "", _article(entity)
        words = [self._content(entity.concept, node, self._affixes(number, article, case), rng)]
        if entity.modifier:
            agreed = self._affixes(number, case) if grammar.agreement else ()
            modifier = self._content(entity.modifier, node + ".modifier", agreed, rng)
            words.insert(0 if grammar.modifier_first else 1, modifier)
        if entity.count:
            words.insert(0, Word(str(entity.count), node + ".count"))
        elif entity.plural:
            words += self._function("plural", node)
        words = [*self._function(article, node), *words]
        adposition = self._function(case, node)
        return [*words, *adposition] if grammar.head_final else [*adposition, *words]

    def _verb(self, frame: Frame, path: str, rng: random.Random) -> list[Word]:
        node = path + "verb"
        number = "plural-verb" if frame.agent.plural else "singular-verb"
        features = (frame.modality or "", "negation" if frame.negated else "", frame.tense, number)
        verb = self._content(frame.verb, node, self._affixes(*features), rng)
        particles = [word for feature in features for word in self._function(feature, node)]
        return [verb, *particles] if self.grammar.head_final else [*particles, verb]

    def _affixes(self, *features: str) -> tuple[str, ...]:
        return tuple(feature for feature in features if feature in self.grammar.affixed)

    def _content(self, concept: str, node: str, marks: tuple[str, ...], rng: random.Random) -> Word:
        if concept in QUESTION_WORDS:
            return Word(self.inflect(self.lexicon.features[QUESTION_WORDS[concept]], marks), node)
        stems = self.lexicon.stems[concept]
        stem = stems[0] if len(stems) == 1 or rng.random() < FIRST_SYNONYM else stems[1]
        return Word(self.inflect(stem, marks), node)

    def _function(self, feature: str, node: str) -> list[Word]:
        """Return the function word of a feature, unless it is an affix or not expressed."""
        grammar = self.grammar
        if feature not in self.lexicon.features or feature in grammar.affixed or feature in grammar.unmarked:
            return []
        return [Word(self.inflect(self.lexicon.features[feature], ()), node, feature)]

    def inflect(self, stem: str, marks: tuple[str, ...]) -> str:
        """Return the written form of a stem with affixes."""
        written = self._written.get((stem, marks))
        if written is None:
            affixes = [self.lexicon.features[mark] for mark in marks]
            sounds = "".join([*reversed(affixes), stem] if self.grammar.morphology == "prefixing" else [stem, *affixes])
            written = self._written[stem, marks] = write(sounds, self.script)
        return written


def create_languages(count: int, world: World, seed: int) -> list[SyntheticLanguage]:
    """Create `count` languages of a world, by decreasing resources."""
    chosen = language_profiles(count, seed)
    ancestors = {
        family: AncestorLanguage.invent(family, world, seed) for family in sorted({one.family for one in chosen})
    }
    languages = []
    for number, profile in enumerate(chosen):
        code = language_code(number)
        grammar = Grammar.of(profile.order, profile.morphology, random.Random(f"{seed}/grammar/{code}"))
        lexicon = derive_lexicon(ancestors[profile.family], code, profile, grammar, world, seed)
        languages.append(
            SyntheticLanguage(code=code, family=profile.family, script=profile.script, grammar=grammar, lexicon=lexicon)
        )
    return languages


def language_code(number: int) -> str:
    """Return a code from qaa to qtz, which ISO 639 reserves for private use."""
    return f"q{chr(ord('a') + number // 26)}{chr(ord('a') + number % 26)}"


def _article(entity: Entity) -> str:
    if is_name(entity.concept) or entity.count or entity.concept in QUESTION_WORDS:
        return ""
    if entity.definite:
        return "definite"
    return "" if entity.plural else "indefinite"


def join_words(words: list[Word]) -> str:
    return " ".join(word.text for word in words)


@dataclass(frozen=True)
class Candidate:
    """A sentence that may be held out, rendered in some or all languages."""

    frame: Frame
    renderings: dict[str, list[Word]]

    @property
    def sentences(self) -> tuple[Candidate]:
        """The candidate as a group of one sentence."""
        return (self,)

    def text(self, code: str) -> str:
        return join_words(self.renderings[code])


@dataclass(frozen=True)
class LanguageFamily:
    """The languages of one world, by decreasing resources."""

    world: World
    languages: list[SyntheticLanguage]
    seed: int

    @property
    def pivot(self) -> str:
        """The language of the training data of tasks, as English in real benchmarks."""
        return self.languages[0].code

    @property
    def codes(self) -> list[str]:
        return [language.code for language in self.languages]

    def rng(self, purpose: str) -> random.Random:
        return random.Random(f"{self.seed}/benchmarks/{self.world.domain.name}/{purpose}")

    def documents(self, part: str, sentences: int) -> Iterator[list[Frame]]:
        return documents(self.world, self.seed, part, sentences)

    def render(self, frame: Frame, rng: random.Random, reordered: bool = False) -> Candidate:
        return Candidate(frame, {one.code: one.render(frame, rng, reordered) for one in self.languages})
