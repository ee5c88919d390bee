"""benchmarks/sentences.py: rows of several sentences, one by one."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossling.errors import BadInput

SCRIPT = Path(__file__).parent.parent.parent / "benchmarks" / "sentences.py"
_spec = importlib.util.spec_from_file_location("sentences_script", SCRIPT)
assert _spec is not None
assert _spec.loader is not None
script: Any = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(script)

TEXTS = st.lists(
    st.sampled_from(["So it is now. ", "Never ever! ", "Who knows ", "是的。", "हाँ। ", "…", "'Go.' ", ""]), max_size=6
).map(lambda parts: "".join(parts).strip())


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("He came. He saw!  Did he win?", ["He came.", "He saw!", "Did he win?"]),
        ("3.5 of 10.000", ["3.5 of 10.000"]),
        ("Mr. Smith left the U.S. Senate. Dr. Who did not.", ["Mr. Smith left the U.S. Senate.", "Dr. Who did not."]),
        ("Am 3. Mai kam J. K. Rowling. Sie blieb.", ["Am 3. Mai kam J. K. Rowling.", "Sie blieb."]),
        ("She was... rather late. Again... No!", ["She was... rather late.", "Again...", "No!"]),
        ("At 5 p.m. it rains, e.g. here.", ["At 5 p.m. it rains, e.g. here."]),
        ("他说：“走！”他走了。", ["他说：“走！”", "他走了。"]),
        ("2।3 है। हाँ।", ["2।3 है।", "हाँ।"]),
        ("\u201cGo.\u201d He went...  Away", ["\u201cGo.\u201d", "He went...", "Away"]),
        ("他来了。他看见了！", ["他来了。", "他看见了！"]),
        ("वह आया। उसने देखा।", ["वह आया।", "उसने देखा।"]),
        ("جاء. هل رأى؟ نعم", ["جاء.", "هل رأى؟", "نعم"]),
        ("", []),
    ],
)
def test_sentences(text: str, parts: list[str]) -> None:
    assert script.sentences(text) == parts


def test_a_question_mark_of_greek() -> None:
    assert script.sentences("Πού πας; Στο σπίτι.", "el") == ["Πού πας;", "Στο σπίτι."]
    assert script.sentences("One; Two.", "en") == ["One; Two."]


def test_who_agrees_is_cut_and_the_others_stay_whole_beside_the_pivot() -> None:
    rows = {
        "en": [
            "It rains. We stay at home.",
            "It ends so. We are glad.",
            "Never. A very long sentence comes after the short one.",
            "",
        ],
        "de": [
            "Es regnet. Wir bleiben zu Hause.",
            "So endet es. Wir sind froh.",
            "Nein, so sagt man es. Lang.",
            "Allein.",
        ],
        "fr": ["Il pleut et nous restons à la maison.", "Il finit ainsi. Quelle joie.", "", ""],
    }
    assert script.one_by_one(rows, "en") == {
        "en": [
            *("It rains.", "We stay at home.", "It rains. We stay at home.", "It ends so.", "We are glad."),
            *("Never. A very long sentence comes after the short one.", ""),
        ],
        "de": [
            "Es regnet.",
            "Wir bleiben zu Hause.",
            "",
            "So endet es.",
            "Wir sind froh.",
            "Nein, so sagt man es. Lang.",
            "Allein.",
        ],
        "fr": ["", "", "Il pleut et nous restons à la maison.", "Il finit ainsi.", "Quelle joie.", "", ""],
    }


@given(st.lists(st.tuples(TEXTS, TEXTS, TEXTS), max_size=5))
def test_what_a_language_and_the_pivot_say_to_each_other_stays_the_same(texts: list[tuple[str, str, str]]) -> None:
    rows = dict(zip(("en", "de", "zh"), map(list, zip(*texts, strict=True)), strict=True)) if texts else {"en": []}
    found = script.one_by_one(rows, "en")
    assert {len(own) for own in found.values()} == {len(found["en"])}
    for code in found.keys() - {"en"}:
        for side in (code, "en"):  # what a language says, and what the pivot says beside it, are as before
            kept = [own for own, other in zip(found[side], found[code], strict=True) if own and other]
            was = [own for own, other in zip(rows[side], rows[code], strict=True) if own and other]
            assert "".join("".join(kept).split()) == "".join("".join(was).split())


def test_files_that_do_not_go_together() -> None:
    with pytest.raises(BadInput, match="en, de: expected as many lines in each"):
        script.one_by_one({"en": ["a", "b"], "de": ["a"]}, "en")


def test_a_word_is_no_sentence() -> None:
    rows = {"en": ["Yes. We will come tomorrow."], "de": ["Ja. Wir kommen morgen."]}
    assert script.one_by_one(rows, "en") == rows
