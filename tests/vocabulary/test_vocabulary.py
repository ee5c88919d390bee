"""Tests of the vocabulary: special tokens, equal ids in SentencePiece and Hugging Face, files, and training."""

from __future__ import annotations

import json
import os
import random
import re
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from sentencepiece import SentencePieceProcessor
from sentencepiece import sentencepiece_model_pb2 as proto
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from crossling.core.errors import BadInput
from crossling.corpora.corpus import Corpora
from crossling.vocabulary.text_normalization import default_charsmap
from crossling.vocabulary.vocabulary import (
    BOS,
    EOS,
    PAD,
    SPECIAL,
    UNK,
    Vocabulary,
    check_vocabulary_folder,
    copy_vocabulary,
)

from .texts import ODD, folder_of

SPACE = (" ", "  ", "\t", "\n", "\r\n", "\u00a0", "\u3000", "\u2009", "\u2028", "\x85", "\x0b", "\x1c", "\u1680", "▁")
INVISIBLE = ("\u200b", "\u200c", "\u200d", "\u200e", "\u2060", "\ufeff", "\ufffd", "\u00ad", "\x00", "\x01", "\x7f")
MARKS = ("\u0301", "\u0323", "\u0302", "\u0308", "\u064e", "\u0651", "\u05b0", "\u05bc", "\u3099", "\u09be", "\u094d")
NAMES = ("＜ｓ＞", "＜/s＞", "<mask＞", "＜unk>", "<pad＞", "< s >", "<ma sk>")
WORDS = tuple(word for line in ODD for word in line.split())


@pytest.fixture(scope="session")
def saved(vocabulary: Vocabulary, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return vocabulary.save(tmp_path_factory.mktemp("saved") / "vocab")


def encode_fast(fast: PreTrainedTokenizerFast, line: str) -> list[int]:
    return fast(line, add_special_tokens=False)["input_ids"]


# ---- special tokens --------------------------------------------------------------------------------------------


def test_special_ids(vocabulary: Vocabulary, fast: PreTrainedTokenizerFast) -> None:
    assert (BOS, PAD, EOS, UNK) == (0, 1, 2, 3)
    assert vocabulary.size == 400 == len(fast)
    assert vocabulary.mask_id == 399
    ids = [0, 1, 2, 3, 399]
    assert [vocabulary.processor.id_to_piece(i) for i in ids] == list(SPECIAL)
    assert fast.convert_tokens_to_ids(list(SPECIAL)) == ids
    assert [fast.bos_token_id, fast.pad_token_id, fast.eos_token_id, fast.unk_token_id, fast.mask_token_id] == ids
    assert (fast.cls_token_id, fast.sep_token_id) == (0, 2)
    assert sorted(fast.all_special_ids) == ids


@pytest.mark.parametrize("name", [*SPECIAL, *NAMES])
def test_names_of_special_tokens_in_text_stay_text(vocabulary: Vocabulary, name: str) -> None:
    for line in (name, f"the {name} fox", f"the{name}fox", name * 3):
        [ids] = vocabulary.encode([line])
        assert len(ids) > 1
        assert not {BOS, PAD, EOS, UNK, vocabulary.mask_id} & set(ids), vocabulary.processor.id_to_piece(ids)


@pytest.mark.parametrize("name", NAMES)
def test_names_that_normalization_produces_stay_text_in_hugging_face(
    vocabulary: Vocabulary, fast: PreTrainedTokenizerFast, name: str
) -> None:
    for line in (name, f"the {name} fox", f"the{name}fox", name * 3):
        assert encode_fast(fast, line) == vocabulary.encode([line])[0]


def test_hugging_face_recognizes_names_of_special_tokens(fast: PreTrainedTokenizerFast) -> None:
    """Fill-mask pipelines require this. Shards are written with SentencePiece and have no such ids."""
    assert fast.mask_token_id in encode_fast(fast, "the quick <mask> fox")


# ---- equal ids ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line", [*ODD, "", " ", " \t ", "\u200b", "\u200b \u00a0", "a" * 5000, "....... . .... " * 300]
)
def test_ids_are_equal(vocabulary: Vocabulary, fast: PreTrainedTokenizerFast, line: str) -> None:
    assert encode_fast(fast, line) == vocabulary.encode([line])[0]


@pytest.mark.parametrize("space", [*SPACE, *INVISIBLE])
def test_ids_are_equal_for_unusual_white_space(
    vocabulary: Vocabulary, fast: PreTrainedTokenizerFast, space: str
) -> None:
    for line in (
        f"{space}fox",
        f"fox{space}",
        f"quick{space}fox",
        f"quick{space}{space}fox",
        f" {space} quick {space}\u0301 fox {space}",
        space,
        f"{space}\u0301",
    ):
        assert encode_fast(fast, line) == vocabulary.encode([line])[0], ascii(line)


PARTS = st.one_of(
    st.sampled_from(WORDS),
    st.sampled_from(SPACE),
    st.sampled_from(INVISIBLE),
    st.sampled_from(MARKS),
    st.sampled_from(NAMES),
    st.builds(
        lambda subword, times: subword * times,
        st.sampled_from([".", "s", "т", "漢", "한", "ا", "▁."]),
        st.integers(2, 40),
    ),
    st.text(max_size=6),
)
LINES = st.lists(PARTS, max_size=12).map("".join).filter(lambda line: not any(name in line for name in SPECIAL))


@settings(max_examples=300, deadline=None)
@given(line=LINES)
def test_ids_are_equal_for_any_text(vocabulary: Vocabulary, fast: PreTrainedTokenizerFast, line: str) -> None:
    assert encode_fast(fast, line) == vocabulary.encode([line])[0]


@settings(max_examples=100, deadline=None)
@given(line=LINES)
def test_sentencepiece_alone_gives_the_same_ids_for_normalized_text(
    vocabulary: Vocabulary, fast: PreTrainedTokenizerFast, line: str
) -> None:
    normal = fast.backend_tokenizer.normalizer.normalize_str(line)
    # A control character between a letter and its mark separates them at first. Readers remove all of these.
    assume(fast.backend_tokenizer.normalizer.normalize_str(normal) == normal)
    assert vocabulary.processor.encode(normal) == vocabulary.encode([line])[0]


@pytest.mark.parametrize(
    ("composed", "typed"),
    [
        ("ọ́", "o\u0301\u0323"),
        ("ن\u064e\u0651", "ن\u0651\u064e"),
        ("কো", "ক\u09c7\u09be"),
        ("ガ", "ｶﾞ"),
        ("한", "\u1112\u1161\u11ab"),
        ("fin", "ﬁn"),
    ],
)
def test_canonical_equivalents_have_the_same_ids(vocabulary: Vocabulary, composed: str, typed: str) -> None:
    one, other = vocabulary.encode([composed, typed])
    assert one == other
    assert len(one) > 0


REAL = pytest.mark.skipif("CROSSLING_DATA" not in os.environ, reason="CROSSLING_DATA names no folder of real text")


@pytest.fixture(scope="session")
def real() -> Corpora:
    return Corpora(Path(os.environ["CROSSLING_DATA"]) / "pretrain")


@REAL
def test_ids_are_equal_on_real_text(vocabulary: Vocabulary, fast: PreTrainedTokenizerFast, real: Corpora) -> None:
    lines = [line for language in real.languages for line in islice(real.lines(language), 0, 20_000, 40)]
    lines = [line for line in lines if not any(name in line for name in SPECIAL)]
    encoded = fast(lines, add_special_tokens=False)["input_ids"]
    differing = [
        line for line, ours, theirs in zip(lines, vocabulary.encode(lines), encoded, strict=True) if ours != theirs
    ]
    assert len(lines) > 10_000
    assert not differing, f"{len(differing)} of {len(lines)}: {differing[:3]}"


@REAL
@pytest.mark.soak
def test_sentencepiece_alone_gives_the_same_ids_on_its_whole_training_text(real: Corpora, tmp_path: Path) -> None:
    Vocabulary.train(real, 32_000, characters=5_000_000).save(tmp_path / "vocab")
    alone = SentencePieceProcessor(model_file=str(tmp_path / "vocab" / "sentencepiece.model"))
    fast = AutoTokenizer.from_pretrained(tmp_path / "vocab")
    for language in real.languages:
        # Hugging Face takes the name of a special token for that token, see above.
        lines = [line for line in real.lines(language) if not any(name in line for name in SPECIAL)]
        for start in range(0, len(lines), 10_000):
            batch = lines[start : start + 10_000]
            assert alone.encode(batch) == fast(batch, add_special_tokens=False)["input_ids"], language


def test_ids_decode_to_the_line(vocabulary: Vocabulary, fast: PreTrainedTokenizerFast) -> None:
    lines = ["the quick brown fox", "habari ya asubuhi", "ትግርኛ አማርኛ ภาษาไทย"]
    for line, ids in zip(lines, vocabulary.encode(lines), strict=True):
        assert vocabulary.processor.decode(ids) == line
        assert fast.decode(ids) == line


# ---- files ---------------------------------------------------------------------------------------------------


def test_a_saved_vocabulary_is_loaded_unedited(vocabulary: Vocabulary, saved: Path) -> None:
    loaded = Vocabulary.load(saved)
    assert loaded == vocabulary
    assert loaded.fingerprint == vocabulary.fingerprint
    assert loaded.encode(list(ODD)) == vocabulary.encode(list(ODD))


def test_fingerprints_distinguish_vocabularies(scripts: Corpora, vocabulary: Vocabulary) -> None:
    assert Vocabulary.train(scripts, 390, threads=1).fingerprint != vocabulary.fingerprint


def test_sentencepiece_and_hugging_face_read_the_files(vocabulary: Vocabulary, saved: Path) -> None:
    line = "the quick brown fox"
    ids = vocabulary.encode([line])[0]
    assert SentencePieceProcessor(model_file=str(saved / "sentencepiece.model")).encode(line) == ids
    assert json.loads((saved / "tokenizer.json").read_text(encoding="utf-8"))["model"]["type"] == "Unigram"
    assert AutoTokenizer.from_pretrained(saved)(line, add_special_tokens=False)["input_ids"] == ids


def test_hugging_face_loads_the_tokenizer_it_saved(vocabulary: Vocabulary, saved: Path) -> None:
    loaded = AutoTokenizer.from_pretrained(saved)
    assert len(loaded) == vocabulary.size
    assert loaded.mask_token_id == vocabulary.mask_id
    assert loaded.pad_token_id == PAD
    assert [encode_fast(loaded, line) for line in ODD] == vocabulary.encode(list(ODD))
    assert set(loaded("fox")) == {"input_ids", "attention_mask"}


def test_pairs_are_encoded_as_in_training(vocabulary: Vocabulary, saved: Path) -> None:
    loaded = AutoTokenizer.from_pretrained(saved)
    source, target = vocabulary.encode(["the quick fox", "habari ya asubuhi"])
    assert loaded("the quick fox")["input_ids"] == [BOS, *source, EOS]
    assert loaded("the quick fox", "habari ya asubuhi")["input_ids"] == [BOS, *source, EOS, *target, EOS]


def test_padding_uses_the_pad_token(saved: Path) -> None:
    batch = AutoTokenizer.from_pretrained(saved)(["fox", "the quick brown fox"], padding=True)
    assert batch["input_ids"][0][-1] == PAD
    assert batch["attention_mask"][0][-1] == 0


def test_a_copy_has_the_same_files(saved: Path, tmp_path: Path) -> None:
    copy_vocabulary(saved, tmp_path / "vocab")
    assert {file.name: file.read_bytes() for file in (tmp_path / "vocab").iterdir()} == {
        file.name: file.read_bytes() for file in saved.iterdir()
    }


def edited(vocabulary: Vocabulary, edit: str) -> bytes:
    model = proto.ModelProto()
    model.ParseFromString(vocabulary.model)
    match edit:
        case "no mask":
            del model.pieces[-1]
        case "mask not last":
            model.pieces.add(piece="late", score=-9.0)
        case "other order":
            model.pieces[0].piece, model.pieces[1].piece = "<pad>", "<s>"
        case "other names":
            model.pieces[0].piece = "[CLS]"
        case "two alike":
            model.pieces[8].piece = model.pieces[7].piece
    return model.SerializeToString()


@pytest.mark.parametrize("edit", ["no mask", "mask not last", "other order", "other names"])
def test_other_special_tokens_are_refused(vocabulary: Vocabulary, tmp_path: Path, edit: str) -> None:
    (tmp_path / "sentencepiece.model").write_bytes(edited(vocabulary, edit))
    message = r"expected .* <s>, <pad>, </s>, <unk> first and <mask> last, found .*crossling vocab"
    with pytest.raises(BadInput, match=message):
        Vocabulary.load(tmp_path)


@pytest.mark.parametrize("damage", ["empty", "text", "cut", "two alike"])
def test_broken_models_are_refused(vocabulary: Vocabulary, tmp_path: Path, damage: str) -> None:
    file = tmp_path / "sentencepiece.model"
    file.write_bytes(
        {
            "empty": b"",
            "text": b"this is no model\n",
            "cut": vocabulary.model[: len(vocabulary.model) // 2],
            "two alike": edited(vocabulary, "two alike"),
        }[damage]
    )
    with pytest.raises(
        BadInput, match=re.escape(f"{file}: not a SentencePiece model. Make one with `crossling vocab`.")
    ):
        Vocabulary.load(tmp_path)


@pytest.mark.parametrize("name", ["", "nowhere"])
def test_folders_without_a_vocabulary_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadInput, match=r"no vocabulary \(expected sentencepiece\.model.*\)\. Make one with"):
        Vocabulary.load(tmp_path / name)


# ---- training ------------------------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_vocabulary(scripts: Corpora, vocabulary: Vocabulary) -> None:
    assert Vocabulary.train(scripts, 400, threads=1) == vocabulary


@pytest.fixture
def few_words(tmp_path: Path) -> Corpora:
    rng = random.Random(1)
    words = ["cat", "dog", "<s>", "<mask>", "runs", "house", "blue"]
    return folder_of(tmp_path, {"text/en.txt": [" ".join(rng.choices(words, k=8)) for _ in range(300)]})


@pytest.mark.parametrize(
    ("size", "advice", "sign"),
    [(6, "Its characters alone need {} entries", -1), (5000, "It yields at most {} entries", 1)],
)
def test_an_impossible_size_is_refused_with_a_possible_one(
    few_words: Corpora, size: int, advice: str, sign: int
) -> None:
    with pytest.raises(BadInput) as caught:
        Vocabulary.train(few_words, size, threads=1)
    message = str(caught.value)
    assert message.startswith(f"{few_words.path}: cannot train {size} vocabulary entries on this text. ")
    assert "--" not in message  # no options of SentencePiece
    match = re.search(advice.format(r"(\d+)"), message)
    assert match
    limit = int(match[1])
    assert Vocabulary.train(few_words, limit, threads=1).size == limit
    with pytest.raises(BadInput):
        Vocabulary.train(few_words, limit + sign, threads=1)


@pytest.mark.parametrize("size", [-1, 0, 1, 4])
def test_sizes_too_small_for_the_special_tokens_are_refused(few_words: Corpora, size: int) -> None:
    with pytest.raises(BadInput, match=rf"cannot train {size} vocabulary entries .*size"):
        Vocabulary.train(few_words, size, threads=1)


def test_names_of_special_tokens_in_the_corpus_become_no_subwords(few_words: Corpora) -> None:
    vocabulary = Vocabulary.train(few_words, 30, threads=1)
    subwords = [vocabulary.processor.id_to_piece(i) for i in range(vocabulary.size)]
    assert all(subwords.count(name) == 1 for name in SPECIAL)


def test_very_long_lines_are_truncated(tmp_path: Path) -> None:
    corpora = folder_of(tmp_path, {"text/en.txt": ["кот дом " * 10_000]})
    assert Vocabulary.train(corpora, 14, threads=1).encode(["кот"])[0].count(UNK) == 0


def test_only_a_vocabulary_is_overwritten(vocabulary: Vocabulary, tmp_path: Path) -> None:
    vocabulary.save(tmp_path / "v")
    vocabulary.save(tmp_path / "v")
    (tmp_path / "v" / "notes.txt").write_text("mine", encoding="utf-8")
    for write in (vocabulary.save, check_vocabulary_folder):
        with pytest.raises(BadInput, match=r"notes\.txt is no output of crossling vocab"):
            write(tmp_path / "v")
    assert (tmp_path / "v" / "notes.txt").read_text(encoding="utf-8") == "mine"


# ---- from scores -----------------------------------------------------------------------------------------------


def test_from_scores_reproduces_a_vocabulary(vocabulary: Vocabulary) -> None:
    again = Vocabulary.from_scores(vocabulary.scores, vocabulary.charsmap, vocabulary.normalizer_name)
    assert again == vocabulary
    assert list(vocabulary.scores) == [vocabulary.processor.id_to_piece(i) for i in range(4, vocabulary.mask_id)]


def test_the_segmentation_has_the_highest_score() -> None:
    scores = {"▁": -2.0, "a": -3.0, "b": -3.0, "▁ab": -9.0, "ab": -4.0, "▁a": -4.5}
    made = Vocabulary.from_scores(scores, default_charsmap())
    ids = [[4, 8]]  # ▁ + ab is -6, ▁a + b is -7.5
    assert made.encode(["ab"]) == ids
    assert made.tokenizer()(["ab"], add_special_tokens=False)["input_ids"] == ids


def test_counts_equal_those_of_the_ids(vocabulary: Vocabulary) -> None:
    ids = [i for row in vocabulary.encode(ODD) for i in row]
    counts = vocabulary.count_tokens(iter(ODD))
    assert counts.sum() == len(ids)
    assert all(counts[i] == ids.count(i) for i in range(vocabulary.size))
