"""Grammar: the choices in which languages differ, word order and what is said by words or by affixes."""

from __future__ import annotations

import random
from dataclasses import dataclass

from crossling.babel.script import SCRIPTS

# Where each part of a clause goes: Subject, Verb, Object, Recipient, Place, Time, Manner.
TEMPLATES = {
    "SVO": ("SMVORPT", "TSMVORP"),
    "SOV": ("TSPROMV",),
    "VSO": ("VSMORPT", "VSORPTM"),
    "free": ("TSMVORP", "TSPROMV", "ORMVSPT", "PVSMORT", "TSMVROP"),
}
# The same with the time moved, in an order that the templates above never give, whatever else a clause has.
REORDERED = {"SVO": ("STMVORP",), "SOV": ("STPROMV",), "VSO": ("TVSMORP",), "free": ("STMVORP",)}
MORPHOLOGIES = ("isolating", "suffixing", "prefixing", "agreement")

# Everything a function word or an affix can say.
OF_VERBS = ("past", "future", "negation", "can", "must", "want", "singular-verb", "plural-verb")
OF_NOUNS = ("plural", "definite", "indefinite", "accusative", "dative", "in", "near", "to", "from")
OF_CLAUSES = ("because", "when", "if", "that")
FEATURES = OF_VERBS + OF_NOUNS + OF_CLAUSES


@dataclass(frozen=True)
class Grammar:
    """One language's choices. `affixed` are the features said by affixes; `unsaid` are said by nothing."""

    order: str
    morphology: str
    affixed: frozenset[str]
    unsaid: frozenset[str]
    modifier_first: bool

    @property
    def head_final(self) -> bool:
        """Verb-final languages put adpositions, auxiliaries and conjunctions last as well."""
        return self.order == "SOV"

    @property
    def agreement(self) -> bool:
        """Verbs agree with their subject, which may then go without its pronoun; adjectives agree with nouns."""
        return self.morphology == "agreement"

    @classmethod
    def of(cls, order: str, morphology: str, rng: random.Random) -> Grammar:
        affixed: set[str] = {
            "isolating": set[str](),
            "suffixing": {"past", "future", "plural"},
            "prefixing": {"past", "future", "plural", "negation", "definite"},
            "agreement": {"past", "future", "plural", "singular-verb", "plural-verb", "dative", "in"},
        }[morphology]
        unsaid: set[str] = set()
        if order == "free" or (order == "SOV" and morphology != "isolating"):
            affixed |= {"accusative", "dative"}  # who did it to whom has to be told somehow
        else:
            unsaid.add("accusative")
        if order == "SOV" and morphology == "suffixing":
            affixed |= {"negation", "can", "must", "in", "to"}
        if morphology != "agreement":
            unsaid |= {"singular-verb", "plural-verb"}
        if "definite" in affixed:
            unsaid.add("indefinite")
        elif order != "SVO" or morphology == "isolating":
            unsaid |= {"definite", "indefinite"}
        return cls(order, morphology, frozenset(affixed), frozenset(unsaid), order == "SOV" or rng.random() < 0.5)


@dataclass(frozen=True)
class Profile:
    """What is known of a language before its words are."""

    family: int
    script: str
    order: str
    morphology: str


# The first languages are chosen, for variety: the first two are cousins in one script, the third writes the
# same script but is no relative, and all scripts, orders and morphologies are met among the eight.
_FIRST = (
    Profile(0, "Latin", "SVO", "suffixing"),
    Profile(0, "Latin", "free", "agreement"),
    Profile(1, "Latin", "VSO", "prefixing"),
    Profile(1, "Devanagari", "SOV", "suffixing"),
    Profile(2, "Han", "SVO", "isolating"),
    Profile(2, "Hangul", "SOV", "suffixing"),
    Profile(0, "Cyrillic", "free", "agreement"),
    Profile(3, "Greek", "SVO", "agreement"),
)


def profiles(languages: int, seed: int) -> list[Profile]:
    """The first languages as chosen, further ones drawn: a new family now and then, else one more cousin."""
    rng = random.Random(f"{seed}/profiles")
    drawn = list(_FIRST)
    while len(drawn) < languages:
        families = max(profile.family for profile in drawn) + 1
        family = families if rng.random() < 0.35 else rng.randrange(families)
        order = rng.choice(list(TEMPLATES))
        morphology = rng.choice([one for one in MORPHOLOGIES if not (order == "free" and one == "isolating")])
        drawn.append(Profile(family, rng.choice(list(SCRIPTS)), order, morphology))
    return drawn[:languages]
