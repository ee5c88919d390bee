"""A checkpoint is whole or not there, and brings everything back."""

from __future__ import annotations

import errno
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from crossling.errors import BadInput
from crossling.train import checkpoint
from crossling.train.optimizer import Adam


class Tied(nn.Module):
    """Two parts with one table, as an encoder and its generator have; and a weight that is never trained."""

    def __init__(self, seed: int, width: int = 4) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.table = nn.Embedding(6, width)
        self.other = nn.Embedding(6, width)
        self.other.weight = self.table.weight
        self.map = nn.Linear(width, width)
        self.idle = nn.Linear(2, 2)

    def forward(self, ids: Tensor) -> Tensor:
        return (self.map(self.table(ids)) + self.other(ids)).pow(2).sum()


def trained(seed: int, steps: int = 3, width: int = 4) -> tuple[Tied, torch.optim.AdamW]:
    net = Tied(seed, width)
    optimizer = Adam().build(net)
    for _ in range(steps):
        train(net, optimizer)
    return net, optimizer


def train(net: Tied, optimizer: torch.optim.AdamW) -> None:
    net(torch.arange(6)).backward()
    for group in optimizer.param_groups:
        group["lr"] = 0.1
    optimizer.step()
    optimizer.zero_grad()


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_weights_and_optimizer_come_back_and_shared_tensors_stay_shared(tmp_path: Path) -> None:
    net, optimizer = trained(seed=1)
    target = checkpoint.save(tmp_path, 3, net, optimizer, {"tokens": 17, "seconds": 0.1})
    fresh, fresh_optimizer = trained(seed=2, steps=0)
    assert not torch.equal(fresh.table.weight, net.table.weight)

    state = checkpoint.load(target, fresh, fresh_optimizer)

    assert state == {"step": 3, "tokens": 17, "seconds": 0.1}
    assert fresh.table.weight is fresh.other.weight
    for (name, old), (_, new) in zip(net.named_parameters(), fresh.named_parameters(), strict=True):
        assert torch.equal(old, new), name
        before, after = optimizer.state.get(old, {}), fresh_optimizer.state.get(new, {})
        assert before.keys() == after.keys(), name
        assert all(torch.equal(before[key], after[key]) for key in before), name
    # What comes next is the same too, to the bit.
    train(net, optimizer)
    train(fresh, fresh_optimizer)
    assert torch.equal(net.table.weight, fresh.table.weight)


def test_only_the_newest_two_are_kept(tmp_path: Path) -> None:
    net, optimizer = trained(seed=0, steps=1)
    for step in (5, 10, 15):
        checkpoint.save(tmp_path, step, net, optimizer, {})
    assert names(tmp_path) == ["0000010", "0000015"]


def test_steps_are_ordered_as_numbers(tmp_path: Path) -> None:
    for name in ("9999999", "10000000", "0000100"):
        (tmp_path / name).mkdir()
    assert [path.name for path in checkpoint.all_steps(tmp_path)] == ["0000100", "9999999", "10000000"]


def test_unfinished_and_strange_folders_are_no_checkpoints(tmp_path: Path) -> None:
    net, optimizer = trained(seed=0, steps=1)
    good = checkpoint.save(tmp_path, 7, net, optimizer, {})
    (tmp_path / ".0000009.half").mkdir()
    (tmp_path / "0000008.bak").mkdir()
    (tmp_path / "0000010").write_text("a file")
    assert checkpoint.all_steps(tmp_path) == [good]
    assert checkpoint.all_steps(tmp_path / "absent") == []


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """The system then refuses to write more, as it does on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_refused_write_is_an_os_error_that_names_the_checkpoint(tmp_path: Path) -> None:
    net, optimizer = trained(seed=0, steps=1, width=64)
    with largest_file(4096), pytest.raises(OSError, match="0000008") as caught:
        checkpoint.save(tmp_path, 8, net, optimizer, {})
    assert caught.value.errno == errno.EFBIG
    assert names(tmp_path) == []


@pytest.mark.parametrize("function", ["save_model", "save_file", "write_json"])
def test_a_full_disk_leaves_the_earlier_checkpoint_and_no_debris(
    function: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    net, optimizer = trained(seed=0)
    good = checkpoint.save(tmp_path, 1, net, optimizer, {})
    content = {path.name: path.read_bytes() for path in good.iterdir()}

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(checkpoint, function, full)
    with pytest.raises(OSError, match="No space left"):
        checkpoint.save(tmp_path, 2, net, optimizer, {})
    assert names(tmp_path) == ["0000001"]
    assert {path.name: path.read_bytes() for path in good.iterdir()} == content


@pytest.mark.parametrize("file", ["model.safetensors", "optimizer.safetensors", "state.json"])
@pytest.mark.parametrize("damage", ["cut", "absent"])
def test_a_damaged_checkpoint_is_said_so(file: str, damage: str, tmp_path: Path) -> None:
    net, optimizer = trained(seed=0)
    target = checkpoint.save(tmp_path, 1, net, optimizer, {})
    if damage == "cut":
        (target / file).write_bytes((target / file).read_bytes()[:-5])
    else:
        (target / file).unlink()
    with pytest.raises(BadInput, match="0000001: this checkpoint is damaged") as caught:
        checkpoint.load(target, net, optimizer)
    assert "\n" not in str(caught.value)


def test_the_weights_of_another_network_are_refused(tmp_path: Path) -> None:
    net, optimizer = trained(seed=0)
    target = checkpoint.save(tmp_path, 1, net, optimizer, {})
    with pytest.raises(BadInput, match="of another network"):
        checkpoint.load_weights(target, Tied(0, width=5))
