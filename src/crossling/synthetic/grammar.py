"""Grammar: word order, and which features are function words or affixes."""

from __future__ import annotations

import random
from dataclasses import dataclass

from crossling.synthetic.phonology import SCRIPTS

# Where each part of a clause goes: Subject, Verb, Object, Recipient, Place, Time, Manner.
TEMPLATES = {
    "SVO": ("SMVORPT", "TSMVORP"),
    "SOV": ("TSPROMV",),
    "VSO": ("VSMORPT", "VSORPTM"),
    "free": ("TSMVORP", "TSPROMV", "ORMVSPT", "PVSMORT", "TSMVROP"),
}
# The same with the time moved to an order that the templates above never produce.
REORDERED = {"SVO": ("STMVORP",), "SOV": ("STPROMV",), "VSO": ("TVSMORP",), "free": ("STMVORP",)}
MORPHOLOGIES = ("isolating", "suffixing", "prefixing", "agreement")

# Everything a function word or an affix can express.
OF_VERBS = ("past", "future", "negation", "can", "must", "want", "singular-verb", "plural-verb")
OF_NOUNS = ("plural", "definite", "indefinite", "accusative", "dative", "in", "near", "to", "from")
OF_CLAUSES = ("because", "when", "if", "that")
FEATURES = OF_VERBS + OF_NOUNS + OF_CLAUSES


@dataclass(frozen=True, kw_only=True)
class Grammar:
    """The choices of one language. `affixed` features are affixes; `unmarked` features are not expressed."""

    order: str
    morphology: str
    affixed: frozenset[str]
    unmarked: frozenset[str]
    modifier_first: bool

    @property
    def head_final(self) -> bool:
        """Verb-final order, where adpositions, auxiliaries and conjunctions come last too."""
        return self.order == "SOV"

    @property
    def agreement(self) -> bool:
        """Agreement of verbs with subjects, which may drop their pronoun, and of adjectives with nouns."""
        return self.morphology == "agreement"

    @classmethod
    def of(cls, order: str, morphology: str, rng: random.Random) -> Grammar:
        affixed: set[str] = {
            "isolating": set[str](),
            "suffixing": {"past", "future", "plural"},
            "prefixing": {"past", "future", "plural", "negation", "definite"},
            "agreement": {"past", "future", "plural", "singular-verb", "plural-verb", "dative", "in"},
        }[morphology]
        unmarked: set[str] = set()
        if order == "free" or (order == "SOV" and morphology != "isolating"):
            affixed |= {"accusative", "dative"}  # cases mark the participants where order does not
        else:
            unmarked.add("accusative")
        if order == "SOV" and morphology == "suffixing":
            affixed |= {"negation", "can", "must", "in", "to"}
        if morphology != "agreement":
            unmarked |= {"singular-verb", "plural-verb"}
        if "definite" in affixed:
            unmarked.add("indefinite")
        elif order != "SVO" or morphology == "isolating":
            unmarked |= {"definite", "indefinite"}
        return cls(
            order=order,
            morphology=morphology,
            affixed=frozenset(affixed),
            unmarked=frozenset(unmarked),
            modifier_first=order == "SOV" or rng.random() < 0.5,
        )


@dataclass(frozen=True)
class LanguageProfile:
    """Typology of a language: everything but its words."""

    family: int
    script: str
    order: str
    morphology: str


# The first languages are fixed for variety. The first two are related and have one script; the third has the same
# script but is unrelated. The eight cover all scripts, orders and morphologies.
_FIRST = (
    LanguageProfile(0, "Latin", "SVO", "suffixing"),
    LanguageProfile(0, "Latin", "free", "agreement"),
    LanguageProfile(1, "Latin", "VSO", "prefixing"),
    LanguageProfile(1, "Devanagari", "SOV", "suffixing"),
    LanguageProfile(2, "Han", "SVO", "isolating"),
    LanguageProfile(2, "Hangul", "SOV", "suffixing"),
    LanguageProfile(0, "Cyrillic", "free", "agreement"),
    LanguageProfile(3, "Greek", "SVO", "agreement"),
)


def language_profiles(languages: int, seed: int) -> list[LanguageProfile]:
    """Return the fixed first languages, then sampled ones: a new family, or one more related language."""
    rng = random.Random(f"{seed}/profiles")
    sampled = list(_FIRST)
    while len(sampled) < languages:
        families = max(profile.family for profile in sampled) + 1
        family = families if rng.random() < 0.35 else rng.randrange(families)
        order = rng.choice(list(TEMPLATES))
        morphology = rng.choice([one for one in MORPHOLOGIES if not (order == "free" and one == "isolating")])
        sampled.append(LanguageProfile(family, rng.choice(list(SCRIPTS)), order, morphology))
    return sampled[:languages]
