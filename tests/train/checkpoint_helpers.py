"""A small network with tied weights, and its checkpoints."""

from __future__ import annotations

import errno
from pathlib import Path

import torch
from torch import Tensor, nn

from crossling.train.checkpoint import Checkpoints, Retention
from crossling.train.optimizer import OptimizerSettings


class Tied(nn.Module):
    """A network with a tied table, as encoder and generator have, a queue, and a weight that is never trained."""

    def __init__(self, seed: int, width: int = 4) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.table = nn.Embedding(6, width)
        self.other = nn.Embedding(6, width)
        self.other.weight = self.table.weight
        self.map = nn.Linear(width, width)
        self.idle = nn.Linear(2, 2)
        self.register_buffer("queue", torch.randn(3, 2))
        self.register_buffer("seen", torch.tensor(seed))

    def forward(self, ids: Tensor) -> Tensor:
        return (self.map(self.table(ids)) + self.other(ids)).pow(2).sum()


def trained(seed: int, steps: int = 3, width: int = 4) -> tuple[Tied, torch.optim.AdamW]:
    net = Tied(seed, width)
    optimizer = OptimizerSettings().build(net)
    for _ in range(steps):
        train(net, optimizer)
    return net, optimizer


def train(net: Tied, optimizer: torch.optim.AdamW) -> None:
    net(torch.arange(6)).backward()
    for group in optimizer.param_groups:
        group["lr"] = 0.1
    optimizer.step()
    optimizer.zero_grad()


def everything(net: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    return {
        **{name: value.clone() for name, value in net.state_dict().items()},
        **{
            f"{name}/{key}": value.clone()
            for name, parameter in net.named_parameters()
            for key, value in optimizer.state.get(parameter, {}).items()
        },
    }


def different(one: dict[str, Tensor], other: dict[str, Tensor]) -> list[str]:
    return sorted(
        name
        for name in {*one, *other}
        if name not in one or name not in other or not torch.equal(one[name], other[name])
    )


def saved(folder: Path, *steps: int, net: tuple[Tied, torch.optim.AdamW] | None = None, keep: int = 9) -> Checkpoints:
    """Save a checkpoint for each of the steps, with one training step between them."""
    net = net or trained(seed=0, steps=1)
    checkpoints = Checkpoints(folder, Retention(keep))
    for step in steps:
        checkpoints.save(step, *net, {"tokens": 10 * step})
        train(*net)
    checkpoints.wait()
    return checkpoints


def save_and_wait(checkpoints: Checkpoints, step: int, net: tuple[Tied, torch.optim.AdamW]) -> None:
    checkpoints.save(step, *net, {})
    checkpoints.wait()


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def full(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")
