"""The network on one device or many: whole on each (DDP) or in shards (FSDP2). One step is the same on all of them.

Each process has its own micro-batches; the gradient of a step is the sum over all processes.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Literal, TypeVar

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from transformers.modeling_layers import GradientCheckpointingLayer

from crossling.distributed import processes
from crossling.model.attention import fused
from crossling.model.compiled import compile_parts
from crossling.model.transformer import CrosslingModel
from crossling.objectives.objective import Network

Parallel = Literal["auto", "ddp", "fsdp"]
Sums = dict[str, Tensor]
T = TypeVar("T")

LEARNED_BYTES, FROZEN_BYTES = 16, 4  # of a parameter: weight, gradient, two moments of Adam; weight alone
MOMENT_BYTES = 4  # of which one moment
LARGEST_SHARE = 1 / 3  # of a device's memory for these: the rest is for activations


class Step(nn.Module):
    """The root of all that is computed with the network: weights are gathered and gradients are summed around it."""

    def __init__(self, net: Network) -> None:
        super().__init__()
        self.net = net

    def forward(self, act: Callable[[Network], T]) -> T:
        return act(self.net)


class Engine:
    """What a step needs of the devices."""

    def __init__(self, net: Network, device: torch.device, how: Parallel = "auto") -> None:
        self.net, self.device, self.processes = net, device, processes()
        self.step = Step(net)
        self.compiled = device.type == "cuda"
        if self.compiled:
            compile_parts(net)
        self.root: nn.Module = self.step
        if self.processes > 1:
            if how == "fsdp" or (how == "auto" and too_large(net, device)):
                shard(self.step, device)
            else:
                self.root = replicated(self.step)

    @property
    def path(self) -> str:
        """Which way the network is computed here."""
        ours = [module.config for module in self.net.modules() if isinstance(module, CrosslingModel)]
        widths = {config.hidden_size // config.num_attention_heads for config in ours}
        kernels = bool(widths) and all(fused(self.device, dtype(self.device), width) for width in widths)
        words = ["fused kernels" if kernels else "plain torch"]
        words += ["compiled"] if self.compiled else []
        words += [str(dtype(self.device)).removeprefix("torch.")]
        how = "fsdp" if isinstance(self.step, FSDPModule) else "ddp"
        words += [f"{self.processes} processes ({how})" if self.processes > 1 else "1 process"]
        return ", ".join(words)

    def learn(self, sums_of: Callable[[Network], Sums], factors: dict[str, float], last: bool) -> Sums:
        """The sums of one micro-batch, by name, after their gradient was added to that of the step. Sums are multiplied
        by their factors first, and the gradient is shared with the other processes when the `last` has come."""
        with self._alone(last):
            with precision(self.device):
                sums = self.root(sums_of)
            # Both engines take the mean over processes of what is a sum.
            loss = sum(self.processes * factors[term] * value for term, value in sums.items() if term in factors)
            loss.backward()
        return {name: value.detach() for name, value in sums.items()}

    def _alone(self, last: bool) -> AbstractContextManager[None]:
        """Shards are shared out after every micro-batch: whole gradients would not fit beside them."""
        ddp = self.root if isinstance(self.root, DistributedDataParallel) else None
        return nullcontext() if last or ddp is None else ddp.no_sync()

    def clip(self, most: float) -> Tensor:
        """The norm of the whole gradient before it was clipped."""
        norm = torch.nn.utils.get_total_norm([p.grad for p in self.net.parameters() if p.grad is not None])
        if isinstance(norm, DTensor):
            norm = norm.full_tensor()
        torch.nn.utils.clip_grads_with_norm_(self.net.parameters(), most, norm)
        return norm

    def measure(self, probe: Callable[[Network], T]) -> T:
        """What a probe says of the network, in every process: it takes all of them to gather what lies in shards."""
        found: T = self.step(probe)
        if isinstance(self.step, FSDPModule):
            self.step.reshard()
        return found


def dtype(device: torch.device) -> torch.dtype:
    """Of matrix products."""
    return torch.bfloat16 if device.type == "cuda" else torch.float32


def precision(device: torch.device) -> torch.autocast:
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=dtype(device) is torch.bfloat16)


def too_large(net: nn.Module, device: torch.device) -> bool:
    """Whether weights, gradients and optimizer would leave too little of the device for a batch."""
    if device.type != "cuda":
        return False
    needed = sum(p.numel() * (LEARNED_BYTES if p.requires_grad else FROZEN_BYTES) for p in net.parameters())
    return needed > LARGEST_SHARE * torch.cuda.get_device_properties(device).total_memory


def replicated(step: Step) -> DistributedDataParallel:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # the older name of an option that not every torch has yet
        # Objectives use different parts of the network, so that every step leaves some out. The queue of keys is the
        # same in every process by what it is made of.
        return DistributedDataParallel(
            step, find_unused_parameters=True, broadcast_buffers=False, gradient_as_bucket_view=True
        )


def shard(step: Step, device: torch.device) -> None:
    """Every block by itself, the rest together. On a GPU blocks are gathered in bfloat16, in which they compute;
    weights, gradients and optimizer stay in float32."""
    half = torch.bfloat16 if device.type == "cuda" else None
    policy = MixedPrecisionPolicy(param_dtype=half, reduce_dtype=torch.float32, cast_forward_inputs=False)
    for block in [*step.modules()]:
        if isinstance(block, GradientCheckpointingLayer):  # ours, and those of transformers
            fully_shard(block, mp_policy=policy)
    fully_shard(step, mp_policy=MixedPrecisionPolicy(cast_forward_inputs=False))
