"""Tests of reused vocabularies: unchanged ids, extension with new subwords, and trimming without new segmentations."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import sentencepiece
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast, XLMRobertaConfig

from crossling.core.errors import BadInput
from crossling.corpora.corpus import Corpora
from crossling.vocabulary.reuse_vocabulary import NEW_TEXT_PROPORTION, extend, load_vocabulary
from crossling.vocabulary.vocabulary import SPECIAL, UNK, Vocabulary

from .texts import ODD, folder_of, new_language, random_lines, trim_to

LINES = [*ODD, "the quick brown fox", "habari ya asubuhi", "a 漢 b", "", "x" * 40]


@pytest.fixture(scope="module")
def xlm_r(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder like that of XLM-R, origin tokenizer adds one to the ids of SentencePiece."""
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
    """The same model with tokenizer.json alone."""
    folder = tmp_path_factory.mktemp("fast-xlm-r")
    AutoTokenizer.from_pretrained(xlm_r).save_pretrained(folder)
    assert not (folder / "sentencepiece.bpe.model").exists()
    return folder


def encode(fast: PreTrainedTokenizerFast, lines: list[str]) -> list[list[int]]:
    return fast(lines, add_special_tokens=False)["input_ids"]


# ---- load -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["sentencepiece", "tokenizer.json"])
def test_ids_are_those_of_the_original(xlm_r: Path, fast_xlm_r: Path, kind: str, tmp_path: Path) -> None:
    reused = load_vocabulary(xlm_r if kind == "sentencepiece" else fast_xlm_r)
    theirs = AutoTokenizer.from_pretrained(xlm_r)
    alone = sentencepiece.SentencePieceProcessor(model_file=str(xlm_r / "sentencepiece.bpe.model"))
    assert reused.size == len(theirs) == 302
    assert [reused.processor.id_to_piece(i) for i in range(302)] == theirs.convert_ids_to_tokens(list(range(302)))
    assert encode(reused.tokenizer(), LINES) == encode(theirs, LINES)
    shifted = [[i + 1 if i else UNK for i in row] for row in alone.encode(LINES)]
    assert reused.encode(LINES) == shifted
    reused.save(tmp_path / "vocab")
    assert encode(AutoTokenizer.from_pretrained(tmp_path / "vocab"), LINES) == encode(theirs, LINES)
    assert Vocabulary.load(tmp_path / "vocab").encode(LINES) == shifted


def test_normalization_rules_of_the_original_are_kept(xlm_r: Path, vocabulary: Vocabulary) -> None:
    typed = ["ن\u0651\u064e", "ن\u064e\u0651"]
    one, other = load_vocabulary(xlm_r).encode(typed)
    assert one != other
    one, other = vocabulary.encode(typed)
    assert one == other


def test_our_own_vocabulary_is_loaded_unchanged(vocabulary: Vocabulary, tmp_path: Path) -> None:
    vocabulary.save(tmp_path / "run" / "vocab")
    assert load_vocabulary(tmp_path / "run" / "vocab") == load_vocabulary(tmp_path / "run") == vocabulary
    (tmp_path / "run" / "vocab" / "sentencepiece.model").unlink()  # as in an exported model
    again = load_vocabulary(str(tmp_path / "run" / "vocab"))
    assert again.encode(LINES) == vocabulary.encode(LINES)
    assert again == vocabulary


def save_other(model: models.Model, folder: Path) -> Path:
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>").save_pretrained(folder)
    return folder


@pytest.mark.parametrize("kind", ["BPE", "WordPiece"])
def test_other_types_of_tokenizers_are_refused_by_name(kind: str, tmp_path: Path) -> None:
    subwords = {"<unk>": 0, "a": 1, "b": 2}
    model = (
        models.BPE(subwords, [], unk_token="<unk>") if kind == "BPE" else models.WordPiece(subwords, unk_token="<unk>")
    )
    with pytest.raises(BadInput, match=rf"{kind} tokenizer, expected a unigram vocabulary"):
        load_vocabulary(save_other(model, tmp_path))


def test_other_special_tokens_are_refused(tmp_path: Path) -> None:
    model = models.Unigram([("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁a", -1.0)], unk_id=2)
    with pytest.raises(BadInput, match=r"expected .* <s>, <pad>, </s>, <unk> first and <mask> last, found <pad>"):
        load_vocabulary(save_other(model, tmp_path))


def test_normalizers_that_sentencepiece_lacks_are_refused(fast_xlm_r: Path, tmp_path: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(fast_xlm_r)
    backend = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    backend.normalizer = normalizers.Sequence([normalizers.Lowercase(), backend.normalizer])
    PreTrainedTokenizerFast(tokenizer_object=backend).save_pretrained(tmp_path)
    with pytest.raises(BadInput, match="normalizes text with Lowercase, which SentencePiece cannot do"):
        load_vocabulary(tmp_path)


def test_a_folder_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no tokenizer") as caught:
        load_vocabulary(tmp_path)
    assert "\n" not in str(caught.value)


def test_an_unknown_model_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def offline(*_: object, **__: object) -> None:
        raise OSError("no network in tests")

    monkeypatch.setattr("crossling.core.hub.model_info", offline)
    for name in ("nobody/no-such-model", "./no such/folder/at all"):
        with pytest.raises(BadInput, match="no such folder"):
            load_vocabulary(name)


# ---- extend ----------------------------------------------------------------------------------------------------

NEW = new_language(300)


def test_old_subwords_keep_their_ids_and_new_ones_follow(xlm_r: Path) -> None:
    old = load_vocabulary(xlm_r)
    new = extend(old, NEW, 330)
    assert new.size == 330
    assert list(new.scores)[: len(old.scores)] == list(old.scores)
    assert new.scores | old.scores == new.scores
    assert new.processor.id_to_piece(329) == "<mask>"
    assert (new.charsmap, new.normalizer_name) == (old.charsmap, old.normalizer_name)
    assert len(new.scores) == len(set(new.scores))


def test_the_new_language_needs_fewer_tokens_and_has_no_unknown_ones(xlm_r: Path) -> None:
    old = load_vocabulary(xlm_r)
    new = extend(old, NEW, 380)
    before, after = old.count_tokens(NEW), new.count_tokens(NEW)
    assert before[UNK] > 0
    assert after[UNK] == 0
    assert after.sum() < 0.6 * sum(len(line.replace(" ", "")) for line in NEW)
    added = after[old.size - 1 : -1]
    assert (added > 0).mean() > 0.8
    assert new.encode(["the quick brown fox"]) == old.encode(["the quick brown fox"])
    assert max(list(new.scores.values())[len(old.scores) :]) < -3.9 < 0 < NEW_TEXT_PROPORTION < 1


def test_sentencepiece_and_tokenizers_agree_on_an_extended_vocabulary(vocabulary: Vocabulary) -> None:
    new = extend(vocabulary, NEW, 430)
    assert encode(new.tokenizer(), [*LINES, *NEW]) == new.encode([*LINES, *NEW])


def test_clusters_of_the_new_language_get_rules_if_the_rules_are_our_own(vocabulary: Vocabulary, xlm_r: Path) -> None:
    cluster = "e\u0335\u0323"
    new = extend(vocabulary, NEW, 430, clusters=[cluster])
    assert vocabulary.processor.encode(cluster) != vocabulary.encode([cluster])[0]
    assert new.processor.encode(cluster) == new.encode([cluster])[0]
    assert extend(load_vocabulary(xlm_r), NEW, 330, clusters=[cluster]).charsmap == load_vocabulary(xlm_r).charsmap


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (302, "size 302: the vocabulary already has 302 entries. Give a larger size."),
        (5, "size 5: the vocabulary already has 302 entries"),
        (9000, r"the text yields \d+ new subwords. Give size \d+ or less, or more text"),
    ],
)
def test_impossible_sizes_are_refused(xlm_r: Path, size: int, expected: str) -> None:
    with pytest.raises(BadInput, match=expected):
        extend(load_vocabulary(xlm_r), NEW, size)


def test_the_size_in_the_message_is_possible(xlm_r: Path) -> None:
    with pytest.raises(BadInput) as caught:
        extend(load_vocabulary(xlm_r), NEW, 9000)
    size = int(str(caught.value).split("size ")[1].split()[0])
    assert extend(load_vocabulary(xlm_r), NEW, size).size == size


# ---- trim ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Corpora:
    """Two of the scripts, and characters that no vocabulary knows."""
    lines = [*random_lines(300)[::7], "the quick ☃ fox", "fox☃", "☃☃ x"]
    return folder_of(tmp_path_factory.mktemp("small"), {"text/en.txt": lines, "text/sw.txt": ["habari ya fox"]})


@pytest.mark.parametrize("origin", ["ours", "xlm_r"])
def test_trimming_keeps_the_segmentation(origin: str, vocabulary: Vocabulary, xlm_r: Path, small: Corpora) -> None:
    old = vocabulary if origin == "ours" else load_vocabulary(xlm_r)
    new = trim_to(old, small)
    lines = [line for language in small.languages for line in small.lines(language)]
    assert new.size < old.size
    written = [[[v.processor.id_to_piece(i) for i in row] for row in v.encode(lines)] for v in (old, new)]
    assert written[0] == written[1]
    assert sum(row.count("<unk>") for row in written[1]) >= 3
    order = [subword for subword in old.scores if subword in new.scores]
    assert list(new.scores) == order
    assert all(new.scores[subword] == old.scores[subword] for subword in order)
    used = {subword for row in written[0] for subword in row}
    characters = {character for subword in used for character in subword if character in old.scores}
    lowest = min(old.scores, key=lambda subword: old.scores[subword])
    assert set(new.scores) == (used - {*SPECIAL}) | characters | {lowest}


def test_trimming_to_a_size_keeps_the_most_frequent_subwords(vocabulary: Vocabulary, small: Corpora) -> None:
    whole = trim_to(vocabulary, small)
    least = whole.size - 30
    part = trim_to(vocabulary, small, least)
    assert part.size == least
    assert set(part.scores) < set(whole.scores)
    assert {subword for subword in whole.scores if len(subword) == 1} <= set(part.scores)
    lines = [line for language in small.languages for line in small.lines(language)]
    counts = dict(zip(vocabulary.scores, vocabulary.count_tokens(lines)[UNK + 1 : -1].tolist(), strict=True))
    removed = [subword for subword in whole.scores if subword not in part.scores]
    long = [subword for subword in part.scores if len(subword) > 1]
    assert (
        max(counts[subword] for subword in removed) <= sorted(counts[subword] for subword in long)[1]
    )  # [0] has the lowest score
    assert trim_to(vocabulary, small, 10**6) == whole


def test_a_size_too_small_for_the_characters_is_refused(vocabulary: Vocabulary, small: Corpora) -> None:
    with pytest.raises(
        BadInput, match=r"size 9 is too small: .* alone need (\d+) entries\. Give that size or more"
    ) as caught:
        trim_to(vocabulary, small, 9)
    least = int(str(caught.value).split("need ")[1].split()[0])
    assert trim_to(vocabulary, small, least).size == least
    with pytest.raises(BadInput):
        trim_to(vocabulary, small, least - 1)
