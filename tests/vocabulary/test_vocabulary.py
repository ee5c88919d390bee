"""Special pieces never come from text, both files give the same ids, and what is wrong is said in one sentence."""

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

from crossling.corpora.corpus import Corpora
from crossling.errors import BadInput
from crossling.vocabulary.normalise import plain_map
from crossling.vocabulary.sample import smoothed_sample
from crossling.vocabulary.vocabulary import BOS, EOS, PAD, SPECIAL, UNK, Vocabulary, check_place, copy_vocabulary

from .texts import ODD, folder_of

SPACE = (" ", "  ", "\t", "\n", "\r\n", "\u00a0", "\u3000", "\u2009", "\u2028", "\x85", "\x0b", "\x1c", "\u1680", "▁")
INVISIBLE = ("\u200b", "\u200c", "\u200d", "\u200e", "\u2060", "\ufeff", "\ufffd", "\u00ad", "\x00", "\x01", "\x7f")
MARKS = ("\u0301", "\u0323", "\u0302", "\u0308", "\u064e", "\u0651", "\u05b0", "\u05bc", "\u3099", "\u09be", "\u094d")
NAMES = ("＜ｓ＞", "＜/s＞", "<mask＞", "＜unk>", "<pad＞", "< s >", "<ma sk>")
WORDS = tuple(word for line in ODD for word in line.split())


@pytest.fixture(scope="session")
def saved(vocabulary: Vocabulary, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return vocabulary.save(tmp_path_factory.mktemp("saved") / "vocab")


def plain(fast: PreTrainedTokenizerFast, line: str) -> list[int]:
    return fast(line, add_special_tokens=False)["input_ids"]


# ---- special pieces ------------------------------------------------------------------------------------------


def test_special_ids(vocabulary: Vocabulary, fast: PreTrainedTokenizerFast) -> None:
    assert (BOS, PAD, EOS, UNK) == (0, 1, 2, 3)
    assert vocabulary.size == 400 == len(fast)
    assert vocabulary.mask == 399
    ids = [0, 1, 2, 3, 399]
    assert [vocabulary.pieces.id_to_piece(i) for i in ids] == list(SPECIAL)
    assert fast.convert_tokens_to_ids(list(SPECIAL)) == ids
    assert [fast.bos_token_id, fast.pad_token_id, fast.eos_token_id, fast.unk_token_id, fast.mask_token_id] == ids
    assert (fast.cls_token_id, fast.sep_token_id) == (0, 2)
    assert sorted(fast.all_special_ids) == ids


@pytest.mark.parametrize("name", [*SPECIAL, *NAMES])
def test_names_of_special_pieces_in_text_are_text(vocabulary: Vocabulary, name: str) -> None:
    for line in (name, f"the {name} fox", f"the{name}fox", name * 3):
        [ids] = vocabulary.encode([line])
        assert len(ids) > 1
        assert not {BOS, PAD, EOS, UNK, vocabulary.mask} & set(ids), vocabulary.pieces.id_to_piece(ids)


@pytest.mark.parametrize("name", NAMES)
def test_names_that_only_normalising_makes_are_text_to_hugging_face_too(
    vocabulary: Vocabulary, fast: PreTrainedTokenizerFast, name: str
) -> None:
    for line in (name, f"the {name} fox", f"the{name}fox", name * 3):
        assert plain(fast, line) == vocabulary.encode([line])[0]


def test_special_pieces_written_out_are_special_to_hugging_face(fast: PreTrainedTokenizerFast) -> None:
    """Its convention, which fill-mask pipelines live by; the shards come from SentencePiece and have no such ids."""
    assert fast.mask_token_id in plain(fast, "the quick <mask> fox")


# ---- the same ids from both --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line", [*ODD, "", " ", " \t ", "\u200b", "\u200b \u00a0", "a" * 5000, "....... . .... " * 300]
)
def test_both_give_the_same_ids(vocabulary: Vocabulary, fast: PreTrainedTokenizerFast, line: str) -> None:
    assert plain(fast, line) == vocabulary.encode([line])[0]


@pytest.mark.parametrize("space", [*SPACE, *INVISIBLE])
def test_both_treat_odd_white_space_alike(vocabulary: Vocabulary, fast: PreTrainedTokenizerFast, space: str) -> None:
    for line in (
        f"{space}fox",
        f"fox{space}",
        f"quick{space}fox",
        f"quick{space}{space}fox",
        f" {space} quick {space}\u0301 fox {space}",
        space,
        f"{space}\u0301",
    ):
        assert plain(fast, line) == vocabulary.encode([line])[0], ascii(line)


PARTS = st.one_of(
    st.sampled_from(WORDS),
    st.sampled_from(SPACE),
    st.sampled_from(INVISIBLE),
    st.sampled_from(MARKS),
    st.sampled_from(NAMES),
    st.builds(
        lambda piece, times: piece * times, st.sampled_from([".", "s", "т", "漢", "한", "ا", "▁."]), st.integers(2, 40)
    ),
    st.text(max_size=6),
)
LINES = st.lists(PARTS, max_size=12).map("".join).filter(lambda line: not any(name in line for name in SPECIAL))


@settings(max_examples=300, deadline=None)
@given(line=LINES)
def test_both_give_the_same_ids_for_anything(vocabulary: Vocabulary, fast: PreTrainedTokenizerFast, line: str) -> None:
    assert plain(fast, line) == vocabulary.encode([line])[0]


@settings(max_examples=100, deadline=None)
@given(line=LINES)
def test_sentencepiece_alone_gives_the_same_ids_for_normal_text(
    vocabulary: Vocabulary, fast: PreTrainedTokenizerFast, line: str
) -> None:
    normal = fast.backend_tokenizer.normalizer.normalize_str(line)
    # A control character between a letter and its mark leaves them apart at first; readers let none of them in.
    assume(fast.backend_tokenizer.normalizer.normalize_str(normal) == normal)
    assert vocabulary.pieces.encode(normal) == vocabulary.encode([line])[0]


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
def test_ways_to_write_the_same_have_the_same_ids(vocabulary: Vocabulary, composed: str, typed: str) -> None:
    one, other = vocabulary.encode([composed, typed])
    assert one == other
    assert len(one) > 0


REAL = pytest.mark.skipif("CROSSLING_DATA" not in os.environ, reason="CROSSLING_DATA names no folder of real text")


@pytest.fixture(scope="session")
def real() -> Corpora:
    return Corpora(Path(os.environ["CROSSLING_DATA"]) / "pretrain")


@REAL
def test_both_give_the_same_ids_on_real_text(
    vocabulary: Vocabulary, fast: PreTrainedTokenizerFast, real: Corpora
) -> None:
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
def test_sentencepiece_alone_gives_the_same_ids_on_every_line_of_the_text_it_was_trained_on(
    real: Corpora, tmp_path: Path
) -> None:
    Vocabulary.train(real, 32_000, characters=5_000_000).save(tmp_path / "vocab")
    alone = SentencePieceProcessor(model_file=str(tmp_path / "vocab" / "sentencepiece.model"))
    fast = AutoTokenizer.from_pretrained(tmp_path / "vocab")
    for language in real.languages:
        # To Hugging Face the name of a special piece is that piece: see above.
        lines = [line for line in real.lines(language) if not any(name in line for name in SPECIAL)]
        for start in range(0, len(lines), 10_000):
            some = lines[start : start + 10_000]
            assert alone.encode(some) == fast(some, add_special_tokens=False)["input_ids"], language


def test_ids_decode_to_the_line(vocabulary: Vocabulary, fast: PreTrainedTokenizerFast) -> None:
    lines = ["the quick brown fox", "habari ya asubuhi", "ትግርኛ አማርኛ ภาษาไทย"]
    for line, ids in zip(lines, vocabulary.encode(lines), strict=True):
        assert vocabulary.pieces.decode(ids) == line
        assert fast.decode(ids) == line


# ---- on disk -------------------------------------------------------------------------------------------------


def test_saved_and_loaded(vocabulary: Vocabulary, saved: Path) -> None:
    loaded = Vocabulary.load(saved)
    assert loaded == vocabulary
    assert loaded.fingerprint == vocabulary.fingerprint
    assert loaded.encode(list(ODD)) == vocabulary.encode(list(ODD))


def test_fingerprints_tell_vocabularies_apart(scripts: Corpora, vocabulary: Vocabulary) -> None:
    assert Vocabulary.train(scripts, 390, threads=1).fingerprint != vocabulary.fingerprint


def test_files_are_there_for_sentencepiece_and_hugging_face(vocabulary: Vocabulary, saved: Path) -> None:
    line = "the quick brown fox"
    ids = vocabulary.encode([line])[0]
    assert SentencePieceProcessor(model_file=str(saved / "sentencepiece.model")).encode(line) == ids
    assert json.loads((saved / "tokenizer.json").read_text(encoding="utf-8"))["model"]["type"] == "Unigram"
    assert AutoTokenizer.from_pretrained(saved)(line, add_special_tokens=False)["input_ids"] == ids


def test_hugging_face_loads_what_it_saved(vocabulary: Vocabulary, saved: Path) -> None:
    loaded = AutoTokenizer.from_pretrained(saved)
    assert len(loaded) == vocabulary.size
    assert loaded.mask_token_id == vocabulary.mask
    assert loaded.pad_token_id == PAD
    assert [plain(loaded, line) for line in ODD] == vocabulary.encode(list(ODD))
    assert set(loaded("fox")) == {"input_ids", "attention_mask"}


def test_pairs_are_joined_as_in_training(vocabulary: Vocabulary, saved: Path) -> None:
    loaded = AutoTokenizer.from_pretrained(saved)
    source, target = vocabulary.encode(["the quick fox", "habari ya asubuhi"])
    assert loaded("the quick fox")["input_ids"] == [BOS, *source, EOS]
    assert loaded("the quick fox", "habari ya asubuhi")["input_ids"] == [BOS, *source, EOS, *target, EOS]


def test_padding_is_pad(saved: Path) -> None:
    batch = AutoTokenizer.from_pretrained(saved)(["fox", "the quick brown fox"], padding=True)
    assert batch["input_ids"][0][-1] == PAD
    assert batch["attention_mask"][0][-1] == 0


def test_copy_travels_whole(saved: Path, tmp_path: Path) -> None:
    copy_vocabulary(saved, tmp_path / "vocab")
    assert {file.name: file.read_bytes() for file in (tmp_path / "vocab").iterdir()} == {
        file.name: file.read_bytes() for file in saved.iterdir()
    }


def changed(vocabulary: Vocabulary, edit: str) -> bytes:
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
def test_other_special_pieces_are_refused(vocabulary: Vocabulary, tmp_path: Path, edit: str) -> None:
    (tmp_path / "sentencepiece.model").write_bytes(changed(vocabulary, edit))
    with pytest.raises(
        BadInput, match=r"must be <s>, <pad>, </s>, <unk> first and <mask> last, found .*crossling vocab"
    ):
        Vocabulary.load(tmp_path)


@pytest.mark.parametrize("damage", ["empty", "text", "cut", "two alike"])
def test_broken_models_are_refused(vocabulary: Vocabulary, tmp_path: Path, damage: str) -> None:
    file = tmp_path / "sentencepiece.model"
    file.write_bytes(
        {
            "empty": b"",
            "text": b"this is no model\n",
            "cut": vocabulary.model[: len(vocabulary.model) // 2],
            "two alike": changed(vocabulary, "two alike"),
        }[damage]
    )
    with pytest.raises(BadInput, match=re.escape(f"{file}: not a SentencePiece model; make one with crossling vocab")):
        Vocabulary.load(tmp_path)


@pytest.mark.parametrize("name", ["", "nowhere"])
def test_folders_without_a_vocabulary_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadInput, match=r"no vocabulary here \(expected sentencepiece.model\); make one with"):
        Vocabulary.load(tmp_path / name)


# ---- training ------------------------------------------------------------------------------------------------


def test_same_seed_same_vocabulary(scripts: Corpora, vocabulary: Vocabulary) -> None:
    assert Vocabulary.train(scripts, 400, threads=1) == vocabulary


@pytest.fixture
def few_words(tmp_path: Path) -> Corpora:
    draw = random.Random(1)
    words = ["cat", "dog", "<s>", "<mask>", "runs", "house", "blue"]
    return folder_of(tmp_path, {"text/en.txt": [" ".join(draw.choices(words, k=8)) for _ in range(300)]})


@pytest.mark.parametrize(
    ("size", "advice", "sign"), [(6, "needs {} or more for its characters alone", -1), (5000, "yields {} at most", 1)]
)
def test_sizes_that_do_not_fit_are_answered_with_one_that_does(
    few_words: Corpora, size: int, advice: str, sign: int
) -> None:
    with pytest.raises(BadInput) as caught:
        Vocabulary.train(few_words, size, threads=1)
    sentence = str(caught.value)
    assert sentence.startswith(
        f"{few_words.path}: a vocabulary of {size} pieces cannot be trained on this text, which "
    )
    assert sentence.count("--") == 1  # the option that crossling has, none of SentencePiece's
    assert "--size" in sentence
    assert ". " not in sentence
    found = re.search(advice.format(r"(\d+)"), sentence)
    assert found
    limit = int(found[1])
    assert Vocabulary.train(few_words, limit, threads=1).size == limit
    with pytest.raises(BadInput):
        Vocabulary.train(few_words, limit + sign, threads=1)


@pytest.mark.parametrize("size", [-1, 0, 1, 4])
def test_sizes_without_room_for_special_pieces(few_words: Corpora, size: int) -> None:
    with pytest.raises(BadInput, match=rf"a vocabulary of {size} pieces .*--size"):
        Vocabulary.train(few_words, size, threads=1)


def test_names_of_special_pieces_in_the_corpus_do_no_harm(few_words: Corpora) -> None:
    vocabulary = Vocabulary.train(few_words, 30, threads=1)
    pieces = [vocabulary.pieces.id_to_piece(i) for i in range(vocabulary.size)]
    assert all(pieces.count(name) == 1 for name in SPECIAL)


def test_very_long_lines_are_cut_not_lost(tmp_path: Path) -> None:
    corpora = folder_of(tmp_path, {"text/en.txt": ["кот дом " * 10_000]})
    [line] = smoothed_sample(corpora, {"en": 80_000}, 1.0)["en"]
    assert 0 < len(line) < 80_000
    assert Vocabulary.train(corpora, 14, threads=1).encode(["кот"])[0].count(UNK) == 0


def test_nothing_but_a_vocabulary_is_written_over(vocabulary: Vocabulary, tmp_path: Path) -> None:
    vocabulary.save(tmp_path / "v")
    vocabulary.save(tmp_path / "v")
    (tmp_path / "v" / "notes.txt").write_text("mine", encoding="utf-8")
    for write in (vocabulary.save, check_place):
        with pytest.raises(BadInput, match=r"notes\.txt is in it"):
            write(tmp_path / "v")
    assert (tmp_path / "v" / "notes.txt").read_text(encoding="utf-8") == "mine"


# ---- made of given pieces ------------------------------------------------------------------------------------


def test_pieces_scores_and_rules_come_back(vocabulary: Vocabulary) -> None:
    again = Vocabulary.of(vocabulary.scores, vocabulary.rules, vocabulary.rules_name)
    assert again == vocabulary
    assert list(vocabulary.scores) == [vocabulary.pieces.id_to_piece(i) for i in range(4, vocabulary.mask)]


def test_the_best_segmentation_by_given_scores_is_taken() -> None:
    scores = {"▁": -2.0, "a": -3.0, "b": -3.0, "▁ab": -9.0, "ab": -4.0, "▁a": -4.5}
    made = Vocabulary.of(scores, plain_map())
    ids = [[4, 8]]  # ▁ + ab is -6, ▁a + b is -7.5
    assert made.encode(["ab"]) == ids
    assert made.tokenizer()(["ab"], add_special_tokens=False)["input_ids"] == ids


def test_counts_are_those_of_the_ids(vocabulary: Vocabulary) -> None:
    ids = [i for row in vocabulary.encode(ODD) for i in row]
    counts = vocabulary.counts(iter(ODD))
    assert counts.sum() == len(ids)
    assert all(counts[i] == ids.count(i) for i in range(vocabulary.size))
