"""Work without garbage collection, which is faster where many objects and hardly any garbage are created."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def pause_garbage_collection() -> Iterator[None]:
    """Pause the garbage collector.

    It would visit all new objects several times: a fifth of the time to import torch and transformers, and a third of
    that to generate synthetic languages.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
