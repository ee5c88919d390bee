"""Cards one trains on: memory, and the peak their vendor gives for dense matrix products in bfloat16.

Utilisation (MFU) is of that published peak, so that cards can be compared; what a matrix product really reaches is less
(on an H200 759 of 989 TFLOP/s).
"""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from crossling.errors import BadInput

GIB = 2**30
CPUINFO = Path("/proc/cpuinfo")  # Linux's


@dataclass(frozen=True)
class Card:
    name: str
    gib: float  # of memory
    peak: float  # operations a second


# From the vendor's data sheets, without sparsity.
CARDS = {
    "v100": Card("V100-32GB", 32, 125e12),  # in float16: it has no bfloat16
    "a100-40": Card("A100-40GB", 40, 312e12),
    "a100": Card("A100-80GB", 80, 312e12),
    "h100": Card("H100-80GB", 80, 989e12),
    "h200": Card("H200", 141, 989e12),
    "b200": Card("B200", 180, 2250e12),
    "l40s": Card("L40S", 48, 362e12),
    "4090": Card("RTX 4090", 24, 165e12),
}


def card(name: str | None = None) -> Card:
    """A card by its name; if not said the one that is here, or an H200 if there is none or it is not in the table."""
    if name is None:
        return here() or CARDS["h200"]
    if name.lower() not in CARDS:
        raise BadInput(
            f"--gpu {name}: no card of that name is known ({', '.join(CARDS)}); give the one nearest to yours"
        )
    return CARDS[name.lower()]


def here() -> Card | None:
    """The card of this process, with the memory it really has."""
    if not torch.cuda.is_available():
        return None
    found = torch.cuda.get_device_properties(torch.cuda.current_device())
    known = _known(found.name, found.total_memory / GIB)
    return known and replace(known, gib=found.total_memory / GIB)


def _known(device: str, gib: float) -> Card | None:
    """The card of the table that a device's own name means ("NVIDIA A100-SXM4-40GB"); of two, the nearest in size."""
    words = device.lower().replace("-", " ").split()
    meant = [each for name, each in CARDS.items() if name.partition("-")[0] in words]
    return min(meant, key=lambda each: abs(each.gib - gib), default=None)


def device_name(device: torch.device) -> str:
    """What its vendor calls it."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return processor()


def processor() -> str:
    """Its name, where the system says it, and its cores."""
    lines = CPUINFO.read_text(encoding="utf-8", errors="replace").splitlines() if CPUINFO.is_file() else []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{named[0] if named else platform.machine()} ({os.cpu_count()} cores)"
