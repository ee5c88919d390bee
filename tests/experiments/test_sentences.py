"""experiments/sentences.py: split parallel rows into sentences."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossling.core.errors import BadInput
from tests.load_script import load_script

script: Any = load_script("experiments/sentences.py")

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
    assert script.split_sentences(text) == parts


def test_greek_question_mark() -> None:
    assert script.split_sentences("Πού πας; Στο σπίτι.", "el") == ["Πού πας;", "Στο σπίτι."]
    assert script.split_sentences("One; Two.", "en") == ["One; Two."]


def test_rows_with_equal_sentence_counts_are_split() -> None:
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
    assert script.split_rows(rows, "en") == {
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
def test_text_beside_the_pivot_is_unchanged(texts: list[tuple[str, str, str]]) -> None:
    rows = dict(zip(("en", "de", "zh"), map(list, zip(*texts, strict=True)), strict=True)) if texts else {"en": []}
    found = script.split_rows(rows, "en")
    assert {len(own) for own in found.values()} == {len(found["en"])}
    for code in found.keys() - {"en"}:
        for side in (code, "en"):  # the text of a language and of the pivot beside it
            kept = [own for own, other in zip(found[side], found[code], strict=True) if own and other]
            before = [own for own, other in zip(rows[side], rows[code], strict=True) if own and other]
            assert "".join("".join(kept).split()) == "".join("".join(before).split())


def test_files_of_different_length_are_refused() -> None:
    with pytest.raises(BadInput, match="en, de: different numbers of lines"):
        script.split_rows({"en": ["a", "b"], "de": ["a"]}, "en")


def test_single_words_are_not_split() -> None:
    rows = {"en": ["Yes. We will come tomorrow."], "de": ["Ja. Wir kommen morgen."]}
    assert script.split_rows(rows, "en") == rows
