"""CUDA graphs: a function of device tensors is captured once for each shape of its inputs, and replayed afterwards.

A replay launches all kernels of the function at once. Otherwise Python launches each of the thousand kernels of a
step, and the device waits for it where they are short.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

Tensors = dict[Any, Tensor]
MAX_GRAPHS = 64  # rarer shapes run plainly
ALIGNMENT = 32  # elements, so that kernels can read 128 bytes at once


class CudaGraphs:
    """Runs functions as CUDA graphs.

    The first call of a function with inputs of some shape runs plainly: it compiles kernels and creates state. The
    second call captures it. All graphs share their memory, because they run one after the other. Random numbers are
    those of a plain call after the same `torch.manual_seed`.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.enabled = True  # False after a failed capture
        self.graphs: dict[Hashable, _Graph] = {}
        self._seen: set[Hashable] = set()  # functions with shapes that ran plainly
        self._pool = torch.cuda.graph_pool_handle()

    def run(self, name: Hashable, function: Callable[[Tensors], Tensors], inputs: Tensors) -> Tensors:
        """Return function(inputs), captured if possible.

        Args:
            name: Identifies the function. Two functions of one name must do the same.
            function: It reads `inputs` and state at fixed addresses only, and changes state in place.
            inputs: Tensors on the device or in pinned memory.

        Returns:
            Tensors that later calls do not change.
        """
        key = name, tuple((key, value.shape, value.dtype) for key, value in inputs.items())
        if key not in self.graphs and self.enabled and key in self._seen and len(self.graphs) < MAX_GRAPHS:
            self._capture(key, function, inputs)
        if key in self.graphs:
            return self.graphs[key].replay(inputs)
        self._seen.add(key)
        self._release_memory()
        return function({name: value.to(self.device, non_blocking=True) for name, value in inputs.items()})

    def _capture(self, key: Hashable, function: Callable[[Tensors], Tensors], inputs: Tensors) -> None:
        reason = ""
        try:
            self.graphs[key] = _Graph(function, inputs, self.device, self._pool)
        except RuntimeError as error:  # of CUDA, of an operator that cannot be captured, or out of memory
            reason = (str(error).strip().splitlines() or ["unknown reason"])[0]
        if reason:  # outside of `except`, which would keep the memory of the failed capture
            self._disable(reason)

    def _disable(self, reason: str) -> None:
        warnings.warn(f"CUDA graphs are off, so small steps are slower: {reason}", stacklevel=5)
        self.enabled = False
        self.graphs.clear()
        torch.cuda.synchronize(self.device)
        torch.cuda.empty_cache()
        # A failed capture leaves the random number generator in the state of capturing.
        generator = torch.cuda.default_generators[torch.cuda.current_device()]
        generator.graphsafe_set_state(torch.Generator(generator.device).graphsafe_get_state())
        torch.manual_seed(torch.initial_seed())

    def _release_memory(self) -> None:
        """Remove the graphs if a plain call may not find enough memory beside them. They are captured again."""
        if not self.graphs:
            return
        torch.cuda.empty_cache()
        peak, present = torch.cuda.max_memory_allocated(self.device), torch.cuda.memory_allocated(self.device)
        if torch.cuda.mem_get_info(self.device)[0] < peak - present:
            self.graphs.clear()
            torch.cuda.empty_cache()


class _Graph:
    """A captured function with its input and output buffers."""

    def __init__(
        self, function: Callable[[Tensors], Tensors], inputs: Tensors, device: torch.device, pool: Any
    ) -> None:
        self.inputs = {name: value.to(device, copy=True) for name, value in inputs.items()}
        self.graph = torch.cuda.CUDAGraph()
        # Threads that load batches and write checkpoints may use the device meanwhile.
        with torch.cuda.graph(self.graph, pool=pool, capture_error_mode="thread_local"):
            self.outputs = function(self.inputs)

    def replay(self, inputs: Tensors) -> Tensors:
        for name, value in inputs.items():
            self.inputs[name].copy_(value, non_blocking=True)
        self.graph.replay()
        return {name: value.clone() for name, value in self.outputs.items()}


class GradientBuffer:
    """The gradient of a step at one address, to which the graphs of all micro-batches add theirs."""

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        self.parameters = [parameter for parameter in parameters if parameter.requires_grad]
        sizes = [-(-parameter.numel() // ALIGNMENT) * ALIGNMENT for parameter in self.parameters]
        self.flat = self.parameters[0].new_zeros(sum(sizes))
        parts = zip(self.flat.split(sizes), self.parameters, strict=True)
        self.gradients = [part[: parameter.numel()].view_as(parameter) for part, parameter in parts]

    @torch.no_grad()
    def collect(self, is_first: bool) -> frozenset[int]:
        """Move the gradients of the parameters to the buffer, and return which parameters have one.

        Args:
            is_first: Replace the gradient in the buffer. Otherwise add to it.
        """
        new = {index: each.grad for index, each in enumerate(self.parameters) if each.grad is not None}
        if is_first:
            torch._foreach_copy_([self.gradients[index] for index in new], [*new.values()])
            rest = [gradient for index, gradient in enumerate(self.gradients) if index not in new]
            if rest:
                torch._foreach_zero_(rest)
        else:
            torch._foreach_add_([self.gradients[index] for index in new], [*new.values()])
        for parameter in self.parameters:
            parameter.grad = None
        return frozenset(new)

    def assign(self, indices: frozenset[int]) -> None:
        """Let parameters have their gradients in the buffer. The others have none."""
        for index, (parameter, gradient) in enumerate(zip(self.parameters, self.gradients, strict=True)):
            parameter.grad = gradient if index in indices else None
