"""Sentence vectors and retrieval beside Sentence Transformers, with the same random XLM-R weights in float32.

- `encode`: sentences to vectors of the last layer.
- `evaluate`: retrieval in the layout of Tatoeba, ours at every layer, theirs at the last one only.
"""
# N sentences, D width

from __future__ import annotations

import logging
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import XLMRobertaModel

from crossling.bench.peers import xlm_r_config
from crossling.bench.workload import BenchRow, BenchSetup
from crossling.core.hub import quiet_transformers
from crossling.evaluate.evaluate import evaluate
from crossling.evaluate.retrieval_pairs import RetrievalPair, read_tatoeba
from crossling.inference.hidden_states import TOKENS_PER_BATCH
from crossling.inference.load import load
from crossling.inference.pooling import normalize_vectors
from crossling.inference.sentence_encoder import Encoder
from crossling.synthetic import synth
from crossling.vocabulary.build_vocabulary import vocab
from crossling.vocabulary.vocabulary import Vocabulary

VOCABULARY_SIZE = 1000
PEER = "Sentence Transformers"
DEFAULT_BATCH = 32  # of Sentence Transformers
SECONDS = 5.0  # no repetition after this


def encode_rows(at: BenchSetup) -> Iterator[BenchRow]:
    """Measure sentences per second."""
    with _prepared(at) as (folder, data):
        encoder = load(folder)
        sentences = _sentences(data)
        title = f"embedding {len(sentences):,} sentences"
        encode = partial(encoder.encode, layer=encoder.num_layers)
        ours = at.try_measure(title, _sentences_per_second, at, sentences, encode)
        if ours is None:
            return
        theirs = at.try_measure(PEER, _peer, folder, encoder) if find_spec("sentence_transformers") else None
        if theirs is None:
            yield BenchRow(title, ours, None, "sentences/s", peer_name=PEER)
            return
        for batch in (_limit(encoder, sentences), DEFAULT_BATCH):
            name = f"{PEER}, batches of {batch}"
            work = partial(theirs.encode, batch_size=batch, show_progress_bar=False)
            peer = at.try_measure(name, _sentences_per_second, at, sentences, work)
            yield BenchRow(title, ours, peer, "sentences/s", peer_name=name)


def evaluate_rows(at: BenchSetup) -> Iterator[BenchRow]:
    """Measure seconds for both directions of every pair."""
    with _prepared(at) as (folder, data):
        encoder = load(folder)
        bitexts = _bitexts(data)
        name = f"Tatoeba, {len(bitexts)} pairs, {encoder.num_layers + 1} layers"
        work = partial(evaluate, encoder, ["tatoeba"], data, languages=[bitexts[0].first.language])
        ours = at.try_measure(name, _seconds, at, work)
        if ours is None:
            return
        peer, peer_name = None, f"{PEER}, one layer"
        if find_spec("sentence_transformers"):
            limit = _limit(encoder, _sentences(data))
            peer = at.try_measure(
                peer_name, lambda: _seconds(at, partial(_retrieve, _peer(folder, encoder), data, limit))
            )
        yield BenchRow(name, ours, peer, "s", peer_name=peer_name)


@contextmanager
def _prepared(at: BenchSetup) -> Iterator[tuple[Path, Path]]:
    """Create a model with random weights, and benchmarks of synthetic languages."""
    with tempfile.TemporaryDirectory(prefix="crossling-bench-") as folder:
        here = Path(folder)
        few = (6, 1000) if at.on_gpu else (3, 60)  # languages, benchmark sentences
        languages = synth(here / "synth", few[0], sentences=500, test_sentences=few[1], alignment_sentences=10)
        vocab(languages / "corpora", here / "vocab", size=VOCABULARY_SIZE)
        vocabulary = Vocabulary.load(here / "vocab")
        torch.manual_seed(0)
        with quiet_transformers():
            XLMRobertaModel(xlm_r_config(replace(at, vocabulary=vocabulary.size))).save_pretrained(here / "model")
        vocabulary.tokenizer().save_pretrained(here / "model")
        yield here / "model", languages / "data"


def _peer(folder: Path, encoder: Encoder) -> Any:
    from sentence_transformers import SentenceTransformer

    logging.getLogger("sentence_transformers").setLevel(logging.ERROR)  # a note about mean pooling
    with quiet_transformers():
        peer = SentenceTransformer(str(folder), device=str(encoder.model.device), local_files_only=True)
    peer.max_seq_length = encoder.max_length
    return peer


def _limit(encoder: Encoder, sentences: list[str]) -> int:
    """Return the number of longest sentences within our token budget."""
    return max(1, TOKENS_PER_BATCH // max(map(len, encoder.tokenizer(sentences)["input_ids"])))


def _retrieve(peer: Any, data: Path, batch: int) -> None:
    """Encode each distinct sentence once, then find the nearest neighbour on the other side."""
    bitexts = _bitexts(data)
    distinct = sorted({sentence for bitext in bitexts for side in bitext.sides for sentence in side.sentences})
    vectors_ND = normalize_vectors(peer.encode(distinct, batch_size=batch, show_progress_bar=False))
    row = {sentence: number for number, sentence in enumerate(distinct)}
    for bitext in bitexts:
        first_ND, second_ND = (vectors_ND[[row[sentence] for sentence in side.sentences]] for side in bitext.sides)
        scores = first_ND @ second_ND.T
        np.argmax(scores, axis=1), np.argmax(scores, axis=0)


def _bitexts(data: Path) -> list[RetrievalPair]:
    """Return the pairs with the first language, as English in Tatoeba."""
    bitexts = read_tatoeba(data)
    pivot = bitexts[0].first.language
    return [bitext for bitext in bitexts if pivot in {side.language for side in bitext.sides}]


def _sentences(data: Path) -> list[str]:
    """Return the sentences of all languages, shuffled, so that batches have mixed lengths."""
    found = [sentence for bitext in _bitexts(data) for side in bitext.sides for sentence in side.sentences]
    return [found[number] for number in np.random.default_rng(0).permutation(len(found))]


def _sentences_per_second(at: BenchSetup, sentences: list[str], work: Callable[[list[str]], object]) -> float:
    return len(sentences) / _seconds(at, partial(work, sentences))


def _seconds(at: BenchSetup, work: Callable[[], object]) -> float:
    """Return the median time of three runs, or of fewer if they are slow, after a warm-up run."""
    work()
    seconds: list[float] = []
    while len(seconds) < min(3, at.times) and sum(seconds) < SECONDS:
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return float(np.median(seconds))
