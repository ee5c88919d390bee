"""The table of cards, and which of them a device is."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from crossling import hardware
from crossling.errors import BadInput
from crossling.hardware import CARDS, GIB, card, device_name, here


def test_by_name() -> None:
    assert card("h100") is CARDS["h100"]
    assert card("A100-40").gib == 40


def test_an_unknown_name_says_the_nearest() -> None:
    with pytest.raises(BadInput, match=r"--gpu h20: no card of that name is known \(v100, .* 4090\); give"):
        card("h20")


def test_without_a_gpu_it_is_an_h200() -> None:
    assert here() is None
    assert card() is CARDS["h200"]


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
def test_the_card_that_is_here(monkeypatch: pytest.MonkeyPatch, device: str, gib: float, name: str) -> None:
    monkeypatch.setattr(hardware.torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    found = SimpleNamespace(name=device, total_memory=gib * GIB)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: found)
    assert (card().name, card().peak) == (CARDS[name].name, CARDS[name].peak)
    assert card().gib == pytest.approx(gib)  # as it is, not as it is sold


def test_a_device_has_the_name_its_vendor_gave_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: f"NVIDIA H200 {device.index}")
    assert device_name(torch.device("cuda", 3)) == "NVIDIA H200 3"
    known = tmp_path / "cpuinfo"
    known.write_text("processor : 0\nmodel name : AMD EPYC 9654\nprocessor : 1\nmodel name : AMD EPYC 9654\n")
    monkeypatch.setattr(hardware, "CPUINFO", known)
    monkeypatch.setattr(hardware.os, "cpu_count", lambda: 2)
    assert device_name(torch.device("cpu")) == "AMD EPYC 9654 (2 cores)"
    known.unlink()
    monkeypatch.setattr(hardware.platform, "machine", lambda: "arm64")
    assert device_name(torch.device("cpu")) == "arm64 (2 cores)"


def test_a_card_that_is_not_in_the_table_counts_as_an_h200(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    found = SimpleNamespace(name="NVIDIA GeForce GTX 1080", total_memory=8 * GIB)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: found)
    assert here() is None
    assert card() is CARDS["h200"]
