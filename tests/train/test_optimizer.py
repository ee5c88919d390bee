"""Learning rate of every step, and weight decay."""

from __future__ import annotations

import math
from typing import Literal

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from crossling.model.encoder_model import CrosslingModel
from crossling.model.model_shape import ModelShape, TokenTable
from crossling.objectives import MRTD, Network
from crossling.train.optimizer import OptimizerSettings


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (0, 0.25),  # the first step moves: 1/4 of the peak
        (1, 0.5),
        (3, 1.0),  # the last of the warm-up is at the peak
        (4, 1.0),  # 6 of the 6 remaining
        (5, 5 / 6),
        (9, 1 / 6),  # the last step still moves
        (10, 0.0),  # and the one after it would not
    ],
)
def test_learning_rate_of_each_step(step: int, expected: float) -> None:
    assert OptimizerSettings(warmup=4).learning_rate(step, steps=10, peak=0.008) == pytest.approx(
        0.008 * expected, abs=1e-15
    )


def test_without_warm_up_the_first_step_is_at_the_peak() -> None:
    assert OptimizerSettings(warmup=0).learning_rate(0, steps=10, peak=3.0) == 3.0
    assert OptimizerSettings(warmup=0).learning_rate(9, steps=10, peak=3.0) == pytest.approx(0.3)


def test_a_run_as_short_as_its_warmup_never_decays() -> None:
    learning_rates = [OptimizerSettings(warmup=8).learning_rate(step, steps=8, peak=1.0) for step in range(8)]
    assert learning_rates == sorted(learning_rates)
    assert learning_rates[-1] == 1.0


@given(steps=st.integers(1, 5000), warmup=st.integers(0, 6000), share=st.floats(0, 1, exclude_max=True))
def test_learning_rates_are_positive_and_at_most_the_peak(steps: int, warmup: int, share: float) -> None:
    assert 0 < OptimizerSettings(warmup=warmup).learning_rate(int(share * steps), steps, 0.5) <= 0.5


def learning_rates(settings: OptimizerSettings, steps: int) -> list[float]:
    return [settings.learning_rate(step, steps, peak=1.0) for step in range(steps)]


def test_cosine_decay() -> None:
    found = learning_rates(OptimizerSettings(warmup=2, schedule="cosine"), 10)
    assert found[:3] == [0.5, 1.0, 1.0]
    assert found[6] == pytest.approx(0.5)  # half of the 8 remaining steps
    assert found[9] == pytest.approx((1 + math.cos(math.pi * 7 / 8)) / 2)


@pytest.mark.parametrize("cooldown", [4, 0.4])
def test_wsd_is_constant_until_the_cooldown(cooldown: float) -> None:
    found = learning_rates(OptimizerSettings(warmup=2, schedule="wsd", cooldown=cooldown), 10)
    assert found == pytest.approx([0.5, 1, 1, 1, 1, 1, 1, 0.5, 1 - math.sqrt(0.5), 1 - math.sqrt(0.75)])


def test_wsd_does_not_depend_on_the_end_before_the_cooldown() -> None:
    short, long = (learning_rates(OptimizerSettings(warmup=3, schedule="wsd"), steps) for steps in (50, 500))
    assert short[:45] == long[:45]
    assert OptimizerSettings(schedule="wsd").cooldown_steps(50) == 5


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (OptimizerSettings(warmup=10), "warmup is 10 and steps only 10"),
        (OptimizerSettings(warmup=6, schedule="wsd", cooldown=5), "cooldown has 5 steps and the warm-up 6, of 10"),
        (OptimizerSettings(warmup=1, cooldown=5), "cooldown is 5 without effect. Set optimizer.schedule=wsd."),
    ],
)
def test_contradictions_with_the_steps(settings: OptimizerSettings, expected: str) -> None:
    [problem] = settings.problems(10)
    assert expected in problem


@pytest.fixture
def encoder() -> CrosslingModel:
    shape = ModelShape(layers=1, width=8, heads=2, feed_forward=16, generator_layers=1, max_length=16)
    return CrosslingModel(shape.to_config(20))


def test_matrices_are_decayed_and_biases_norms_and_gates_are_not(encoder: CrosslingModel) -> None:
    optimizer = OptimizerSettings(decay=0.125).build(encoder)
    decay = {id(p): group["weight_decay"] for group in optimizer.param_groups for p in group["params"]}
    found = {name: decay[id(parameter)] for name, parameter in encoder.named_parameters()}
    assert found["embeddings.tokens.weight"] == 0.125
    assert found["blocks.0.attention.qkv.weight"] == 0.125
    assert found["blocks.0.attention.qkv.bias"] == 0.0
    assert found["blocks.0.attention_norm.weight"] == 0.0
    assert found["blocks.0.attention.gate.scale_H"] == 0.0
    assert set(found.values()) == {0.0, 0.125}


@pytest.mark.parametrize("matrices", ["adam", "muon"])
def test_all_parameters_are_decayed_if_requested(encoder: CrosslingModel, matrices: Literal["adam", "muon"]) -> None:
    optimizer = OptimizerSettings(decay=0.125, decay_all=True, matrices=matrices).build(encoder)
    assert {group["weight_decay"] for group in optimizer.param_groups} == {0.125}
    decayed = [id(p) for group in optimizer.param_groups for p in group["params"]]
    assert sorted(decayed) == sorted(id(p) for p in encoder.parameters())


def test_shared_parameters_are_trained_once() -> None:
    net = nn.ModuleDict({"a": nn.Linear(3, 3), "b": nn.Linear(3, 3)})
    net["b"].weight = net["a"].weight
    trained = [id(p) for group in OptimizerSettings().build(net).param_groups for p in group["params"]]
    assert sorted(trained) == sorted(id(p) for p in (net["a"].weight, net["a"].bias, net["b"].bias))


def test_settings_are_passed_to_torch() -> None:
    optimizer = OptimizerSettings(beta1=0.8, beta2=0.9, epsilon=1e-3).build(nn.Linear(2, 2))
    assert isinstance(optimizer, torch.optim.AdamW)
    assert optimizer.defaults["betas"] == (0.8, 0.9)
    assert optimizer.defaults["eps"] == 1e-3


@pytest.mark.parametrize("tables", ["shared", "gdes", "untied"])
def test_generator_lr_factor_applies_to_unshared_weights(tables: TokenTable) -> None:
    shape = ModelShape(
        layers=2, width=8, heads=2, feed_forward=16, generator_layers=1, max_length=16, token_table=tables
    )
    encoder = CrosslingModel(shape.to_config(20))
    net = Network(encoder, {name: make() for name, make in MRTD().modules(encoder, shape).items()})
    optimizer = OptimizerSettings(generator_lr_factor=0.5).build(net)
    times = {id(p): group["lr_factor"] for group in optimizer.param_groups for p in group["params"]}
    found = {name: times[id(parameter)] for name, parameter in net.named_parameters(remove_duplicate=False)}
    own = {name for name in found if name.startswith("parts.generator") and "tokens" not in name}
    if tables != "shared":  # then both have a table, also where one is the base of the other
        own |= {name for name in found if name.startswith("parts.generator") or name.endswith("tokens.base.weight")}
    assert {name for name, value in found.items() if value == 0.5} == own
