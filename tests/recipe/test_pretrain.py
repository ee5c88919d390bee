"""What only a whole run shows: memory for time, and phases that fit into it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from crossling.data.shards import Shards
from crossling.errors import BadInput
from crossling.model.transformer import CrosslingModel
from crossling.recipe import Recipe, Start, pretrain
from crossling.recipes import veco


def test_recomputing_changes_nothing_that_is_learned_and_may_be_turned_on_later(
    full_recipe: Recipe, shards: Shards, tmp_path: Path
) -> None:
    recipe = full_recipe.set(["steps=3", "checkpoint_every=1"])
    kept = pretrain(recipe, shards, tmp_path / "kept")
    again = pretrain(recipe.but(recompute=True), shards, tmp_path / "again")
    assert again.encoder.is_gradient_checkpointing
    assert again.parts["generator"].is_gradient_checkpointing
    assert not kept.encoder.is_gradient_checkpointing
    for (name, one), (_, other) in zip(kept.named_parameters(), again.named_parameters(), strict=True):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=1e-5, msg=name)
    pretrain(recipe.but(recompute=True), shards, tmp_path / "kept")  # what memory needs is no other run


def test_recomputing_runs_the_blocks_twice(full_recipe: Recipe, shards: Shards, tmp_path: Path) -> None:
    runs = {}
    for recompute in (False, True):
        count = 0

        def counted(*_: object) -> None:
            nonlocal count
            count += 1

        with pytest.MonkeyPatch.context() as patch:
            original = CrosslingModel.__init__

            def watched(self: CrosslingModel, config: object, original: object = original) -> None:
                original(self, config)  # type: ignore[operator]
                self.blocks[0].feed_forward.register_forward_hook(counted)

            patch.setattr(CrosslingModel, "__init__", watched)
            recipe = full_recipe.set(["steps=1", "xlco=off"]).but(recompute=recompute)
            pretrain(recipe, shards, tmp_path / str(recompute))
        runs[recompute] = count
    assert runs[True] == 2 * runs[False] > 0


def test_a_frozen_phase_must_end(small_model: list[str], shards: Shards, full_recipe: Recipe, tmp_path: Path) -> None:
    pretrain(full_recipe.set(["steps=1", "xlco=off"]), shards, tmp_path / "start")
    lengths = [f"{name}.{what}" for name in ("ca_mlm", "ca_tlm", "tlm") for what in ("length=32", "tokens=128")]
    recipe = veco("tiny").set([*small_model, *lengths, "steps=4", "freeze_steps=4"])
    with pytest.raises(BadInput, match="freeze_steps is 4 and steps only 4"):
        pretrain(recipe, shards, tmp_path / "run", init=Start.load(tmp_path / "start"))
    assert not (tmp_path / "run").exists()
    pretrain(recipe, shards, tmp_path / "alone")  # begun with nothing there is no such phase
