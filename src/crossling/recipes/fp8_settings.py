"""Conditions of training in fp8."""

from __future__ import annotations

from collections.abc import Iterator

from crossling.model.model_shape import ModelShape
from crossling.train.choices import Parallel

FP8_MULTIPLE = 16  # of both sides of a matrix


def fp8_problems(model: ModelShape, parallel: Parallel) -> Iterator[str]:
    """Yield what prevents training in fp8, each as a message."""
    if model.architecture == "native":
        yield "precision=fp8 is for the architecture of crossling only. Set precision=bf16."
    if parallel == "fsdp":
        yield "precision=fp8 trains on replicas only, found parallel=fsdp. Set parallel=ddp or precision=bf16."
    for name in ("width", "feed_forward"):
        size = getattr(model, name)
        if size % FP8_MULTIPLE:
            yield (
                f"model.{name} is {size}, and precision=fp8 needs a multiple of {FP8_MULTIPLE}. Set another"
                f" model.{name} or precision=bf16."
            )
