"""Checkpoints restore everything, are written in the background, and are removed when they are old."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor, nn

from crossling.core.errors import BadInput
from crossling.train import checkpoint
from crossling.train import checkpoint_storage as stored
from crossling.train.checkpoint import Checkpoints, Retention

from .checkpoint_helpers import Tied, different, everything, full, names, saved, train, trained


def test_weights_and_optimizer_are_restored_and_tied_tensors_stay_tied(tmp_path: Path) -> None:
    net, optimizer = trained(seed=1)
    expected = everything(net, optimizer)
    assert any(name.endswith("/exp_avg_sq") for name in expected)
    assert not any(name.startswith("idle.weight/") for name in expected)  # it never had a gradient
    saving = Checkpoints(tmp_path)
    saving.save(3, net, optimizer, {"tokens": 17, "metrics": {"norms": [0.1]}})
    saving.wait()
    fresh, fresh_optimizer = trained(seed=2, steps=0)

    state = Checkpoints(tmp_path).load(fresh, fresh_optimizer)

    assert state == {"step": 3, "tokens": 17, "metrics": {"norms": [0.1]}}
    assert different(everything(fresh, fresh_optimizer), expected) == []
    assert fresh.table.weight is fresh.other.weight
    # The next random numbers are the same too, to the bit.
    train(net, optimizer)
    train(fresh, fresh_optimizer)
    assert different(everything(fresh, fresh_optimizer), everything(net, optimizer)) == []


def test_without_a_checkpoint_nothing_is_loaded(tmp_path: Path) -> None:
    assert Checkpoints(tmp_path / "none").load(*trained(0, steps=0)) is None
    with pytest.raises(BadInput, match="no checkpoint yet"):
        checkpoint.latest_valid_checkpoint(tmp_path)


def test_a_tied_weight_is_stored_once_and_nothing_is_pickled(tmp_path: Path) -> None:
    saved(tmp_path, 1)
    held = stored.read_tensors(tmp_path / "0000001")
    assert {name for name in held if "/" not in name} == {
        *("table.weight", "map.weight", "map.bias", "idle.weight", "idle.bias", "queue", "seen")
    }
    assert {path.suffix for path in (tmp_path / "0000001").iterdir()} == {".safetensors", ".json"}


def test_the_weights_alone(tmp_path: Path) -> None:
    net = trained(seed=1)
    saved(tmp_path, 1, net=net)
    expected, fresh = stored.read_tensors(tmp_path / "0000001"), Tied(2)
    checkpoint.load_weights(tmp_path / "0000001", fresh)
    assert different(fresh.state_dict() | {"other.weight": Tensor()}, expected | {"other.weight": Tensor()}) == sorted(
        name for name in expected if "/" in name
    )


@pytest.mark.parametrize("width", [5, 3])
def test_the_weights_of_another_network_are_refused(width: int, tmp_path: Path) -> None:
    checkpoints = saved(tmp_path, 1)
    with pytest.raises(BadInput, match=r"0000001: checkpoint of another network. map.bias is \(4,\) there"):
        checkpoint.load_weights(tmp_path / "0000001", Tied(0, width))
    with pytest.raises(BadInput, match="of another network"):
        checkpoints.load(*trained(0, steps=0, width=width))


def test_a_network_with_more_or_fewer_parts_is_refused(tmp_path: Path) -> None:
    checkpoints, (net, optimizer) = saved(tmp_path, 1), trained(0)
    net.more = nn.Linear(1, 1)
    with pytest.raises(BadInput, match=r"another network. more.bias is missing there, expected \(1,\)"):
        checkpoints.load(net, optimizer)
    del net.more, net.idle
    with pytest.raises(BadInput, match=r"another network. idle.bias is \(2,\) there, expected no such tensor"):
        checkpoints.load(net, optimizer)


@pytest.fixture
def held_back(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Return an event. Nothing is written before it is set."""
    may, original = threading.Event(), stored.write_tensors

    def late(*arguments: Any) -> Path:
        assert may.wait(60)
        return original(*arguments)

    monkeypatch.setattr(stored, "write_tensors", late)
    return may


def test_training_continues_while_a_checkpoint_is_written(held_back: threading.Event, tmp_path: Path) -> None:
    net, optimizer = trained(seed=1)
    expected, state = everything(net, optimizer), {"counts": {"mlm": 3}}
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(3, net, optimizer, state)
    train(net, optimizer)
    net.seen.add_(5)
    state["counts"]["mlm"] = 99
    assert checkpoint.list_checkpoints(tmp_path) == []
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
    assert [path.name for path in checkpoint.list_checkpoints(tmp_path)][:1] == ["0000001"]
    checkpoints.wait()
    assert names(tmp_path) == ["0000001", "0000002"]


@pytest.mark.parametrize("then", ["save", "wait", "load"])
def test_an_error_is_raised_once_at_the_next_call(then: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    net, checkpoints = trained(seed=1), saved(tmp_path, 1)
    with monkeypatch.context() as patch:
        patch.setattr(stored, "write_tensors", full)
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


def test_close_waits_for_a_pending_save(
    held_back: threading.Event, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, *trained(0), {})
    threading.Timer(0.1, held_back.set).start()
    checkpoints.close()
    assert names(tmp_path) == ["0000001"]
    monkeypatch.setattr(stored, "write_tensors", full)
    checkpoints.save(2, *trained(0), {})
    checkpoints.close()  # the error of the save is ignored
    assert names(tmp_path) == ["0000001"]


def test_only_the_latest_two_are_kept(tmp_path: Path) -> None:
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
        checkpoints.save(step, *net, {}, None if score is None else {"probe/mean": score})
        checkpoints.wait()
    assert [int(path.name) for path in checkpoint.list_checkpoints(tmp_path)] == kept
    assert checkpoints.load(*net) == {"step": 5}  # without the scores


def test_the_best_of_each_name_is_kept(tmp_path: Path) -> None:
    net = trained(seed=0, steps=1)
    checkpoints = Checkpoints(tmp_path, Retention(last=1))
    for step, (de, fr) in enumerate([(0.5, 0.1), (0.2, 0.3), (0.1, 0.3), (0.2, 0.2)], start=1):
        checkpoints.save(step, *net, {}, {"probe/de": de, "probe/fr": fr})
        checkpoints.wait()
    assert [int(path.name) for path in checkpoint.list_checkpoints(tmp_path)] == [1, 2, 4]
    found = checkpoint.best_checkpoints(checkpoint.list_checkpoints(tmp_path))
    assert {name: int(path.name) for name, path in found.items()} == {"probe/de": 1, "probe/fr": 2}


@pytest.mark.parametrize(
    ("metric", "best"),
    [("loss", 2), ("mlm", 2), ("probe/loss/de/mlm", 2), ("mlm_accuracy", 3), ("probe/retrieval", 3)],
)
def test_the_best_loss_is_the_lowest_and_the_best_accuracy_the_highest(metric: str, best: int, tmp_path: Path) -> None:
    net, checkpoints = trained(seed=0, steps=1), Checkpoints(tmp_path, Retention(best=metric))
    for step, value in enumerate([0.3, 0.1, 0.5, 0.2], start=1):
        checkpoints.save(step, *net, {}, {metric: value, "earlier": -step})  # of an earlier setting
        checkpoints.wait()
    assert [int(path.name) for path in checkpoint.list_checkpoints(tmp_path)] == [best, 3, 4][best == 3 :]
    assert int(checkpoint.best_checkpoints(checkpoint.list_checkpoints(tmp_path))[metric].name) == best


def test_every_nth_checkpoint_is_kept_forever(tmp_path: Path) -> None:
    net = trained(seed=0, steps=1)
    for step in range(1, 10):
        checkpoints = Checkpoints(tmp_path, Retention(last=1, every=3))  # as after a stop
        checkpoints.save(step, *net, {"is_scheduled": step != 3})  # that of a signal is not
        checkpoints.wait()
        assert checkpoint.list_checkpoints(tmp_path)[-1].name == f"{step:07d}"
    assert [int(path.name) for path in checkpoint.list_checkpoints(tmp_path)] == [6, 9]


def test_steps_are_ordered_as_numbers(tmp_path: Path) -> None:
    for name in ("9999999", "10000000", "0000100"):
        (tmp_path / name).mkdir()
    assert [path.name for path in checkpoint.list_checkpoints(tmp_path)] == ["0000100", "9999999", "10000000"]


def test_incomplete_and_other_folders_are_no_checkpoints(tmp_path: Path) -> None:
    saved(tmp_path, 7)
    (tmp_path / ".0000009.half").mkdir()
    (tmp_path / "0000008.bak").mkdir()
    (tmp_path / "0000010").write_text("a file")
    assert checkpoint.list_checkpoints(tmp_path) == [tmp_path / "0000007"]
    assert checkpoint.list_checkpoints(tmp_path / "absent") == []


def test_leftovers_of_a_crash_are_removed_first(
    held_back: threading.Event, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for left in (".0000009.half", ".10000000.old"):
        (tmp_path / left).mkdir()
        (tmp_path / left / "x").write_text("much")
    (tmp_path / "mine").mkdir()
    seen: list[str] = []
    original = stored.write_tensors
    monkeypatch.setattr(
        stored, "write_tensors", lambda *arguments: (seen.extend(names(tmp_path)), original(*arguments))[1]
    )
    held_back.set()
    saved(tmp_path, 12)
    assert [name.split(".")[1] for name in seen if name.startswith(".")] == ["0000012"]
    assert names(tmp_path) == ["0000012", "mine"]
