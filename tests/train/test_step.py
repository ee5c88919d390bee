"""A step is weight x mean of each loss term, and splitting it changes nothing."""

from __future__ import annotations

import math
import shutil
from itertools import count
from pathlib import Path

import pytest
import torch
from torch import Tensor

from crossling.data.batches import Batches
from crossling.data.shards import Shards
from crossling.objectives import TRTD, Network
from crossling.recipes.network import build_network
from crossling.recipes.pretrain import pretrain
from crossling.recipes.recipe import Recipe

from .run_helpers import rows, weights


@pytest.fixture(scope="module")
def uninterrupted(full_recipe: Recipe, shards: Shards, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "uninterrupted"
    pretrain(full_recipe, shards, out)
    return out


def reference_step(recipe: Recipe, shards: Shards) -> tuple[Network, dict[str, float]]:
    """Return the network with the gradient of its first step, one example at a time, and the mean of each term."""
    net = build_network(recipe, shards.vocabulary_size).train()
    batches = Batches(shards, recipe.objectives, recipe.sampling, seed=recipe.seed, micro_tokens=1)
    for name, objective in recipe.objectives.items():  # with the batches after the last step
        objective.prepare(net, ([*batches.objective_batches(name, step)] for step in count(recipe.steps)))
    work = batches[0]
    totals: dict[str, Tensor] = {}
    for name, batch in work.micro_batches:
        for term, value in recipe.objectives[name].loss(net, batch).items():
            if value.dim() == 0:
                totals[term] = totals.get(term, torch.zeros(())) + value
    means = {term: value / work.counts[term] for term, value in totals.items()}
    weights = {"mlm": 1.0, "mrtd": 50.0, "tlm": 1.0, "trtd": 50.0, "xlco": 0.5}
    sum(weights[term] * means[term] for term in weights).backward()  # type: ignore[union-attr]
    return net, {term: value.item() for term, value in means.items()}


def test_a_step_is_adam_on_the_clipped_gradient_of_weighted_means(
    full_recipe: Recipe, shards: Shards, tmp_path: Path
) -> None:
    recipe = full_recipe.set(["model.dropout=0", "steps=1", "optimizer.warmup=4", "optimizer.clip=1.5"])
    net, means = reference_step(recipe, shards)
    norm = math.sqrt(sum(float(p.grad.pow(2).sum()) for p in net.parameters() if p.grad is not None))
    assert norm > 1.5  # or clipping would not be seen

    trained = pretrain(recipe, shards, tmp_path / "run")

    [row] = rows(tmp_path / "run")
    assert row["gradient_norm"] == pytest.approx(norm, rel=1e-4)
    for term, mean in means.items():
        assert row[term] == pytest.approx(mean, rel=1e-5, abs=1e-5), term
    assert row["lr"] == pytest.approx(0.01 / 4)
    # Adam's first step is g / (|g| + epsilon), after decay; both by hand.
    for (name, old), (_, new) in zip(net.named_parameters(), trained.named_parameters(), strict=True):
        if old.grad is None:  # it learns nothing, but the momentum encoder follows
            assert torch.equal(old, new) != name.startswith("parts.key_"), name
            continue
        gradient = old.grad * (1.5 / norm)
        kept = old.detach() * (1 - row["lr"] * (0.01 if old.ndim > 1 else 0.0))
        expected = kept - row["lr"] * gradient / (gradient.abs() + 1e-6)
        # Where the gradient is rounding alone its direction is open, by no more than it weighs against epsilon.
        torch.testing.assert_close(new.detach(), expected, atol=1e-4, rtol=1e-4, msg=name)


def test_the_loss_of_a_row_is_the_weighted_sum_of_means(uninterrupted: Path) -> None:
    found = rows(uninterrupted)
    assert [row["step"] for row in found] == [2, 4, 6, 7]
    for row in found:
        expected = row["mlm"] + 50 * row["mrtd"] + row["tlm"] + 50 * row["trtd"] + 0.5 * row["xlco"]
        assert row["loss"] == pytest.approx(expected)
        assert 0 <= row["mrtd_accuracy"] <= 1
        assert row["tokens_per_second"] > 0


def test_a_row_is_the_mean_of_the_steps_since_the_last_one(
    full_recipe: Recipe, shards: Shards, uninterrupted: Path, tmp_path: Path
) -> None:
    pretrain(full_recipe.replace(log_every=1), shards, tmp_path / "each")
    each = {row["step"]: row for row in rows(tmp_path / "each")}
    batches = Batches(
        shards,
        full_recipe.objectives,
        full_recipe.sampling,
        seed=full_recipe.seed,
        micro_tokens=full_recipe.micro_tokens,
    )
    for row in rows(uninterrupted):
        steps = [row["step"]] if row["step"] == 7 else [row["step"] - 1, row["step"]]
        counts = [batches[step - 1].counts["mlm"] for step in steps]
        weighted = sum(each[step]["mlm"] * count for step, count in zip(steps, counts, strict=True))
        assert row["mlm"] == pytest.approx(weighted / sum(counts))
        assert row["gradient_norm"] == pytest.approx(sum(each[s]["gradient_norm"] for s in steps) / len(steps))
        assert row["tokens"] == each[row["step"]]["tokens"]


def test_micro_batches_change_only_rounding(full_recipe: Recipe, shards: Shards, tmp_path: Path) -> None:
    recipe = full_recipe.set(["model.dropout=0", "steps=4"])
    for name, tokens in (("split", 64), ("whole", 1_000_000)):
        batches = Batches(shards, recipe.objectives, recipe.sampling, seed=recipe.seed, micro_tokens=tokens)
        assert len(batches[0].micro_batches) == 3 if name == "whole" else len(batches[0].micro_batches) > 6
        pretrain(recipe.replace(micro_tokens=tokens), shards, tmp_path / name)
    split, whole = weights(tmp_path / "split", 4), weights(tmp_path / "whole", 4)
    moved = weights(tmp_path / "whole", 3)
    for name in whole:
        torch.testing.assert_close(
            split[name], whole[name], atol=2e-5, rtol=1e-4, msg=lambda m, name=name: f"{name}: {m}"
        )
    # The last of the four steps alone moved the weights a hundred times as far as splitting did.
    assert max(float((moved[name] - whole[name]).abs().max()) for name in whole) > 2e-3


def test_training_lowers_the_loss(shards: Shards, small_model: list[str], full_recipe: Recipe, tmp_path: Path) -> None:
    recipe = full_recipe.set(["mrtd=off", "trtd=off", "xlco=off", "mlm.tokens=512", "mlm.length=32", "steps=60"])
    recipe = recipe.set([*small_model, "log_every=5", "model.dropout=0"])
    pretrain(recipe, shards, tmp_path / "run")
    found = rows(tmp_path / "run")
    assert found[0]["mlm"] == pytest.approx(math.log(shards.vocabulary_size), abs=0.3)  # at chance
    assert found[-1]["mlm"] < found[0]["mlm"] - 0.5


def test_another_seed_gives_other_losses(
    full_recipe: Recipe, shards: Shards, uninterrupted: Path, tmp_path: Path
) -> None:
    pretrain(full_recipe.replace(seed=1), shards, tmp_path / "other")
    assert rows(tmp_path / "other")[0]["mlm"] != rows(uninterrupted)[0]["mlm"]


def test_objectives_get_the_progress_of_the_run_also_after_a_resume(
    full_recipe: Recipe, shards: Shards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = full_recipe.set(["steps=4", "checkpoint_every=2"])
    found: list[float] = []
    monkeypatch.setattr(TRTD, "after_step", lambda _self, _net, progress, _states: found.append(float(progress)))
    pretrain(recipe, shards, tmp_path / "run")
    assert found == [0.25, 0.5, 0.75, 1.0]
    found.clear()
    shutil.rmtree(tmp_path / "run" / "checkpoints" / "0000004")
    pretrain(recipe, shards, tmp_path / "run")
    assert found == [0.75, 1.0]
