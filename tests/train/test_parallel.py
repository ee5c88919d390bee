"""Runs are the same in one process or several, with DDP or FSDP."""

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

from crossling.core.distributed import process_group, rank
from crossling.core.errors import BadInput, Failed, Interrupted
from crossling.data.batches import Batches, StepWork
from crossling.data.packing import Batch
from crossling.data.shards import Shards
from crossling.objectives import MLM, MRTD, Network
from crossling.recipes.network import build_network
from crossling.recipes.pretrain import pretrain
from crossling.recipes.recipe import Recipe
from crossling.train import parallel
from crossling.train.optimizer import OptimizerSettings
from crossling.train.parallel import ParallelNetwork, needs_sharding

from .worlds import apart, cases, in_processes, rows, trained

TOLERANCE = 1e-5  # of float32 sums in another order: relative, or of what is below 1 absolute
WORLDS: dict[str, tuple[int, parallel.Parallel]] = {"ddp 2": (2, "ddp"), "ddp 4": (4, "ddp"), "fsdp 2": (2, "fsdp")}
CASES = cases()


@pytest.fixture(scope="module")
def alone(shards: Shards, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("alone")
    trained(shards.path, out, CASES)
    return out


def differences(
    alone: Path, shards: Shards, out: Path, number: int, how: parallel.Parallel
) -> dict[str, dict[str, float]]:
    """Return the largest difference by case and metric."""
    in_processes(
        number, trained, shards.path, out, {name: recipe.replace(parallel=how) for name, recipe in CASES.items()}
    )
    return {name: apart(alone / name, out / name) for name in CASES}


@pytest.mark.parametrize("world", WORLDS)
def test_several_processes_have_the_losses_of_one(world: str, alone: Path, shards: Shards, tmp_path: Path) -> None:
    """Every objective, with dropout and several micro-batches per process, including the gradient norm."""
    for name, found in differences(alone, shards, tmp_path, *WORLDS[world]).items():
        assert {"loss", "gradient_norm", "tokens", "skipped"} <= found.keys()
        assert max(found.values()) < TOLERANCE, (name, found)
        assert len({row["loss"] for row in rows(alone / name)}) == CASES[name].steps  # or nothing was learned


@pytest.mark.soak
def test_table_of_differences(alone: Path, shards: Shards, tmp_path: Path) -> None:
    """Print the largest relative difference of loss and gradient norm, by objective, world size and DDP or FSDP."""
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
def test_cases_have_the_same_micro_batches_for_any_world_size(name: str, shards: Shards) -> None:
    recipe = CASES[name]
    for processes in (1, 2, 4):
        batches = Batches(
            shards,
            recipe.objectives,
            recipe.sampling,
            seed=recipe.seed,
            micro_tokens=recipe.micro_tokens,
            alternate=recipe.alternate,
            world_size=processes,
        )
        assert {*batches.micro_batch_counts.values()} == {processes if recipe.model.dropout == 0 else 4}


def on_each(folder: Path, shards: Path, how: parallel.Parallel) -> None:
    """Write the results of each of two processes as JSON."""
    with process_group():
        data = Shards.open(shards)
        found = {
            "probes": probed(data, folder, CASES["mrtd, gdes"].replace(parallel=how)),
            "unused": unused_parts(how),
            "skipped": skipped(data, folder, CASES["mrtd"].replace(parallel=how)),
            "stopped": stopped(data, folder, CASES["all in turn"].replace(parallel=how)),
            "frozen": frozen(how),
            "path": ParallelNetwork(
                build_network(CASES["mlm"], data.vocabulary_size), torch.device("cpu"), how
            ).description,
        }
    (folder / f"{rank()}.json").write_text(json.dumps(found))


def probed(data: Shards, folder: Path, recipe: Recipe) -> list[float]:
    """A probe sees the whole network and changes nothing."""
    seen: list[float] = []

    def probe(net: Network) -> dict[str, float]:
        table = net.encoder.embeddings.tokens.weight
        ids = torch.arange(8)[None]
        with torch.no_grad():
            hidden = net.encoder(ids).last_hidden_state
        assert tuple(table.shape) == (data.vocabulary_size, 16)
        seen.append(float(table.abs().sum()))
        return {"hidden": float(hidden.sum())}

    pretrain(recipe, data, folder / "probed", probe=probe, probe_every=2)
    return seen


def unused_parts(how: parallel.Parallel) -> list[float]:
    """Return the gradients of modules that the last micro-batch does not use."""
    torch.manual_seed(0)
    net = Network(nn.Linear(3, 2), {"early": nn.Linear(2, 1), "late": nn.Linear(2, 1), "never": nn.Linear(2, 1)})  # type: ignore[arg-type]
    network = ParallelNetwork(net, torch.device("cpu"), how)
    inputs = torch.arange(12.0).view(2, 2, 3)[rank()] / 10
    for part, row in zip(("early", "late"), inputs, strict=True):
        loss = network.forward(lambda net, part=part, row=row: net.parts[part](net.encoder(row)).sum())  # type: ignore[misc]
        (network.gradient_scale * {"early": 1.0, "late": 3.0}[part] * loss).backward()
    network.all_reduce([p.grad for p in net.parameters() if p.grad is not None])
    assert net.parts["never"].weight.grad is None
    return [float(whole(p.grad).double().sum()) for p in net.parameters() if p.grad is not None]


def whole(tensor: Tensor | None) -> Tensor:
    assert tensor is not None
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def skipped(data: Shards, folder: Path, recipe: Recipe) -> list[int]:
    """Run with a non-finite gradient in one process."""
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
    """Send a signal to one process, and resume."""
    original = Batches.__getitem__

    def signalled(self: Batches, step: int) -> StepWork:
        if step == 2 and rank() == 1:
            signal.raise_signal(signal.SIGTERM)
        return original(self, step)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("crossling.core.distributed.ERROR_GRACE_SECONDS", 0.0)
        patch.setattr(Batches, "__getitem__", signalled)
        with pytest.raises(Interrupted) as caught:
            pretrain(recipe, data, folder / "stopped")
    pretrain(recipe, data, folder / "stopped")
    pretrain(recipe, data, folder / "straight")
    return str(caught.value)


def frozen(how: parallel.Parallel) -> list[bool]:
    """Return which parameters have changed after a step in which only some are trained."""
    from crossling.train.step import Schedule, TrainStep

    torch.manual_seed(0)
    net = Network(nn.Linear(3, 2), {"head": nn.Linear(2, 1)})  # type: ignore[arg-type]
    before = [p.detach().clone() for p in net.parameters()]

    class Sum(MLM):
        loss_weights = {"mlm": 1.0}  # type: ignore[assignment] # noqa: RUF012

        def loss(self, net: Network, batch: Batch) -> dict[str, Tensor]:
            return {"mlm": net.parts["head"](net.encoder(batch["x"])).sum()}  # type: ignore[operator]

    train_step = TrainStep(
        ParallelNetwork(net, torch.device("cpu"), how),
        objectives={"mlm": Sum()},
        optimizer=OptimizerSettings(warmup=0),
        schedule=Schedule(steps=2, lr=0.1, log_every=1, checkpoint_every=1, freeze_steps=1),
        unfrozen=["parts.head.weight"],
    )
    moved = []
    for step in range(2):
        train_step.run(step, StepWork([("mlm", {"x": torch.ones(3)})], {"mlm": 1}, 3, [step]), {"mlm": 2}, 6)
        moved += [not torch.equal(old, whole(new)) for old, new in zip(before, net.parameters(), strict=True)]
    return moved


Both = tuple[Path, list[dict[str, Any]]]  # folder, and the results of the two processes


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


def test_description_names_ddp_or_fsdp(both: Both) -> None:
    folder, found = both
    how = "fsdp" if "fsdp" in folder.name else "ddp"
    assert [each["path"] for each in found] == [f"plain torch, float32, 2 processes ({how})"] * 2


@pytest.mark.parametrize(("heads", "expected"), [(1, "fused kernels"), (2, "plain torch")])
def test_description_on_a_gpu_names_the_kernels(heads: int, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The head width decides about the kernels, as on a GPU with Triton."""
    monkeypatch.setattr(
        parallel, "uses_attention_kernel", lambda device, _, width: (device.type, width) == ("cuda", 16)
    )
    net = build_network(CASES["mlm"].set([f"model.heads={heads}"]), 400)
    compiled = []
    monkeypatch.setattr(parallel, "compile_modules", compiled.append)
    assert ParallelNetwork(net, torch.device("cuda")).description == f"{expected}, compiled, bfloat16, 1 process"
    assert compiled == [net]
    assert ParallelNetwork(net, torch.device("cpu")).description == "plain torch, float32, 1 process"
    net.encoder.enable_fp8()
    found = ParallelNetwork(net, torch.device("cuda")).description
    assert found == f"{expected}, compiled, bfloat16, linear layers in fp8, 1 process"


def test_network_in_fp8_is_not_sharded() -> None:
    net = build_network(CASES["mlm"], 400)
    net.encoder.enable_fp8()
    with pytest.raises(BadInput, match=r"precision=fp8: the network is sharded .* Set precision=bf16"):
        parallel.shard_network(parallel.NetworkRoot(net), torch.device("cpu"))


def test_modules_unused_by_the_last_micro_batch_have_the_gradient_of_all_processes(both: Both) -> None:
    torch.manual_seed(0)
    net = Network(nn.Linear(3, 2), {"early": nn.Linear(2, 1), "late": nn.Linear(2, 1), "never": nn.Linear(2, 1)})  # type: ignore[arg-type]
    rows_of_all = torch.arange(12.0).view(2, 2, 3) / 10
    early, late = (net.parts[part](net.encoder(rows_of_all[:, i])).sum() for i, part in enumerate(("early", "late")))
    (early + 3 * late).backward()
    expected = [float(p.grad.double().sum()) for p in net.parameters() if p.grad is not None]
    for found in both[1]:
        assert found["unused"] == pytest.approx(expected, rel=1e-5)


def test_a_non_finite_gradient_in_one_process_is_skipped_in_all(both: Both) -> None:
    for found in both[1]:
        assert found["skipped"] == [0, 1, 1, 1]


def test_a_signal_to_one_process_stops_all_at_one_step(both: Both) -> None:
    folder, found = both
    assert {each["stopped"] for each in found} == {
        f"{folder / 'stopped'}: stopped at step 3 of 4. The checkpoint is saved. Run the same command to resume."
    }
    assert max(apart(folder / "straight", folder / "stopped").values()) < 1e-12


def test_only_unfrozen_parameters_are_trained_at_first(both: Both) -> None:
    for found in both[1]:
        assert found["frozen"] == [False, False, True, False, True, True, True, True]


def test_networks_that_need_more_than_a_third_of_the_memory_are_sharded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    net = nn.Linear(1000, 1000)  # 16 MB in training
    for memory, expected in {10**9: False, 49 * 10**6: False, 47 * 10**6: True}.items():
        card = type("Card", (), {"total_memory": memory})
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _, card=card: card)
        assert needs_sharding(net, torch.device("cuda")) == expected
    assert not needs_sharding(net.requires_grad_(False), torch.device("cuda"))
    assert not needs_sharding(net, torch.device("cpu"))


@pytest.mark.parametrize(("how", "is_shared"), [("fsdp", True), ("fsdp", False), ("ddp", True), ("auto", True)])
def test_only_sharding_over_a_shared_gpu_is_refused(
    how: parallel.Parallel, is_shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parallel, "has_shared_gpu", lambda: is_shared)
    if how == "fsdp" and is_shared:
        with pytest.raises(
            BadInput, match=r"^parallel=fsdp: not possible for processes that share a GPU\. Run them on"
        ):
            parallel.check_parallel(how)
    else:
        parallel.check_parallel(how)


def test_a_run_can_be_resumed_with_another_world_size(alone: Path, shards: Shards, tmp_path: Path) -> None:
    recipe = CASES["all in turn"]
    original = Batches.__getitem__

    def signalled(self: Batches, step: int) -> StepWork:
        if step == 2:
            signal.raise_signal(signal.SIGTERM)
        return original(self, step)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Batches, "__getitem__", signalled)
        with pytest.raises(Interrupted):
            pretrain(recipe, shards, tmp_path / "all in turn")
    in_processes(2, trained, shards.path, tmp_path, {"all in turn": recipe.replace(parallel="fsdp")})
    assert max(apart(alone / "all in turn", tmp_path / "all in turn").values()) < TOLERANCE


def failing(folder: Path, shards: Path) -> None:
    """Kill the second process in the third step, and store the error of the first."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # torch ends the others as soon as one is dead: here they may report
    original = Batches.__getitem__

    def dying(self: Batches, step: int) -> StepWork:
        if step == 2 and rank() == 1:
            signal.raise_signal(signal.SIGKILL)
        return original(self, step)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("crossling.core.distributed.ERROR_GRACE_SECONDS", 0.0)
        patch.setattr(Batches, "__getitem__", dying)
        try:
            pretrain(CASES["mlm"], Shards.open(shards), folder / "run")
        except Failed as error:
            (folder / "error").write_text(str(error))
    assert dist.is_initialized()


def test_a_killed_process_ends_the_others_with_an_error(shards: Shards, tmp_path: Path) -> None:
    with pytest.raises(torch.multiprocessing.ProcessExitedException, match="SIGKILL"):
        in_processes(2, failing, tmp_path, shards.path)
    assert (tmp_path / "error").read_text().startswith("another process of this run has stopped or does not respond. ")
