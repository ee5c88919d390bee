"""Devices: memory, and for GPUs the vendor's peak for dense matrix products in bfloat16.

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
FP8_CAPABILITY = (8, 9)  # first compute capability of NVIDIA GPUs with fp8


@dataclass(frozen=True)
class Accelerator:
    """Memory and speed of a GPU, or of the CPU of this machine."""

    name: str
    memory_gib: float
    peak_flops: float  # per second; 0 for a CPU, whose speed is measured
    link_bandwidth: float  # bytes per second in one direction, to the GPUs of its machine
    network_bandwidth: float  # the same to other machines: its part of the network of a machine with 8 GPUs
    is_cpu: bool = False


# From the vendors' data sheets, without sparsity: name, GiB, TFLOP/s, and GB/s inside a machine and between machines.
# The network is that of the vendor's own machines, and 100 Gbit/s for GPUs that have none.
_DATA_SHEETS = {
    "v100": ("V100-32GB", 32, 125, 150, 6.25),  # in float16: it has no bfloat16
    "a100-40": ("A100-40GB", 40, 312, 300, 25),
    "a100": ("A100-80GB", 80, 312, 300, 25),
    "h100": ("H100-80GB", 80, 989, 450, 50),
    "h200": ("H200", 141, 989, 450, 50),
    "b200": ("B200", 180, 2250, 900, 50),
    "l40s": ("L40S", 48, 362, 32, 1.5625),
    "4090": ("RTX 4090", 24, 165, 32, 1.5625),
}
ACCELERATORS = {
    key: Accelerator(
        name=name,
        memory_gib=gib,
        peak_flops=tera_flops * 1e12,
        link_bandwidth=link * 1e9,
        network_bandwidth=network * 1e9,
    )
    for key, (name, gib, tera_flops, link, network) in _DATA_SHEETS.items()
}


def get_accelerator(name: str | None = None) -> Accelerator:
    """Return a device by name: a GPU of the table, or `cpu`.

    The default is the local GPU, an H200 if the table lacks it, and the CPU where there is no GPU.
    """
    if name is None:
        return local_accelerator() or (ACCELERATORS["h200"] if torch.cuda.is_available() else local_cpu())
    if name.lower() == "cpu":
        return local_cpu()
    if name.lower() not in ACCELERATORS:
        raise BadInput(
            f"device={name}: no such device. Give cpu, or the most similar GPU of {', '.join(ACCELERATORS)}."
        )
    return ACCELERATORS[name.lower()]


def local_cpu() -> Accelerator:
    """Return the CPU of this machine as one device, with the present number of threads."""
    threads = torch.get_num_threads()
    name = f"{cpu_name()}, {threads} {'thread' if threads == 1 else 'threads'}"
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GIB if hasattr(os, "sysconf") else 8.0
    return Accelerator(
        name=name, memory_gib=memory_gib, peak_flops=0.0, link_bandwidth=1.0, network_bandwidth=1.0, is_cpu=True
    )


def user_cache() -> Path:
    """Return the folder for what crossling stores about this machine. It may not exist."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "crossling"


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


def require_fp8(device: torch.device) -> None:
    """Raise BadInput if a device cannot multiply in fp8."""
    is_nvidia = device.type == "cuda" and torch.version.hip is None
    if not is_nvidia or torch.cuda.get_device_capability(device) < FP8_CAPABILITY:
        name = torch.cuda.get_device_name(device) if device.type == "cuda" else f"this device ({device.type})"
        raise BadInput(
            f"precision=fp8: {name} has no products in fp8. Set precision=bf16, or use an NVIDIA GPU of compute"
            f" capability {FP8_CAPABILITY[0]}.{FP8_CAPABILITY[1]} or later, for instance an H100."
        )
