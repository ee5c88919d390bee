"""Pre-training: gradient checkpointing, frozen steps, and the training cost."""

from __future__ import annotations

import importlib
import json
import signal
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from crossling.core import hardware
from crossling.core.errors import BadInput, Interrupted
from crossling.data.batches import Batches, StepWork
from crossling.data.shards import Shards
from crossling.model.encoder_model import CrosslingModel
from crossling.model.fp8 import Fp8Linear
from crossling.planning import plan
from crossling.recipes import infoxlm, veco, xlm_e
from crossling.recipes.initial_model import InitialModel
from crossling.recipes.pretrain import _summarize, pretrain
from crossling.recipes.recipe import Recipe
from crossling.train.meters import Machine, TrainingCost, describe_machine


def test_gradient_checkpointing_gives_the_same_weights_and_can_be_turned_on_later(
    full_recipe: Recipe, shards: Shards, tmp_path: Path
) -> None:
    recipe = full_recipe.set(["steps=3", "checkpoint_every=1"])
    kept = pretrain(recipe, shards, tmp_path / "kept")
    again = pretrain(recipe.replace(gradient_checkpointing=True), shards, tmp_path / "again")
    assert again.encoder.is_gradient_checkpointing
    assert again.parts["generator"].is_gradient_checkpointing
    assert not kept.encoder.is_gradient_checkpointing
    for (name, one), (_, other) in zip(kept.named_parameters(), again.named_parameters(), strict=True):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=1e-5, msg=name)
    pretrain(recipe.replace(gradient_checkpointing=True), shards, tmp_path / "kept")  # resumes: the setting may change


def test_gradient_checkpointing_runs_the_blocks_twice(full_recipe: Recipe, shards: Shards, tmp_path: Path) -> None:
    runs = {}
    for gradient_checkpointing in (False, True):
        count = 0

        def counted(*_: object) -> None:
            nonlocal count
            count += 1

        with pytest.MonkeyPatch.context() as patch:
            original = CrosslingModel.__init__

            def init_with_hook(self: CrosslingModel, config: object, original: object = original) -> None:
                original(self, config)  # type: ignore[operator]
                self.blocks[0].feed_forward.register_forward_hook(counted)

            patch.setattr(CrosslingModel, "__init__", init_with_hook)
            recipe = full_recipe.set(["steps=1", "xlco=off"]).replace(gradient_checkpointing=gradient_checkpointing)
            pretrain(recipe, shards, tmp_path / str(gradient_checkpointing))
        runs[gradient_checkpointing] = count
    assert runs[True] == 2 * runs[False] > 0


def test_fp8_trains_all_encoders_and_resumes(
    full_recipe: Recipe, shards: Shards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a CPU fp8 is refused before the folder of the run is created. Without the check it is emulated."""
    recipe = full_recipe.set(["precision=fp8", "steps=3", "checkpoint_every=1", "log_every=1"])
    with pytest.raises(BadInput, match="precision=fp8: this device"):
        pretrain(recipe, shards, tmp_path / "fp8")
    assert not (tmp_path / "fp8").exists()
    monkeypatch.setattr(importlib.import_module("crossling.recipes.pretrain"), "require_fp8", lambda _: None)
    net = pretrain(recipe, shards, tmp_path / "fp8")
    for model in (net.encoder, net.parts["generator"]):
        assert any(isinstance(module, Fp8Linear) for module in model.modules())
    assert Recipe.load(tmp_path / "fp8" / "recipe.json").precision == "fp8"
    plain = pretrain(recipe.replace(precision="bf16"), shards, tmp_path / "plain")
    assert net.state_dict().keys() == plain.state_dict().keys()
    rows = [(tmp_path / name / "metrics.jsonl").read_text().splitlines() for name in ("fp8", "plain")]
    losses = [[json.loads(row)["loss"] for row in each] for each in rows]
    assert losses[0] != losses[1]
    assert losses[0] == pytest.approx(losses[1], rel=0.02)
    with pytest.raises(BadInput, match="different: precision"):
        pretrain(recipe.replace(precision="bf16"), shards, tmp_path / "fp8")


def test_frozen_steps_must_be_fewer_than_steps(
    small_model: list[str], shards: Shards, full_recipe: Recipe, tmp_path: Path
) -> None:
    pretrain(full_recipe.set(["steps=1", "xlco=off"]), shards, tmp_path / "start")
    lengths = [f"{name}.{what}" for name in ("ca_mlm", "ca_tlm", "tlm") for what in ("length=32", "tokens=128")]
    recipe = veco("tiny").set([*small_model, *lengths, "steps=4", "freeze_steps=4"])
    with pytest.raises(BadInput, match="freeze_steps is 4 and steps only 4"):
        pretrain(recipe, shards, tmp_path / "run", init=InitialModel.load(tmp_path / "start"))
    assert not (tmp_path / "run").exists()
    pretrain(recipe, shards, tmp_path / "alone")  # from scratch nothing is frozen


# ---- training cost ------------------------------------------------------------------------------------------


def test_cost_of_a_resumed_run_covers_all_processes(
    full_recipe: Recipe, shards: Shards, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, original = tmp_path / "run", Batches.__getitem__

    def interrupting(self: Batches, step: int) -> StepWork:
        if step == 4:
            signal.raise_signal(signal.SIGINT)
        return original(self, step)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Batches, "__getitem__", interrupting)
        with pytest.raises(Interrupted):
            pretrain(full_recipe, shards, out)
    assert not (out / "cost.json").exists()
    assert "trained" not in capsys.readouterr().err
    first = json.loads((out / "metrics.jsonl").read_text().splitlines()[-1])
    pretrain(full_recipe, shards, out)
    cost = json.loads((out / "cost.json").read_text())
    last = json.loads((out / "metrics.jsonl").read_text().splitlines()[-1])
    assert (cost["steps"], cost["tokens"], cost["mfu"]) == (7, last["tokens"], None)
    assert cost["tokens"] > first["tokens"]
    assert cost["seconds"] == pytest.approx(sum(cost["machines"].values()))
    assert cost["seconds"] >= last["seconds"] > first["seconds"]
    assert cost["flops"]["full"] == last["flops"]
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith(f"trained 7 steps: {cost['tokens'] / 1000:.4g}k tokens in ")
    assert f" on {hardware.cpu_name()}, {cost['flops']['paper']:.2e} FLOPs as the paper counts" in line
    assert line.endswith(f"({cost['flops']['full']:.2e} full)")

    before = (out / "cost.json").read_bytes()
    pretrain(full_recipe, shards, out)  # the run is complete
    assert (out / "cost.json").read_bytes() == before
    assert capsys.readouterr().err.splitlines()[-1] == line


def test_summary_names_every_machine() -> None:
    cost = TrainingCost({"full": 912e6, "paper": 510e6}, Machine("1 x NVIDIA H200", 989e12))
    cost.tokens = 262_144_000_000
    cost.add_seconds(7.4 * 86_400)
    assert _summarize(cost) == (
        "262.1G tokens in 7.4 days on 1 x NVIDIA H200, 1.34e+20 FLOPs as the paper counts (2.39e+20 full), MFU 0.38"
    )
    more = TrainingCost(cost.flops_per_token, Machine("8 x NVIDIA H200", 8 * 989e12))
    more.load_state_dict(cost.state_dict())
    more.add_seconds(3600)
    assert " tokens in 7.4 days on 1 x NVIDIA H200 and 1 h 0 min on 8 x NVIDIA H200, " in _summarize(more)


def test_machine_covers_all_gpus_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    assert describe_machine(torch.device("cpu")) == Machine(hardware.cpu_name(), None)
    monkeypatch.setattr(importlib.import_module("crossling.train.meters"), "device_count", lambda: 4)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "NVIDIA H200")
    found = SimpleNamespace(name="NVIDIA H200", total_memory=140 * hardware.GIB)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: found)
    assert describe_machine(torch.device("cuda", 0)) == Machine("4 x NVIDIA H200", 4 * 989e12)
    found.name = "NVIDIA GeForce GTX 1080"
    assert describe_machine(torch.device("cuda", 0)).peak is None


@pytest.mark.parametrize("make", [xlm_e, infoxlm, veco])
def test_flops_are_those_that_the_plan_predicts(
    make: type[Recipe], shards: Shards, small_model: list[str], tmp_path: Path
) -> None:
    recipe = make("tiny").set([*small_model, "steps=2", "optimizer.warmup=1"])
    sizes = [f"{name}.tokens=2048" for name, each in recipe.objectives.items() if each.tokens]
    recipe = recipe.set([*sizes, *(f"{name}.length=48" for name in recipe.objectives)])
    planned = plan(recipe, shards)
    pretrain(recipe, shards, tmp_path / "run")
    cost = json.loads((tmp_path / "run" / "cost.json").read_text())
    assert cost["flops"]["paper"] / cost["tokens"] == pytest.approx(planned.flops_per_token["paper"])
    assert cost["flops"]["full"] / cost["tokens"] == pytest.approx(planned.flops_per_token["full"], rel=0.03)
    assert cost["tokens"] == pytest.approx(planned.tokens_per_step * 2, rel=0.1)
