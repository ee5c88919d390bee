"""The data path beside Hugging Face `datasets`, on the same text and tokens, one process each.

- Padding of packed bitext, beside batches of 64 padded to the longest.
- Masked batches of 512 tokens from shards, beside a mapped dataset with DataCollatorForLanguageModeling.
- Tokenization to shards, beside datasets.map with the same vocabulary as a fast tokenizer.
- Memory of the readers of text and of shards on ten times the corpus.
"""

from __future__ import annotations

import gzip
import os
import tempfile
import time
import tracemalloc
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from torch.utils.data import DataLoader

from crossling.bench.workload import BenchRow, BenchSetup, throughput
from crossling.corpora.corpus import Corpora, MonolingualCorpus
from crossling.data.batches import Batches
from crossling.data.shards import Shards
from crossling.data.tokenize import tokenize
from crossling.objectives import MLM, TLM
from crossling.sampling import Sampling
from crossling.synthetic import synth
from crossling.vocabulary.build_vocabulary import vocab
from crossling.vocabulary.vocabulary import BOS, Vocabulary

LENGTH = 512
BATCH = 64  # sequences per batch
VOCABULARY_SIZE = 8000
SYNTHETIC_VOCABULARY_SIZE = 2000
CHARACTERS = 2_000_000  # of the vocabulary's training sample: its quality does not matter here
SECONDS = 5.0  # per measurement
LINES = 50_000  # tokenized by both
MEMORY_LINES = 20_000  # of the smaller corpus whose memory is measured
STEP_TOKENS = 1_048_576


def data_rows(at: BenchSetup) -> Iterator[BenchRow]:
    # One core each: neither the fast tokenizer nor SentencePiece may use more.
    os.environ |= {"RAYON_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    with tempfile.TemporaryDirectory(prefix="crossling-bench-") as folder:
        here = Path(folder)
        source = Corpora(at.corpora or synth(here / "synth", sentences=20_000) / "corpora")
        size = VOCABULARY_SIZE if at.corpora else SYNTHETIC_VOCABULARY_SIZE
        vocab(source, here / "vocab", size=size, characters=CHARACTERS)
        shards = tokenize(source, here / "vocab", here / "shards", workers=os.cpu_count() or 1)
        yield _padding(shards)
        yield _batches(shards)
        yield _workers(shards)
        yield _tokenization(source, here)
        yield from _memory(here)


def _padding(shards: Shards) -> BenchRow:
    """Measure the percentage of padding in steps of a million tokens."""
    work = Batches(shards, {"tlm": TLM(tokens=STEP_TOKENS, length=LENGTH)}, Sampling(), seed=0, micro_tokens=65_536)[0]
    segments = [batch["ids_segments"].numpy() for _, batch in work.micro_batches]
    ours = sum(int((part == 0).sum()) for part in segments) / sum(part.size for part in segments)
    lengths = np.concatenate([np.bincount(part.flatten())[1:] for part in segments])
    lengths = np.random.default_rng(0).permutation(lengths[lengths > 0])
    batches = [lengths[start : start + BATCH] for start in range(0, len(lengths), BATCH)]
    peer = 1 - lengths.sum() / sum(len(batch) * batch.max() for batch in batches)
    return BenchRow("padding of bitext", 100 * ours, 100 * float(peer), "%", peer_name="random batches of 64")


def _batches(shards: Shards) -> BenchRow:
    """Measure real tokens per second of masked batches of 512."""
    batches = _mlm_batches(shards)
    ours = throughput(lambda step: batches[step].tokens, SECONDS)
    if not find_spec("datasets"):
        return BenchRow("batches of 512", ours, None, "tokens/s")
    peers = {kind: throughput(_peer_batches(shards, kind), SECONDS) for kind in ("python", "numpy", "torch")}
    best = max(peers, key=lambda kind: peers[kind])
    name = f"datasets ({best} format), DataCollatorForLanguageModeling"
    return BenchRow("batches of 512", ours, peers[best], "tokens/s", peer_name=name)


def _mlm_batches(shards: Shards) -> Batches:
    objectives = {"mlm": MLM(tokens=BATCH * LENGTH, length=LENGTH)}
    return Batches(shards, objectives, Sampling(text_alpha=1.0), seed=0, micro_tokens=BATCH * LENGTH)


def _workers(shards: Shards) -> BenchRow:
    """Measure the same with four loader processes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about machines with fewer cores
        batches = _mlm_batches(shards)
        work = iter(DataLoader(batches, sampler=range(10**9), batch_size=None, num_workers=4, prefetch_factor=4))
    ours = throughput(lambda _: next(work).tokens, SECONDS)
    return BenchRow("batches of 512, 4 workers", ours, 400_000, "tokens/s", peer_name="need of one GPU")


def _peer_batches(shards: Shards, kind: str) -> Callable[[int], int]:
    from datasets import Dataset
    from transformers import DataCollatorForLanguageModeling

    tokens = np.concatenate([side.tokens for side in shards.text.values()])
    usable = tokens[: len(tokens) // (LENGTH - 1) * (LENGTH - 1)].reshape(-1, LENGTH - 1)[:20_000]
    blocks = np.concatenate([np.full((len(usable), 1), BOS), usable], axis=1)
    dataset = Dataset.from_dict({"input_ids": blocks.tolist()}).with_format(None if kind == "python" else kind)
    tokenizer = Vocabulary.load(shards.vocabulary_path).tokenizer()
    collator = DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.15)

    def endless() -> Iterator[Any]:
        while True:
            yield from DataLoader(dataset, batch_size=BATCH, shuffle=True, collate_fn=collator)

    work = endless()
    return lambda _: int(next(work)["input_ids"].numel())


def _tokenization(corpora: Corpora, here: Path) -> BenchRow:
    """Measure lines per second of one process that reads, tokenizes and writes."""
    folder = here / "lines"
    lines = [line for language in corpora.languages for line in islice(corpora.lines(language), LINES // 10)][:LINES]
    (folder / "text").mkdir(parents=True)
    (folder / "text" / "en.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    start = time.perf_counter()
    tokenize(Corpora(folder), here / "vocab", here / "encoded")
    ours = len(lines) / (time.perf_counter() - start)
    if not find_spec("datasets"):
        return BenchRow("tokenizing text", ours, None, "lines/s")
    peer = len(lines) / _peer_tokenization(folder / "text" / "en.txt", Vocabulary.load(here / "vocab"), here)
    return BenchRow("tokenizing text", ours, peer, "lines/s", peer_name="datasets.map, fast tokenizer")


def _peer_tokenization(file: Path, vocabulary: Vocabulary, here: Path) -> float:
    import datasets

    datasets.disable_progress_bars()
    tokenizer = vocabulary.tokenizer()
    start = time.perf_counter()
    dataset = datasets.load_dataset("text", data_files=str(file), split="train", cache_dir=str(here / "cache"))
    dataset.map(
        lambda batch: {"input_ids": tokenizer(batch["text"])["input_ids"]}, batched=True, remove_columns=["text"]
    )
    return time.perf_counter() - start


def _memory(here: Path) -> Iterator[BenchRow]:
    """Measure the peak of Python and NumPy allocations on a corpus and on ten times as much."""
    folders = {times: _text(here / f"times-{times}", times) for times in (1, 10)}
    once, ten = (_peak(partial(_read, folders[times])) for times in (1, 10))
    yield BenchRow("memory of the text reader, 10x", ten, once, "MB", peer_name="the same on 1x")
    shards = {times: tokenize(Corpora(folder), here / "vocab", folder / "shards") for times, folder in folders.items()}
    once, ten = (_peak(partial(_sample_batches, shards[times].path)) for times in (1, 10))
    yield BenchRow("memory of the shard reader, 10x", ten, once, "MB", peer_name="the same on 1x")


def _text(folder: Path, times: int) -> Path:
    (folder / "text").mkdir(parents=True)
    lines = "".join(
        f"a line number {n} of no importance\n" + ("\n" if n % 50 == 0 else "") for n in range(MEMORY_LINES)
    )
    with gzip.open(folder / "text" / "en.txt.gz", "wt", encoding="utf-8", compresslevel=1) as file:
        for _ in range(times):
            file.write(lines)
    return folder


def _read(folder: Path) -> None:
    [text] = Corpora(folder).text
    assert isinstance(text, MonolingualCorpus)
    for _ in text.documents():
        pass


def _sample_batches(path: Path) -> None:
    batches = _mlm_batches(Shards.open(path))
    for step in range(20):
        batches[step]


def _peak(work: Callable[[], None]) -> float:
    work()  # exclude what is loaded and cached on first use
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1] / 1e6
    finally:
        tracemalloc.stop()
