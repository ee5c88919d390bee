"""What the kernels run on."""

from __future__ import annotations

import torch


def runs_kernels(device: torch.device) -> bool:
    """An NVIDIA card with bfloat16: Ampere or later."""
    if device.type != "cuda" or torch.version.hip is not None:
        return False
    return torch.cuda.get_device_capability(device) >= (8, 0)
