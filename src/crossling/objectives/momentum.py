"""Momentum contrastive learning, MoCo (He et al. 2019; InfoXLM §3.3): the key encoder and its queue."""
# N keys of a step, A keys in the queue, D width

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from crossling.core.distributed import all_gather_rows
from crossling.model.encoder_model import CrosslingModel
from crossling.model.native_encoder import NativeEncoder, build_shorter


def build_key_encoder(encoder: CrosslingModel | NativeEncoder, layers: int) -> CrosslingModel | NativeEncoder:
    """Return a copy of the first layers of an encoder, without dropout and without gradients.

    The copy of a Hugging Face encoder has all layers: some families normalize the output of the last one.
    """
    if isinstance(encoder, NativeEncoder):
        whole = build_shorter(encoder, encoder.config.num_hidden_layers)
        update_moving_average(whole, encoder, 0.0)
        return whole.requires_grad_(False)
    shape = {"num_hidden_layers": layers, "universal_layer": layers, "cross_attention": False}
    copy = CrosslingModel(encoder.config.replace(**shape, dropout=0.0, attention_dropout=0.0))
    if layers < len(encoder.blocks):
        copy.final_norm = None
    update_moving_average(copy, encoder, 0.0)
    return copy.requires_grad_(False)


@torch.no_grad()
def update_moving_average(average: nn.Module, source: nn.Module, momentum: float) -> None:
    """Set average <- momentum x average + (1 - momentum) x source, for the parameters that both have."""
    weights: dict[str, Tensor] = dict(source.named_parameters())
    if isinstance(source, NativeEncoder):
        weights = source.dense_weights()
    elif isinstance(source, CrosslingModel):  # whose token table may be a sum of two
        weights["embeddings.tokens.weight"] = source.embeddings.tokens.weight
    averages = dict(average.named_parameters())
    targets = [weights[name].to(parameter.dtype) for name, parameter in averages.items()]
    torch._foreach_lerp_([*averages.values()], targets, 1 - momentum)


class KeyQueue(nn.Module):
    """First-in, first-out queue of keys and the corpus rows they are from."""

    def __init__(self, length: int, width: int) -> None:
        super().__init__()
        self.keys_AD = nn.Buffer(torch.zeros(length, width))
        self.rows_A2 = nn.Buffer(torch.full((length, 2), -1))
        self.seen = nn.Buffer(torch.zeros((), dtype=torch.long))

    @property
    def filled(self) -> int:
        """Number of keys in the queue."""
        return min(int(self.seen), len(self.keys_AD))

    @torch.no_grad()
    def add(self, micro_batches: Sequence[Mapping[str, Tensor]]) -> None:
        """Replace the oldest keys by those of a step, gathered from all processes.

        They are added in the order of the global batch, at the end of the step, so its split has no effect. A key that
        is not finite leaves its slot unchanged.

        Args:
            micro_batches: `keys`, their corpus rows (`rows`) and their `batch_positions` in each micro-batch.
        """
        key_ND, rows_N2, position_N = (
            torch.cat([all_gather_rows(each[name])[0] for each in micro_batches])
            for name in ("keys", "rows", "batch_positions")
        )
        order_N = position_N.argsort()[-len(self.keys_AD) :]
        length, new = len(self.keys_AD), len(key_ND)
        slot_N = (self.seen + torch.arange(new, device=key_ND.device)[-length:]) % length
        key_ND, rows_N2 = key_ND[order_N].to(self.keys_AD.dtype), rows_N2[order_N]
        finite_N1 = key_ND.isfinite().all(1, keepdim=True)
        self.keys_AD[slot_N] = torch.where(finite_N1, key_ND, self.keys_AD[slot_N])
        self.rows_A2[slot_N] = torch.where(finite_N1, rows_N2, self.rows_A2[slot_N])
        self.seen.add_(new)
