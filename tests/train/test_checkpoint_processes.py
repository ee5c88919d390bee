"""Checkpoints of several processes: each writes its share, any world size can read them, and what goes wrong in
one is known to all."""

from __future__ import annotations

import errno
import json
import warnings
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from crossling.core.errors import BadInput
from crossling.train import checkpoint
from crossling.train import checkpoint_storage as stored
from crossling.train.checkpoint import Checkpoints, Retention
from crossling.train.optimizer import OptimizerSettings
from tests.copied_processes import start_copies

RANKS = 3  # no size below is a multiple of it
ENGINES = ["alone", "copies", "shards"]
Net = tuple["Uneven", torch.optim.AdamW]


class Uneven(nn.Module):
    """With weights of fewer rows than there are processes, tied ones, buffers, and one that is never trained."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.table = nn.Embedding(7, 4)
        self.other = nn.Embedding(7, 4)
        self.other.weight = self.table.weight
        self.map = nn.Linear(4, 5)
        self.small = nn.Linear(5, 1)
        self.idle = nn.Linear(2, 2)
        self.register_buffer("queue", torch.randn(4, 2))
        self.register_buffer("seen", torch.tensor(seed))

    def forward(self, ids: Tensor) -> Tensor:
        return (self.small(self.map(self.table(ids))) + self.other(ids)).pow(2).sum()


def network(engine: str, seed: int, steps: int) -> Net:
    net = Uneven(seed)
    if engine == "shards":
        for part in (net.map, net.small):
            fully_shard(part)
        fully_shard(net)
    optimizer = OptimizerSettings().build(net)
    for _ in range(steps):
        train(engine, net, optimizer)
    return net, optimizer


def train(engine: str, net: Uneven, optimizer: torch.optim.AdamW) -> None:
    net(torch.arange(7)).backward()
    if engine == "copies":
        for parameter in net.parameters():
            if parameter.grad is not None:
                dist.all_reduce(parameter.grad)
    for group in optimizer.param_groups:
        group["lr"] = 0.1
    optimizer.step()
    optimizer.zero_grad()


def everything(net: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Whole, of all processes."""
    weights = {name: value for name, value in net.state_dict(keep_vars=True).items() if not name.startswith("other")}
    kept = {
        f"{name}/{key}": value
        for name, weight in weights.items()
        for key, value in optimizer.state.get(weight, {}).items()
    }
    found = {name: value.detach() for name, value in {**weights, **kept}.items()}
    return {n: (v.full_tensor() if isinstance(v, DTensor) else v).clone() for n, v in found.items()}


def on_rank(rank: int, folder: Path) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=RANKS)
    results: dict[str, object] = {}
    for engine in ENGINES[1:]:
        save(engine, folder / engine)
    for engine in ENGINES[1:]:
        for writer in ENGINES:
            net = network(engine, seed=9, steps=0)
            results[f"{engine} of {writer}"] = Checkpoints(folder / writer).load(*net)
            write(rank, everything(*net), folder / f"{engine}-of-{writer}")
            train(engine, *net)  # nobody misses anything
    results["failure"] = fail_in_one(rank, folder / "failure")
    results["damage"] = pass_over(folder / "damage")
    results["none"] = load_nothing(folder / "none")
    (folder / f"results-{rank}.json").write_text(json.dumps(results))
    dist.destroy_process_group()


def save(engine: str, folder: Path) -> None:
    """In the background of training."""
    net, checkpoints = network(engine, seed=1, steps=2), Checkpoints(folder)
    for step in range(1, 6):
        expected = everything(*net)
        checkpoints.save(step, *net, {"tokens": 7 * step})
        for _ in range(5):
            train(engine, *net)
    checkpoints.wait()
    write(dist.get_rank(), expected, folder.with_name(f"{engine}-saved"))


def write(rank: int, tensors: dict[str, Tensor], file: Path) -> None:
    if rank == 0:
        save_file({name: value.contiguous() for name, value in tensors.items()}, file)


def fail_in_one(rank: int, folder: Path) -> list[object]:
    """Return the error of each process when the last one has a full disk."""
    net, checkpoints, original = network("shards", seed=1, steps=1), Checkpoints(folder), stored.save_file
    checkpoints.save(1, *net, {})
    checkpoints.wait()

    def full(*arguments: object) -> None:
        if rank == RANKS - 1:
            raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")
        original(*arguments)

    stored.save_file = full
    checkpoints.save(2, *net, {})
    try:
        checkpoints.wait()
        return [None]
    except OSError as error:
        dist.barrier()
        return [error.errno, Path(error.filename).name, sorted(path.name for path in folder.iterdir())]
    finally:
        stored.save_file = original


def pass_over(folder: Path) -> list[object]:
    """Return the state that each process resumed from, and its warnings."""
    net = network("shards", seed=9, steps=0)
    with warnings.catch_warnings(record=True) as messages_of_rank:
        warnings.simplefilter("always")
        state = Checkpoints(folder).load(*net)
    return [state, [str(one.message) for one in messages_of_rank if "checkpoint before" in str(one.message)]]


def load_nothing(folder: Path) -> str:
    try:
        return str(Checkpoints(folder).load(*network("copies", seed=9, steps=0)))
    except BadInput as error:
        return str(error)


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ranks")
    net, optimizer = network("alone", seed=1, steps=3)
    save_file(everything(net, optimizer), folder / "alone-saved")
    for place, steps in {"alone": [5], "damage": [2, 3, 4], "none": [1]}.items():
        checkpoints = Checkpoints(folder / place, Retention(9))
        for step in steps:
            checkpoints.save(step, net, optimizer, {"tokens": 7 * step})
        checkpoints.wait()
    for file in ("damage/0000004/state.json", "damage/0000003/manifest.json", "none/0000001/state.json"):
        (folder / file).write_text("{")
    start_copies(on_rank, (folder,), RANKS)
    return folder


def results(folder: Path, name: str) -> list[object]:
    """Return the results of each process."""
    return [json.loads((folder / f"results-{rank}.json").read_text())[name] for rank in range(RANKS)]


def assert_same(one: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    assert one.keys() == other.keys()
    assert [name for name in one if not torch.equal(one[name], other[name])] == []


@pytest.mark.parametrize("engine", ENGINES[1:])
@pytest.mark.parametrize("writer", ENGINES)
def test_any_world_size_reads_checkpoints_of_any_other(ranks: Path, writer: str, engine: str) -> None:
    assert results(ranks, f"{engine} of {writer}") == [{"step": 5, "tokens": 35}] * RANKS
    expected = load_file(ranks / f"{writer}-saved")
    assert any(name.endswith("/exp_avg_sq") for name in expected)
    assert_same(load_file(ranks / f"{engine}-of-{writer}"), expected)


@pytest.mark.parametrize("writer", ENGINES)
def test_one_process_reads_checkpoints_of_any_world_size(ranks: Path, writer: str) -> None:
    expected = load_file(ranks / f"{writer}-saved")
    net = network("alone", seed=9, steps=0)
    assert Checkpoints(ranks / writer).load(*net) == {"step": 5, "tokens": 35}
    assert_same(everything(*net), expected)
    fresh = Uneven(9)
    checkpoint.load_weights(ranks / writer / "0000005", fresh)
    assert torch.equal(fresh.other.weight, expected["table.weight"])
    assert_same(stored.read_tensors(ranks / writer / "0000005"), expected)


@pytest.mark.parametrize("writer", ENGINES[1:])
def test_every_process_writes_its_shard(ranks: Path, writer: str) -> None:
    assert [path.name for path in checkpoint.list_checkpoints(ranks / writer)] == ["0000004", "0000005"]
    held = [load_file(file) for file in sorted((ranks / writer / "0000005").glob("*.safetensors"))]
    assert len(held) == RANKS
    numbers = [sum(value.numel() for value in tensors.values()) for tensors in held]
    expected = load_file(ranks / f"{writer}-saved")
    assert sum(numbers) == sum(value.numel() for value in expected.values())  # and none twice
    assert max(numbers) < 0.6 * sum(numbers)


def test_an_error_in_one_process_is_raised_in_all(ranks: Path) -> None:
    assert results(ranks, "failure") == [[errno.ENOSPC, "0000002", ["0000001"]]] * RANKS


def test_all_processes_skip_the_same_damaged_checkpoints_and_one_warns(ranks: Path) -> None:
    states, messages_of_rank = zip(*results(ranks, "damage"), strict=True)  # type: ignore[arg-type]
    assert list(states) == [{"step": 2, "tokens": 14}] * RANKS
    assert [len(messages) for messages in messages_of_rank] == [2, 0, 0]
    assert "0000004/state.json is damaged" in messages_of_rank[0][0]
    assert "0000003/manifest.json is missing or damaged" in messages_of_rank[0][1]


def test_all_processes_refuse_without_a_valid_checkpoint(ranks: Path) -> None:
    assert all("no valid checkpoint" in str(message) for message in results(ranks, "none"))
