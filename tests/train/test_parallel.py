"""One process or several, whole networks or shards: the same run."""

from __future__ import annotations

import json
import math
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from crossling.data.batches import Batches, Work
from crossling.data.packing import Batch
from crossling.data.shards import Shards
from crossling.distributed import rank, together
from crossling.errors import Failed, Interrupted
from crossling.objectives import MLM, MRTD, Network
from crossling.recipe import Recipe, build, pretrain
from crossling.train import parallel
from crossling.train.optimizer import Adam
from crossling.train.parallel import Engine, too_large

from .worlds import apart, cases, in_processes, rows, trained

TOLERANCE = 1e-5  # of float32 sums in another order: relative, or of what is below 1 absolute
WORLDS: dict[str, tuple[int, parallel.Parallel]] = {"ddp 2": (2, "ddp"), "ddp 4": (4, "ddp"), "fsdp 2": (2, "fsdp")}
CASES = cases()


# ---- the same losses ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def alone(shards: Shards, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("alone")
    trained(shards.path, out, CASES)
    return out


def differences(
    alone: Path, shards: Shards, out: Path, number: int, how: parallel.Parallel
) -> dict[str, dict[str, float]]:
    """By objective and figure."""
    in_processes(number, trained, shards.path, out, {name: recipe.but(parallel=how) for name, recipe in CASES.items()})
    return {name: apart(alone / name, out / name) for name in CASES}


@pytest.mark.parametrize("world", WORLDS)
def test_several_processes_have_the_losses_of_one(world: str, alone: Path, shards: Shards, tmp_path: Path) -> None:
    """With every objective, with dropout, with several micro-batches to a process; also the norm of every gradient."""
    for name, found in differences(alone, shards, tmp_path, *WORLDS[world]).items():
        assert {"loss", "gradient_norm", "tokens", "skipped"} <= found.keys()
        assert max(found.values()) < TOLERANCE, (name, found)
        assert len({row["loss"] for row in rows(alone / name)}) == CASES[name].steps  # or nothing was learned


@pytest.mark.soak
def test_the_table(alone: Path, shards: Shards, tmp_path: Path) -> None:
    """Objective by world and engine: the largest relative difference of the loss, and of the norm of the gradient."""
    columns = {
        world: differences(alone, shards, tmp_path / world, number, how)
        for world, (number, how) in {**WORLDS, "fsdp 4": (4, "fsdp")}.items()
    }
    print("\n" + " " * 36 + "".join(f"{world:>20}" for world in columns))
    for name in CASES:
        found = [columns[world][name] for world in columns]
        print(f"{name:36}" + "".join(f"{each['loss']:>11.1e}{each['gradient_norm']:>9.1e}" for each in found))
        assert max(value for each in found for value in each.values()) < TOLERANCE


@pytest.mark.parametrize("name", CASES)
def test_the_cases_have_the_same_parts_in_every_world(name: str, shards: Shards) -> None:
    recipe = CASES[name]
    for processes in (1, 2, 4):
        batches = Batches(
            *(shards, recipe.objectives, recipe.sampling, recipe.seed, recipe.micro_tokens, recipe.alternate),
            *(0, processes),
        )
        assert {*batches.parts.values()} == {processes if recipe.model.dropout == 0 else 4}


# ---- what only several processes show, two of them, each thing in one engine and the other ------------------------


def on_each(folder: Path, shards: Path, how: parallel.Parallel) -> None:
    """What each of two processes finds, as JSON."""
    with together():
        data = Shards.open(shards)
        found = {
            "probes": probed(data, folder, CASES["mrtd, gdes"].but(parallel=how)),
            "unused": unused_parts(how),
            "skipped": skipped(data, folder, CASES["mrtd"].but(parallel=how)),
            "stopped": stopped(data, folder, CASES["all in turn"].but(parallel=how)),
            "frozen": frozen(how),
            "path": Engine(build(CASES["mlm"], data.vocabulary_size), torch.device("cpu"), how).path,
        }
    (folder / f"{rank()}.json").write_text(json.dumps(found))


def probed(data: Shards, folder: Path, recipe: Recipe) -> list[float]:
    """A probe sees the whole network, and what follows is not changed by it."""
    seen: list[float] = []

    def probe(net: Network) -> dict[str, float]:
        table = net.encoder.embeddings.tokens.weight
        ids = torch.arange(8)[None]
        with torch.no_grad():
            hidden = net.encoder(ids).last_hidden_state
        assert tuple(table.shape) == (data.vocabulary_size, 16)
        seen.append(float(table.abs().sum()))
        return {"hidden": float(hidden.sum())}

    pretrain(recipe, data, folder / "probed", probe, 2)
    return seen


def unused_parts(how: parallel.Parallel) -> list[float]:
    """The gradients of parts that the last micro-batch does not use."""
    torch.manual_seed(0)
    net = Network(nn.Linear(3, 2), {"early": nn.Linear(2, 1), "late": nn.Linear(2, 1), "never": nn.Linear(2, 1)})  # type: ignore[arg-type]
    engine = Engine(net, torch.device("cpu"), how)
    inputs = torch.arange(12.0).view(2, 2, 3)[rank()] / 10
    for part, row in zip(("early", "late"), inputs, strict=True):
        loss = lambda net, part=part, row=row: {part: net.parts[part](net.encoder(row)).sum()}  # noqa: E731
        engine.learn(loss, {"early": 1.0, "late": 3.0}, last=part == "late")
    assert net.parts["never"].weight.grad is None
    return [float(whole(p.grad).double().sum()) for p in net.parameters() if p.grad is not None]


def whole(tensor: Tensor | None) -> Tensor:
    assert tensor is not None
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def skipped(data: Shards, folder: Path, recipe: Recipe) -> list[int]:
    """A gradient that is no number in one of the processes."""
    original, calls = MRTD.loss, 0

    def poisoned(self: MRTD, net: Network, batch: Batch) -> dict[str, Tensor]:
        nonlocal calls
        calls += 1
        sums = original(self, net, batch)
        return sums | {"mrtd": sums["mrtd"] * math.nan} if rank() == 1 and calls == 4 else sums

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MRTD, "loss", poisoned)
        net = pretrain(recipe, data, folder / "skipped")
    assert all(bool(whole(p).isfinite().all()) for p in net.parameters())
    return [row["skipped"] for row in rows(folder / "skipped")]


def stopped(data: Shards, folder: Path, recipe: Recipe) -> str:
    """A signal that reaches one process, and the same call again."""
    original = Batches.__getitem__

    def signalled(self: Batches, step: int) -> Work:
        if step == 2 and rank() == 1:
            signal.raise_signal(signal.SIGTERM)
        return original(self, step)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("crossling.distributed.LAST_WORDS", 0.0)
        patch.setattr(Batches, "__getitem__", signalled)
        with pytest.raises(Interrupted) as caught:
            pretrain(recipe, data, folder / "stopped")
    pretrain(recipe, data, folder / "stopped")
    pretrain(recipe, data, folder / "straight")
    return str(caught.value)


def frozen(how: parallel.Parallel) -> list[bool]:
    """Which parameters have moved after a step in which only some learn."""
    from crossling.train.step import Learner, Schedule

    torch.manual_seed(0)
    net = Network(nn.Linear(3, 2), {"head": nn.Linear(2, 1)})  # type: ignore[arg-type]
    before = [p.detach().clone() for p in net.parameters()]

    class Sum(MLM):
        weights = {"mlm": 1.0}  # type: ignore[assignment] # noqa: RUF012

        def loss(self, net: Network, batch: Batch) -> dict[str, Tensor]:
            return {"mlm": net.parts["head"](net.encoder(batch["x"])).sum()}  # type: ignore[operator]

    learner = Learner(
        Engine(net, torch.device("cpu"), how),
        {"mlm": Sum()},
        Adam(warmup=0),
        Schedule(2, 0.1, 0, 1, 1, freeze_steps=1),
        ["parts.head.weight"],
    )
    moved = []
    for step in range(2):
        learner.step(step, Work([("mlm", {"x": torch.ones(3)})], {"mlm": 1}, 3, [step]), {"mlm": 2}, 6)
        moved += [not torch.equal(old, whole(new)) for old, new in zip(before, net.parameters(), strict=True)]
    return moved


Both = tuple[Path, list[dict[str, Any]]]  # the folder of an engine, and what each of the two processes found


@pytest.fixture(scope="module", params=["ddp", "fsdp"])
def both(request: pytest.FixtureRequest, shards: Shards, tmp_path_factory: pytest.TempPathFactory) -> Both:
    folder = tmp_path_factory.mktemp(request.param)
    in_processes(2, on_each, folder, shards.path, request.param)
    return folder, [json.loads((folder / f"{rank}.json").read_text()) for rank in range(2)]


def test_a_probe_sees_the_whole_network_in_every_process(both: Both, alone: Path) -> None:
    folder, (first, second) = both
    assert first["probes"] == pytest.approx(second["probes"])
    assert len({*first["probes"]}) == len(first["probes"]) == 3  # before, at 2, at the end
    plain = {row["step"]: row for row in rows(alone / "mrtd, gdes")}
    for row in rows(folder / "probed"):
        assert "probe/hidden" in row or row["step"] in (1, 3)
        if row["step"]:
            assert row["loss"] == pytest.approx(plain[row["step"]]["loss"], rel=TOLERANCE)


def test_every_process_says_which_engine_it_is_part_of(both: Both) -> None:
    folder, found = both
    how = "fsdp" if "fsdp" in folder.name else "ddp"
    assert [each["path"] for each in found] == [f"plain torch, float32, 2 processes ({how})"] * 2


@pytest.mark.parametrize(("heads", "expected"), [(1, "fused kernels"), (2, "plain torch")])
def test_on_a_gpu_the_path_says_what_is_fused(heads: int, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is none here: the width of a head decides, as on one that has Triton."""
    monkeypatch.setattr(parallel, "fused", lambda device, _, width: (device.type, width) == ("cuda", 16))
    net = build(CASES["mlm"].set([f"model.heads={heads}"]), 400)
    compiled = []
    monkeypatch.setattr(parallel, "compile_parts", compiled.append)
    assert Engine(net, torch.device("cuda")).path == f"{expected}, compiled, bfloat16, 1 process"
    assert compiled == [net]
    assert Engine(net, torch.device("cpu")).path == "plain torch, float32, 1 process"


def test_parts_that_the_last_micro_batch_leaves_out_have_the_gradient_of_all(both: Both) -> None:
    torch.manual_seed(0)
    net = Network(nn.Linear(3, 2), {"early": nn.Linear(2, 1), "late": nn.Linear(2, 1), "never": nn.Linear(2, 1)})  # type: ignore[arg-type]
    rows_of_all = torch.arange(12.0).view(2, 2, 3) / 10
    early, late = (net.parts[part](net.encoder(rows_of_all[:, i])).sum() for i, part in enumerate(("early", "late")))
    (early + 3 * late).backward()
    expected = [float(p.grad.double().sum()) for p in net.parameters() if p.grad is not None]
    for found in both[1]:
        assert found["unused"] == pytest.approx(expected, rel=1e-5)


def test_a_gradient_that_is_no_number_in_one_process_is_left_out_in_all(both: Both) -> None:
    for found in both[1]:
        assert found["skipped"] == [0, 1, 1, 1]


def test_a_signal_to_one_process_stops_all_at_one_step_and_the_same_call_goes_on(both: Both) -> None:
    folder, found = both
    assert {each["stopped"] for each in found} == {
        f"stopped at step 3 of 4, saved in {folder / 'stopped'}; the same command goes on from there"
    }
    assert max(apart(folder / "straight", folder / "stopped").values()) < 1e-12


def test_only_what_is_new_learns_at_first(both: Both) -> None:
    for found in both[1]:
        assert found["frozen"] == [False, False, True, False, True, True, True, True]


def test_networks_are_in_shards_where_they_would_take_more_than_a_third_of_the_card(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    net = nn.Linear(1000, 1000)  # 16 MB in training
    for memory, expected in {10**9: False, 49 * 10**6: False, 47 * 10**6: True}.items():
        card = type("Card", (), {"total_memory": memory})
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _, card=card: card)
        assert too_large(net, torch.device("cuda")) == expected
    assert not too_large(net.requires_grad_(False), torch.device("cuda"))
    assert not too_large(net, torch.device("cpu"))


# ---- another number of processes, and processes that fail -----------------------------------------------------------


def test_a_run_goes_on_in_another_number_of_processes(alone: Path, shards: Shards, tmp_path: Path) -> None:
    recipe = CASES["all in turn"]
    original = Batches.__getitem__

    def signalled(self: Batches, step: int) -> Work:
        if step == 2:
            signal.raise_signal(signal.SIGTERM)
        return original(self, step)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Batches, "__getitem__", signalled)
        with pytest.raises(Interrupted):
            pretrain(recipe, shards, tmp_path / "all in turn")
    in_processes(2, trained, shards.path, tmp_path, {"all in turn": recipe.but(parallel="fsdp")})
    assert max(apart(alone / "all in turn", tmp_path / "all in turn").values()) < TOLERANCE


def failing(folder: Path, shards: Path) -> None:
    """The second process dies without a word in the third step; the first says that it is gone."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # torch ends the others as soon as one is dead: here they may speak
    original = Batches.__getitem__

    def dying(self: Batches, step: int) -> Work:
        if step == 2 and rank() == 1:
            signal.raise_signal(signal.SIGKILL)
        return original(self, step)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("crossling.distributed.LAST_WORDS", 0.0)
        patch.setattr(Batches, "__getitem__", dying)
        try:
            pretrain(CASES["mlm"], Shards.open(shards), folder / "run")
        except Failed as error:
            (folder / "said").write_text(str(error))
    assert dist.is_initialized()


def test_a_process_that_dies_ends_the_others_with_a_sentence(shards: Shards, tmp_path: Path) -> None:
    with pytest.raises(torch.multiprocessing.ProcessExitedException, match="SIGKILL"):
        in_processes(2, failing, tmp_path, shards.path)
    assert (tmp_path / "said").read_text().startswith("another process of this run has ended or does not answer; ")
