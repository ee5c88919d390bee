"""Each option of a command is a keyword of the public function of the same name."""

from __future__ import annotations

import inspect

import pytest

import crossling
from crossling.cli.app import GROUPS

COMMANDS = {command.__name__: command for commands in GROUPS.values() for command in commands}
FUNCTIONS = {"embed": "encode_file"}
PRINTING = {"json"}
# Options without a keyword, and keywords without an option, with the reason.
OPTIONS = {
    "synth": {"wrong", "copies", "near_duplicates", "many_to_one", "train", "dev", "test"},  # fields of noise, examples
    "clean": {  # fields of rules
        *("against", "all", "copies", "duplicates", "language", "length", "many_to_one", "min_pairs", "min_score"),
        *("near_copies", "near_duplicates", "ratio"),
    },
    "tokenize": {"priority"},  # of Corpora
    "finetune": {"set"},  # the keywords themselves
    "audit": {"ends", "out"},  # of the printed table
    **{name: {"precision"} for name in ("align", "embed", "mine")},  # of load
    "bench": {"out", "profile"},  # the rows as a file; another table
}
KEYWORDS = {
    "synth": {"alignment_sentences", "examples", "noise", "test_sentences"},
    "clean": {"rules"},
    "finetune": {"overrides"},
    "demo": {"steps", "adapt_steps"},  # for tests
}


def parameters(function: object) -> set[str]:
    return {name.rstrip("_") for name in inspect.signature(function).parameters}  # type: ignore[arg-type]


@pytest.mark.parametrize("name", COMMANDS)
def test_options_are_keywords(name: str) -> None:
    options, keywords = parameters(COMMANDS[name]), parameters(getattr(crossling, FUNCTIONS.get(name, name)))
    assert options - keywords - PRINTING == OPTIONS.get(name, set())
    assert keywords - options == KEYWORDS.get(name, set())
