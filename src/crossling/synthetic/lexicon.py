"""Lexicons: the words of a family's ancestor, and their descendants in each language."""

from __future__ import annotations

import random
from dataclasses import dataclass

from crossling.synthetic import phonology
from crossling.synthetic.frames import PRONOUN
from crossling.synthetic.grammar import FEATURES, Grammar, LanguageProfile
from crossling.synthetic.phonology import Phonotactics
from crossling.synthetic.world import World

CHANGES = 6
REPLACED = 0.12
SYNONYMS = 0.10
AMBIGUOUS = 0.04
PRONOUNS = (PRONOUN, f"{PRONOUN}-plural")  # singular, plural


@dataclass(frozen=True)
class Lexicon:
    """Stems as phonemes: of concepts (main stem, then a synonym) and of grammatical features."""

    stems: dict[str, tuple[str, ...]]
    features: dict[str, str]


@dataclass(frozen=True)
class AncestorLanguage:
    """The common ancestor of a family: its phonotactics and roots."""

    phonotactics: Phonotactics
    roots: dict[str, str]

    @classmethod
    def invent(cls, family: int, world: World, seed: int) -> AncestorLanguage:
        rng = random.Random(f"{seed}/family/{family}")
        phonotactics = Phonotactics.invent(rng)
        roots = {concept: phonotactics.root(rng) for concept in [*world.lemmas, *PRONOUNS]}
        return cls(phonotactics, roots | {feature: phonotactics.syllable(rng) for feature in FEATURES})


def derive_lexicon(
    ancestor: AncestorLanguage, code: str, profile: LanguageProfile, grammar: Grammar, world: World, seed: int
) -> Lexicon:
    """Derive the lexicon of a language: inherited words after its sound changes, some of them replaced.

    No two concepts are written alike, except a few that are made ambiguous on purpose.
    """
    rng = random.Random(f"{seed}/language/{code}")
    changes = tuple(rng.sample(phonology.SOUND_CHANGES, CHANGES))
    taken: set[str] = set()

    def coin(inherited: str | None, short: bool = False) -> str:
        """Return the inherited word, or a new one if there is none or its written form is taken."""
        root = inherited
        for attempt in range(1000):
            if root is None:
                build = ancestor.phonotactics.syllable if short and attempt < 50 else ancestor.phonotactics.root
                root = build(rng)
            stem = phonology.apply_sound_changes(root, changes)
            if grammar.morphology == "isolating":  # languages without affixes have short words
                stem = "".join("".join(syllable) for syllable in phonology.split_syllables(stem)[:2])
            written = phonology.write(stem, profile.script)
            if written not in taken:
                taken.add(written)
                return stem
            root = None
        raise AssertionError("the phonotactics of a family allow far more words than any lexicon needs")

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
    for name, foreign in name_roots(world, seed).items():
        stems[name] = (phonology.adapt_to_inventory(foreign, inventory),)
    return Lexicon(stems, features)


def name_roots(world: World, seed: int) -> dict[str, str]:
    """Return the roots of names, which all languages adapt to their own sounds."""
    rng = random.Random(f"{seed}/names")
    phonotactics = Phonotactics(onsets="mnrlktsdbpgvfzjhS", vowels="aieou", codas="nrls", closed=0.3, lengths=(0, 2, 3))
    return {name: phonotactics.root(rng) for members in world.names.values() for name in members}
