"""Batches of sentence pairs, and the loss of translation.

Pairs are sampled in megabatches of many steps. Inside a megabatch they are sorted by length, with pairs of equal length
shuffled, and cut into steps of about equally many tokens. Then the steps are shuffled. So sentences of one step have
similar lengths, and there is little padding.

A megabatch is a function of the seed and its number, as crossling.data.example_sampler computes it. So the step alone
determines the data, and only one or two megabatches are in memory. Every pair of a corpus is read once before any is
repeated. Less data than a megabatch is one megabatch, an epoch.
"""
# G groups (corpora in one direction), N pairs of a megabatch, B pairs of a micro-batch
# M target tokens of a micro-batch, L target positions, T source positions, D width

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from crossling.core.errors import BadInput
from crossling.data.example_sampler import ExampleSampler
from crossling.data.packing import Batch
from crossling.finetune.features import padded_width
from crossling.finetune.supervised_training import ORDER, SupervisedBatches, SupervisedObjective
from crossling.finetune.translation.translation_pairs import TranslationPairs
from crossling.sampling import temperature_sampling

LOSS_NAME = "translation"
MEGABATCH_PAIRS = 1 << 17  # of a megabatch, so that it takes a few MiB
GROUP, ROW, SOURCE_LENGTH, TARGET_LENGTH = range(4)  # columns of the sampled pairs


@dataclass(eq=False)
class TranslationBatches(SupervisedBatches[np.ndarray]):
    """`batches[step]` are the micro-batches of a step in one process.

    Args:
        pairs: Sentence pairs of all directions.
        tokens: Tokens per step over all processes, counting the longer side of each pair.
        pair_alpha: Exponent of the sampling probability of a direction. 1 follows the data, 0 is uniform.
        start_token: First input token of the decoder.
        pad_token: Padding token.
        length: Maximum number of tokens of a sentence. Longer pairs are skipped.
        max_length: Maximum number of tokens that the model can read.
    """

    pairs: TranslationPairs
    _: KW_ONLY
    tokens: int
    pair_alpha: float = 1.0
    start_token: int
    pad_token: int
    length: int
    max_length: int

    loss_name = LOSS_NAME

    def __post_init__(self) -> None:
        groups, counts = self.pairs.groups, self.pairs.counts
        directions = temperature_sampling(counts, self.pair_alpha)
        probability_G = [directions[group.direction] * len(group) / counts[group.direction] for group in groups]
        sampled = [group.sample_lengths() for group in groups]
        fraction_G = [float(np.mean(longer_N <= self.length)) for longer_N in sampled]
        tokens_G = [float(np.mean(longer_N * (longer_N <= self.length))) for longer_N in sampled]
        self.fitting = float(np.dot(probability_G, fraction_G))
        if not self.fitting:
            raise BadInput(f"length {self.length}: all sentence pairs are longer. Set a larger length.")
        mean_tokens, total = float(np.dot(probability_G, tokens_G)), sum(map(len, groups))
        self.steps_per_epoch = max(1, round(total * mean_tokens / self.tokens))
        self.megabatch_steps = min(self.steps_per_epoch, max(1, int(MEGABATCH_PAIRS * mean_tokens / self.tokens)))
        is_epoch = self.megabatch_steps == self.steps_per_epoch
        size = total if is_epoch else round(self.megabatch_steps * self.tokens / mean_tokens)
        if round(size * self.fitting) < self.world_size * self.megabatch_steps:
            raise BadInput(
                f"tokens {self.tokens}: a step has fewer sentence pairs than there are processes ({self.world_size})."
                " Set more tokens, or start fewer processes."
            )
        sizes = [*map(len, groups)]
        self._sampler = ExampleSampler(probability_G, sizes, examples_per_step=size, key=[self.seed, ORDER])
        self._megabatch = lru_cache(maxsize=2)(self._split_megabatch)

    def split_step(self, step: int) -> list[np.ndarray]:
        """Return the pairs of a step, split into micro-batches."""
        megabatch, number = divmod(step, self.megabatch_steps)
        pairs_N4 = self._megabatch(megabatch)[number]
        padded = len(pairs_N4) * (pairs_N4[:, SOURCE_LENGTH].max() + pairs_N4[:, TARGET_LENGTH].max())
        return self.split(pairs_N4, float(padded))

    def micro_batch(self, items: np.ndarray) -> tuple[Batch, int, int]:
        targets = int(items[:, TARGET_LENGTH].sum())
        return self.batch(items), targets, targets + int(items[:, SOURCE_LENGTH].sum())

    def batch(self, pairs_B4: np.ndarray) -> Batch:
        """Return padded tensors.

        `targets` [M] are the tokens to predict, and `targets_at` [M] their positions in the flattened rows. Computing
        the positions here avoids a synchronization with the GPU.
        """
        groups, start = self.pairs.groups, [self.start_token]
        read = [groups[group].pair(row) for group, row in pairs_B4[:, [GROUP, ROW]].tolist()]
        source_BT, source_mask_BT = self._pad([source for source, _ in read])
        # The decoder reads the target shifted by one: the start token, then the target without its end token.
        input_BL, target_mask_BL = self._pad([np.concatenate([start, target[:-1]]) for _, target in read])
        return {
            "input_ids": torch.from_numpy(source_BT),
            "attention_mask": torch.from_numpy(source_mask_BT.astype(np.int64)),
            "decoder_input_ids": torch.from_numpy(input_BL),
            "targets": torch.from_numpy(np.concatenate([target for _, target in read])),
            "targets_at": torch.from_numpy(target_mask_BL.ravel().nonzero()[0]),
        }

    def _pad(self, sentences: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Return ids and mask [B, L]. L is a multiple of eight, unless that exceeds the maximum length."""
        lengths_B = np.asarray([*map(len, sentences)])
        mask_BL = np.arange(padded_width(int(lengths_B.max()), self.max_length)) < lengths_B[:, None]
        ids_BL = np.full(mask_BL.shape, self.pad_token, dtype=np.int64)
        ids_BL[mask_BL] = np.concatenate(sentences)
        return ids_BL, mask_BL

    def _split_megabatch(self, megabatch: int) -> list[np.ndarray]:
        """Return the pairs of each step of a megabatch. Every pair that fits is in one step, and no step is empty."""
        pairs_N4 = self._sample_pairs(megabatch)
        rng = np.random.default_rng([self.seed, ORDER, megabatch])
        # Every step has one pair for each process. If too few happen to fit, some are repeated.
        least = self.world_size * np.arange(1, self.megabatch_steps)
        if len(pairs_N4) < self.world_size * self.megabatch_steps:
            pairs_N4 = np.resize(pairs_N4, (self.world_size * self.megabatch_steps, 4))
        longer_N = pairs_N4[:, SOURCE_LENGTH:].max(axis=1)
        order_N = np.lexsort((rng.random(len(longer_N)), longer_N))
        ends_N = longer_N[order_N].cumsum()
        wanted = ends_N[-1] * np.arange(1, self.megabatch_steps) / self.megabatch_steps
        bounds = np.searchsorted(ends_N, wanted)
        # A sentence longer than a step would leave the next step empty.
        bounds = np.maximum.accumulate(np.maximum(bounds - least, 0)) + least
        bounds = np.minimum(bounds, len(order_N) - least[::-1])
        steps = np.split(order_N, bounds)
        return [pairs_N4[steps[number]] for number in rng.permutation(len(steps))]

    def _sample_pairs(self, megabatch: int) -> np.ndarray:
        """Return group, row, source length and target length of the pairs of a megabatch that fit."""
        group_N, index_N = self._sampler[megabatch]
        parts = []
        for group in np.unique(group_N).tolist():
            own = self.pairs.groups[group]
            row_N = own.rows(np.sort(index_N[group_N == group]))  # in the order of the disk
            parts.append(np.stack([np.full_like(row_N, group), row_N, *own.lengths(row_N)], axis=1))
        pairs_N4 = np.concatenate(parts)
        return np.asarray(pairs_N4[pairs_N4[:, SOURCE_LENGTH:].max(axis=1) <= self.length])


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
