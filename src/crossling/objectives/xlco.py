r"""Cross-lingual contrast (InfoXLM §3.3, Eq. 5 and 6).

    L_XLCo(c1, c2) = - log( f(c1, c2) / sum over c' in N of f(c1, c') ),    f(a, b) = exp(g(a) . g(b) / tau)

g is the encoder up to the universal layer, pooled and projected; N holds the translation c2 and the translations of
the other pairs of the batch (`queue = 0`). A row of a multi-way set never meets its own translations as negatives.

At `temperature = 1`, not normalised and not symmetric this is Eq. 6 to the letter. Both sides are masked, as in the
authors' code and not in the paper; here every chosen token becomes <mask>, theirs keeps or exchanges some.
"""
# N pairs, R rows of W tokens, P tokens in all, D width

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from crossling.data.batches import Corrupted, Examples
from crossling.data.noise import Noise
from crossling.data.packing import Batch, Sequences
from crossling.model.transformer import CrosslingModel, initialise
from crossling.objectives.mlm import masked
from crossling.objectives.objective import Network


@dataclass(frozen=True)
class XLCo:
    stream: ClassVar[Literal["text", "pairs"]] = "pairs"
    whole: ClassVar[bool] = True  # the pairs of a step are each other's negatives

    pairs: int = 256  # of one step
    layer: int | None = None  # 0 is the embedding output; none: the universal layer of the model
    temperature: float = 0.25  # tau
    normalise: bool = False  # cosine instead of dot product
    symmetric: bool = False  # also from c2 to c1, the mean of both
    pooling: Literal["cls", "mean"] = "cls"
    rate: float = 0.15  # masked on both sides
    queue: Literal[0] = 0  # in-batch negatives
    length: int = 512  # tokens of both sides together
    weight: float = 1.0

    @property
    def weights(self) -> dict[str, float]:
        return {"xlco": self.weight}

    def examples(self, expected_length: float) -> int:  # noqa: ARG002
        return self.pairs

    def parts(self, encoder: CrosslingModel, generator_layers: int) -> dict[str, Callable[[], nn.Module]]:  # noqa: ARG002
        def projection() -> nn.Module:
            linear = nn.Linear(encoder.config.hidden_size, encoder.config.hidden_size, bias=False)
            initialise(linear, encoder.config.initializer_range)
            return linear

        return {"projection": projection}

    def corrupt(self, examples: Examples, noise: Noise, mask: int) -> Corrupted:
        assert examples.row_N is not None
        inputs = {}
        for name, side in {"query": examples.alone(), "key": examples.translations()}.items():
            hidden = masked(side, noise, mask, self.rate, purpose=name) if self.rate else side
            inputs[name] = Sequences(hidden.lengths_N, {name: hidden.tokens["ids"]})
        return Corrupted(inputs, {"row": examples.row_N})

    def counts(self, batch: Batch) -> dict[str, int]:
        pairs = len(batch["row"])
        return {"xlco": pairs, "xlco_accuracy": pairs}

    def loss(self, net: Network, batch: Batch) -> dict[str, Tensor]:
        query_ND, key_ND = (self.represent(net, batch, side).float() for side in ("query", "key"))
        with torch.autocast(query_ND.device.type, enabled=False):  # cosines / 0.05 need more than bfloat16's digits
            scores_NN = query_ND @ key_ND.T / self.temperature
        same_row_NN = batch["row"][:, None] == batch["row"][None, :]
        scores_NN = scores_NN.masked_fill(
            same_row_NN & ~torch.eye(len(scores_NN), device=scores_NN.device).bool(), -torch.inf
        )
        target_N = torch.arange(len(scores_NN), device=scores_NN.device)
        loss = F.cross_entropy(scores_NN, target_N, reduction="sum")
        if self.symmetric:
            loss = (loss + F.cross_entropy(scores_NN.T, target_N, reduction="sum")) / 2
        return {"xlco": loss, "xlco_accuracy": (scores_NN.argmax(-1) == target_N).sum()}

    def represent(self, net: Network, batch: Batch, side: str) -> Tensor:
        """g of every sequence of one side, in the order of the pairs."""
        segments_RW, starts_N = batch[f"{side}_segments"], batch[f"{side}_starts"]
        layer = net.encoder.config.universal_layer if self.layer is None else self.layer
        hidden_RWD = net.encoder(batch[side], segments=segments_RW, layers=layer).last_hidden_state
        if self.pooling == "cls":
            pooled_ND = hidden_RWD.flatten(0, 1)[starts_N]
        else:
            number_P = segments_RW.flatten()
            length_N = torch.bincount(number_P, minlength=len(starts_N) + 1)[1:]
            sum_ND = hidden_RWD.new_zeros(len(starts_N) + 1, hidden_RWD.shape[-1])
            pooled_ND = sum_ND.index_add(0, number_P, hidden_RWD.flatten(0, 1))[1:] / length_N[:, None]
        vector_ND = net.parts["projection"](pooled_ND)
        return F.normalize(vector_ND, dim=-1) if self.normalise else vector_ND
