"""Tests of the mapping: kept subwords map to themselves, new ones to the tokens of their old segmentation."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers
from torch.testing import assert_close
from transformers import BertTokenizer, PreTrainedTokenizerFast

from crossling.model.config import CrosslingConfig
from crossling.model.embedding import remap_rows
from crossling.model.encoder_model import CrosslingModel
from crossling.vocabulary.reuse_vocabulary import extend, map_tokens
from crossling.vocabulary.vocabulary import PAD, UNK, Vocabulary

from .texts import folder_of, new_language, random_lines, trim_to


def inflected() -> list[str]:
    """Return words of many stems and few endings, so that a vocabulary has subwords for both."""
    rng = random.Random(3)
    stems = ["".join(rng.choices("bdgkmnprst", k=rng.randint(2, 4))) for _ in range(600)]
    return [" ".join(rng.choice(stems) + rng.choice(["nirmu", "chatu", "oqa"]) for _ in range(8)) for _ in range(200)]


def make_vocabulary(subwords: Sequence[str]) -> Vocabulary:
    """Return a vocabulary in which longer subwords have higher scores."""
    return Vocabulary.from_scores({subword: -20.0 + len(subword) ** 2 / 8 for subword in subwords}, b"", "nmt_nfkc")


def map_names(old: Vocabulary | PreTrainedTokenizerFast, new: Vocabulary) -> dict[str, list[str]]:
    """Return the old tokens of each new subword by name."""
    tokenizer = old.tokenizer() if isinstance(old, Vocabulary) else old
    found = map_tokens(old, new)
    assert len(found) == new.size
    subwords = [new.processor.id_to_piece(number) for number in range(new.size)]
    return {subword: tokenizer.convert_ids_to_tokens(ids) for subword, ids in zip(subwords, found, strict=True)}


# ---- unigram vocabularies ------------------------------------------------------------------------------------


def test_a_vocabulary_maps_to_itself(vocabulary: Vocabulary) -> None:
    assert map_tokens(vocabulary, vocabulary) == [[number] for number in range(vocabulary.size)]


def test_a_trimmed_vocabulary_gives_the_same_hidden_states(vocabulary: Vocabulary, tmp_path: Path) -> None:
    lines = [*random_lines(40), "habari ya asubuhi"]
    new = trim_to(vocabulary, folder_of(tmp_path, {"text/sw.txt": lines}))
    found = map_tokens(vocabulary, new)
    assert new.size < vocabulary.size - 50
    assert [len(ids) for ids in found] == [1] * new.size
    torch.manual_seed(0)
    before, after = (CrosslingModel(CrosslingConfig(size, 16, 2, 2, 32)).eval() for size in (vocabulary.size, new.size))
    state = before.state_dict()
    state["embeddings.tokens.weight"] = remap_rows(before.embeddings.tokens.weight, found, torch.Generator())
    after.load_state_dict(state)
    for old_ids, new_ids in zip(vocabulary.encode(lines), new.encode(lines), strict=True):
        assert [found[number] for number in new_ids] == [[number] for number in old_ids]
        states = (net(torch.tensor([ids])).last_hidden_state for net, ids in ((before, old_ids), (after, new_ids)))
        assert torch.equal(*states)


def test_an_extended_vocabulary_keeps_old_subwords_and_segments_new_ones(vocabulary: Vocabulary) -> None:
    new = extend(vocabulary, [*inflected(), *new_language(100)], 520)
    found = map_tokens(vocabulary, new)
    assert found[: vocabulary.size - 1] == [[number] for number in range(vocabulary.size - 1)]
    assert found[-1] == [vocabulary.mask_id]
    added = list(new.scores)[len(vocabulary.scores) :]
    counted = {"initial": 0, "inside": 0, "none": 0}
    for subword, ids in zip(added, found[vocabulary.size - 1 : -1], strict=True):
        tokens = [vocabulary.processor.id_to_piece(number) for number in ids]
        assert "▁" not in tokens
        assert UNK not in ids
        if not ids:  # none of its letters is known
            assert vocabulary.encode([subword.removeprefix("▁")])[0][-1] == UNK
            counted["none"] += 1
        elif subword.startswith("▁"):
            assert ids == [i for i in vocabulary.encode([subword[1:]])[0] if i not in (UNK, vocabulary.processor["▁"])]
            counted["initial"] += 1
        elif UNK not in vocabulary.encode([subword])[0]:
            assert "".join(tokens) == subword
            counted["inside"] += 1
    assert all(counted.values()), counted


def test_starts_of_words_are_distinguished_from_the_inside() -> None:
    old = make_vocabulary(["▁", "▁sun", "sun", "day", "s", "a"])
    assert map_names(old, make_vocabulary(["▁sunday", "sunday", "▁days", "days", "▁a", "▁X", "X", "aX", "▁"])) == {
        **{special: [special] for special in ("<s>", "<pad>", "</s>", "<unk>", "<mask>")},
        "▁sunday": ["▁sun", "day"],
        "sunday": ["sun", "day"],
        "▁days": ["day", "s"],  # the single space is dropped
        "days": ["day", "s"],
        "▁a": ["a"],
        "▁X": [],
        "X": [],
        "aX": ["a"],
        "▁": ["▁"],
    }


def test_a_mark_does_not_compose_with_the_carrier(vocabulary: Vocabulary) -> None:
    assert map_names(vocabulary, make_vocabulary(["\u0301sw"]))["\u0301sw"] == ["\u0301", "s", "w"]


@settings(max_examples=50)
@given(
    subwords=st.lists(
        st.text("▁abcdé漢", min_size=1, max_size=6).filter(lambda text: "▁" not in text[1:]), min_size=1, unique=True
    )
)
def test_old_tokens_of_a_known_alphabet_spell_the_subword(subwords: list[str]) -> None:
    old = make_vocabulary(["▁", *"abcdé漢", "▁ab", "bc", "cab"])
    for subword, tokens in map_names(old, make_vocabulary(subwords)).items():
        if not subword.startswith("<"):
            assert "".join(tokens) in (subword, subword.removeprefix("▁") or subword)


# ---- other types of vocabularies ----------------------------------------------------------------------------


@pytest.fixture
def wordpiece() -> PreTrainedTokenizerFast:
    subwords = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "sun", "day", "d", "##day", "##s", "##sun", "!", "##!"]
    subwords += ["漢", "字", "##漢", "##ays"]
    return BertTokenizer(vocab={subword: number for number, subword in enumerate(subwords)}, do_lower_case=True)


def test_wordpiece(wordpiece: PreTrainedTokenizerFast) -> None:
    assert isinstance(wordpiece, PreTrainedTokenizerFast)
    new = make_vocabulary(
        ["▁sun", "sun", "▁sunday", "▁Sunday", "sunday", "▁days", "days", "day", "!", "s!", "▁漢字", "漢字", "▁x", "▁"]
    )
    assert map_names(wordpiece, new) == {
        **{"<s>": ["[CLS]"], "<pad>": ["[PAD]"], "</s>": ["[SEP]"], "<unk>": ["[UNK]"], "<mask>": ["[MASK]"]},
        "▁sun": ["sun"],
        "sun": ["##sun"],
        "▁sunday": ["sun", "##day"],
        "▁Sunday": ["sun", "##day"],
        "sunday": ["##sun", "##day"],
        "▁days": ["day", "##s"],
        "days": ["##day", "##s"],
        "day": ["##day"],
        "!": ["!"],  # punctuation and ideographs are words of their own
        "s!": ["##s", "!"],
        "▁漢字": ["漢", "字"],
        "漢字": ["漢", "字"],
        "▁x": [],
        "▁": [],
    }


@pytest.mark.parametrize("spaced", [False, True])
def test_byte_level_bpe(spaced: bool) -> None:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [("s", "u"), ("su", "n"), ("Ġ", "sun"), ("d", "a"), ("da", "y"), ("Ġ", "day")]
    subwords = ["<s>", "<pad>", "</s>", "<unk>", *alphabet, *("".join(pair) for pair in merges), "<mask>"]
    numbers = {subword: number for number, subword in enumerate(subwords)}
    tokenizer = Tokenizer(models.BPE(numbers, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=spaced)
    roberta = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        **{"cls_token": "<s>", "sep_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>", "mask_token": "<mask>"},
    )
    assert map_names(roberta, make_vocabulary(["▁sun", "sun", "▁sunday", "sunday", "▁x", "x!", "é", "▁"])) == {
        **{special: [special] for special in ("<s>", "<pad>", "</s>", "<unk>", "<mask>")},
        "▁sun": ["Ġsun"],
        "sun": ["sun"],
        "▁sunday": ["Ġsun", "day"],
        "sunday": ["sun", "day"],
        "▁x": ["x"],
        "x!": ["x", "!"],
        "é": ["Ã", "©"],
        "▁": [],
    }


def test_special_tokens_that_the_old_vocabulary_lacks_map_to_nothing(wordpiece: PreTrainedTokenizerFast) -> None:
    wordpiece.mask_token = None
    found = map_tokens(wordpiece, make_vocabulary(["▁sun"]))
    assert found[-1] == []
    assert found[PAD] == [0]


def test_the_embedding_of_a_new_subword_is_the_mean_of_its_old_tokens() -> None:
    old, new = make_vocabulary(["▁sun", "day"]), make_vocabulary(["▁sunday", "day"])
    table = torch.randn(old.size, 3)
    rows = remap_rows(table, map_tokens(old, new), torch.Generator())
    assert_close(rows[4], (table[4] + table[5]) / 2)
    assert torch.equal(rows[[0, 1, 2, 3, 5, 6]], table[[0, 1, 2, 3, 5, 6]])
