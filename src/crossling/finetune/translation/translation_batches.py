"""Batches of sentence pairs, and the loss of translation.

In every epoch the pairs are sorted by length, with pairs of equal length shuffled, and cut into steps of about equally
many tokens. Then the steps are shuffled. All of this is a function of the seed and the epoch, so the step alone
determines the data. Sentences of one step have similar lengths, so that there is little padding.
"""
# N pairs of the training text, B pairs of a micro-batch, M target tokens of a micro-batch
# L target positions, T source positions, D width

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, InitVar, dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from crossling.core.errors import BadInput
from crossling.data.packing import Batch
from crossling.finetune.features import padded_width
from crossling.finetune.supervised_training import ORDER, SupervisedBatches, SupervisedObjective

LOSS_NAME = "translation"


@dataclass(eq=False)
class TranslationBatches(SupervisedBatches[np.ndarray]):
    """`batches[step]` are the micro-batches of a step in one process.

    Args:
        source_ids: Token ids of each source sentence.
        target_ids: Token ids of each target sentence, with the end token.
        tokens: Tokens per step over all processes, counting the longer side of each pair.
        start_token: First input token of the decoder.
        pad_token: Padding token.
        max_length: Maximum number of tokens that the model can read.
    """

    source_ids: InitVar[Sequence[np.ndarray]]
    target_ids: InitVar[Sequence[np.ndarray]]
    _: KW_ONLY
    tokens: int
    start_token: int
    pad_token: int
    max_length: int

    loss_name = LOSS_NAME

    def __post_init__(self, source_ids: Sequence[np.ndarray], target_ids: Sequence[np.ndarray]) -> None:
        # The decoder reads the target shifted by one: the start token, then the target without its end token.
        shifted = [np.append(np.int32(self.start_token), ids[:-1]) for ids in target_ids]
        self.sources, self.targets, self.decoder_inputs = map(_PackedSentences.pack, (source_ids, target_ids, shifted))
        self.longer_N = np.maximum(self.sources.lengths_N, self.targets.lengths_N)
        self.steps_per_epoch = max(1, round(self.longer_N.sum() / self.tokens))
        if len(source_ids) < self.world_size * self.steps_per_epoch:
            raise BadInput(
                f"tokens {self.tokens}: a step has fewer sentence pairs than there are processes ({self.world_size})."
                " Set more tokens, or start fewer processes."
            )
        self._epoch = lru_cache(maxsize=2)(self._split_epoch)

    def split_step(self, step: int) -> list[np.ndarray]:
        """Return the rows of a step, split into micro-batches."""
        epoch, number = divmod(step, self.steps_per_epoch)
        rows = self._epoch(epoch)[number]
        padded = len(rows) * (self.sources.lengths_N[rows].max() + self.targets.lengths_N[rows].max())
        return self.split(rows, float(padded))

    def micro_batch(self, items: np.ndarray) -> tuple[Batch, int, int]:
        targets = int(self.targets.lengths_N[items].sum())
        return self.batch(items), targets, targets + int(self.sources.lengths_N[items].sum())

    def batch(self, rows_B: np.ndarray) -> Batch:
        """Return padded tensors.

        `targets` [M] are the tokens to predict, and `targets_at` [M] their positions in the flattened rows. Computing
        the positions here avoids a synchronization with the GPU.
        """
        source_BT, source_mask_BT = self.sources.pad(rows_B, self.pad_token, self.max_length)
        input_BL, target_mask_BL = self.decoder_inputs.pad(rows_B, self.pad_token, self.max_length)
        target_BL, _ = self.targets.pad(rows_B, self.pad_token, self.max_length)
        return {
            "input_ids": torch.from_numpy(source_BT),
            "attention_mask": torch.from_numpy(source_mask_BT.astype(np.int64)),
            "decoder_input_ids": torch.from_numpy(input_BL),
            "targets": torch.from_numpy(target_BL[target_mask_BL]),
            "targets_at": torch.from_numpy(target_mask_BL.ravel().nonzero()[0]),
        }

    def _split_epoch(self, epoch: int) -> list[np.ndarray]:
        """Return the rows of each step of an epoch. Every pair is in one step, and no step is empty."""
        rng = np.random.default_rng([self.seed, ORDER, epoch])
        order_N = np.lexsort((rng.random(len(self.longer_N)), self.longer_N))
        ends_N = self.longer_N[order_N].cumsum()
        wanted = ends_N[-1] * np.arange(1, self.steps_per_epoch) / self.steps_per_epoch
        bounds = np.searchsorted(ends_N, wanted)
        # A sentence longer than a step would leave the next step empty. Every step has one pair for each process.
        least = self.world_size * np.arange(1, self.steps_per_epoch)
        bounds = np.maximum.accumulate(np.maximum(bounds - least, 0)) + least
        bounds = np.minimum(bounds, len(order_N) - least[::-1])
        steps = np.split(order_N, bounds)
        return [steps[number] for number in rng.permutation(len(steps))]


@dataclass(frozen=True)
class _PackedSentences:
    """Sentences in one array, from which a padded batch is made with one indexing operation."""

    tokens: np.ndarray
    starts_N: np.ndarray
    lengths_N: np.ndarray

    @classmethod
    def pack(cls, sentences: Sequence[np.ndarray]) -> _PackedSentences:
        lengths_N = np.array([len(ids) for ids in sentences])
        return cls(np.concatenate(sentences), lengths_N.cumsum() - lengths_N, lengths_N)

    def pad(self, rows_B: np.ndarray, padding: int, max_length: int) -> tuple[np.ndarray, np.ndarray]:
        """Return ids and mask [B, L]. L is a multiple of eight, unless that exceeds `max_length`."""
        lengths_B = self.lengths_N[rows_B]
        width = padded_width(int(lengths_B.max()), max_length)
        mask_BL = np.arange(width) < lengths_B[:, None]
        ids_BL = np.full(mask_BL.shape, padding, dtype=np.int64)
        positions_BL = self.starts_N[rows_B][:, None] + np.arange(width)
        ids_BL[mask_BL] = self.tokens[positions_BL[mask_BL]]
        return ids_BL, mask_BL


@dataclass(frozen=True)
class TranslationObjective(SupervisedObjective):
    """Cross-entropy of every target token given those before it, with label smoothing e over the vocabulary.

    (1 - e) (-log p_y) + e mean_v (-log p_v)
    """

    label_smoothing: float

    loss_name = LOSS_NAME

    def loss_and_correct(self, model: Any, batch: Batch) -> tuple[Tensor, Tensor]:
        source_BTD = model.encoder(batch["input_ids"], batch["attention_mask"]).last_hidden_state
        hidden_BLD = model.decode(batch["decoder_input_ids"], source_BTD, batch["attention_mask"])[-1]
        hidden_MD = hidden_BLD.flatten(0, 1).index_select(0, batch["targets_at"])
        prediction = model.lm_head.predict(
            hidden_MD, model.table_VD, batch["targets"], label_smoothing=self.label_smoothing
        )
        return prediction.loss, prediction.correct
