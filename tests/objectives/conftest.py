"""A small network and small batches for the objectives."""

import numpy as np
import pytest
import torch

from crossling.data.batches import Batch, Example, collate
from crossling.model.transformer import CrosslingConfig, CrosslingModel
from crossling.objectives import Network, Objective

VOCABULARY = 40
MASK = VOCABULARY - 1


def sentence(rng: np.random.Generator, words: int) -> np.ndarray:
    return np.append(rng.integers(4, MASK, size=words), 2)


def pair_batch(objective: Objective, pairs: int = 6, rows: list[int] | None = None) -> Batch:
    rng = np.random.default_rng(7)
    examples = [
        Example(sentence(rng, int(rng.integers(3, 9))), sentence(rng, int(rng.integers(3, 9))), (rows or range(99))[i])
        for i in range(pairs)
    ]
    return collate([objective.corrupt(e, np.random.default_rng([1, i]), MASK) for i, e in enumerate(examples)])


def text_batch(objective: Objective, blocks: int = 5) -> Batch:
    rng = np.random.default_rng(8)
    examples = [Example(sentence(rng, int(rng.integers(6, 15)))) for _ in range(blocks)]
    return collate([objective.corrupt(e, np.random.default_rng([2, i]), MASK) for i, e in enumerate(examples)])


def network(*objectives: Objective, dropout: float = 0.0) -> Network:
    torch.manual_seed(0)
    config = CrosslingConfig(
        vocab_size=VOCABULARY,
        hidden_size=16,
        num_hidden_layers=3,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=32,
        dropout=dropout,
        initializer_range=0.3,
    )
    encoder = CrosslingModel(config)
    parts = {name: make() for o in objectives for name, make in o.parts(encoder, 2).items()}
    return Network(encoder, parts)


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)
