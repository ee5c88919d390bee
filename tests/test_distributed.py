"""Processes gather each other's rows, in value and in gradient."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch.testing import assert_close

from crossling.distributed import gathered

COUNTS = [3, 0, 5]  # rows of each process


def rows_of(rank: int) -> torch.Tensor:
    return torch.arange(COUNTS[rank] * 2).view(-1, 2) + 100.0 * rank


def weights_of(rank: int) -> torch.Tensor:
    """What each process makes of all rows: its own, so that the gradients of the processes differ."""
    return torch.randn(sum(COUNTS), 2, generator=torch.Generator().manual_seed(rank))


def on_rank(rank: int, folder: Path) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=len(COUNTS))
    rows = rows_of(rank).requires_grad_()
    together, first = gathered(rows)
    (together * weights_of(rank)).sum().backward()
    numbers, _ = gathered(rows_of(rank).long())
    constant, _ = gathered(rows_of(rank))
    found = {"together": together, "first": first, "gradient": rows.grad, "numbers": numbers, "constant": constant}
    torch.save(found, folder / f"{rank}.pt")
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, torch.Tensor]]:
    folder = tmp_path_factory.mktemp("ranks")
    torch.multiprocessing.spawn(on_rank, (folder,), nprocs=len(COUNTS))
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(len(COUNTS))]


def test_rows_come_in_the_order_of_the_ranks_however_many_each_has(found: list[dict[str, torch.Tensor]]) -> None:
    everything = torch.cat([rows_of(rank) for rank in range(len(COUNTS))])
    for rank, each in enumerate(found):
        assert torch.equal(each["together"], everything)
        assert torch.equal(each["numbers"], everything.long())
        assert torch.equal(each["constant"], everything)
        assert each["first"] == sum(COUNTS[:rank])


def test_the_gradient_of_a_row_is_what_all_processes_made_of_it(found: list[dict[str, torch.Tensor]]) -> None:
    expected = sum(weights_of(rank) for rank in range(len(COUNTS))).split(COUNTS)  # type: ignore[union-attr]
    for each, gradient in zip(found, expected, strict=True):
        assert_close(each["gradient"], gradient)


def test_a_process_that_is_alone_hears_itself() -> None:
    rows = torch.randn(3, 2, requires_grad=True)
    together, first = gathered(rows)
    assert together is rows
    assert first == 0


def test_numbers_and_constants_have_no_gradient(found: list[dict[str, torch.Tensor]]) -> None:
    assert not any(each[name].requires_grad for each in found for name in ("numbers", "constant"))
