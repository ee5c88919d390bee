"""The network on one device or several: replicated on each (DDP) or sharded over them (FSDP2).

A step gives the same result either way. Each process has its own micro-batches, and the gradient of a step is the sum
over all processes.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Literal, TypeVar

import torch
import torch._dynamo
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from transformers.modeling_layers import GradientCheckpointingLayer

from crossling.core.distributed import world_size
from crossling.model.attention import uses_attention_kernel
from crossling.model.encoder import Block, CrosslingModel, Embeddings
from crossling.model.heads import RTDHead
from crossling.objectives.objective import Network

Parallel = Literal["auto", "ddp", "fsdp"]
T = TypeVar("T")

TRAINED_BYTES, FROZEN_BYTES = 16, 4  # per parameter: weight, gradient and two moments of Adam; weight alone
MOMENT_BYTES = 4  # per parameter, of one moment
MAX_STATE_FRACTION = 1 / 3  # of the device memory, for parameters in training; the rest is for activations


class NetworkRoot(nn.Module):
    """Module whose forward pass calls a function with the network.

    DDP and FSDP wrap it, so gathering weights and reducing gradients works for any function of the network.
    """

    def __init__(self, net: Network) -> None:
        super().__init__()
        self.net = net

    def forward(self, function: Callable[[Network], T]) -> T:
        return function(self.net)


class ParallelNetwork:
    """A network that is compiled, replicated or sharded as the devices require."""

    def __init__(self, net: Network, device: torch.device, parallel: Parallel = "auto") -> None:
        self.net, self.device, self.world_size = net, device, world_size()
        self.root = NetworkRoot(net)
        self.is_compiled = device.type == "cuda"
        if self.is_compiled:
            compile_modules(net)
        self.ddp: DistributedDataParallel | None = None
        if self.world_size > 1:
            if parallel == "fsdp" or (parallel == "auto" and needs_sharding(net, device)):
                shard_network(self.root, device)
            else:
                self.ddp = replicate_network(self.root)

    def forward(self, function: Callable[[Network], T]) -> T:
        """Return function(net), with gradients that are reduced over all processes."""
        result: T = (self.ddp or self.root)(function)
        return result

    def gradient_sync(self, is_last_micro_batch: bool) -> AbstractContextManager[None]:
        """Return the context of a backward pass: DDP reduces gradients only after the last micro-batch.

        FSDP reduces them after every micro-batch, because whole gradients would not fit in memory.
        """
        return nullcontext() if is_last_micro_batch or self.ddp is None else self.ddp.no_sync()

    def clip_gradients(self, max_norm: float) -> Tensor:
        """Clip the gradient of the whole network. Return its norm before clipping."""
        norm = torch.nn.utils.get_total_norm([p.grad for p in self.net.parameters() if p.grad is not None])
        if isinstance(norm, DTensor):
            norm = norm.full_tensor()
        torch.nn.utils.clip_grads_with_norm_(self.net.parameters(), max_norm, norm)
        return norm

    def evaluate(self, function: Callable[[Network], T]) -> T:
        """Return function(net) between two steps. All processes must call it, to gather sharded weights."""
        result: T = self.root(function)
        if isinstance(self.root, FSDPModule):
            self.root.reshard()
        return result

    @property
    def description(self) -> str:
        """Kernels, precision and parallelism of this network, in words."""
        widths = {module.config.head_width for module in self.net.modules() if isinstance(module, CrosslingModel)}
        dtype = compute_dtype(self.device)
        has_kernels = bool(widths) and all(uses_attention_kernel(self.device, dtype, width) for width in widths)
        words = ["fused kernels" if has_kernels else "plain torch", *(["compiled"] if self.is_compiled else [])]
        parallel = "fsdp" if isinstance(self.root, FSDPModule) else "ddp"
        processes = f"{self.world_size} processes ({parallel})" if self.world_size > 1 else "1 process"
        return ", ".join([*words, str(dtype).removeprefix("torch."), processes])


def compute_dtype(device: torch.device) -> torch.dtype:
    """Return the data type of matrix products on a device."""
    return torch.bfloat16 if device.type == "cuda" else torch.float32


def autocast(device: torch.device) -> torch.autocast:
    """Return the mixed-precision context of a device."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=compute_dtype(device) is torch.bfloat16)


def needs_sharding(net: nn.Module, device: torch.device) -> bool:
    """Return True if weights, gradients and optimizer state would leave too little device memory for a batch."""
    if device.type != "cuda":
        return False
    needed = sum(p.numel() * (TRAINED_BYTES if p.requires_grad else FROZEN_BYTES) for p in net.parameters())
    return needed > MAX_STATE_FRACTION * torch.cuda.get_device_properties(device).total_memory


def replicate_network(root: NetworkRoot) -> DistributedDataParallel:
    """Wrap the network in DDP."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # an option's old name, which torch 2.11 still needs
        # Objectives use different modules, so every step has unused parameters. Buffers are not broadcast: the queue
        # of keys is computed identically in every process.
        return DistributedDataParallel(
            root, find_unused_parameters=True, broadcast_buffers=False, gradient_as_bucket_view=True
        )


def shard_network(root: NetworkRoot, device: torch.device) -> None:
    """Shard the network with FSDP2, each block separately and the rest together.

    On a GPU, blocks are gathered in bfloat16, in which they compute. Weights, gradients and optimizer state stay in
    float32.
    """
    block_dtype = torch.bfloat16 if device.type == "cuda" else None
    policy = MixedPrecisionPolicy(param_dtype=block_dtype, reduce_dtype=torch.float32, cast_forward_inputs=False)
    for block in [*root.modules()]:
        if isinstance(block, GradientCheckpointingLayer):  # blocks of crossling and of transformers
            fully_shard(block, mp_policy=policy)
    fully_shard(root, mp_policy=MixedPrecisionPolicy(cast_forward_inputs=False))


COMPILED_MODULES = (Embeddings, Block, RTDHead)
# Variants of one module: with and without dropout, gradient, pair and packing, and several batch sizes.
RECOMPILE_LIMIT = 64


def compile_modules(net: nn.Module) -> None:
    """Compile embeddings, blocks and the RTD head of a network with torch.compile."""
    torch._dynamo.config.recompile_limit = max(RECOMPILE_LIMIT, torch._dynamo.config.recompile_limit)
    for module in net.modules():
        if isinstance(module, COMPILED_MODULES):
            module.compile()
