"""Choices of a training run that a recipe names."""

from typing import Literal

Parallel = Literal["auto", "ddp", "fsdp"]
Reduction = Literal["mean", "token_sum"]
