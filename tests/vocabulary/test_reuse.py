"""A reused vocabulary keeps its ids, an extended one its pieces and nearly its ways, a trimmed one its segmentation."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import sentencepiece
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast, XLMRobertaConfig

from crossling.corpora.corpus import Corpora
from crossling.errors import BadInput
from crossling.vocabulary.reuse import SHARE, extend, reuse, trim
from crossling.vocabulary.vocabulary import SPECIAL, UNK, Vocabulary

from .texts import ODD, folder_of, new_language, random_lines

LINES = [*ODD, "the quick brown fox", "habari ya asubuhi", "a 漢 b", "", "x" * 40]


@pytest.fixture(scope="module")
def xlm_r(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as XLM-R's: SentencePiece's own ids, to which its tokenizer adds one."""
    folder = tmp_path_factory.mktemp("xlm-r")
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(random_lines(400)), model_prefix=str(folder / "m"), vocab_size=300, minloglevel=2
    )
    (folder / "m.model").rename(folder / "sentencepiece.bpe.model")
    (folder / "m.vocab").unlink()
    XLMRobertaConfig(vocab_size=302).save_pretrained(folder)
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "XLMRobertaTokenizer"}))
    return folder


@pytest.fixture(scope="module")
def fast_xlm_r(xlm_r: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with tokenizer.json alone."""
    folder = tmp_path_factory.mktemp("fast-xlm-r")
    AutoTokenizer.from_pretrained(xlm_r).save_pretrained(folder)
    assert not (folder / "sentencepiece.bpe.model").exists()
    return folder


def plain(fast: PreTrainedTokenizerFast, lines: list[str]) -> list[list[int]]:
    return fast(lines, add_special_tokens=False)["input_ids"]


# ---- as it is ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["sentencepiece", "tokenizer.json"])
def test_ids_are_those_of_the_original(xlm_r: Path, fast_xlm_r: Path, kind: str, tmp_path: Path) -> None:
    reused = reuse(xlm_r if kind == "sentencepiece" else fast_xlm_r)
    theirs = AutoTokenizer.from_pretrained(xlm_r)
    alone = sentencepiece.SentencePieceProcessor(model_file=str(xlm_r / "sentencepiece.bpe.model"))
    assert reused.size == len(theirs) == 302
    assert [reused.pieces.id_to_piece(i) for i in range(302)] == theirs.convert_ids_to_tokens(list(range(302)))
    assert plain(reused.tokenizer(), LINES) == plain(theirs, LINES)
    shifted = [[i + 1 if i else UNK for i in row] for row in alone.encode(LINES)]
    assert reused.encode(LINES) == shifted
    reused.save(tmp_path / "vocab")
    assert plain(AutoTokenizer.from_pretrained(tmp_path / "vocab"), LINES) == plain(theirs, LINES)
    assert Vocabulary.load(tmp_path / "vocab").encode(LINES) == shifted


def test_marks_keep_the_order_in_which_the_original_has_them(xlm_r: Path, vocabulary: Vocabulary) -> None:
    typed = ["ن\u0651\u064e", "ن\u064e\u0651"]
    one, other = reuse(xlm_r).encode(typed)
    assert one != other
    one, other = vocabulary.encode(typed)
    assert one == other


def test_a_vocabulary_of_ours_is_the_same_again(vocabulary: Vocabulary, tmp_path: Path) -> None:
    vocabulary.save(tmp_path / "run" / "vocab")
    assert reuse(tmp_path / "run" / "vocab") == reuse(tmp_path / "run") == vocabulary
    (tmp_path / "run" / "vocab" / "sentencepiece.model").unlink()  # as in an exported model
    again = reuse(str(tmp_path / "run" / "vocab"))
    assert again.encode(LINES) == vocabulary.encode(LINES)
    assert again == vocabulary


def other_kind(model: models.Model, folder: Path) -> Path:
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>").save_pretrained(folder)
    return folder


@pytest.mark.parametrize("kind", ["BPE", "WordPiece"])
def test_other_kinds_are_refused_by_name(kind: str, tmp_path: Path) -> None:
    pieces = {"<unk>": 0, "a": 1, "b": 2}
    model = models.BPE(pieces, [], unk_token="<unk>") if kind == "BPE" else models.WordPiece(pieces, unk_token="<unk>")
    with pytest.raises(BadInput, match=rf"is of the kind {kind}; only unigram vocabularies of SentencePiece"):
        reuse(other_kind(model, tmp_path))


def test_other_special_pieces_are_refused(tmp_path: Path) -> None:
    model = models.Unigram([("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁a", -1.0)], unk_id=2)
    with pytest.raises(
        BadInput, match=r"must be <s>, <pad>, </s>, <unk> first and <mask> last, as in XLM-R, found <pad>"
    ):
        reuse(other_kind(model, tmp_path))


def test_text_changed_in_ways_sentencepiece_does_not_know_is_refused(fast_xlm_r: Path, tmp_path: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(fast_xlm_r)
    backend = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    backend.normalizer = normalizers.Sequence([normalizers.Lowercase(), backend.normalizer])
    PreTrainedTokenizerFast(tokenizer_object=backend).save_pretrained(tmp_path)
    with pytest.raises(BadInput, match="changes text by Lowercase, which SentencePiece cannot do"):
        reuse(tmp_path)


def test_a_folder_without_a_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no tokenizer here") as caught:
        reuse(tmp_path)
    assert "\n" not in str(caught.value)


def test_a_name_that_is_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    def offline(*_: object, **__: object) -> None:
        raise OSError("no network in tests")

    monkeypatch.setattr("crossling.hub.model_info", offline)
    for name in ("nobody/no-such-model", "./no such/folder/at all"):
        with pytest.raises(BadInput, match="no such folder"):
            reuse(name)


# ---- with more pieces ----------------------------------------------------------------------------------------

NEW = new_language(300)


def test_old_pieces_keep_their_ids_and_new_ones_follow(xlm_r: Path) -> None:
    old = reuse(xlm_r)
    new = extend(old, NEW, 330)
    assert new.size == 330
    assert list(new.scores)[: len(old.scores)] == list(old.scores)
    assert new.scores | old.scores == new.scores
    assert new.pieces.id_to_piece(329) == "<mask>"
    assert (new.rules, new.rules_name) == (old.rules, old.rules_name)
    assert len(new.scores) == len(set(new.scores))


def test_the_new_language_is_written_shorter_and_is_known(xlm_r: Path) -> None:
    old = reuse(xlm_r)
    new = extend(old, NEW, 380)
    before, after = old.counts(NEW), new.counts(NEW)
    assert before[UNK] > 0
    assert after[UNK] == 0
    assert after.sum() < 0.6 * sum(len(line.replace(" ", "")) for line in NEW)
    added = after[old.size - 1 : -1]
    assert (added > 0).mean() > 0.8
    assert new.encode(["the quick brown fox"]) == old.encode(["the quick brown fox"])
    assert max(list(new.scores.values())[len(old.scores) :]) < -3.9 < 0 < SHARE < 1


def test_both_files_agree_on_an_extended_vocabulary(vocabulary: Vocabulary) -> None:
    new = extend(vocabulary, NEW, 430)
    assert plain(new.tokenizer(), [*LINES, *NEW]) == new.encode([*LINES, *NEW])


def test_letters_of_the_new_language_get_their_rules_where_these_are_ours(vocabulary: Vocabulary, xlm_r: Path) -> None:
    odd = "e\u0335\u0323"
    new = extend(vocabulary, NEW, 430, odd=[odd])
    assert vocabulary.pieces.encode(odd) != vocabulary.encode([odd])[0]
    assert new.pieces.encode(odd) == new.encode([odd])[0]
    assert extend(reuse(xlm_r), NEW, 330, odd=[odd]).rules == reuse(xlm_r).rules


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (302, "--size 302: there are 302 pieces already; give a larger --size to add some"),
        (5, "--size 5: there are 302 pieces already"),
        (9000, r"the text yields \d+ new pieces: give --size \d+ or less, or more text"),
    ],
)
def test_sizes_that_cannot_be(xlm_r: Path, size: int, expected: str) -> None:
    with pytest.raises(BadInput, match=expected):
        extend(reuse(xlm_r), NEW, size)


def test_the_size_that_is_named_is_possible(xlm_r: Path) -> None:
    with pytest.raises(BadInput) as caught:
        extend(reuse(xlm_r), NEW, 9000)
    size = int(str(caught.value).split("--size ")[1].split()[0])
    assert extend(reuse(xlm_r), NEW, size).size == size


# ---- with those that are needed only -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Corpora:
    """Two scripts of the many, and characters that no vocabulary here knows."""
    lines = [*random_lines(300)[::7], "the quick ☃ fox", "fox☃", "☃☃ x"]
    return folder_of(tmp_path_factory.mktemp("small"), {"text/en.txt": lines, "text/sw.txt": ["habari ya fox"]})


@pytest.mark.parametrize("whose", ["ours", "theirs"])
def test_trimming_changes_no_segmentation(whose: str, vocabulary: Vocabulary, xlm_r: Path, small: Corpora) -> None:
    old = vocabulary if whose == "ours" else reuse(xlm_r)
    new = trim(old, small)
    lines = [line for language in small.languages for line in small.lines(language)]
    assert new.size < old.size
    written = [[[v.pieces.id_to_piece(i) for i in row] for row in v.encode(lines)] for v in (old, new)]
    assert written[0] == written[1]
    assert sum(row.count("<unk>") for row in written[1]) >= 3
    order = [piece for piece in old.scores if piece in new.scores]
    assert list(new.scores) == order
    assert all(new.scores[piece] == old.scores[piece] for piece in order)
    used = {piece for row in written[0] for piece in row}
    characters = {character for piece in used for character in piece if character in old.scores}
    lowest = min(old.scores, key=lambda piece: old.scores[piece])
    assert set(new.scores) == (used - {*SPECIAL}) | characters | {lowest}


def test_trimmed_to_the_most_used(vocabulary: Vocabulary, small: Corpora) -> None:
    whole = trim(vocabulary, small)
    least = whole.size - 30
    part = trim(vocabulary, small, least)
    assert part.size == least
    assert set(part.scores) < set(whole.scores)
    assert {piece for piece in whole.scores if len(piece) == 1} <= set(part.scores)
    lines = [line for language in small.languages for line in small.lines(language)]
    counts = dict(zip(vocabulary.scores, vocabulary.counts(lines)[UNK + 1 : -1].tolist(), strict=True))
    left_out = [piece for piece in whole.scores if piece not in part.scores]
    long = [piece for piece in part.scores if len(piece) > 1]
    assert max(counts[piece] for piece in left_out) <= sorted(counts[piece] for piece in long)[1]  # [0]: the lowest
    assert trim(vocabulary, small, 10**6) == whole


def test_no_room_for_the_characters(vocabulary: Vocabulary, small: Corpora) -> None:
    with pytest.raises(BadInput, match=r"--size 9 is too small: .* alone need (\d+); give that or more") as caught:
        trim(vocabulary, small, 9)
    least = int(str(caught.value).split("need ")[1].split(";")[0])
    assert trim(vocabulary, small, least).size == least
    with pytest.raises(BadInput):
        trim(vocabulary, small, least - 1)
