"""Triton kernels beside their plain PyTorch versions."""
