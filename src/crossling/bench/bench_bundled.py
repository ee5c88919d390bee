"""The bundled model on a CPU: sentences and aligned pairs per second, beside float32 and other libraries.

Sentence Transformers and ONNX Runtime have random XLM-R weights of the same shape. All sides run in turn, so that other
load on the machine affects all of them.
"""

from __future__ import annotations

import logging
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import XLMRobertaConfig, XLMRobertaModel

from crossling.bench.workload import BenchRow, BenchSetup
from crossling.core.hub import quiet_transformers
from crossling.export.onnx_files import FILES, OnnxGraph, open_session, quantize_file, run_onnx, trace
from crossling.inference.cpu_precision import in_float32
from crossling.inference.load import load
from crossling.inference.sentence_encoder import Encoder

SENTENCES, PAIRS = 400, 100
WORDS = (8, 33)  # per sentence: the smallest number, and the one after the largest
TIMES = 5
UNUSED_POSITIONS = 2  # positions of XLM-R that no token has


def bundled_rows(at: BenchSetup) -> Iterator[BenchRow]:
    """Measure the bundled model in the precision that `load` chooses."""
    encoder = load(device="cpu")
    sentences = random_sentences(encoder, SENTENCES)
    pairs = [(first.split(), second.split()) for first, second in zip(sentences, reversed(sentences), strict=True)]
    layers = [encoder.universal_layer]
    ours, plain = encoder.precision, in_float32(encoder)
    with tempfile.TemporaryDirectory(prefix="crossling-bench-") as folder:
        works: dict[str, Callable[[], object]] = {
            ours: partial(encoder.encode, sentences),
            "ours in float32": partial(plain.encode, sentences),
        }
        for name, module, make in (
            ("Sentence Transformers", "sentence_transformers", _sentence_transformers),
            ("ONNX Runtime, int8", "onnxruntime", _onnx_runtime),
        ):
            work = at.try_measure(name, make, encoder, Path(folder)) if find_spec(module) else None
            if work is not None:
                works[name] = partial(work, sentences)
        seconds = time_in_turn(works)
    for name in list(works)[1:]:
        title = f"embedding {SENTENCES} sentences, {ours}"
        yield BenchRow(title, SENTENCES / seconds[ours], SENTENCES / seconds[name], "sentences/s", peer_name=name)
    aligners = {"ours": encoder, "ours in float32": plain}
    seconds = time_in_turn({name: partial(each.align_pairs, pairs[:PAIRS], layers) for name, each in aligners.items()})
    own, peer = (PAIRS / each for each in seconds.values())
    yield BenchRow(f"aligning {PAIRS} pairs, {ours}", own, peer, "pairs/s", peer_name="ours in float32")


def random_sentences(encoder: Encoder, number: int) -> list[str]:
    """Return sentences of random words that are one token each."""
    words = [entry[1:] for entry in sorted(encoder.tokenizer.get_vocab()) if entry[:1] == "▁" and entry[1:].isalpha()]
    random = np.random.default_rng(0)
    return [" ".join(random.choice(words, size=random.integers(*WORDS))) for _ in range(number)]


def time_in_turn(works: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Return the median seconds of each work, which run in turn after a warm-up."""
    for work in works.values():
        work()
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(TIMES):
        for name, work in works.items():
            start = time.perf_counter()
            work()
            seconds[name].append(time.perf_counter() - start)
    return {name: float(np.median(each)) for name, each in seconds.items()}


def _same_shape(encoder: Encoder) -> XLMRobertaModel:
    shape = encoder.model.config
    names = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
    sizes: dict[str, Any] = {name: getattr(shape, name) for name in names}
    positions = encoder.max_length + UNUSED_POSITIONS
    torch.manual_seed(0)
    config = XLMRobertaConfig(**sizes, max_position_embeddings=positions, pad_token_id=shape.pad_token_id)
    return XLMRobertaModel(config, add_pooling_layer=False).eval()


def _sentence_transformers(encoder: Encoder, folder: Path) -> Callable[[list[str]], object]:
    from sentence_transformers import SentenceTransformer

    logging.getLogger("sentence_transformers").setLevel(logging.ERROR)  # a note about mean pooling
    with quiet_transformers():
        _same_shape(encoder).save_pretrained(folder)
        encoder.tokenizer.save_pretrained(folder)
        peer = SentenceTransformer(str(folder), device="cpu", local_files_only=True)
    return partial(peer.encode, show_progress_bar=False)


def _onnx_runtime(encoder: Encoder, folder: Path) -> Callable[[list[str]], object]:
    peer = Encoder(_same_shape(encoder), encoder.tokenizer, "xlm-r")
    trace(OnnxGraph(peer, peer.num_layers), folder / FILES["fp32"])
    quantize_file(folder / FILES["fp32"], folder / FILES["int8"])
    session = open_session(folder / FILES["int8"])

    def encode(sentences: list[str]) -> list[np.ndarray]:
        return run_onnx(session, encoder.tokenizer(sentences)["input_ids"], encoder.tokenizer.pad_token_id or 0)

    return encode
