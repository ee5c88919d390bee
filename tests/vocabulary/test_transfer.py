"""Pieces that stay keep their embeddings, new ones begin as the mean of what they were cut into."""

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
from crossling.model.resize import moved
from crossling.model.transformer import CrosslingModel
from crossling.vocabulary.reuse import extend, trim
from crossling.vocabulary.transfer import origins
from crossling.vocabulary.vocabulary import PAD, UNK, Vocabulary

from .texts import folder_of, new_language, random_lines


def inflected() -> list[str]:
    """Stems of many kinds with few endings, so that a vocabulary has pieces for either."""
    draw = random.Random(3)
    stems = ["".join(draw.choices("bdgkmnprst", k=draw.randint(2, 4))) for _ in range(600)]
    return [" ".join(draw.choice(stems) + draw.choice(["nirmu", "chatu", "oqa"]) for _ in range(8)) for _ in range(200)]


def of(pieces: Sequence[str]) -> Vocabulary:
    """Long pieces are better than short ones."""
    return Vocabulary.of({piece: -20.0 + len(piece) ** 2 / 8 for piece in pieces}, b"", "nmt_nfkc")


def named(old: Vocabulary | PreTrainedTokenizerFast, new: Vocabulary) -> dict[str, list[str]]:
    """The origins by name."""
    tokenizer = old.tokenizer() if isinstance(old, Vocabulary) else old
    found = origins(old, new)
    assert len(found) == new.size
    pieces = [new.pieces.id_to_piece(number) for number in range(new.size)]
    return {p: tokenizer.convert_ids_to_tokens(ids) for p, ids in zip(pieces, found, strict=True)}


# ---- from a vocabulary like ours -----------------------------------------------------------------------------


def test_a_vocabulary_comes_from_itself(vocabulary: Vocabulary) -> None:
    assert origins(vocabulary, vocabulary) == [[number] for number in range(vocabulary.size)]


def test_what_is_kept_of_a_trimmed_vocabulary_gives_the_same_states(vocabulary: Vocabulary, tmp_path: Path) -> None:
    lines = [*random_lines(40), "habari ya asubuhi"]
    new = trim(vocabulary, folder_of(tmp_path, {"text/sw.txt": lines}))
    found = origins(vocabulary, new)
    assert new.size < vocabulary.size - 50
    assert [len(ids) for ids in found] == [1] * new.size
    torch.manual_seed(0)
    before, after = (CrosslingModel(CrosslingConfig(size, 16, 2, 2, 32)).eval() for size in (vocabulary.size, new.size))
    state = before.state_dict()
    state["embeddings.tokens.weight"] = moved(before.embeddings.tokens.weight, found, torch.Generator())
    after.load_state_dict(state)
    for old_ids, new_ids in zip(vocabulary.encode(lines), new.encode(lines), strict=True):
        assert [found[number] for number in new_ids] == [[number] for number in old_ids]
        states = (net(torch.tensor([ids])).last_hidden_state for net, ids in ((before, old_ids), (after, new_ids)))
        assert torch.equal(*states)


def test_an_extended_vocabulary_keeps_its_own_and_cuts_what_is_new(vocabulary: Vocabulary) -> None:
    new = extend(vocabulary, [*inflected(), *new_language(100)], 520)
    found = origins(vocabulary, new)
    assert found[: vocabulary.size - 1] == [[number] for number in range(vocabulary.size - 1)]
    assert found[-1] == [vocabulary.mask]
    added = list(new.scores)[len(vocabulary.scores) :]
    seen = {"initial": 0, "inside": 0, "none": 0}
    for piece, ids in zip(added, found[vocabulary.size - 1 : -1], strict=True):
        cut = [vocabulary.pieces.id_to_piece(number) for number in ids]
        assert "▁" not in cut
        assert UNK not in ids
        if not ids:  # no letter of it was known
            assert vocabulary.encode([piece.removeprefix("▁")])[0][-1] == UNK
            seen["none"] += 1
        elif piece.startswith("▁"):
            assert ids == [i for i in vocabulary.encode([piece[1:]])[0] if i not in (UNK, vocabulary.pieces["▁"])]
            seen["initial"] += 1
        elif UNK not in vocabulary.encode([piece])[0]:
            assert "".join(cut) == piece
            seen["inside"] += 1
    assert all(seen.values()), seen


def test_beginnings_of_words_are_told_from_what_follows() -> None:
    old = of(["▁", "▁sun", "sun", "day", "s", "a"])
    assert named(old, of(["▁sunday", "sunday", "▁days", "days", "▁a", "▁X", "X", "aX", "▁"])) == {
        **{special: [special] for special in ("<s>", "<pad>", "</s>", "<unk>", "<mask>")},
        "▁sunday": ["▁sun", "day"],
        "sunday": ["sun", "day"],
        "▁days": ["day", "s"],  # and a space alone, which says nothing
        "days": ["day", "s"],
        "▁a": ["a"],
        "▁X": [],
        "X": [],
        "aX": ["a"],
        "▁": ["▁"],
    }


def test_a_mark_takes_nothing_of_the_letter_before(vocabulary: Vocabulary) -> None:
    assert named(vocabulary, of(["\u0301sw"]))["\u0301sw"] == ["\u0301", "s", "w"]


@settings(max_examples=50)
@given(
    pieces=st.lists(
        st.text("▁abcdé漢", min_size=1, max_size=6).filter(lambda p: "▁" not in p[1:]), min_size=1, unique=True
    )
)
def test_origins_of_a_known_alphabet_spell_the_piece(pieces: list[str]) -> None:
    old = of(["▁", *"abcdé漢", "▁ab", "bc", "cab"])
    for piece, cut in named(old, of(pieces)).items():
        if not piece.startswith("<"):
            assert "".join(cut) in (piece, piece.removeprefix("▁") or piece)


# ---- from vocabularies of other kinds ------------------------------------------------------------------------


@pytest.fixture
def word_piece() -> PreTrainedTokenizerFast:
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "sun", "day", "d", "##day", "##s", "##sun", "!", "##!"]
    pieces += ["漢", "字", "##漢", "##ays"]
    return BertTokenizer(vocab={piece: number for number, piece in enumerate(pieces)}, do_lower_case=True)


def test_word_pieces(word_piece: PreTrainedTokenizerFast) -> None:
    assert isinstance(word_piece, PreTrainedTokenizerFast)
    new = of(
        ["▁sun", "sun", "▁sunday", "▁Sunday", "sunday", "▁days", "days", "day", "!", "s!", "▁漢字", "漢字", "▁x", "▁"]
    )
    assert named(word_piece, new) == {
        **{"<s>": ["[CLS]"], "<pad>": ["[PAD]"], "</s>": ["[SEP]"], "<unk>": ["[UNK]"], "<mask>": ["[MASK]"]},
        "▁sun": ["sun"],
        "sun": ["##sun"],
        "▁sunday": ["sun", "##day"],
        "▁Sunday": ["sun", "##day"],
        "sunday": ["##sun", "##day"],
        "▁days": ["day", "##s"],
        "days": ["##day", "##s"],
        "day": ["##day"],
        "!": ["!"],  # punctuation and ideographs are words of their own there
        "s!": ["##s", "!"],
        "▁漢字": ["漢", "字"],
        "漢字": ["漢", "字"],
        "▁x": [],
        "▁": [],
    }


@pytest.mark.parametrize("spaced", [False, True])
def test_byte_level_pairs(spaced: bool) -> None:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [("s", "u"), ("su", "n"), ("Ġ", "sun"), ("d", "a"), ("da", "y"), ("Ġ", "day")]
    pieces = ["<s>", "<pad>", "</s>", "<unk>", *alphabet, *("".join(pair) for pair in merges), "<mask>"]
    numbers = {piece: number for number, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.BPE(numbers, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=spaced)
    roberta = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        **{"cls_token": "<s>", "sep_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>", "mask_token": "<mask>"},
    )
    assert named(roberta, of(["▁sun", "sun", "▁sunday", "sunday", "▁x", "x!", "é", "▁"])) == {
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


def test_special_pieces_that_an_old_vocabulary_lacks_come_from_none(word_piece: PreTrainedTokenizerFast) -> None:
    word_piece.mask_token = None
    found = origins(word_piece, of(["▁sun"]))
    assert found[-1] == []
    assert found[PAD] == [0]


def test_a_row_of_a_new_piece_is_the_mean_of_its_old_ones() -> None:
    old, new = of(["▁sun", "day"]), of(["▁sunday", "day"])
    table = torch.randn(old.size, 3)
    rows = moved(table, origins(old, new), torch.Generator())
    assert_close(rows[4], (table[4] + table[5]) / 2)
    assert torch.equal(rows[[0, 1, 2, 3, 5, 6]], table[[0, 1, 2, 3, 5, 6]])
