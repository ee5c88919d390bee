"""Damaged checkpoints, other formats and full disks are noticed, and an earlier checkpoint is used."""

from __future__ import annotations

import errno
import json
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from crossling.core import files
from crossling.core.errors import BadInput
from crossling.core.files import write_json
from crossling.train import checkpoint
from crossling.train import checkpoint_storage as stored
from crossling.train.checkpoint import Checkpoints

from .checkpoint_helpers import different, everything, full, names, save_and_wait, saved, trained


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
DAMAGED += [
    ("manifest.json", damage) for damage in ("cut", "empty", "absent")
]  # otherwise its content may be unchanged


@pytest.mark.parametrize(("file", "damage"), DAMAGED)
def test_a_damaged_checkpoint_is_skipped_with_a_warning(file: str, damage: str, tmp_path: Path) -> None:
    net = trained(seed=1)
    folder = tmp_path / "checkpoints"
    checkpoints = saved(folder, 1, 2, net=net)
    expected = stored.read_tensors(folder / "0000001")
    DAMAGE[damage](folder / "0000002" / file)
    fresh = trained(seed=2, steps=0)
    with pytest.warns(UserWarning, match="Using the checkpoint before 0000002") as caught:
        assert checkpoints.load(*fresh) == {"step": 1, "tokens": 10}
    assert f"0000002/{file} is " in str(caught[0].message)
    assert "\n" not in str(caught[0].message)
    assert set(different(everything(*fresh), expected)) == {"other.weight"}
    with pytest.warns(UserWarning, match=file):
        assert checkpoint.latest_valid_checkpoint(tmp_path) == folder / "0000001"


def test_every_flipped_bit_is_noticed(tmp_path: Path) -> None:
    saved(tmp_path, 1)
    for file in (tmp_path / "0000001").iterdir():
        sound = file.read_bytes()
        for where in range(0, len(sound), max(1, len(sound) // 40)):
            flip(file, where)
            if checkpoint._find_damage(tmp_path / "0000001") is None:
                assert file.name == "manifest.json", (file, where)
                assert json.loads(file.read_bytes()) == json.loads(sound)  # white space
            file.write_bytes(sound)
    assert checkpoint._find_damage(tmp_path / "0000001") is None


def test_an_additional_file_is_noticed(tmp_path: Path) -> None:
    """Its tensors would be read too."""
    saved(tmp_path, 1, 2)
    [shard] = (tmp_path / "0000001").glob("*.safetensors")
    (tmp_path / "0000002" / "00001.safetensors").write_bytes(shard.read_bytes())
    with pytest.warns(UserWarning, match="is not in the manifest"):
        assert Checkpoints(tmp_path).load(*trained(0)) == {"step": 1, "tokens": 10}


def test_without_a_valid_checkpoint_nothing_is_loaded(tmp_path: Path) -> None:
    checkpoints = saved(tmp_path, 1, 2)
    for step in (1, 2):
        flip(next((tmp_path / f"000000{step}").glob("*.safetensors")))
    net = trained(0)
    before = everything(*net)
    with (
        pytest.warns(UserWarning, match="0000002"),
        pytest.raises(BadInput, match=r"no valid checkpoint \(.*0000001") as caught,
    ):
        checkpoints.load(*net)
    assert "\n" not in str(caught.value)
    assert different(everything(*net), before) == []
    assert names(tmp_path) == ["0000001", "0000002"]  # they might be repaired


@pytest.mark.parametrize(("next_step", "left"), [(6, [3, 6]), (9, [6, 9])], ids=["again", "by other steps"])
def test_a_skipped_checkpoint_is_removed_when_there_is_a_better_one(
    next_step: int, left: list[int], tmp_path: Path
) -> None:
    net = trained(0)
    saved(tmp_path, 3, 6, net=net)
    flip(next((tmp_path / "0000006").glob("*.safetensors")))
    checkpoints = Checkpoints(tmp_path)
    with pytest.warns(UserWarning, match="0000006"):
        checkpoints.load(*net)
    if next_step == 9:  # the run had reached step 6 again
        checkpoints.save(6, *net, {})
    checkpoints.save(next_step, *net, {})
    checkpoints.wait()
    assert [int(path.name) for path in checkpoint.list_checkpoints(tmp_path)] == left
    assert all(checkpoint._find_damage(path) is None for path in checkpoint.list_checkpoints(tmp_path))


def test_a_skipped_later_checkpoint_is_not_kept(tmp_path: Path) -> None:
    net = trained(0)
    checkpoints = saved(tmp_path, 3, net=net)
    checkpoints.save(9, *net, {}, {"mean": 1.0})
    checkpoints.wait()
    flip(next((tmp_path / "0000009").glob("*.safetensors")))
    saved(tmp_path, 4, net=net, keep=2)
    assert names(tmp_path) == ["0000003", "0000004"]


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
    net = trained(seed=0, steps=1, width=64)
    checkpoints = saved(tmp_path, 7, net=net)
    with largest_file(4096), pytest.raises(OSError, match="0000008") as caught:
        save_and_wait(checkpoints, 8, net)
    assert caught.value.errno == errno.EFBIG
    assert names(tmp_path) == ["0000007"]
    assert checkpoints.load(*net) == {"step": 7, "tokens": 70}


@pytest.mark.parametrize(
    "where",
    [
        *("atomic_folder", "_describe_file", "write_json", "stored.save_file", "stored.write_tensors"),
        *("files._replace_folder", "files._flush"),
    ],
)
def test_a_full_disk_leaves_the_earlier_checkpoint_and_no_debris(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = trained(seed=0)
    checkpoints = saved(tmp_path, 1, net=net)
    content = {path.name: path.read_bytes() for path in (tmp_path / "0000001").iterdir()}
    with monkeypatch.context() as patch:
        module, _, function = where.rpartition(".")
        patch.setattr({"stored": stored, "files": files, "": checkpoint}[module], function, full)
        with pytest.raises(OSError, match="No space left") as caught:
            save_and_wait(checkpoints, 2, net)
    assert caught.value.errno == errno.ENOSPC
    assert "0000002" in str(caught.value.filename)
    assert names(tmp_path) == ["0000001"]
    assert {path.name: path.read_bytes() for path in (tmp_path / "0000001").iterdir()} == content


@pytest.mark.parametrize("version", [None, 1, 9, "new"])
def test_another_format_is_an_error_that_names_the_command(version: int | str | None, tmp_path: Path) -> None:
    checkpoints = saved(tmp_path / "checkpoints", 1)
    folder = tmp_path / "checkpoints" / "0000001"
    state = json.loads((folder / "state.json").read_text())
    state.pop("format")
    write_json(folder / "state.json", state | ({} if version is None else {"format": version}))
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"]["state.json"] = checkpoint._describe_file(folder / "state.json")
    write_json(folder / "manifest.json", manifest)
    expected = rf"0000001: format version {version or 1!r}, expected 2\. Train again with crossling pretrain\.$"
    with pytest.raises(BadInput, match=expected):
        checkpoints.load(*trained(0))
    with pytest.raises(BadInput, match=expected):
        checkpoint.latest_valid_checkpoint(tmp_path)
