"""Lexicons: the words of a family's ancestor, and what became of them in each of its languages."""

from __future__ import annotations

import random
from dataclasses import dataclass

from crossling.babel.frame import PRONOUN
from crossling.babel.grammar import FEATURES, Grammar, Profile
from crossling.babel.phonology import SOUND_CHANGES, Phonotactics, adapt, evolve, syllables
from crossling.babel.script import write
from crossling.babel.world import World

CHANGES = 6
REPLACED = 0.12
SYNONYMS = 0.10
AMBIGUOUS = 0.04
PRONOUNS = (PRONOUN, f"{PRONOUN}-plural")  # of one, of many


@dataclass(frozen=True)
class Lexicon:
    """Stems as phonemes: of concepts (the usual one first, a synonym after it) and of grammatical features."""

    stems: dict[str, tuple[str, ...]]
    features: dict[str, str]


@dataclass(frozen=True)
class Ancestor:
    """A family's common ancestor: how its words were built, and the words."""

    phonotactics: Phonotactics
    roots: dict[str, str]

    @classmethod
    def invent(cls, family: int, world: World, seed: int) -> Ancestor:
        rng = random.Random(f"{seed}/family/{family}")
        phonotactics = Phonotactics.invent(rng)
        roots = {concept: phonotactics.root(rng) for concept in [*world.lemmas, *PRONOUNS]}
        return cls(phonotactics, roots | {feature: phonotactics.syllable(rng) for feature in FEATURES})


def inherit(ancestor: Ancestor, code: str, profile: Profile, grammar: Grammar, world: World, seed: int) -> Lexicon:
    """A language's own lexicon: inherited words changed by its sound laws, some of them replaced.

    No two concepts are written alike, but for the few that are made ambiguous on purpose.
    """
    rng = random.Random(f"{seed}/language/{code}")
    changes = tuple(rng.sample(SOUND_CHANGES, CHANGES))
    taken: set[str] = set()

    def coin(inherited: str | None, short: bool = False) -> str:
        """The inherited word, or a new one where there is none or another concept is written like it already."""
        root = inherited
        for attempt in range(1000):
            if root is None:
                build = ancestor.phonotactics.syllable if short and attempt < 50 else ancestor.phonotactics.root
                root = build(rng)
            stem = evolve(root, changes)
            if grammar.morphology == "isolating":  # languages without affixes have short words
                stem = "".join("".join(syllable) for syllable in syllables(stem)[:2])
            written = write(stem, profile.script)
            if written not in taken:
                taken.add(written)
                return stem
            root = None
        raise AssertionError("the phonotactics of a family hold far more words than any lexicon asks for")

    features = {feature: coin(ancestor.roots[feature], short=True) for feature in FEATURES}
    stems: dict[str, tuple[str, ...]] = {}
    for concept in [*PRONOUNS, *world.lemmas]:
        first = coin(None if rng.random() < REPLACED else ancestor.roots[concept])
        stems[concept] = (first, coin(None)) if rng.random() < SYNONYMS else (first,)
    for concept in rng.sample(world.lemmas, round(AMBIGUOUS * len(world.lemmas))):
        other = rng.choice(world.lemmas)
        if world.class_of[other] != world.class_of[concept]:
            stems[concept] = (stems[other][0], *stems[concept][1:])
    inventory = "".join(sorted(set("".join(form for forms in stems.values() for form in forms))))
    for name, foreign in names(world, seed).items():
        stems[name] = (adapt(foreign, inventory),)
    return Lexicon(stems, features)


def names(world: World, seed: int) -> dict[str, str]:
    """People and towns are called the same everywhere, as far as a language's sounds allow."""
    rng = random.Random(f"{seed}/names")
    phonotactics = Phonotactics(onsets="mnrlktsdbpgvfzjhS", vowels="aieou", codas="nrls", closed=0.3, lengths=(0, 2, 3))
    return {name: phonotactics.root(rng) for members in world.names.values() for name in members}
