"""Mixup of contrastive learning (InfoXLM §3.3): which pairs are joined, and how."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossling.data.batches import TokenizedExamples
from crossling.data.keyed_random import KeyedRandom
from crossling.data.packing import Sequences
from crossling.objectives import XLCo
from crossling.objectives.contrastive import choose_partners, mix_pairs
from crossling.vocabulary.special_tokens import SpecialTokens

from .conftest import chosen

BOS, EOS = 0, 2


def pairs_of(corpus_of: list[int]) -> TokenizedExamples:
    """Pair i is <10i + 100 ..., 10i + 105 ...>: every sentence identifies its pair and side. Row 1000 + i."""
    number = len(corpus_of)
    sides = [[np.array([*[100 + 10 * i + side] * (1 + i % 3), EOS]) for i in range(number)] for side in (0, 5)]
    return TokenizedExamples(sides[0], sides[1], 1000 + np.arange(number))


def mixed(corpus_of: list[int], noise: KeyedRandom) -> tuple[Sequences, Sequences, np.ndarray, KeyedRandom]:
    order = choose_partners(np.array(corpus_of), noise).ravel()
    return mix_pairs(chosen(pairs_of(corpus_of), order), noise.select(order))


def joined(
    corpus_of: list[int], noise: KeyedRandom
) -> list[tuple[list[tuple[int, int]], list[tuple[int, int]], list[int]]]:
    """Each joined pair: (pair, side) of the first and the second sentence of the query, of the key, and both rows."""
    query, key, rows_N2, _ = mixed(corpus_of, noise)

    def parsed(sequences: Sequences, number: int) -> list[tuple[int, int]]:
        ids = sequences.tokens["ids"][sequences.sequence_ids == number].tolist()
        assert ids[0] == BOS
        assert BOS not in ids[1:]  # the second segment has none of its own
        assert ids[-1] == EOS
        assert ids.count(EOS) == 2
        middle = ids.index(EOS)
        sentences = [ids[1:middle], ids[middle + 1 : -1]]
        found = [divmod(words[0] - 100, 10) for words in sentences]
        assert all(words == [words[0]] * (1 + i % 3) for words, (i, _) in zip(sentences, found, strict=True))
        return [(i, side // 5) for i, side in found]

    return [(parsed(query, n), parsed(key, n), rows.tolist()) for n, rows in enumerate(rows_N2)]


@given(st.lists(st.integers(0, 5), min_size=2, max_size=24), st.integers(0, 2**32))
def test_every_pair_has_a_partner_of_another_corpus(corpora: list[int], seed: int) -> None:
    """Partners are of the same corpus only if one has more than half of all pairs, and then as rarely as possible."""
    corpus_of = corpora[: len(corpora) // 2 * 2]
    found = joined(corpus_of, KeyedRandom([seed], 0, len(corpus_of)))
    used = [i for query, _, _ in found for i, _ in query]
    assert sorted(used) == list(range(len(corpus_of)))
    alike = sum(corpus_of[i] == corpus_of[j] for ((i, _), (j, _)), _, _ in found)
    assert alike == max(0, max(Counter(corpus_of).values()) - len(corpus_of) // 2)


@given(st.integers(1, 12), st.integers(0, 2**32))
def test_query_and_key_are_translations_of_each_other(half: int, seed: int) -> None:
    corpus_of = [i % 3 for i in range(2 * half)]
    for query, key, rows in joined(corpus_of, KeyedRandom([seed], 0, 2 * half)):
        assert {(i, 1 - side) for i, side in query} == set(key)
        assert sorted(rows) == sorted(1000 + i for i, _ in query)


def test_all_forms_are_equally_frequent() -> None:
    """Straight <c1 d1, c2 d2> and crossed <c1 d2, d1 c2>, with the query and the key in either order."""
    corpus_of = [i % 2 for i in range(4000)]
    found = joined(corpus_of, KeyedRandom([3], 0, 4000))
    forms = Counter(
        (
            query[0][1] == query[1][1],  # both of one side: straight
            1000 + query[0][0] == rows[0],  # the pair before its mate, in the query
            1000 + key[0][0] == rows[0],  # and in the key
        )
        for query, key, rows in found
    )
    assert len(forms) == 8
    assert all(count == pytest.approx(2000 / 8, abs=60) for count in forms.values())


def test_partners_change_from_step_to_step() -> None:
    corpus_of = [i % 4 for i in range(40)]
    mates = Counter()
    for step in range(60):
        for ((i, _), (j, _)), _, _ in joined(corpus_of, KeyedRandom([3], step, 40)):
            mates.update([j] if i == 0 else [i] if j == 0 else [])
    assert sum(mates.values()) == 60
    assert len(mates) > 20  # of the 30 pairs of other corpora
    assert {mate % 4 for mate in mates} == {1, 2, 3}


def test_mixup_is_a_function_of_the_noise_alone() -> None:
    corpus_of = [i % 3 for i in range(24)]
    np.random.seed(1)
    one = joined(corpus_of, KeyedRandom([5], 9, 24))
    np.random.seed(2)
    assert joined(corpus_of, KeyedRandom([5], 9, 24)) == one
    assert joined(corpus_of, KeyedRandom([5], 10, 24)) != one
    assert joined(corpus_of, KeyedRandom([6], 9, 24)) != one


def test_joined_pairs_are_masked_by_the_noise_of_their_first_pair() -> None:
    """No two of a step are masked alike, and splitting the step does not change how."""
    _, _, rows_N2, noise = mixed([0, 1] * 50, KeyedRandom([5], 9, 100))
    assert noise.per_example("x").tolist() == KeyedRandom([5], 9, 100).per_example("x")[rows_N2[:, 0] - 1000].tolist()


def test_pairs_are_joined_only_with_mixup() -> None:
    examples, noise = pairs_of([0, 1, 2, 0]), KeyedRandom([5], 9, 4)
    plain = XLCo(mixup=False, rate=0.0)
    out = plain.corrupt(examples, noise, SpecialTokens.standard(1000))
    assert out.per_example["rows"].tolist() == [[1000 + i] * 2 for i in range(4)]
    for side, sentences in {"query": examples.ids, "key": examples.translation_ids}.items():
        assert out.inputs[side].tokens[side].tolist() == [i for ids in sentences for i in [BOS, *ids.tolist()]]
    mixed = replace(plain, mixup=True).corrupt(examples, noise, SpecialTokens.standard(1000))
    assert mixed.per_example["rows"].shape == (2, 2)
    assert sorted(mixed.per_example["rows"].flatten()) == [1000, 1001, 1002, 1003]
