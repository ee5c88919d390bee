"""A checkpoint is whole or not there, and brings everything back; a damaged one is noticed and passed over."""

from __future__ import annotations

import errno
import json
import resource
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from crossling import disk
from crossling.errors import BadInput
from crossling.train import checkpoint, stored
from crossling.train.checkpoint import Checkpoints
from crossling.train.optimizer import Adam


class Tied(nn.Module):
    """Two parts with one table, as an encoder and its generator have; a queue; and a weight that is never trained."""

    def __init__(self, seed: int, width: int = 4) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.table = nn.Embedding(6, width)
        self.other = nn.Embedding(6, width)
        self.other.weight = self.table.weight
        self.map = nn.Linear(width, width)
        self.idle = nn.Linear(2, 2)
        self.register_buffer("queue", torch.randn(3, 2))
        self.register_buffer("seen", torch.tensor(seed))

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


def everything(net: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    return {
        **{name: value.clone() for name, value in net.state_dict().items()},
        **{
            f"{name}/{key}": value.clone()
            for name, parameter in net.named_parameters()
            for key, value in optimizer.state.get(parameter, {}).items()
        },
    }


def different(one: dict[str, Tensor], other: dict[str, Tensor]) -> list[str]:
    return sorted(
        name
        for name in {*one, *other}
        if name not in one or name not in other or not torch.equal(one[name], other[name])
    )


def saved(folder: Path, *steps: int, net: tuple[Tied, torch.optim.AdamW] | None = None, keep: int = 9) -> Checkpoints:
    """A checkpoint for each of the steps, and a step of training between them."""
    net = net or trained(seed=0, steps=1)
    checkpoints = Checkpoints(folder, keep)
    for step in steps:
        checkpoints.save(step, *net, {"tokens": 10 * step})
        train(*net)
    checkpoints.wait()
    return checkpoints


def save_and_wait(checkpoints: Checkpoints, step: int, net: tuple[Tied, torch.optim.AdamW]) -> None:
    checkpoints.save(step, *net, {})
    checkpoints.wait()


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# ---- what comes back ----------------------------------------------------------------------------------------


def test_weights_and_optimizer_come_back_and_shared_tensors_stay_shared(tmp_path: Path) -> None:
    net, optimizer = trained(seed=1)
    expected = everything(net, optimizer)
    assert any(name.endswith("/exp_avg_sq") for name in expected)
    assert not any(name.startswith("idle.weight/") for name in expected)  # it never had a gradient
    saving = Checkpoints(tmp_path)
    saving.save(3, net, optimizer, {"tokens": 17, "window": {"norms": [0.1]}})
    saving.wait()
    fresh, fresh_optimizer = trained(seed=2, steps=0)

    state = Checkpoints(tmp_path).load(fresh, fresh_optimizer)

    assert state == {"step": 3, "tokens": 17, "window": {"norms": [0.1]}}
    assert different(everything(fresh, fresh_optimizer), expected) == []
    assert fresh.table.weight is fresh.other.weight
    # What comes next is the same too, to the bit.
    train(net, optimizer)
    train(fresh, fresh_optimizer)
    assert different(everything(fresh, fresh_optimizer), everything(net, optimizer)) == []


def test_there_is_nothing_to_load_at_first(tmp_path: Path) -> None:
    assert Checkpoints(tmp_path / "none").load(*trained(0, steps=0)) is None
    with pytest.raises(BadInput, match="no checkpoint yet"):
        checkpoint.newest_whole(tmp_path)


def test_a_tied_weight_is_stored_once_and_nothing_is_pickled(tmp_path: Path) -> None:
    saved(tmp_path, 1)
    held = stored.tensors(tmp_path / "0000001")
    assert {name for name in held if "/" not in name} == {
        *("table.weight", "map.weight", "map.bias", "idle.weight", "idle.bias", "queue", "seen")
    }
    assert {path.suffix for path in (tmp_path / "0000001").iterdir()} == {".safetensors", ".json"}


def test_the_weights_alone(tmp_path: Path) -> None:
    net = trained(seed=1)
    saved(tmp_path, 1, net=net)
    expected, fresh = stored.tensors(tmp_path / "0000001"), Tied(2)
    checkpoint.load_weights(tmp_path / "0000001", fresh)
    assert different(fresh.state_dict() | {"other.weight": Tensor()}, expected | {"other.weight": Tensor()}) == sorted(
        name for name in expected if "/" in name
    )


@pytest.mark.parametrize("width", [5, 3])
def test_the_weights_of_another_network_are_refused(width: int, tmp_path: Path) -> None:
    checkpoints = saved(tmp_path, 1)
    with pytest.raises(BadInput, match=r"0000001: this checkpoint is of another network \(map.bias: \(4,\) stored"):
        checkpoint.load_weights(tmp_path / "0000001", Tied(0, width))
    with pytest.raises(BadInput, match="of another network"):
        checkpoints.load(*trained(0, steps=0, width=width))


def test_a_network_with_more_or_fewer_parts_is_refused(tmp_path: Path) -> None:
    checkpoints, (net, optimizer) = saved(tmp_path, 1), trained(0)
    net.more = nn.Linear(1, 1)
    with pytest.raises(BadInput, match=r"another network \(more.bias: nothing stored, \(1,\) expected\)"):
        checkpoints.load(net, optimizer)
    del net.more, net.idle
    with pytest.raises(BadInput, match=r"another network \(idle.bias: \(2,\) stored, nothing expected\)"):
        checkpoints.load(net, optimizer)


# ---- in the background --------------------------------------------------------------------------------------


@pytest.fixture
def held_back(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Nothing is written before it is set."""
    may, original = threading.Event(), stored.write

    def late(*arguments: Any) -> Path:
        assert may.wait(60)
        return original(*arguments)

    monkeypatch.setattr(stored, "write", late)
    return may


def test_training_goes_on_while_it_is_written(held_back: threading.Event, tmp_path: Path) -> None:
    net, optimizer = trained(seed=1)
    expected, state = everything(net, optimizer), {"counts": {"mlm": 3}}
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(3, net, optimizer, state)
    train(net, optimizer)
    net.seen.add_(5)
    state["counts"]["mlm"] = 99
    assert checkpoint.all_steps(tmp_path) == []
    held_back.set()
    checkpoints.wait()
    fresh = trained(seed=2, steps=0)
    assert checkpoints.load(*fresh) == {"step": 3, "counts": {"mlm": 3}}
    assert different(everything(*fresh), expected) == []


def test_the_next_save_waits_for_the_one_before(held_back: threading.Event, tmp_path: Path) -> None:
    net, checkpoints = trained(seed=1), Checkpoints(tmp_path)
    checkpoints.save(1, *net, {})
    threading.Timer(0.2, held_back.set).start()
    checkpoints.save(2, *net, {})
    assert [path.name for path in checkpoint.all_steps(tmp_path)][:1] == ["0000001"]
    checkpoints.wait()
    assert names(tmp_path) == ["0000001", "0000002"]


@pytest.mark.parametrize("then", ["save", "wait", "load"])
def test_what_went_wrong_is_raised_once_at_the_next_call(
    then: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    net, checkpoints = trained(seed=1), saved(tmp_path, 1)
    with monkeypatch.context() as patch:
        patch.setattr(stored, "write", full)
        checkpoints.save(2, *net, {})
        call: dict[str, Callable[[], object]] = {
            **{"save": lambda: checkpoints.save(3, *net, {}), "wait": checkpoints.wait},
            **{"load": lambda: checkpoints.load(*net)},
        }
        with pytest.raises(OSError, match="No space left"):
            call[then]()
    checkpoints.save(4, *net, {})
    checkpoints.wait()
    assert names(tmp_path) == ["0000001", "0000004"]


def test_a_run_that_ends_for_another_reason_lets_a_save_come_to_its_end(
    held_back: threading.Event, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, *trained(0), {})
    threading.Timer(0.1, held_back.set).start()
    checkpoints.close()
    assert names(tmp_path) == ["0000001"]
    monkeypatch.setattr(stored, "write", full)
    checkpoints.save(2, *trained(0), {})
    checkpoints.close()  # the other reason is what is told
    assert names(tmp_path) == ["0000001"]


# ---- which are kept -----------------------------------------------------------------------------------------


def test_only_the_newest_two_are_kept(tmp_path: Path) -> None:
    net, checkpoints = trained(seed=0, steps=1), Checkpoints(tmp_path)
    for step in (5, 10, 15):
        checkpoints.save(step, *net, {})
    checkpoints.wait()
    assert names(tmp_path) == ["0000010", "0000015"]


@pytest.mark.parametrize(
    ("scores", "kept"),
    [
        ([0.3, 0.2, 0.1, None, None], [1, 4, 5]),
        ([0.3, 0.2, 0.4, None, None], [3, 4, 5]),  # a better one takes its place
        ([0.3, 0.2, 0.1, 0.2, 0.5], [4, 5]),
        ([None, 0.2, 0.2, 0.1, None], [2, 4, 5]),  # not better
        ([float("nan"), -0.2, float("nan"), None, None], [2, 4, 5]),
        ([None, None, None, None, None], [4, 5]),
    ],
)
def test_the_best_is_kept_until_there_is_a_better_one(
    scores: list[float | None], kept: list[int], tmp_path: Path
) -> None:
    net = trained(seed=0, steps=1)
    for step, score in enumerate(scores, start=1):
        checkpoints = Checkpoints(tmp_path)  # as after a stop
        checkpoints.save(step, *net, {}, None if score is None else {"mean": score})
        checkpoints.wait()
    assert [int(path.name) for path in checkpoint.all_steps(tmp_path)] == kept
    assert checkpoints.load(*net) == {"step": 5}  # which is no word of the trainer's


def test_the_best_of_each_name_is_kept(tmp_path: Path) -> None:
    net = trained(seed=0, steps=1)
    checkpoints = Checkpoints(tmp_path, keep=1)
    for step, (de, fr) in enumerate([(0.5, 0.1), (0.2, 0.3), (0.1, 0.3), (0.2, 0.2)], start=1):
        checkpoints.save(step, *net, {}, {"de": de, "fr": fr})
        checkpoints.wait()
    assert [int(path.name) for path in checkpoint.all_steps(tmp_path)] == [1, 2, 4]
    found = checkpoint.best(checkpoint.all_steps(tmp_path))
    assert {name: int(path.name) for name, path in found.items()} == {"de": 1, "fr": 2}


def test_steps_are_ordered_as_numbers(tmp_path: Path) -> None:
    for name in ("9999999", "10000000", "0000100"):
        (tmp_path / name).mkdir()
    assert [path.name for path in checkpoint.all_steps(tmp_path)] == ["0000100", "9999999", "10000000"]


def test_unfinished_and_strange_folders_are_no_checkpoints(tmp_path: Path) -> None:
    saved(tmp_path, 7)
    (tmp_path / ".0000009.half").mkdir()
    (tmp_path / "0000008.bak").mkdir()
    (tmp_path / "0000010").write_text("a file")
    assert checkpoint.all_steps(tmp_path) == [tmp_path / "0000007"]
    assert checkpoint.all_steps(tmp_path / "absent") == []


def test_what_a_crash_left_is_removed_before_anything_is_written(
    held_back: threading.Event, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for left in (".0000009.half", ".10000000.old"):
        (tmp_path / left).mkdir()
        (tmp_path / left / "x").write_text("much")
    (tmp_path / "mine").mkdir()
    seen: list[str] = []
    original = stored.write
    monkeypatch.setattr(stored, "write", lambda *told: (seen.extend(names(tmp_path)), original(*told))[1])
    held_back.set()
    saved(tmp_path, 12)
    assert [name.split(".")[1] for name in seen if name.startswith(".")] == ["0000012"]
    assert names(tmp_path) == ["0000012", "mine"]


# ---- damage -------------------------------------------------------------------------------------------------


def flip(file: Path, where: int = -3) -> None:
    content = bytearray(file.read_bytes())
    content[where] ^= 4
    file.write_bytes(content)


DAMAGE: dict[str, Callable[[Path], object]] = {
    "cut": lambda file: file.write_bytes(file.read_bytes()[:-5]),
    "empty": lambda file: file.write_bytes(b""),
    "grown": lambda file: file.write_bytes(file.read_bytes() + b" "),
    "flipped": flip,
    "absent": lambda file: file.unlink(),
}
DAMAGED = [(file, damage) for file in ("00000.safetensors", "state.json") for damage in DAMAGE]
DAMAGED += [("manifest.json", damage) for damage in ("cut", "empty", "absent")]  # else it may still say the same


@pytest.mark.parametrize(("file", "damage"), DAMAGED)
def test_a_damaged_checkpoint_is_passed_over_with_a_warning(file: str, damage: str, tmp_path: Path) -> None:
    net = trained(seed=1)
    folder = tmp_path / "checkpoints"
    checkpoints = saved(folder, 1, 2, net=net)
    expected = stored.tensors(folder / "0000001")
    DAMAGE[damage](folder / "0000002" / file)
    fresh = trained(seed=2, steps=0)
    with pytest.warns(UserWarning, match="taking the checkpoint before 0000002") as told:
        assert checkpoints.load(*fresh) == {"step": 1, "tokens": 10}
    assert f"0000002/{file} is " in str(told[0].message)
    assert "\n" not in str(told[0].message)
    assert set(different(everything(*fresh), expected)) == {"other.weight"}
    with pytest.warns(UserWarning, match=file):
        assert checkpoint.newest_whole(tmp_path) == folder / "0000001"


def test_every_flipped_bit_is_noticed(tmp_path: Path) -> None:
    saved(tmp_path, 1)
    for file in (tmp_path / "0000001").iterdir():
        sound = file.read_bytes()
        for where in range(0, len(sound), max(1, len(sound) // 40)):
            flip(file, where)
            if checkpoint._damage(tmp_path / "0000001") is None:
                assert file.name == "manifest.json", (file, where)
                assert json.loads(file.read_bytes()) == json.loads(sound)  # white space
            file.write_bytes(sound)
    assert checkpoint._damage(tmp_path / "0000001") is None


def test_a_file_that_does_not_belong_there_is_noticed(tmp_path: Path) -> None:
    """Its tensors would be read too."""
    saved(tmp_path, 1, 2)
    [shard] = (tmp_path / "0000001").glob("*.safetensors")
    (tmp_path / "0000002" / "00001.safetensors").write_bytes(shard.read_bytes())
    with pytest.warns(UserWarning, match="does not belong there"):
        assert Checkpoints(tmp_path).load(*trained(0)) == {"step": 1, "tokens": 10}


def test_where_none_is_whole_nothing_is_loaded(tmp_path: Path) -> None:
    checkpoints = saved(tmp_path, 1, 2)
    for step in (1, 2):
        flip(next((tmp_path / f"000000{step}").glob("*.safetensors")))
    net = trained(0)
    before = everything(*net)
    with (
        pytest.warns(UserWarning, match="0000002"),
        pytest.raises(BadInput, match=r"no checkpoint there is whole \(.*0000001") as caught,
    ):
        checkpoints.load(*net)
    assert "\n" not in str(caught.value)
    assert different(everything(*net), before) == []
    assert names(tmp_path) == ["0000001", "0000002"]  # somebody may be able to mend them


@pytest.mark.parametrize(("next_step", "left"), [(6, [3, 6]), (9, [6, 9])], ids=["again", "by other steps"])
def test_what_was_passed_over_goes_when_there_is_a_better_one(next_step: int, left: list[int], tmp_path: Path) -> None:
    net = trained(0)
    saved(tmp_path, 3, 6, net=net)
    flip(next((tmp_path / "0000006").glob("*.safetensors")))
    checkpoints = Checkpoints(tmp_path)
    with pytest.warns(UserWarning, match="0000006"):
        checkpoints.load(*net)
    if next_step == 9:  # the run had gone on to 6 once more
        checkpoints.save(6, *net, {})
    checkpoints.save(next_step, *net, {})
    checkpoints.wait()
    assert [int(path.name) for path in checkpoint.all_steps(tmp_path)] == left
    assert all(checkpoint._damage(path) is None for path in checkpoint.all_steps(tmp_path))


def test_one_from_a_future_that_was_passed_over_is_not_kept(tmp_path: Path) -> None:
    net = trained(0)
    checkpoints = saved(tmp_path, 3, net=net)
    checkpoints.save(9, *net, {}, {"mean": 1.0})
    checkpoints.wait()
    flip(next((tmp_path / "0000009").glob("*.safetensors")))
    saved(tmp_path, 4, net=net, keep=2)
    assert names(tmp_path) == ["0000003", "0000004"]


# ---- no room ------------------------------------------------------------------------------------------------


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """The system then refuses to write more, as it does on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def full(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_refused_write_is_an_os_error_that_names_the_checkpoint(tmp_path: Path) -> None:
    net = trained(seed=0, steps=1, width=64)
    checkpoints = saved(tmp_path, 7, net=net)
    with largest_file(4096), pytest.raises(OSError, match="0000008") as caught:
        save_and_wait(checkpoints, 8, net)
    assert caught.value.errno == errno.EFBIG
    assert names(tmp_path) == ["0000007"]
    assert checkpoints.load(*net) == {"step": 7, "tokens": 70}


@pytest.mark.parametrize(
    "where", ["new_folder", "stored.save_file", "stored.write", "_seal", "write_json", "disk._put", "disk._flush"]
)
def test_a_full_disk_leaves_the_earlier_checkpoint_and_no_debris(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = trained(seed=0)
    checkpoints = saved(tmp_path, 1, net=net)
    content = {path.name: path.read_bytes() for path in (tmp_path / "0000001").iterdir()}
    with monkeypatch.context() as patch:
        room, _, function = where.rpartition(".")
        patch.setattr({"stored": stored, "disk": disk, "": checkpoint}[room], function, full)
        with pytest.raises(OSError, match="No space left") as caught:
            save_and_wait(checkpoints, 2, net)
    assert caught.value.errno == errno.ENOSPC
    assert "0000002" in str(caught.value.filename)
    assert names(tmp_path) == ["0000001"]
    assert {path.name: path.read_bytes() for path in (tmp_path / "0000001").iterdir()} == content
