"""A step with CUDA graphs computes what a plain step does, bit for bit with deterministic kernels."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from crossling.core.hardware import FP8_CAPABILITY
from crossling.data.batches import Batches
from crossling.data.packing import Batch
from crossling.data.shards import Shards
from crossling.objectives import MLM, Network
from crossling.recipes import RECIPES, get_recipe
from crossling.recipes.network import build_network, make_batches
from crossling.recipes.pretrain import configure_network
from crossling.recipes.recipe import Recipe
from crossling.train.choices import Precision
from crossling.train.graphs import GradientBuffer, Tensors
from crossling.train.parallel import ParallelNetwork
from crossling.train.step import Schedule, TrainStep, move_to_device

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
STEPS = 6
SMALL = ("model.layers=2", "model.width=64", "model.heads=2", "model.feed_forward=128", "micro_tokens=512", "lr=1e-3")


class PlainCalls:
    """Stands for CUDA graphs on a CPU: the same calls, never captured."""

    def run(self, name: Hashable, function: Callable[[Tensors], Tensors], inputs: Tensors) -> Tensors:
        assert hash(name) is not None
        return function(dict(inputs))


def make_recipe(name: str) -> Recipe:
    recipe = get_recipe(name, "small")
    for objective in recipe.objectives:
        if objective == "xlco":
            recipe = recipe.set(["xlco.pairs=16", *(["xlco.queue=64"] if name == "infoxlm" else [])])
        else:
            recipe = recipe.set([f"{objective}.tokens=1024"])
        recipe = recipe.set([f"{objective}.length=64"])
    return recipe.set([*SMALL, "optimizer.warmup=2"])


def train(
    recipe: Recipe, shards: Shards, device: str, prepare: Callable[[TrainStep], None] | None = None
) -> tuple[TrainStep, list[dict[str, float]], dict[str, Tensor]]:
    """Return the step, the sums of each step and all weights and buffers."""
    torch.compiler.reset()  # code of earlier shapes may round differently
    batches = make_batches(recipe, shards, has_bucketed_shapes=True)
    net = build_network(recipe, shards.vocabulary_size)
    configure_network(net, recipe)
    net.to(device)
    schedule = Schedule(
        steps=100,
        lr=recipe.lr,
        log_every=1,
        checkpoint_every=1,
        reduction=recipe.reduction,
        freeze_steps=recipe.freeze_steps,
    )
    step = TrainStep(
        ParallelNetwork(net, torch.device(device)),
        objectives=recipe.objectives,
        optimizer=recipe.optimizer,
        schedule=schedule,
        unfrozen=["parts.lm_head.bias_V"],
        cuda_graphs=True,
    )
    if prepare is not None:
        prepare(step)
    for name, objective in recipe.objectives.items():
        objective.prepare(net, extra_batches(batches, name, device))
    sums = []
    for number in range(STEPS):
        work = batches[number]
        result = step.run(number, work, work.counts, work.tokens)
        found = {term: float(value) for term, value in result.sums.items()}
        sums.append({**found, "norm": float(result.metrics["gradient_norm"]), "skipped": float(result.skipped)})
    return step, sums, {name: value.clone() for name, value in net.state_dict().items()}


def extra_batches(batches: Batches, name: str, device: str) -> Iterator[list[Batch]]:
    for step in range(1000, 2000):
        yield [move_to_device(batch, torch.device(device)) for batch in batches.objective_batches(name, step)]


def use_buffer(step: TrainStep) -> None:
    step.graphs, step.gradients = PlainCalls(), GradientBuffer(step.network.net.parameters())  # type: ignore[assignment]


def do_not_capture(step: TrainStep) -> None:
    assert step.graphs is not None
    step.graphs.enabled = False


def assert_equal(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    for name, value in expected.items():
        assert torch.equal(found[name], value), name


CASES: dict[str, list[str]] = {
    "xlm_e": [],
    "infoxlm": ["reduction=token_sum"],
    "rosetta": ["freeze_steps=2"],
    "veco": ["micro_tokens=200"],  # text and pairs alternate
    "mbart": ["pair_denoising=on"],
}


@pytest.mark.parametrize("name", CASES)
def test_gradients_in_a_buffer_train_the_same_weights(name: str, shards: Shards) -> None:
    recipe = make_recipe(name).set(CASES[name])
    _, plain_sums, plain = train(recipe, shards, "cpu")
    _, sums, weights = train(recipe, shards, "cpu", use_buffer)
    assert sums == plain_sums
    assert_equal(weights, plain)


def test_the_buffer_replaces_or_adds_gradients() -> None:
    layers = nn.Linear(3, 2), nn.Linear(2, 5, bias=False)
    frozen = nn.Parameter(torch.zeros(2), requires_grad=False)
    parameters = [*layers[0].parameters(), frozen, *layers[1].parameters()]
    buffer = GradientBuffer(parameters)
    x = torch.arange(3.0)

    def backward(last: bool) -> list[Tensor | None]:
        hidden = layers[0](x)
        (layers[1](hidden) if last else hidden).sum().backward()
        return [None if p.grad is None else p.grad.clone() for p in buffer.parameters]

    first = backward(last=False)
    assert buffer.collect(is_first=True) == {0, 1}
    second = backward(last=True)
    assert buffer.collect(is_first=False) == {0, 1, 2}
    assert all(parameter.grad is None for parameter in parameters)
    buffer.assign(frozenset({0, 2}))
    assert torch.equal(buffer.parameters[0].grad, first[0] + second[0])  # type: ignore[operator, arg-type]
    assert buffer.parameters[1].grad is None
    assert torch.equal(buffer.parameters[2].grad, second[2])  # type: ignore[arg-type]

    for parameter in parameters:
        parameter.grad = None  # as the optimizer does
    backward(last=False)
    buffer.collect(is_first=True)
    buffer.assign(frozenset({0, 1, 2}))
    assert torch.equal(buffer.parameters[0].grad, first[0])  # type: ignore[arg-type]
    assert not buffer.parameters[2].grad.any()  # type: ignore[union-attr]


@pytest.fixture
def deterministic(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)


@needs_gpu
@pytest.mark.usefixtures("deterministic")
@pytest.mark.parametrize(("name", "precision"), [*((name, "bf16") for name in RECIPES), ("veco", "fp8")])
def test_captured_steps_equal_plain_ones(name: str, precision: Precision, shards: Shards) -> None:
    if precision == "fp8" and torch.cuda.get_device_capability() < FP8_CAPABILITY:
        pytest.skip("needs a GPU with fp8")
    recipe = make_recipe(name).replace(precision=precision)
    step, sums, weights = train(recipe, shards, "cuda")
    assert step.graphs is not None
    assert step.graphs.enabled
    assert len(step.graphs.graphs) > len(recipe.objectives)  # and the update
    _, plain_sums, plain = train(recipe, shards, "cuda", do_not_capture)
    assert sums == plain_sums
    if name == "mbart":  # torch's attention of the decoder adds gradients in any order
        torch.testing.assert_close(weights, plain, rtol=1e-3, atol=1e-5)
    else:
        assert_equal(weights, plain)


@needs_gpu
def test_an_objective_that_cannot_be_captured_trains_with_a_warning(
    shards: Shards, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = MLM.loss

    def loss(self: MLM, net: Network, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        sums = original(self, net, batch)
        assert float(sums["mlm"]) > 0  # copies a value to the host
        return sums

    recipe = replace(make_recipe("xlm_r"), steps=STEPS)
    monkeypatch.setattr(MLM, "loss", loss)
    with pytest.warns(UserWarning, match="CUDA graphs are off") as warned:
        step, sums, _ = train(recipe, shards, "cuda")
    assert step.graphs is not None
    assert not step.graphs.enabled
    assert len([each for each in warned if "CUDA graphs" in str(each.message)]) == 1
    assert sums[-1]["mlm"] / sums[0]["mlm"] < 1.2
