"""benchmarks/sentences.py: rows of several sentences, one by one."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

SCRIPT = Path(__file__).parent.parent.parent / "benchmarks" / "sentences.py"
_spec = importlib.util.spec_from_file_location("sentences_script", SCRIPT)
assert _spec is not None
assert _spec.loader is not None
script: Any = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(script)

TEXTS = st.lists(
    st.sampled_from(["so it is. ", "no! ", "who knows ", "是的。", "हाँ। ", "…", "'Go.' ", ""]), max_size=6
).map(lambda parts: "".join(parts).strip())


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("He came. He saw!  Did he win?", ["He came.", "He saw!", "Did he win?"]),
        ("3.5 of 10.000", ["3.5 of 10.000"]),
        ("\u201cGo.\u201d He went...  Away", ["\u201cGo.\u201d", "He went...", "Away"]),
        ("他来了。他看见了！", ["他来了。", "他看见了！"]),
        ("वह आया। उसने देखा।", ["वह आया।", "उसने देखा।"]),
        ("جاء. هل رأى؟ نعم", ["جاء.", "هل رأى؟", "نعم"]),
        ("", []),
    ],
)
def test_sentences(text: str, parts: list[str]) -> None:
    assert script.sentences(text) == parts


def test_who_agrees_is_cut_and_the_others_stay_whole_beside_the_pivot() -> None:
    rows = {
        "en": ["It rains. We stay at home.", "One. Two.", "No. A very long sentence comes after the short one.", ""],
        "de": ["Es regnet. Wir bleiben zu Hause.", "Eins. Zwei.", "Nein, so sagt man es. Lang.", "Allein."],
        "fr": ["Il pleut et nous restons à la maison.", "Un. Deux.", "", ""],
    }
    assert script.one_by_one(rows, "en") == {
        "en": [
            *("It rains.", "We stay at home.", "It rains. We stay at home.", "One.", "Two."),
            *("No. A very long sentence comes after the short one.", ""),
        ],
        "de": ["Es regnet.", "Wir bleiben zu Hause.", "", "Eins.", "Zwei.", "Nein, so sagt man es. Lang.", "Allein."],
        "fr": ["", "", "Il pleut et nous restons à la maison.", "Un.", "Deux.", "", ""],
    }


@given(st.lists(st.tuples(TEXTS, TEXTS, TEXTS), max_size=5))
def test_nothing_is_lost_and_translations_stay_beside_each_other(texts: list[tuple[str, str, str]]) -> None:
    rows = dict(zip(("en", "de", "zh"), map(list, zip(*texts, strict=True)), strict=True)) if texts else {"en": []}
    found = script.one_by_one(rows, "en")
    assert {len(own) for own in found.values()} == {len(found["en"])}
    for code in found.keys() - {"en"}:
        for side in (code, "en"):  # what a language says, and what the pivot says beside it, are as before
            kept = [own for own, other in zip(found[side], found[code], strict=True) if own and other]
            was = [own for own, other in zip(rows[side], rows[code], strict=True) if own and other]
            assert "".join("".join(kept).split()) == "".join("".join(was).split())
