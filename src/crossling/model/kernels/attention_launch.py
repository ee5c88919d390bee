"""Arguments and launch options that the attention kernels share."""
# B sequences, H heads, L queries, T keys, K width of a head

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor

from crossling.model.kernels import attention_triton as kernels

TILE = 64  # queries or keys that a program holds
STEP = 64  # keys or queries that it loads at a time
BIAS_PADDING = (kernels.PAD.value, kernels.PAD.value)


class Launch(NamedTuple):
    """Launch options of a kernel. With fewer registers, more programs run on one multiprocessor."""

    stages: int
    registers: int | None = None
    step: int = STEP
    warps: int = 4

    def options(self, width: int) -> dict[str, int | None]:
        """Return the options for a head width. Wide heads need all registers and more shared memory."""
        if width > 64:
            return {"num_warps": self.warps, "num_stages": min(2, self.stages)}
        return {"num_warps": self.warps, "num_stages": self.stages, "maxnreg": self.registers}


def common_arguments(
    q: Tensor, k: Tensor, d: Tensor | None, spans: Tensor | None, far: int, dropout: float
) -> dict[str, Any]:
    (_, L, H, K), T = q.shape, k.shape[1]
    strides = {f"{name}_{axis}": x.stride(i) for name, x in (("q", q), ("k", k)) for i, axis in enumerate("blh")}
    sizes = {"H": H, "L": L, "T": T, "K": K, "far": far, "SCALE": kernels.LOG2E.value * K**-0.5}
    options = {"BIAS": d is not None, "HAS_SPANS": spans is not None, "EVEN": not (L % TILE or T % STEP)}
    return {**strides, **sizes, **options, "DROPOUT": round(dropout * kernels.DROPOUT_STEPS.value)}


def split_qkv(q: Tensor, k: Tensor | None, v: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    if k is None or v is None:
        q, k, v = q.unbind(2)
    if v.stride() != k.stride():  # the kernels read both with the same strides
        k, v = k.contiguous(), v.contiguous()
    assert q.stride(-1) == k.stride(-1) == 1
    return q, k, v


def fill_missing(q: Tensor, *others: Tensor | None) -> list[Tensor]:
    """Replace missing inputs, which the kernels do not read, by some tensor for Triton."""
    return [q if x is None else x.contiguous() for x in others]
