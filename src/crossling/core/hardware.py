"""Accelerators: memory, and the vendor's peak for dense matrix products in bfloat16.

Model FLOPs utilization (MFU) refers to this published peak, so that accelerators can be compared. A real matrix product
reaches less: 759 of 989 TFLOP/s on an H200.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path

import torch

from crossling.core.errors import BadInput

GIB = 2**30
CPUINFO = Path("/proc/cpuinfo")  # Linux only


@dataclass(frozen=True)
class Accelerator:
    """Memory and speed of a GPU."""

    name: str
    memory_gib: float
    peak_flops: float  # per second


# From the vendors' data sheets, without sparsity.
ACCELERATORS = {
    "v100": Accelerator("V100-32GB", 32, 125e12),  # in float16: it has no bfloat16
    "a100-40": Accelerator("A100-40GB", 40, 312e12),
    "a100": Accelerator("A100-80GB", 80, 312e12),
    "h100": Accelerator("H100-80GB", 80, 989e12),
    "h200": Accelerator("H200", 141, 989e12),
    "b200": Accelerator("B200", 180, 2250e12),
    "l40s": Accelerator("L40S", 48, 362e12),
    "4090": Accelerator("RTX 4090", 24, 165e12),
}


def get_accelerator(name: str | None = None) -> Accelerator:
    """Return an accelerator by name [default: the local one, or an H200 if there is none in the table]."""
    if name is None:
        return local_accelerator() or ACCELERATORS["h200"]
    if name.lower() not in ACCELERATORS:
        raise BadInput(f"unknown GPU {name!r}. Give the most similar of {', '.join(ACCELERATORS)}.")
    return ACCELERATORS[name.lower()]


def local_accelerator() -> Accelerator | None:
    """Return the GPU of this process with its actual memory, or None if there is none in the table."""
    if not torch.cuda.is_available():
        return None
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    memory_gib = properties.total_memory / GIB
    accelerator = _lookup(properties.name, memory_gib)
    return accelerator and replace(accelerator, memory_gib=memory_gib)


def _lookup(device: str, memory_gib: float) -> Accelerator | None:
    """Find a device name such as "NVIDIA A100-SXM4-40GB" in the table; the nearest in memory if several match."""
    words = device.lower().replace("-", " ").split()
    matches = [accelerator for name, accelerator in ACCELERATORS.items() if name.partition("-")[0] in words]
    return min(matches, key=lambda match: abs(match.memory_gib - memory_gib), default=None)


def device_name(device: torch.device) -> str:
    """Return the vendor's name of a device."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return cpu_name()


def cpu_name() -> str:
    """Return the name of the CPU, or its architecture if the system has no name, and its number of cores."""
    lines = CPUINFO.read_text(encoding="utf-8", errors="replace").splitlines() if CPUINFO.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{names[0] if names else platform.machine()} ({os.cpu_count()} cores)"


def library_versions(libraries: Iterable[str]) -> dict[str, str]:
    """Return the versions of the libraries that are installed, and of torch with its build."""
    installed = {}
    for library in libraries:
        with suppress(metadata.PackageNotFoundError):  # or a checkout that is not installed
            installed[library] = metadata.version(library)
    return installed | {"torch": torch.__version__}
