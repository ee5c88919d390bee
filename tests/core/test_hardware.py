"""Tests of accelerators: the table, and the local device."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from crossling.core import hardware
from crossling.core.errors import BadInput
from crossling.core.hardware import ACCELERATORS, GIB, device_name, get_accelerator, local_accelerator


def test_an_accelerator_by_name() -> None:
    assert get_accelerator("h100") is ACCELERATORS["h100"]
    assert get_accelerator("A100-40").memory_gib == 40


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(
        BadInput, match=r"device=h20: no such device\. Give cpu, or the most similar GPU of v100, .*4090"
    ):
        get_accelerator("h20")


def test_the_default_without_a_gpu_is_this_cpu() -> None:
    assert local_accelerator() is None
    found = get_accelerator()
    assert found == get_accelerator("cpu")
    assert found.is_cpu
    assert found.memory_gib > 0.1


def test_the_default_with_an_unknown_gpu_is_an_h200(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "local_accelerator", lambda: None)
    monkeypatch.setattr(hardware.torch.cuda, "is_available", lambda: True)
    assert get_accelerator() is ACCELERATORS["h200"]


def test_the_cache_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert hardware.user_cache() == tmp_path / "crossling"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert hardware.user_cache() == Path.home() / ".cache" / "crossling"


@pytest.mark.parametrize(
    ("device", "gib", "name"),
    [
        ("NVIDIA H200", 140.4, "h200"),
        ("NVIDIA A100-SXM4-40GB", 39.6, "a100-40"),
        ("NVIDIA A100-SXM4-80GB", 79.3, "a100"),
        ("NVIDIA A100 80GB PCIe", 79.3, "a100"),
        ("Tesla V100-SXM2-32GB", 31.7, "v100"),
        ("NVIDIA GeForce RTX 4090", 23.6, "4090"),
        ("NVIDIA L40S", 44.5, "l40s"),
    ],
)
def test_the_local_accelerator(monkeypatch: pytest.MonkeyPatch, device: str, gib: float, name: str) -> None:
    monkeypatch.setattr(hardware.torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    properties = SimpleNamespace(name=device, total_memory=gib * GIB)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
    assert (get_accelerator().name, get_accelerator().peak_flops) == (
        ACCELERATORS[name].name,
        ACCELERATORS[name].peak_flops,
    )
    assert get_accelerator().memory_gib == pytest.approx(gib)  # actual memory, not the nominal one


def test_a_device_has_the_name_of_its_vendor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: f"NVIDIA H200 {device.index}")
    assert device_name(torch.device("cuda", 3)) == "NVIDIA H200 3"
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("processor : 0\nmodel name : AMD EPYC 9654\nprocessor : 1\nmodel name : AMD EPYC 9654\n")
    monkeypatch.setattr(hardware, "CPUINFO", cpuinfo)
    monkeypatch.setattr(hardware.os, "cpu_count", lambda: 2)
    assert device_name(torch.device("cpu")) == "AMD EPYC 9654 (2 cores)"
    cpuinfo.unlink()
    monkeypatch.setattr(hardware.platform, "machine", lambda: "arm64")
    assert device_name(torch.device("cpu")) == "arm64 (2 cores)"


def test_an_accelerator_outside_the_table_counts_as_an_h200(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    properties = SimpleNamespace(name="NVIDIA GeForce GTX 1080", total_memory=8 * GIB)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
    assert local_accelerator() is None
    assert get_accelerator() is ACCELERATORS["h200"]
