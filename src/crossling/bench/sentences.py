"""Sentence vectors and their evaluation beside Sentence Transformers: the same random weights of XLM-R's shape and the
same sentences, both in float32.

encode      sentences to vectors of the last layer
evaluate    retrieval on the layout of Tatoeba: ours at every layer, theirs at the last alone
"""
# N sentences, D width

from __future__ import annotations

import logging
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import XLMRobertaConfig, XLMRobertaModel
from transformers.utils import logging as transformers_logging

from crossling.babel import babel
from crossling.bench.row import Row
from crossling.bench.setting import Setting
from crossling.corpora.corpus import Corpora
from crossling.evaluate.cosine import unit
from crossling.evaluate.encode import TOKENS_PER_BATCH, Encoder
from crossling.evaluate.evaluate import evaluate
from crossling.evaluate.retrieval import Bitext, read_tatoeba
from crossling.load import load
from crossling.vocabulary.vocab import vocab
from crossling.vocabulary.vocabulary import Vocabulary

PIECES = 1000
PEER = "Sentence Transformers"
USUAL = 32  # sentences of its batches, if not said
SECONDS = 5.0  # after which nothing is measured once more


def encode_rows(at: Setting) -> Iterator[Row]:
    """Sentences a second."""
    with _prepared(at) as (folder, data):
        encoder = load(folder)
        sentences = _sentences(data)
        title = f"embedding {len(sentences):,} sentences"
        ours = at.tried(title, partial(_rate, at, sentences, partial(encoder.embed, layer=encoder.layers)))
        if ours is None:
            return
        theirs = at.tried(PEER, partial(_peer, folder, encoder)) if find_spec("sentence_transformers") else None
        if theirs is None:
            yield Row(title, ours, None, None, "sentences/s", at.device_name, PEER)
            return
        for batch in (_limit(encoder, sentences), USUAL):
            name = f"{PEER}, batches of {batch}"
            work = partial(theirs.encode, batch_size=batch, show_progress_bar=False)
            peer = at.tried(name, partial(_rate, at, sentences, work))
            yield Row(title, ours, peer, ours / peer if peer else None, "sentences/s", at.device_name, name)


def evaluate_rows(at: Setting) -> Iterator[Row]:
    """Seconds; both directions of every pair."""
    with _prepared(at) as (folder, data):
        encoder = load(folder)
        bitexts = _bitexts(data)
        name = f"Tatoeba, {len(bitexts)} pairs, {encoder.layers + 1} layers"
        work = partial(evaluate, encoder, ["tatoeba"], data, languages=[bitexts[0].first.language])
        ours = at.tried(name, partial(_seconds, at, work))
        if ours is None:
            return
        peer, peer_name = None, f"{PEER}, one layer"
        if find_spec("sentence_transformers"):
            limit = _limit(encoder, _sentences(data))
            peer = at.tried(peer_name, lambda: _seconds(at, partial(_retrieve, _peer(folder, encoder), data, limit)))
        yield Row(name, ours, peer, peer / ours if peer else None, "s", at.device_name, peer_name)


@contextmanager
def _prepared(at: Setting) -> Iterator[tuple[Path, Path]]:
    """A model with random weights, and benchmarks of embedded languages."""
    with tempfile.TemporaryDirectory(prefix="crossling-bench-") as folder:
        here = Path(folder)
        few = (6, 1000) if at.on_gpu else (3, 60)  # languages, and sentences of their benchmarks
        languages = babel(here / "babel", few[0], sentences=500, test_sentences=few[1], alignment_sentences=10)
        vocab(Corpora(languages / "corpora"), PIECES, here / "vocab")
        vocabulary = Vocabulary.load(here / "vocab")
        config = XLMRobertaConfig(
            vocab_size=vocabulary.size,
            hidden_size=at.shape.width,
            num_hidden_layers=at.shape.layers,
            num_attention_heads=at.shape.heads,
            intermediate_size=at.shape.feed_forward,
            max_position_embeddings=at.length + 2,
        )
        torch.manual_seed(0)
        with _quiet():
            XLMRobertaModel(config).save_pretrained(here / "model")
        vocabulary.tokenizer().save_pretrained(here / "model")
        yield here / "model", languages / "data"


def _peer(folder: Path, encoder: Encoder) -> Any:
    from sentence_transformers import SentenceTransformer

    logging.getLogger("sentence_transformers").setLevel(logging.ERROR)  # that it takes the mean, as it should
    with _quiet():
        peer = SentenceTransformer(str(folder), device=str(encoder.model.device), local_files_only=True)
    peer.max_seq_length = encoder.longest
    return peer


def _limit(encoder: Encoder, sentences: list[str]) -> int:
    """As many sentences as our limit of tokens holds of the longest."""
    return max(1, TOKENS_PER_BATCH // max(map(len, encoder.tokenizer(sentences)["input_ids"])))


def _retrieve(peer: Any, data: Path, batch: int) -> None:
    """Each distinct sentence once, then the nearest of the other side."""
    bitexts = _bitexts(data)
    distinct = sorted({sentence for bitext in bitexts for side in bitext.sides for sentence in side.sentences})
    vectors_ND = unit(peer.encode(distinct, batch_size=batch, show_progress_bar=False))
    row = {sentence: number for number, sentence in enumerate(distinct)}
    for bitext in bitexts:
        first_ND, second_ND = (vectors_ND[[row[sentence] for sentence in side.sentences]] for side in bitext.sides)
        scores = first_ND @ second_ND.T
        np.argmax(scores, axis=1), np.argmax(scores, axis=0)


def _bitexts(data: Path) -> list[Bitext]:
    """One language with each of the others, as English is with all in Tatoeba."""
    bitexts = read_tatoeba(data)
    pivot = bitexts[0].first.language
    return [bitext for bitext in bitexts if pivot in {side.language for side in bitext.sides}]


def _sentences(data: Path) -> list[str]:
    """Of all languages, shuffled: no batch is of one length by itself."""
    found = [sentence for bitext in _bitexts(data) for side in bitext.sides for sentence in side.sentences]
    return [found[number] for number in np.random.default_rng(0).permutation(len(found))]


def _rate(at: Setting, sentences: list[str], work: Callable[[list[str]], object]) -> float:
    return len(sentences) / _seconds(at, partial(work, sentences))


def _seconds(at: Setting, work: Callable[[], object]) -> float:
    """The median of three, or of fewer where they take long, after one; both sides end with their vectors on the
    host."""
    work()
    seconds: list[float] = []
    while len(seconds) < min(3, at.times) and sum(seconds) < SECONDS:
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return float(np.median(seconds))


@contextmanager
def _quiet() -> Iterator[None]:
    shown = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            transformers_logging.enable_progress_bar()
