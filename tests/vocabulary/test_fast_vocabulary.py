"""The tokenizer of any Hugging Face model as a vocabulary: its own ids, its own special tokens."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
from transformers import AutoTokenizer

from crossling.core.errors import BadInput
from crossling.corpora.corpus import Corpora
from crossling.data.batches import Batches
from crossling.data.shards import Shards
from crossling.data.tokenize import tokenize
from crossling.objectives import MLM, TLM
from crossling.sampling import Sampling
from crossling.vocabulary.build_vocabulary import vocab
from crossling.vocabulary.fast_vocabulary import FastVocabulary
from crossling.vocabulary.open_vocabulary import open_vocabulary
from crossling.vocabulary.special_tokens import SpecialTokens
from crossling.vocabulary.vocabulary import Vocabulary
from tests.tiny_tokenizers import GEMMA, WORDPIECE, train_tokenizer


def lines_of(corpora: Path) -> list[str]:
    found = Corpora(corpora)
    return [line for language in found.languages for line in found.lines(language)][:500]


@pytest.fixture(scope="module")
def gemma_folder(corpora_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gemma")
    train_tokenizer(lines_of(corpora_folder)).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def gemma_shards(corpora_folder: Path, gemma_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Shards:
    return tokenize(corpora_folder, gemma_folder, tmp_path_factory.mktemp("shards") / "shards")


def test_ids_are_those_of_the_tokenizer(gemma_folder: Path, corpora_folder: Path) -> None:
    vocabulary, tokenizer = open_vocabulary(gemma_folder), AutoTokenizer.from_pretrained(gemma_folder)
    lines = lines_of(corpora_folder)[:50]
    assert isinstance(vocabulary, FastVocabulary)
    assert vocabulary.encode(lines) == tokenizer(lines, add_special_tokens=False)["input_ids"]
    assert vocabulary.decode(vocabulary.encode(lines[:1])[0]) == lines[0]
    assert pickle.loads(pickle.dumps(vocabulary)).encode(lines) == vocabulary.encode(lines)


@pytest.mark.parametrize(("special", "expected"), [(GEMMA, (2, 0, 1, 3, 4)), (WORDPIECE, (2, 0, 3, 1, 4))])
def test_special_tokens_come_from_the_tokenizer(
    special: tuple[str, ...], expected: tuple[int, ...], corpora_folder: Path, tmp_path: Path
) -> None:
    tokenizer = train_tokenizer(lines_of(corpora_folder), special)
    tokenizer.save_pretrained(tmp_path)
    found = open_vocabulary(tmp_path).special
    assert (found.bos, found.pad, found.eos, found.unk, found.mask) == expected
    assert found.size == len(tokenizer)
    assert set(found.text_ids.tolist()) == set(range(len(tokenizer))) - set(tokenizer.all_special_ids)


def test_the_name_of_a_special_token_in_text_stays_text(gemma_folder: Path) -> None:
    vocabulary = open_vocabulary(gemma_folder)
    [ids] = vocabulary.encode(["a<mask>b"])
    assert vocabulary.special.mask not in ids


def test_shards_store_the_special_tokens(gemma_folder: Path, gemma_shards: Shards) -> None:
    special = open_vocabulary(gemma_folder).special
    assert gemma_shards.special == special
    assert open_vocabulary(gemma_shards.vocabulary_path).special == special
    text = next(iter(gemma_shards.text.values()))
    assert {int(text[row][-1]) for row in range(5)} == {special.eos}


def test_batches_have_the_special_tokens_of_the_tokenizer(gemma_shards: Shards) -> None:
    objectives = {"mlm": MLM(rate=0.5, tokens=512, length=32), "tlm": TLM(rate=0.5, tokens=512, length=48)}
    batches, special = Batches(gemma_shards, objectives, Sampling(), seed=0, micro_tokens=512), gemma_shards.special
    for _, batch in batches[0].micro_batches:
        ids, targets, segments = batch["ids"].numpy(), batch["targets"].numpy(), batch["ids_segments"].numpy()
        starts = batch["ids_starts"].numpy()
        assert (ids.flatten()[starts] == special.bos).all()
        assert (ids[segments == 0] == special.pad).all()
        masked = batch["masked"].numpy()
        assert not np.isin(targets[masked], [special.bos, special.eos]).any()
        assert (ids[masked] == special.mask).mean() > 0.6
        replaced = masked & (ids != special.mask) & (ids != targets)
        assert np.isin(ids[replaced], special.text_ids).all()


def test_shards_of_our_own_vocabularies_keep_their_manifest(shards: Shards) -> None:
    assert set(shards.manifest["vocabulary"]) == {"size", "fingerprint"}
    assert shards.special == SpecialTokens.standard(shards.vocabulary_size)


def test_vocab_reuses_a_tokenizer_and_reports_on_it(gemma_folder: Path, corpora_folder: Path, tmp_path: Path) -> None:
    made = vocab(corpora_folder, tmp_path / "vocab", from_=gemma_folder)
    loaded = open_vocabulary(tmp_path / "vocab")
    assert loaded.fingerprint == made.fingerprint
    with pytest.raises(BadInput, match="BPE tokenizer, expected a unigram vocabulary"):
        vocab(corpora_folder, tmp_path / "other", from_=gemma_folder, extend=True, size=1000)


def test_a_unigram_tokenizer_with_standard_ids_opens_as_our_vocabulary(vocabulary_folder: Path, tmp_path: Path) -> None:
    vocabulary = Vocabulary.load(vocabulary_folder)
    vocabulary.tokenizer().save_pretrained(tmp_path)  # a model folder has no sentencepiece.model
    assert isinstance(open_vocabulary(tmp_path), Vocabulary)
    assert isinstance(open_vocabulary("bundled"), Vocabulary)


def test_a_tokenizer_without_mask_token_is_refused(corpora_folder: Path, tmp_path: Path) -> None:
    tokenizer = train_tokenizer(lines_of(corpora_folder))
    tokenizer.mask_token = None
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(BadInput, match="no mask token"):
        open_vocabulary(tmp_path)
