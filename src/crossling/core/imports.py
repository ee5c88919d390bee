"""Faster import of large libraries."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def fast_imports() -> Iterator[None]:
    """Import modules without garbage collection.

    Imports create many objects and hardly any garbage. The collector would visit all of them several times, which takes
    a fifth of the time to import torch and transformers.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
