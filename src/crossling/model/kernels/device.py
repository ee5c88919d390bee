"""Devices that run the kernels."""

from __future__ import annotations

import torch


def supports_kernels(device: torch.device) -> bool:
    """Return True for an NVIDIA GPU with bfloat16: Ampere or later."""
    if device.type != "cuda" or torch.version.hip is not None:
        return False
    return torch.cuda.get_device_capability(device) >= (8, 0)
