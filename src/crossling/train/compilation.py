"""Processes that start together compile each function once: one compiles it, the others wait and read the cache.

torch.compile keeps compiled code in a cache folder that all processes of a machine have in common. Without a lock,
processes that start together find the folder empty, and each compiles everything.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import torch

from crossling.core.hardware import library_versions
from crossling.core.locks import lock_file
from crossling.core.resumable import fingerprint

WAIT_SECONDS = 300.0  # then a process compiles beside the holder of the lock
LIBRARIES = ("crossling", "torch", "triton")
MAX_FUNCTIONS = 64  # shapes of later calls are rare, and need no new code


class CompilationLock:
    """Lets one process at a time run the first call of a function, which compiles it.

    A marker in the cache folder then shows that the compiled code is there. Processes that find it do not wait.

    Args:
        folder: Folder of the compilation cache.
        description: JSON values that determine the compiled code: versions, device and network.
        wait_seconds: Longest time to wait for another process.

    Example:
        >>> lock = CompilationLock(Path(cache_dir()), [torch.__version__, repr(network)])
        >>> with lock.first_call("mlm", [[64, 256]]):
        ...     loss.backward()
    """

    def __init__(self, folder: Path, description: Any, wait_seconds: float = WAIT_SECONDS) -> None:
        self.folder = folder / "crossling"
        self.description = fingerprint(description)
        self.wait_seconds = wait_seconds
        self._seen: set[str] = set()  # functions that this process has called

    @contextmanager
    def first_call(self, *function: Any) -> Iterator[None]:
        """Run a block while no other process compiles the same function. Later calls of this process run at once.

        Args:
            function: JSON values that identify the function, with the shapes of its inputs.
        """
        key = fingerprint([self.description, *function])
        if key in self._seen or len(self._seen) >= MAX_FUNCTIONS:
            yield
            return
        done = self.folder / f"{key}.done"
        with ExitStack() as lock:
            with suppress(OSError):  # a cache folder that cannot be written, or a file system without locks
                if not done.exists():
                    lock.enter_context(lock_file(self.folder / f"{key}.lock", timeout=self.wait_seconds))
                if done.exists():  # compiled while this process waited: all that waited read the cache at once
                    lock.close()
            yield
            self._seen.add(key)
            with suppress(OSError):
                done.touch()


def cache_lock(net: torch.nn.Module, device: torch.device) -> CompilationLock:
    """Return the lock of torch's compilation cache, for one network on one device."""
    from torch._inductor.runtime.cache_dir_utils import cache_dir

    # The code names the device: processes on other devices of the machine cannot use it, so they do not wait.
    devices = [str(device), torch.cuda.get_device_name(device)]
    return CompilationLock(Path(cache_dir()), [library_versions(LIBRARIES), *devices, repr(net)])
