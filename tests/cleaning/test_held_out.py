"""Equal and similar sentences are found, others are not, and the index finds what a full comparison finds."""

from __future__ import annotations

import random

import pytest

from crossling.cleaning.held_out import SIMILARITY, HeldOutIndex, content_key, smallest_keys

HELD_OUT = ["The white house stands on a green hill.", "Yes.", "Hvíta húsið stendur á grænni hæð."]


@pytest.mark.parametrize(
    ("sentence", "is_found"),
    [
        ("The white house stands on a green hill.", True),
        ("the WHITE house stands on a green hill", True),
        ("The white house stands on a green hill now.", True),
        ("yes", True),
        ("Yes, I will.", False),
        ("The black cat sits under an old tree.", False),
        ("Hvíta húsið stendur á grænni hæð!", True),
    ],
)
def test_equal_and_similar_sentences_are_found(sentence: str, is_found: bool) -> None:
    assert (sentence in HeldOutIndex(HELD_OUT)) is is_found


def test_the_index_finds_what_a_comparison_with_all_finds() -> None:
    rng = random.Random(0)
    words = ["".join(rng.choices("abcdefgh", k=rng.randint(2, 6))) for _ in range(40)]
    held_out = [" ".join(rng.choices(words, k=8)) for _ in range(60)]
    index = HeldOutIndex(held_out)
    changed = []
    for sentence in held_out * 3:
        parts = sentence.split()
        for _ in range(rng.randint(0, 3)):
            parts[rng.randrange(len(parts))] = rng.choice(words)
        changed.append(" ".join(parts))

    def trigrams(text: str) -> set[str]:
        return {text[i : i + 3] for i in range(len(text) - 2)}

    def is_similar(sentence: str) -> bool:
        form = "".join(sentence.split())
        others = [trigrams("".join(each.split())) for each in held_out]
        own = trigrams(form)
        return any(len(own & other) / len(own | other) >= SIMILARITY for other in others)

    expected = [is_similar(sentence) for sentence in changed]
    assert [sentence in index for sentence in changed] == expected
    assert 20 < sum(expected) < len(expected) - 20


def test_rows_are_chosen_by_content() -> None:
    rows = [("a", "b"), ("c", "d"), ("e", "f")]
    chosen = smallest_keys([content_key(*row) for row in rows], 2)
    assert chosen == smallest_keys([content_key(*row) for row in reversed(rows)] * 2, 2)
    assert len(chosen) == 2
