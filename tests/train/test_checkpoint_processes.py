"""Checkpoints of several processes: each writes its share, any number of processes reads them, and what goes wrong in
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

from crossling.errors import BadInput
from crossling.train import checkpoint, stored
from crossling.train.checkpoint import Checkpoints
from crossling.train.optimizer import Adam

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
    optimizer = Adam().build(net)
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


# ---- what each process does -----------------------------------------------------------------------------------


def on_rank(rank: int, folder: Path) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=RANKS)
    told: dict[str, object] = {}
    for engine in ENGINES[1:]:
        save(engine, folder / engine)
    for engine in ENGINES[1:]:
        for writer in ENGINES:
            net = network(engine, seed=9, steps=0)
            told[f"{engine} of {writer}"] = Checkpoints(folder / writer).load(*net)
            write(rank, everything(*net), folder / f"{engine}-of-{writer}")
            train(engine, *net)  # nobody misses anything
    told["failure"] = fail_in_one(rank, folder / "failure")
    told["damage"] = pass_over(folder / "damage")
    told["none"] = load_nothing(folder / "none")
    (folder / f"told-{rank}.json").write_text(json.dumps(told))
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
    """What each process heard when the last of them had no room for its share."""
    net, checkpoints, original = network("shards", seed=1, steps=1), Checkpoints(folder), stored.save_file
    checkpoints.save(1, *net, {})
    checkpoints.wait()

    def full(*told: object) -> None:
        if rank == RANKS - 1:
            raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")
        original(*told)

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
    """The step that each process went on from, and what it said."""
    net = network("shards", seed=9, steps=0)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        state = Checkpoints(folder).load(*net)
    return [state, [str(one.message) for one in said if "checkpoint before" in str(one.message)]]


def load_nothing(folder: Path) -> str:
    try:
        return str(Checkpoints(folder).load(*network("copies", seed=9, steps=0)))
    except BadInput as error:
        return str(error)


# ---- what came of it ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ranks")
    net, optimizer = network("alone", seed=1, steps=3)
    save_file(everything(net, optimizer), folder / "alone-saved")
    for place, steps in {"alone": [5], "damage": [2, 3, 4], "none": [1]}.items():
        checkpoints = Checkpoints(folder / place, keep=9)
        for step in steps:
            checkpoints.save(step, net, optimizer, {"tokens": 7 * step})
        checkpoints.wait()
    for file in ("damage/0000004/state.json", "damage/0000003/manifest.json", "none/0000001/state.json"):
        (folder / file).write_text("{")
    torch.multiprocessing.spawn(on_rank, (folder,), nprocs=RANKS)
    return folder


def told(folder: Path, what: str) -> list[object]:
    """By each process."""
    return [json.loads((folder / f"told-{rank}.json").read_text())[what] for rank in range(RANKS)]


def assert_same(one: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    assert one.keys() == other.keys()
    assert [name for name in one if not torch.equal(one[name], other[name])] == []


@pytest.mark.parametrize("engine", ENGINES[1:])
@pytest.mark.parametrize("writer", ENGINES)
def test_any_number_of_processes_reads_what_any_has_written(ranks: Path, writer: str, engine: str) -> None:
    assert told(ranks, f"{engine} of {writer}") == [{"step": 5, "tokens": 35}] * RANKS
    expected = load_file(ranks / f"{writer}-saved")
    assert any(name.endswith("/exp_avg_sq") for name in expected)
    assert_same(load_file(ranks / f"{engine}-of-{writer}"), expected)


@pytest.mark.parametrize("writer", ENGINES)
def test_one_process_reads_what_any_number_has_written(ranks: Path, writer: str) -> None:
    expected = load_file(ranks / f"{writer}-saved")
    net = network("alone", seed=9, steps=0)
    assert Checkpoints(ranks / writer).load(*net) == {"step": 5, "tokens": 35}
    assert_same(everything(*net), expected)
    fresh = Uneven(9)
    checkpoint.load_weights(ranks / writer / "0000005", fresh)
    assert torch.equal(fresh.other.weight, expected["table.weight"])
    assert_same(stored.tensors(ranks / writer / "0000005"), expected)


@pytest.mark.parametrize("writer", ENGINES[1:])
def test_every_process_writes_a_share(ranks: Path, writer: str) -> None:
    assert [path.name for path in checkpoint.all_steps(ranks / writer)] == ["0000004", "0000005"]
    held = [load_file(file) for file in sorted((ranks / writer / "0000005").glob("*.safetensors"))]
    assert len(held) == RANKS
    numbers = [sum(value.numel() for value in tensors.values()) for tensors in held]
    expected = load_file(ranks / f"{writer}-saved")
    assert sum(numbers) == sum(value.numel() for value in expected.values())  # and none twice
    assert max(numbers) < 0.6 * sum(numbers)


def test_what_goes_wrong_in_one_is_known_to_all_and_leaves_nothing_half(ranks: Path) -> None:
    assert told(ranks, "failure") == [[errno.ENOSPC, "0000002", ["0000001"]]] * RANKS


def test_all_pass_over_the_same_damaged_ones_and_one_says_so(ranks: Path) -> None:
    states, said = zip(*told(ranks, "damage"), strict=True)  # type: ignore[arg-type]
    assert list(states) == [{"step": 2, "tokens": 14}] * RANKS
    assert [len(messages) for messages in said] == [2, 0, 0]
    assert "0000004/state.json is damaged" in said[0][0]
    assert "0000003/manifest.json is missing or damaged" in said[0][1]


def test_all_refuse_where_none_is_whole(ranks: Path) -> None:
    assert all("no checkpoint there is whole" in str(sentence) for sentence in told(ranks, "none"))
