"""The network on one device or several: replicated on each (data parallel) or sharded over them (FSDP2).

A step gives the same result either way. Each process has its own micro-batches, and the gradient of a step is the sum
over all processes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

import torch
import torch._dynamo
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from transformers.modeling_layers import GradientCheckpointingLayer

from crossling.core.distributed import has_shared_gpu, world_size
from crossling.core.errors import BadInput
from crossling.model.attention import uses_attention_kernel
from crossling.model.encoder import Block, Embeddings
from crossling.model.encoder_model import CrosslingModel
from crossling.model.fp8 import Fp8Linear
from crossling.model.heads import RTDHead
from crossling.model.native_encoder import NativeEncoder
from crossling.objectives.training_network import Network
from crossling.train.choices import Parallel

T = TypeVar("T")

TRAINED_BYTES, FROZEN_BYTES = 16, 4  # per parameter: weight, gradient and two moments of Adam; weight alone
BUFFER_BYTES = 4  # per trained parameter, of the gradient at a fixed address that CUDA graphs need
MOMENT_BYTES = 4  # per parameter, of one moment
BUCKET_ELEMENTS = 1 << 24  # of gradients that are summed over processes at once
MAX_STATE_FRACTION = 1 / 3  # of the device memory, for parameters in training; the rest is for activations


class NetworkRoot(nn.Module):
    """Module whose forward pass calls a function with the network.

    FSDP wraps it, so gathering weights and reducing gradients works for any function of the network.
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
        # One process that torchrun started does what the setting names, and nothing by itself.
        self._is_distributed = self.world_size > 1 or (dist.is_initialized() and parallel != "auto")
        if self._is_distributed:
            if parallel == "fsdp" or (parallel == "auto" and not has_shared_gpu() and needs_sharding(net, device)):
                shard_network(self.root, device)
            else:
                broadcast_state(net)

    @property
    def is_sharded(self) -> bool:
        """True if FSDP shards the network."""
        return isinstance(self.root, FSDPModule)

    def forward(self, function: Callable[[Network], T]) -> T:
        """Return function(net)."""
        result: T = self.root(function)
        return result

    @property
    def gradient_scale(self) -> int:
        """Factor of the loss. FSDP averages gradients over processes, but the gradient of a step is their sum."""
        return self.world_size if self.is_sharded else 1

    def all_reduce(self, gradients: list[Tensor]) -> None:
        """Sum the gradients of replicas. FSDP did so after every micro-batch, because they would not fit in memory.

        All processes have gradients of the same parameters, because they have micro-batches of the same objectives.
        """
        if not self._is_distributed or self.is_sharded:
            return
        for bucket in _buckets(gradients):
            flat = bucket[0] if len(bucket) == 1 else torch.cat([gradient.flatten() for gradient in bucket])
            dist.all_reduce(flat)
            if len(bucket) > 1:
                parts = flat.split([gradient.numel() for gradient in bucket])
                torch._foreach_copy_(bucket, [part.view_as(each) for part, each in zip(parts, bucket, strict=True)])

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
        processes = f"{self.world_size} processes" if self.world_size > 1 else "1 process"
        if self._is_distributed:
            processes += " (fsdp)" if self.is_sharded else " (ddp)"
        precision = str(dtype).removeprefix("torch.") + (", linear layers in fp8" if _has_fp8(self.net) else "")
        return ", ".join([*words, precision, processes])


def check_parallel(parallel: Parallel) -> None:
    """Raise BadInput if processes share a GPU and should shard the network: gloo has no reduce-scatter on a GPU."""
    if parallel == "fsdp" and has_shared_gpu():
        raise BadInput(
            "parallel=fsdp: not possible for processes that share a GPU. Run them on the CPU"
            " (CUDA_VISIBLE_DEVICES= torchrun ...), or set parallel=ddp."
        )


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


def broadcast_state(net: nn.Module) -> None:
    """Give all processes the weights and buffers of the main process."""
    for values in (*net.parameters(), *net.buffers()):
        dist.broadcast(values.detach(), 0)


def _buckets(gradients: list[Tensor]) -> Iterator[list[Tensor]]:
    """Yield gradients in groups of limited size, each of which is summed at once."""
    bucket: list[Tensor] = []
    elements = 0
    for gradient in gradients:
        bucket.append(gradient)
        elements += gradient.numel()
        if elements >= BUCKET_ELEMENTS:
            yield bucket
            bucket, elements = [], 0
    if bucket:
        yield bucket


def shard_network(root: NetworkRoot, device: torch.device) -> None:
    """Shard the network with FSDP2, each block separately and the rest together.

    On a GPU, blocks are gathered in bfloat16, in which they compute. Weights, gradients and optimizer state stay in
    float32.

    Raises:
        BadInput: The network has linear layers in fp8.
    """
    if _has_fp8(root):
        raise BadInput(
            "precision=fp8: the network is sharded over the GPUs, which is possible in bf16 only. Set precision=bf16,"
            " or parallel=ddp if a GPU has enough memory for the whole network."
        )
    block_dtype = torch.bfloat16 if device.type == "cuda" else None
    policy = MixedPrecisionPolicy(param_dtype=block_dtype, reduce_dtype=torch.float32, cast_forward_inputs=False)
    for block in [*root.modules()]:
        if isinstance(block, Block | GradientCheckpointingLayer):  # blocks of crossling and of transformers
            fully_shard(block, mp_policy=policy)
    fully_shard(root, mp_policy=MixedPrecisionPolicy(cast_forward_inputs=False))


def _has_fp8(net: nn.Module) -> bool:
    return any(isinstance(module, Fp8Linear) for module in net.modules())


COMPILED_MODULES = (Embeddings, Block, RTDHead)
# Variants of one module: with and without dropout, gradient, pair and packing, and several batch sizes.
RECOMPILE_LIMIT = 64


def compile_modules(net: nn.Module) -> None:
    """Compile embeddings, blocks and the RTD head of a network with torch.compile.

    Layers of a Hugging Face encoder are compiled if it takes packed rows, which have one shape.
    """
    torch._dynamo.config.recompile_limit = max(RECOMPILE_LIMIT, torch._dynamo.config.recompile_limit)
    for module in net.modules():
        if isinstance(module, NativeEncoder) and module.packing is not None:
            for layer in module.blocks:
                layer.compile()
        elif isinstance(module, COMPILED_MODULES):
            module.compile()
