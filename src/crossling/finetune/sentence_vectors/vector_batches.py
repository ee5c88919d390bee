"""Batches of pairs: distinct texts in padded chunks, and who is whose positive or negative.

All pairs of a step in one process are one micro-batch, because they are each other's negatives. Its texts are in chunks
of `micro_tokens`.
"""
# N pairs, A candidates, K known texts of a pair, T texts

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import torch

from crossling.core.errors import BadInput
from crossling.data.packing import Batch, batch_by_length
from crossling.finetune.sentence_vectors.vector_losses import NO_TEXT, REVERSE
from crossling.finetune.sentence_vectors.vector_texts import VectorTexts
from crossling.finetune.supervised_training import ORDER, SupervisedBatches

Negatives = Sequence[tuple[int, ...]]  # of each pair, as numbers of texts


@dataclass(kw_only=True, eq=False)
class PairBatches(SupervisedBatches[np.ndarray]):
    """`batches[step]` is the micro-batch of a step in one process.

    Args:
        loss: Name of the loss.
        texts: Texts of the training pairs.
        ids: Token ids of each text as an anchor, and as a positive or negative.
        prompt_lengths: Tokens of the two prompts that are not pooled.
        pad: Id of <pad>.
        batch: Pairs per step over all processes.
        negatives: Returns the hard negatives of an epoch. All processes call it before the same step.
        symmetric: Add the tensors from positives to anchors.
    """

    loss: str
    texts: VectorTexts
    ids: tuple[Sequence[list[int]], Sequence[list[int]]]
    prompt_lengths: tuple[int, int]
    pad: int
    batch: int
    negatives: Callable[[int], Negatives] = field(default=lambda _: ())
    symmetric: bool = False

    def __post_init__(self) -> None:
        if self.batch < self.world_size:
            raise BadInput(f"a batch of {self.batch} is too small for {self.world_size} processes. Set a larger batch.")
        self._order = lru_cache(maxsize=2)(self._shuffle)
        self._epoch_negatives = lru_cache(maxsize=1)(self.negatives)

    @property
    def loss_name(self) -> str:
        return self.loss

    def _shuffle(self, epoch: int) -> np.ndarray:
        return np.random.default_rng([self.seed, ORDER, epoch]).permutation(len(self.texts))

    def split_step(self, step: int) -> list[np.ndarray]:
        """Return the pairs of each process: number of the pair, and the epoch in which the step begins."""
        epoch_N, row_N = np.divmod(np.arange(step * self.batch, (step + 1) * self.batch), len(self.texts))
        pair_N = [self._order(int(epoch))[row] for epoch, row in zip(epoch_N, row_N, strict=True)]
        return np.array_split(np.stack([pair_N, np.full_like(epoch_N, epoch_N[0])], 1), self.world_size)

    def micro_batch(self, items: np.ndarray) -> tuple[Batch, int, int]:
        pair_N = items[:, 0].tolist()
        anchors, positives = ([side[pair] for pair in pair_N] for side in (self.texts.anchors, self.texts.positives))
        rows: dict[tuple[int, int], int] = {}  # (text, role) -> row of the vectors
        batch: Batch = {}
        if self.loss == "ranking":
            mined = self._epoch_negatives(int(items[0, 1]))
            hard = [text for pair in pair_N for text in (*self.texts.negatives[pair], *(mined[pair] if mined else ()))]
            batch |= _ranking(rows, anchors, [*positives, *hard], self.texts.known_positives, roles=(0, 1))
            if self.symmetric:
                reverse = _ranking(rows, positives, anchors, self.texts.known_anchors, roles=(1, 0))
                batch |= {f"{REVERSE}{name}": values for name, values in reverse.items()}
        else:
            batch["queries"] = torch.tensor([rows.setdefault((text, 0), len(rows)) for text in anchors])
            batch["positives"] = torch.tensor([rows.setdefault((text, 1), len(rows)) for text in positives])
            batch["scores"] = torch.tensor([self.texts.scores[pair] for pair in pair_N])
        sequences = [self.ids[role][text] for text, role in rows]
        unpooled = [self.prompt_lengths[role] for _, role in rows]
        return batch | self._pad(sequences, unpooled), len(pair_N), sum(map(len, sequences))

    def _pad(self, sequences: Sequence[list[int]], unpooled: Sequence[int]) -> Batch:
        """Return the chunks of padded texts, and the place of each text in them."""
        batch: Batch = {}
        places: list[int] = []
        for number, chunk in enumerate(batch_by_length([*map(len, sequences)], self.micro_tokens)):
            ids_TL = np.full((len(chunk), len(sequences[chunk[0]])), self.pad)
            mask_TL, pooled_TL = np.zeros_like(ids_TL), np.zeros_like(ids_TL)
            for place, row in enumerate(chunk):
                length = len(sequences[row])
                ids_TL[place, :length], mask_TL[place, :length] = sequences[row], 1
                pooled_TL[place, unpooled[row] : length] = 1
            names = (f"{name}_{number}" for name in ("ids", "mask", "pooled"))
            batch |= dict(zip(names, map(torch.from_numpy, (ids_TL, mask_TL, pooled_TL)), strict=True))
            places += chunk
        return batch | {"order": torch.from_numpy(np.argsort(np.asarray(places)))}


def _ranking(
    rows: dict[tuple[int, int], int],
    queries: Sequence[int],
    candidates: Sequence[int],
    known: Mapping[int, Sequence[int]],
    *,
    roles: tuple[int, int],
) -> Batch:
    """Return the tensors of the ranking loss. The first candidates are the targets of the queries."""
    distinct = list(dict.fromkeys(candidates))
    place = {text: number for number, text in enumerate(distinct)}
    known_N = [[text, *known[text]] for text in queries]
    width = max(map(len, known_N))
    return {
        "queries": torch.tensor([rows.setdefault((text, roles[0]), len(rows)) for text in queries]),
        "candidates": torch.tensor([rows.setdefault((text, roles[1]), len(rows)) for text in distinct]),
        "candidate_texts": torch.tensor(distinct),
        "targets": torch.tensor([place[text] for text in candidates[: len(queries)]]),
        "known": torch.tensor([[*texts, *[NO_TEXT] * (width - len(texts))] for texts in known_N]),
    }
