"""The loss of translation: the cross-entropy of every token of the target after those before it, smoothed."""
# B pairs, L target positions, T source positions, M target tokens, D width

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from crossling.data.packing import Batch
from crossling.finetune.translation.feed import SUMS, TERM


@dataclass(frozen=True)
class Translating:
    """A share `smoothing` of the truth is spread over all pieces alike: (1 - e) (-log p_y) + e mean_v (-log p_v)."""

    smoothing: float

    @property
    def weights(self) -> dict[str, float]:
        return {TERM: 1.0}

    def loss(self, net: Any, batch: Batch) -> dict[str, Tensor]:
        model = net.encoder  # the network's name for all it trains
        source_BTD = model.encoder(batch["input_ids"], batch["attention_mask"]).last_hidden_state
        hidden_BLD = model.decode(batch["decoder_input_ids"], source_BTD, batch["attention_mask"])[-1]
        hidden_MD = hidden_BLD.flatten(0, 1).index_select(0, batch["targets_at"])
        found = model.lm_head.predict(hidden_MD, model.table_VD, batch["targets"], smoothing=self.smoothing)
        return dict(zip(SUMS, (found.loss, found.right), strict=True))

    def begin(self, net: Any, more: Iterator[list[Batch]]) -> None:
        """Nothing has to be made ready."""

    def after_step(self, net: Any) -> None:
        """Nothing moves without a gradient."""
