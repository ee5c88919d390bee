"""Muon beside torch's own, which takes one matrix after the other; and a run that learns by it."""

from __future__ import annotations

import signal
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from crossling.core.distributed import rank
from crossling.core.errors import BadInput, Interrupted
from crossling.data.shards import Shards
from crossling.model.encoder_model import CrosslingModel
from crossling.model.model_shape import ModelShape
from crossling.recipes.pretrain import pretrain
from crossling.recipes.recipe import Recipe
from crossling.train.muon import STACKED_BYTES, Muon, orthogonalize
from crossling.train.optimizer import OptimizerSettings

from .run_helpers import assert_same_run, before_step, crash, saved, tensors
from .worlds import apart, cases, in_processes, trained


def _same_gradients(*weights: list[torch.Tensor], seed: int) -> None:
    made = torch.Generator().manual_seed(seed)
    for row in zip(*weights, strict=True):
        gradient = torch.randn(row[0].shape, generator=made)
        for weight in row:
            weight.grad = gradient.clone()


@pytest.mark.parametrize("shape", [(16, 16), (48, 16), (16, 48)])
def test_steps_equal_those_of_torch(shape: tuple[int, int]) -> None:
    initial = torch.randn(3, *shape, generator=torch.Generator().manual_seed(0))
    ours, theirs = ([nn.Parameter(each.clone()) for each in initial] for _ in range(2))
    fast = Muon([{"params": ours, "weight_decay": 0.1, "matrices": 1}], lr=0.02)
    slow = torch.optim.Muon(theirs, lr=0.02, weight_decay=0.1, momentum=0.95, adjust_lr_fn="match_rms_adamw")
    for step in range(5):
        _same_gradients(ours, theirs, seed=step)
        fast.step()
        slow.step()
    for a, b, first in zip(ours, theirs, initial, strict=True):
        torch.testing.assert_close(a.data, b.data, rtol=0, atol=2e-3)  # of products in bfloat16
        assert (a - first).abs().max() > 0.05  # it moved


def test_three_stacked_matrices_are_updated_as_three_matrices() -> None:
    initial = torch.randn(48, 16, generator=torch.Generator().manual_seed(0))
    whole, parts = [nn.Parameter(initial.clone())], [nn.Parameter(each.clone()) for each in initial.chunk(3)]
    _same_gradients(whole, seed=1)
    for part, gradient in zip(parts, whole[0].grad.chunk(3), strict=True):  # type: ignore[union-attr]
        part.grad = gradient.clone()
    Muon([{"params": whole, "weight_decay": 0.0, "matrices": 3}], lr=0.02).step()
    Muon([{"params": parts, "weight_decay": 0.0, "matrices": 1}], lr=0.02).step()
    torch.testing.assert_close(whole[0].data, torch.cat([part.data for part in parts]), rtol=0, atol=1e-6)


def test_singular_values_become_about_one() -> None:
    wide = torch.randn(2, 12, 30) * torch.logspace(0, -2, 12)[:, None]
    values = torch.linalg.svdvals(orthogonalize(wide))
    assert values.min() > 0.3
    assert values.max() < 1.4


def test_a_skipped_step_changes_nothing() -> None:
    weight, bias = nn.Parameter(torch.randn(8, 8)), nn.Parameter(torch.randn(8))
    optimizer = Muon(
        [
            {"params": [weight], "weight_decay": 0.1, "matrices": 1},
            {"params": [bias], "weight_decay": 0.0, "matrices": 0},
        ],
        lr=0.1,
        fused=True,
    )
    optimizer.found_inf = torch.zeros(())  # type: ignore[attr-defined]
    _same_gradients([weight], [bias][:0] or [weight], seed=0)
    bias.grad = torch.randn(8)
    optimizer.step()
    before = weight.detach().clone(), bias.detach().clone(), optimizer.state[weight]["momentum"].clone()
    weight.grad, bias.grad = torch.full((8, 8), torch.nan), torch.full((8,), torch.nan)
    optimizer.found_inf = torch.ones(())  # type: ignore[attr-defined]
    optimizer.step()
    after = weight.data, bias.data, optimizer.state[weight]["momentum"]
    for a, b in zip(before, after, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)


def test_muon_updates_only_the_weight_matrices_of_blocks() -> None:
    shape = ModelShape(
        layers=1, width=8, heads=2, feed_forward=16, generator_layers=1, max_length=16, cross_attention=True
    )
    encoder = CrosslingModel(shape.to_config(20))
    optimizer = OptimizerSettings(matrices="muon").build(encoder)
    parts = {id(p): group["matrices"] for group in optimizer.param_groups for p in group["params"]}
    found = {name: parts[id(p)] for name, p in encoder.named_parameters() if parts[id(p)]}
    assert found == {
        "blocks.0.attention.qkv.weight": 3,
        "blocks.0.attention.out.weight": 1,
        "blocks.0.cross.query.weight": 1,
        "blocks.0.cross.key_value.weight": 2,
        "blocks.0.cross.out.weight": 1,
        "blocks.0.feed_forward.0.weight": 1,
        "blocks.0.feed_forward.2.weight": 1,
    }
    assert type(OptimizerSettings().build(encoder)) is torch.optim.AdamW


class Peak(TorchDispatchMode):
    """The most bytes that were there at once, of all that was made meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.most = 0
        self.known: set[int] = set()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = {id(each.untyped_storage()) for each in tree_leaves((args, kwargs)) if isinstance(each, torch.Tensor)}
        made = function(*args, **(kwargs or {}))
        for each in tree_leaves(made):
            if isinstance(each, torch.Tensor) and id(each.untyped_storage()) not in given | self.known:
                self._add(each.untyped_storage())
        return made

    def _add(self, storage: torch.UntypedStorage) -> None:
        size, name = storage.nbytes(), id(storage)
        self.known.add(name)
        self.now += size
        self.most = max(self.most, self.now)
        weakref.finalize(storage, self._remove, name, size)

    def _remove(self, name: int, size: int) -> None:
        self.known.discard(name)
        self.now -= size


def test_memory_of_an_update_is_as_documented() -> None:
    stacks = [[nn.Parameter(torch.randn(shape)) for _ in range(6)] for shape in ((8, 512), (8, 64))]
    weights = [weight for stack in stacks for weight in stack]
    optimizer = Muon([{"params": weights, "weight_decay": 0.1, "matrices": 1}], lr=0.1)
    optimizer.found_inf = torch.zeros(())  # type: ignore[attr-defined]
    for number in range(2):  # in the first the momenta are made
        _same_gradients(weights, seed=number)
        with Peak() as peak:
            optimizer.step()
    assert peak.most == pytest.approx(STACKED_BYTES * 6 * 8 * 512, rel=0.01)


@pytest.fixture(scope="module")
def recipe(full_recipe: Recipe) -> Recipe:
    return full_recipe.set(["optimizer.matrices=muon"])


@pytest.fixture(scope="module")
def uninterrupted(recipe: Recipe, shards: Shards, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "uninterrupted"
    pretrain(recipe, shards, out)
    return out


@pytest.mark.parametrize("how", ["crash", "signal"])
def test_resume_gives_the_same_run(
    how: str, recipe: Recipe, shards: Shards, uninterrupted: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    with pytest.MonkeyPatch.context() as patch:
        before_step(patch, 5, crash if how == "crash" else lambda: signal.raise_signal(signal.SIGTERM))
        with pytest.raises(RuntimeError if how == "crash" else Interrupted):
            pretrain(recipe, shards, out)
    assert saved(out)[-1] == (3 if how == "crash" else 5)
    pretrain(recipe, shards, out)
    assert_same_run(uninterrupted, out, 7)
    assert any(name.endswith("/momentum") for name in tensors(out, 7))


def test_two_processes_train_the_same_as_one(shards: Shards, tmp_path: Path) -> None:
    recipes = {"run": cases()["mrtd"].set(["optimizer.matrices=muon", "parallel=ddp"])}
    trained(shards.path, tmp_path / "one", recipes)
    in_processes(2, trained, shards.path, tmp_path / "two", recipes)
    found = apart(tmp_path / "one" / "run", tmp_path / "two" / "run")
    assert max(found.values()) < 1e-4  # products are in bfloat16


def refused(shards: Path, out: Path, recipe: Recipe) -> None:
    with pytest.raises(BadInput) as error:
        pretrain(recipe, Shards.open(shards), out / "run")
    (out / f"{rank()}.txt").write_text(str(error.value))


def test_sharded_matrices_are_an_error(recipe: Recipe, shards: Shards, tmp_path: Path) -> None:
    in_processes(2, refused, shards.path, tmp_path, recipe.set(["parallel=fsdp"]))
    errors = {(tmp_path / f"{number}.txt").read_text() for number in range(2)}
    assert errors == {"optimizer.matrices=muon: needs whole matrices, but FSDP shards them. Set parallel=ddp."}
