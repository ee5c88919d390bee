"""Tests of collectives with two processes: gathered rows, their gradients, and contrastive learning."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.testing import assert_close

from crossling.core import distributed
from crossling.core.distributed import all_gather_rows, device_count, process_group
from crossling.core.errors import BadInput, Failed
from crossling.data.packing import Batch
from crossling.objectives import XLCo
from tests.copied_processes import start_copies
from tests.objectives.conftest import corrupted, end_step, network, pairs_of, split

Tensors = dict[str, Tensor]

RANKS = 2
COUNTS = [(3, 5), (4, 4), (2, 0)]  # rows of each process
XLCO = {
    "in the batch": XLCo(layer=2, queue=0, momentum=0.0, mixup=False),
    "in the batch, symmetric": XLCo(layer=2, queue=0, momentum=0.0, mixup=False, symmetric=True),
    "in the batch, momentum": XLCo(layer=2, queue=0, momentum=0.7),
    "queue": XLCo(layer=2, queue=11, momentum=0.7, mixup=False),
    "queue, mixup, no momentum": XLCo(layer=2, queue=6, momentum=0.0),
}
SPLITS = {8: ([3], [1, 4, 6]), 4: ([2], [1, 2, 3])}  # split points of a number of pairs: into two parts, and into four


# ---- work of a process ----------------------------------------------------------------------------------------


def rows_of(counts: tuple[int, ...], rank: int) -> Tensor:
    return torch.arange(counts[rank] * 2).view(-1, 2) + 100.0 * rank


def weights_of(counts: tuple[int, ...], rank: int) -> Tensor:
    """Return the weights of all rows in the loss of a process, so that gradients differ between processes."""
    return torch.randn(sum(counts), 2, generator=torch.Generator().manual_seed(rank))


def gather(counts: tuple[int, ...], rank: int) -> Tensors:
    rows = rows_of(counts, rank).requires_grad_()
    together, first = all_gather_rows(rows)
    (together * weights_of(counts, rank)).sum().backward()
    constant, _ = all_gather_rows(rows_of(counts, rank))
    numbers, _ = all_gather_rows(rows_of(counts, rank).long())
    assert not constant.requires_grad
    found = {"rows": together, "first": torch.tensor(first), "constant": constant, "numbers": numbers}
    return found | {"gradient": rows.grad}  # type: ignore[dict-item]


def steps(objective: XLCo, rank: int | None, first: int = 0) -> Iterator[list[Batch]]:
    """Yield the micro-batches of a process, or of a single process that has all pairs.

    Some pairs have the same row. With negatives from the batch, a process has one micro-batch.
    """
    for step in itertools.count(first):
        everything = corrupted(objective, pairs_of(8, [0, 1, 1, 2, 0, 3, 4, 5], seed=step), step)
        in_two, in_four = SPLITS[len(everything.per_example["rows"])]
        if rank is None:
            yield split(everything, *(in_four if objective.queue else []))
        else:
            yield split(everything, *(in_four if objective.queue else in_two))[rank::RANKS]


def train_contrastive(objective: XLCo, rank: int | None) -> Tensors:
    """Run two steps with losses and gradients summed over the processes, as the trainer does."""
    net = network(objective)
    objective.prepare(net, steps(objective, rank, first=50))
    found = {}
    for step, micro in enumerate(itertools.islice(steps(objective, rank), 2)):
        results = [objective.loss(net, batch) for batch in micro]
        loss = sum((result["xlco"] for result in results), torch.zeros(()))
        loss.backward()
        found[f"{step} loss"] = _sum(loss.detach(), rank)
        for name, parameter in net.named_parameters():
            if parameter.grad is not None:
                found[f"{step} {name}"] = _sum(parameter.grad.clone(), rank)
                parameter.data -= 0.01 * found[f"{step} {name}"]
        net.zero_grad()
        end_step(objective, net, results)
    return found | {f"after {name}": values.clone() for name, values in net.state_dict().items()}


def _sum(values: Tensor, rank: int | None) -> Tensor:
    if rank is not None:
        dist.all_reduce(values)
    return values


def on_rank(rank: int, folder: Path) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=RANKS)
    results = {f"{counts}": gather(counts, rank) for counts in COUNTS}
    results |= {name: train_contrastive(objective, rank) for name, objective in XLCO.items()}
    for name, tensors in results.items():
        save_file({key: values.contiguous() for key, values in tensors.items()}, folder / f"{rank} {name}")
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the results of both processes."""
    folder = tmp_path_factory.mktemp("ranks")
    start_copies(on_rank, (folder,), RANKS)
    return folder


# ---- results --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("counts", COUNTS, ids=str)
def test_rows_are_gathered_in_the_order_of_ranks(ranks: Path, counts: tuple[int, ...]) -> None:
    everything = torch.cat([rows_of(counts, rank) for rank in range(RANKS)])
    for rank in range(RANKS):
        found = load_file(ranks / f"{rank} {counts}")
        assert torch.equal(found["rows"], everything)
        assert torch.equal(found["constant"], everything)
        assert torch.equal(found["numbers"], everything.long())
        assert found["first"] == sum(counts[:rank])


@pytest.mark.parametrize("counts", COUNTS, ids=str)
def test_the_gradient_of_a_row_is_summed_over_processes(ranks: Path, counts: tuple[int, ...]) -> None:
    expected = torch.stack([weights_of(counts, rank) for rank in range(RANKS)]).sum(0).split(counts)
    for rank in range(RANKS):
        assert_close(load_file(ranks / f"{rank} {counts}")["gradient"], expected[rank])


def test_a_single_process_gets_its_own_rows() -> None:
    rows = torch.randn(3, 2, requires_grad=True)
    together, first = all_gather_rows(rows)
    assert together is rows
    assert first == 0


@pytest.mark.parametrize("name", XLCO)
def test_two_processes_train_like_one_with_the_pairs_of_both(ranks: Path, name: str) -> None:
    """Compare the summed loss and gradients of two steps, and all weights and the queue after them."""
    torch.set_num_threads(1)
    expected = train_contrastive(XLCO[name], None)
    assert expected["0 loss"] != expected["1 loss"]
    for rank in range(RANKS):
        found = load_file(ranks / f"{rank} {name}")
        assert found.keys() == expected.keys()
        for key, values in expected.items():
            assert_close(found[key], values, rtol=1e-3, atol=2e-4, msg=lambda text, key=key: f"{key}: {text}")


def test_more_processes_than_gpus_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    for name, value in {"LOCAL_RANK": "1", "RANK": "1", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(BadInput, match=r"^torchrun: 2 processes on a machine with 1 GPU\. Set --nproc-per-node=1\.$"):
        process_group().__enter__()


def test_more_processes_than_gpus_may_share_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    chosen: list[int] = []
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    devices = []
    for local_rank in range(4):
        monkeypatch.setenv("LOCAL_RANK", str(local_rank))
        devices.append(str(distributed._own_device(share_device=True)))
    assert devices == ["cuda:0", "cuda:1", "cuda:0", "cuda:1"]
    assert chosen == [0, 1, 0, 1]


@pytest.mark.parametrize(
    ("device", "share_device", "expected"),
    [
        ("cpu", False, "gloo"),
        ("cpu", True, "gloo"),
        ("cuda", False, "cpu:gloo,cuda:nccl"),
        ("cuda", True, "cpu:gloo,cuda:gloo"),
    ],
)
def test_processes_that_share_a_gpu_use_gloo(device: str, share_device: bool, expected: str) -> None:
    assert distributed._backend(torch.device(device), share_device) == expected


@pytest.mark.parametrize(("is_shared", "expected"), [(True, 2), (False, 6)])
def test_shared_gpus_are_counted_once(is_shared: bool, expected: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two machines, each with three processes on one GPU, or each with three GPUs."""
    monkeypatch.setattr(distributed, "has_shared_gpu", lambda: is_shared)
    monkeypatch.setattr(distributed, "world_size", lambda: 6)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1 if is_shared else 3)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "3")
    assert device_count() == expected


# ---- start of the processes -----------------------------------------------------------------------------------


def names_of(store: dist.Store, world_size: int) -> set[str]:
    """Return the names that the processes of one start agree on."""
    with ThreadPoolExecutor(world_size) as threads:
        return {*threads.map(lambda rank: distributed._join(store, rank, world_size), range(world_size))}


def test_processes_agree_on_a_new_name_after_each_restart() -> None:
    """The store has the keys of all earlier processes, as after a restart by torchrun with another world size."""
    store = dist.HashStore()
    found = [names_of(store, world_size) for world_size in (3, 2, 2, 1, 4)]
    assert [len(names) for names in found] == [1] * 5
    assert len(set.union(*found)) == 5


def test_a_process_that_does_not_start_ends_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distributed, "START_SECONDS", 0.0)
    with pytest.raises(Failed, match="only 1 of 2 processes have started"):
        distributed._join(dist.HashStore(), 0, 2)
    store = dist.HashStore()
    store.set_timeout(timedelta(milliseconds=1))
    with pytest.raises(Failed, match="the main process has not started"):
        distributed._join(store, 1, 2)
