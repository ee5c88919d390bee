"""Momentum contrast (He et al. 2019; InfoXLM §3.3): an encoder that follows another, and the queue of what it said."""
# A keys in the queue, N new ones, D width

from __future__ import annotations

import torch
from torch import Tensor, nn

from crossling.distributed import gathered
from crossling.model.transformer import CrosslingModel


def key_encoder(encoder: CrosslingModel, layers: int) -> CrosslingModel:
    """The first layers of an encoder once more, without dropout and out of reach of the optimizer."""
    shape = {"num_hidden_layers": layers, "universal_layer": layers, "cross_attention": False}
    copy = CrosslingModel(encoder.config.but(**shape, dropout=0.0, attention_dropout=0.0))
    if layers < len(encoder.blocks):
        copy.final_norm = None
    follow(copy, encoder, 0.0)
    return copy.requires_grad_(False)


@torch.no_grad()
def follow(follower: nn.Module, leader: nn.Module, momentum: float) -> None:
    """follower <- momentum x follower + (1 - momentum) x leader, for what the follower has of it."""
    weights: dict[str, Tensor] = dict(leader.named_parameters())
    if isinstance(leader, CrosslingModel):  # its token table may be a sum
        weights["embeddings.tokens.weight"] = leader.embeddings.tokens.weight
    for name, parameter in follower.named_parameters():
        parameter.lerp_(weights[name].to(parameter.dtype), 1 - momentum)


class KeyQueue(nn.Module):
    """The newest keys and the rows of the sets they were from, oldest first to go; always full once it was filled."""

    def __init__(self, length: int, width: int) -> None:
        super().__init__()
        self.keys_AD: Tensor
        self.rows_A2: Tensor
        self.seen: Tensor
        self.register_buffer("keys_AD", torch.zeros(length, width))
        self.register_buffer("rows_A2", torch.full((length, 2), -1))
        self.register_buffer("seen", torch.zeros((), dtype=torch.long))
        self._waiting: list[tuple[Tensor, Tensor]] = []

    @property
    def filled(self) -> int:
        return min(int(self.seen), len(self.keys_AD))

    def add(self, key_ND: Tensor, rows_N2: Tensor) -> None:
        """Keys of a micro-batch. They wait for the end of the step, however it is split."""
        self._waiting.append((key_ND.detach(), rows_N2))

    def shift(self) -> None:
        """Those that waited, of all processes, take the places of the oldest, in the order of the parts of the step: it
        is the same however they were shared out. A key that is no number leaves its place as it was."""
        if not self._waiting:
            return
        every = [[gathered(part)[0] for part in waiting] for waiting in self._waiting]  # of each process in turn
        self._waiting.clear()
        key_ND, rows_N2 = (torch.cat(part) for part in zip(*every, strict=True))
        length, new = len(self.keys_AD), len(key_ND)
        place_N = (self.seen + torch.arange(new, device=key_ND.device)[-length:]) % length
        key_ND, rows_N2 = key_ND[-length:].to(self.keys_AD.dtype), rows_N2[-length:]
        good_N1 = key_ND.isfinite().all(1, keepdim=True)
        self.keys_AD[place_N] = torch.where(good_N1, key_ND, self.keys_AD[place_N])
        self.rows_A2[place_N] = torch.where(good_N1, rows_N2, self.rows_A2[place_N])
        self.seen += new
