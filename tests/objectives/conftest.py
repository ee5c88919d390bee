"""A small network and small batches for the objectives."""

import numpy as np
import pytest
import torch

from crossling.data.batches import Corrupted, Examples
from crossling.data.noise import Noise
from crossling.data.packing import Batch, pack
from crossling.model.transformer import CrosslingConfig, CrosslingModel
from crossling.objectives import Network, Objective

VOCABULARY = 40
MASK = VOCABULARY - 1
WIDTH = 32  # of a row: several sequences share one


def sentence(rng: np.random.Generator, words: int) -> np.ndarray:
    return np.append(rng.integers(4, MASK, size=words), 2)


def pair_batch(objective: Objective, pairs: int = 6, rows: list[int] | None = None) -> Batch:
    rng = np.random.default_rng(7)
    sides = [[sentence(rng, int(rng.integers(3, 9))) for _ in range(pairs)] for _ in range(2)]
    examples = Examples(sides[0], sides[1], np.array((rows or range(99))[:pairs]))
    return packed(objective.corrupt(examples, Noise([1], 0, pairs), MASK))


def text_batch(objective: Objective, blocks: int = 5) -> Batch:
    rng = np.random.default_rng(8)
    examples = Examples([sentence(rng, int(rng.integers(6, 15))) for _ in range(blocks)])
    return packed(objective.corrupt(examples, Noise([2], 0, blocks), MASK))


def packed(corrupted: Corrupted) -> Batch:
    batch = {name: torch.from_numpy(values) for name, values in corrupted.each.items()}
    for name, sequences in corrupted.inputs.items():
        batch |= pack(sequences, WIDTH, name)
    return batch


def unpacked(batch: Batch, name: str = "ids") -> list[dict[str, torch.Tensor]]:
    """What the rows hold, one sequence at a time."""
    segments = batch[f"{name}_segments"]
    arrays = {key: value for key, value in batch.items() if value.shape == segments.shape}
    return [
        {key: value[segments == number] for key, value in arrays.items()}
        for number in range(1, int(segments.max()) + 1)
    ]


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
