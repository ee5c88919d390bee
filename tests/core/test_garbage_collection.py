"""Imports without garbage collection leave the collector as it was."""

from __future__ import annotations

import gc

import pytest

from crossling.core.garbage_collection import pause_garbage_collection


@pytest.mark.parametrize("was_enabled", [True, False])
def test_the_collector_is_as_before(was_enabled: bool) -> None:
    if not was_enabled:
        gc.disable()
    try:
        with pause_garbage_collection():
            assert not gc.isenabled()
        assert gc.isenabled() == was_enabled
    finally:
        gc.enable()
