"""Choices of a training run that a recipe names."""

from typing import Literal

Parallel = Literal["auto", "ddp", "fsdp"]
Precision = Literal["bf16", "fp8"]
Reduction = Literal["mean", "token_sum"]
