"""The data path beside Hugging Face `datasets` with its usual collators, on the same text and tokens, one process each.

padding    of packed bitext batches, beside batches of 64 padded to the longest
batches    of 512 tokens, masked and ready for the network, from shards, beside a mapped dataset with
           DataCollatorForLanguageModeling
encoding   of text to shards, beside datasets.map with the same vocabulary as a fast tokenizer
memory     of the readers of text and of shards, on ten times the corpus
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

from crossling.babel import babel
from crossling.bench.row import Row, rate
from crossling.bench.setting import Setting
from crossling.corpora.corpus import Corpora, Text
from crossling.data.batches import Batches
from crossling.data.encode import encode
from crossling.data.shards import Shards
from crossling.hardware import processor
from crossling.objectives import MLM, TLM
from crossling.sampling import Sampling
from crossling.vocabulary.vocab import vocab
from crossling.vocabulary.vocabulary import BOS, Vocabulary

LENGTH = 512
BATCH = 64  # sequences of the peer's batches, and of ours
PIECES = 8000
CHARACTERS = 2_000_000  # that the vocabulary is trained on: its quality does not matter here
SECONDS = 5.0  # of each measurement
LINES = 50_000  # encoded by both
STEP_TOKENS = 1_048_576


def rows(at: Setting) -> Iterator[Row]:
    corpora = at.corpora
    # One core each: neither the fast tokenizer nor SentencePiece may use more.
    os.environ |= {"RAYON_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    with tempfile.TemporaryDirectory(prefix="crossling-bench-") as folder:
        here = Path(folder)
        if corpora is None:
            corpora = babel(here / "babel", sentences=20_000) / "corpora"
        source = Corpora(corpora)
        vocab(source, PIECES if corpora.parent != here / "babel" else 2000, here / "vocab", characters=CHARACTERS)
        shards = encode(source, here / "vocab", here / "shards", workers=os.cpu_count() or 1)
        yield _padding(shards)
        yield _batches(shards)
        yield _workers(shards)
        yield _encoding(source, here)
        yield from _memory(here)


def _padding(shards: Shards) -> Row:
    """Share of padding in percent, in steps of a million tokens."""
    work = Batches(shards, {"tlm": TLM(tokens=STEP_TOKENS, length=LENGTH)}, Sampling(), 0, 65_536)[0]
    segments = [batch["ids_segments"].numpy() for _, batch in work.micro]
    ours = sum(int((part == 0).sum()) for part in segments) / sum(part.size for part in segments)
    lengths = np.concatenate([np.bincount(part.flatten())[1:] for part in segments])
    lengths = np.random.default_rng(0).permutation(lengths[lengths > 0])
    batches = [lengths[start : start + BATCH] for start in range(0, len(lengths), BATCH)]
    peer = 1 - lengths.sum() / sum(len(batch) * batch.max() for batch in batches)
    return Row(
        "padding of bitext", 100 * ours, 100 * float(peer), float(peer) / ours, "%", processor(), "random batches of 64"
    )


def _batches(shards: Shards) -> Row:
    """Real tokens a second of masked batches of 512."""
    batches = _mlm_batches(shards)
    ours = rate(lambda step: batches[step].tokens, SECONDS)
    if not find_spec("datasets"):
        return Row("batches of 512", ours, None, None, "tokens/s", processor())
    peers = {kind: rate(_peer_batches(shards, kind), SECONDS) for kind in ("python", "numpy", "torch")}
    best = max(peers, key=lambda kind: peers[kind])
    name = f"datasets ({best} format), DataCollatorForLanguageModeling"
    return Row("batches of 512", ours, peers[best], ours / peers[best], "tokens/s", processor(), name)


def _mlm_batches(shards: Shards) -> Batches:
    return Batches(
        shards, {"mlm": MLM(tokens=BATCH * LENGTH, length=LENGTH)}, Sampling(text_alpha=1.0), 0, BATCH * LENGTH
    )


def _workers(shards: Shards) -> Row:
    """The same from four loader processes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of machines with fewer cores
        batches = _mlm_batches(shards)
        work = iter(DataLoader(batches, sampler=range(10**9), batch_size=None, num_workers=4, prefetch_factor=4))
    ours = rate(lambda _: next(work).tokens, SECONDS)
    return Row("batches of 512, 4 workers", ours, 400_000, ours / 400_000, "tokens/s", processor(), "what one GPU eats")


def _peer_batches(shards: Shards, kind: str) -> Callable[[int], int]:
    from datasets import Dataset
    from transformers import DataCollatorForLanguageModeling

    tokens = np.concatenate([side.tokens for side in shards.text.values()])
    usable = tokens[: len(tokens) // (LENGTH - 1) * (LENGTH - 1)].reshape(-1, LENGTH - 1)[:20_000]
    blocks = np.concatenate([np.full((len(usable), 1), BOS), usable], axis=1)
    dataset = Dataset.from_dict({"input_ids": blocks.tolist()}).with_format(None if kind == "python" else kind)
    collator = DataCollatorForLanguageModeling(
        Vocabulary.load(shards.vocabulary_path).tokenizer(), mlm_probability=0.15
    )

    def endless() -> Iterator[Any]:
        while True:
            yield from DataLoader(dataset, batch_size=BATCH, shuffle=True, collate_fn=collator)

    work = endless()
    return lambda _: int(next(work)["input_ids"].numel())


def _encoding(corpora: Corpora, here: Path) -> Row:
    """Lines of text a second, read, encoded and written, by one process."""
    folder = here / "lines"
    lines = [line for language in corpora.languages for line in islice(corpora.lines(language), LINES // 10)][:LINES]
    (folder / "text").mkdir(parents=True)
    (folder / "text" / "en.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    start = time.perf_counter()
    encode(Corpora(folder), here / "vocab", here / "encoded")
    ours = len(lines) / (time.perf_counter() - start)
    if not find_spec("datasets"):
        return Row("encoding text", ours, None, None, "lines/s", processor())
    peer = len(lines) / _peer_encoding(folder / "text" / "en.txt", Vocabulary.load(here / "vocab"), here)
    return Row("encoding text", ours, peer, ours / peer, "lines/s", processor(), "datasets.map, fast tokenizer")


def _peer_encoding(file: Path, vocabulary: Vocabulary, here: Path) -> float:
    import datasets

    datasets.disable_progress_bars()
    tokenizer = vocabulary.tokenizer()
    start = time.perf_counter()
    dataset = datasets.load_dataset("text", data_files=str(file), split="train", cache_dir=str(here / "cache"))
    dataset.map(
        lambda batch: {"input_ids": tokenizer(batch["text"])["input_ids"]}, batched=True, remove_columns=["text"]
    )
    return time.perf_counter() - start


def _memory(here: Path) -> Iterator[Row]:
    """Peak of what Python and NumPy allocate, on a corpus and on ten times as much; the ratio is the growth."""
    folders = {times: _text(here / f"times-{times}", times) for times in (1, 10)}
    once, ten = (_peak(partial(_read, folders[times])) for times in (1, 10))
    yield Row("memory of the text reader, 10x", ten, once, ten / once, "MB", processor(), "the same on 1x")
    shards = {times: encode(Corpora(folder), here / "vocab", folder / "shards") for times, folder in folders.items()}
    once, ten = (_peak(partial(_draw, shards[times].path)) for times in (1, 10))
    yield Row("memory of the shard reader, 10x", ten, once, ten / once, "MB", processor(), "the same on 1x")


def _text(folder: Path, times: int) -> Path:
    (folder / "text").mkdir(parents=True)
    lines = "".join(f"a line number {n} of no importance\n" + ("\n" if n % 50 == 0 else "") for n in range(20_000))
    with gzip.open(folder / "text" / "en.txt.gz", "wt", encoding="utf-8", compresslevel=1) as file:
        for _ in range(times):
            file.write(lines)
    return folder


def _read(folder: Path) -> None:
    [text] = Corpora(folder).text
    assert isinstance(text, Text)
    for _ in text.documents():
        pass


def _draw(path: Path) -> None:
    batches = _mlm_batches(Shards.open(path))
    for step in range(20):
        batches[step]


def _peak(work: Callable[[], None]) -> float:
    work()  # what is loaded and cached on first use is not the reader's
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1] / 1e6
    finally:
        tracemalloc.stop()
