"""Memory of a step: tensors that autograd stores, measurements, and the effect of settings."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from crossling.bench.train_timing import random_loads, scale_recipe
from crossling.bench.workload import BenchSetup
from crossling.core.hardware import ACCELERATORS, GIB
from crossling.model.config import CrosslingConfig
from crossling.model.encoder import Block
from crossling.objectives.cost import block_bytes
from crossling.planning.communication import tokens_at_once
from crossling.planning.estimate import estimate_memory, fit_to_memory
from crossling.recipes import get_recipe, infoxlm, veco, xlm_e, xlm_r
from crossling.recipes.network import ObjectiveLoad, build_meta_network
from crossling.recipes.recipe import Recipe

H200, A100 = ACCELERATORS["h200"], ACCELERATORS["a100-40"]
FULL = {"mrtd": ObjectiveLoad(2048, 512.0)}


def text(size: str = "base", micro_tokens: int = 32_768, **changes: bool) -> Recipe:
    return xlm_e(size).replace(trtd=None, micro_tokens=micro_tokens, **changes)


def gib(recipe: Recipe, gpus: int = 1) -> float:
    return estimate_memory(recipe, build_meta_network(recipe, 250_002), FULL, H200, gpus=gpus).gib


def bytes_stored_by_autograd(
    config: CrosslingConfig, rows: int, length: int, paired: bool, predicted: float = 1.0
) -> float:
    """Return the bytes per token that a block stores in bfloat16, without weights and their copies."""
    torch.manual_seed(0)
    block, stored = Block(config).train(), dict[int, int]()
    weights = {tuple(p.shape) for p in block.parameters()} | {
        tuple(p.T.shape) for p in block.parameters() if p.ndim == 2
    }

    def store(values: torch.Tensor) -> torch.Tensor:
        if tuple(values.shape) not in weights and values.is_floating_point():
            stored[values.untyped_storage().data_ptr()] = values.untyped_storage().nbytes()
        return values

    hidden, pair = (torch.randn(rows, length, config.hidden_size, dtype=torch.bfloat16) for _ in range(2))
    hidden.requires_grad_()
    position_M = None if predicted == 1 else torch.arange(round(predicted * rows * length))
    with torch.autograd.graph.saved_tensors_hooks(store, lambda values: values), torch.autocast("cpu", torch.bfloat16):
        block(hidden, None, None, pair if paired else None, position_M=position_M)
    stored.pop(pair.data_ptr(), None)  # the same for all blocks
    return sum(stored.values()) / (rows * length)


@pytest.mark.parametrize(("width", "inner"), [(128, 512), (192, 256)])
@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize("predicted", [1.0, 0.2])
@pytest.mark.parametrize("activation", ["gelu", "geglu"])
def test_block_stores_what_the_formula_predicts(
    width: int, inner: int, paired: bool, predicted: float, activation: Any
) -> None:
    config = CrosslingConfig(
        hidden_size=width, num_attention_heads=4, intermediate_size=inner, relative_positions=False, gated=False,
        cross_attention=paired, dropout=0.0, vocab_size=50, hidden_act=activation,
    )  # fmt: skip
    found = bytes_stored_by_autograd(config, rows=5, length=30, paired=paired, predicted=predicted)
    assert found == pytest.approx(block_bytes(config, paired, predicted), rel=0.02)


def test_memory_of_base_equals_a_hand_count() -> None:
    """Encoder with 12 layers and dropout, generator with 4, hidden size 768, 32,768 tokens."""
    recipe, tokens = text(), 32_768
    net = build_meta_network(recipe, 250_002)
    found = estimate_memory(recipe, net, FULL, H200)
    parameters = sum(p.numel() for p in net.parameters())
    block = 2 * (8 * 768 + 2 * 3072) + 4 * 12
    assert found.states == 16 * parameters
    # After attention, the last layer of the generator computes the masked positions only.
    masked = 2 * 5 * 768 + 4 * 12 + 0.15 * 2 * (768 + 2 * 768 + 768 + 2 * 3072)
    assert found.activations == pytest.approx(tokens * (12 * (block + 2 * 768) + 3 * block + masked + 2 * 4 * 768))
    table = 250_002 * 768
    assert found.head == 4 * table
    blocks = sum(
        p.numel() for part in (net.encoder, net.parts["generator"]) for b in part.blocks for p in b.parameters()
    )
    assert found.working == 2 * blocks
    total = found.states + found.activations + found.head + found.working
    assert found.gib == pytest.approx(total / GIB)
    assert not found.sharded


STORED_RUNS = Path(__file__).parents[2] / "experiments" / "results" / "2026-11-19-memory.json"


@pytest.mark.parametrize("run", json.loads(STORED_RUNS.read_text(encoding="utf-8"))["runs"], ids=str)
def test_memory_of_every_recipe_is_within_5_percent_of_the_measurement(run: dict[str, Any]) -> None:
    at = BenchSetup.of(run["size"])
    assert (at.length, at.vocabulary) == (run["length"], run["vocabulary"])
    recipe = text() if run["recipe"] == "text" else get_recipe(run["recipe"], run["size"])
    recipe = scale_recipe(recipe, at, run["batch"]).replace(gradient_checkpointing=run["gradient_checkpointing"])
    found = estimate_memory(recipe, build_meta_network(recipe, at.vocabulary), random_loads(recipe, at), H200)
    assert found.gib == pytest.approx(run["peak_gib"], rel=0.05)


@pytest.mark.parametrize(("rows", "measured"), [(64, 17.0), (256, 54.6)])  # 2026-11-15-speed-step.json
def test_memory_without_graphs_is_close_to_measurements(rows: int, measured: float) -> None:
    """The step has one micro-batch, so there are no earlier gradients."""
    recipe = text(micro_tokens=512 * rows, cuda_graphs=False)
    found = estimate_memory(recipe, build_meta_network(recipe, 250_002), {"mrtd": ObjectiveLoad(rows, 512.0)}, H200)
    assert found.gib == pytest.approx(measured, rel=0.05)


@pytest.mark.parametrize(("rows", "measured"), [(16, 8.82), (64, 18.2)])  # 2026-11-18-speed-short-steps.json
def test_memory_with_graphs_is_close_to_measurements(rows: int, measured: float) -> None:
    recipe = text(micro_tokens=512 * rows)
    found = estimate_memory(recipe, build_meta_network(recipe, 250_002), {"mrtd": ObjectiveLoad(rows, 512.0)}, H200)
    assert found.gib == pytest.approx(measured, rel=0.05)


def test_memory_of_xlm_r_is_close_to_the_measurement() -> None:
    """When the head computes its logits, all activations are stored."""
    recipe = xlm_r("base").replace(micro_tokens=32_768, cuda_graphs=False)
    assert estimate_memory(
        recipe, build_meta_network(recipe, 250_002), {"mlm": ObjectiveLoad(64, 512.0)}, H200
    ).gib == pytest.approx(15.9, rel=0.05)


def test_several_micro_batches_or_gpus_need_gradients_beside_activations() -> None:
    recipe = text(cuda_graphs=False)
    net, one = build_meta_network(recipe, 250_002), {"mrtd": ObjectiveLoad(64, 512.0)}
    alone = estimate_memory(recipe, net, one, H200).states
    for loads, gpus in (({"mrtd": ObjectiveLoad(128, 512.0)}, 1), ({"mrtd": ObjectiveLoad(128, 512.0)}, 2)):
        assert estimate_memory(recipe, net, loads, H200, gpus=gpus).states == pytest.approx(alone * 16 / 12)


def test_gradient_checkpointing_reduces_activations() -> None:
    plain, checkpointed = (
        estimate_memory(r, build_meta_network(r, 250_002), FULL, H200)
        for r in (text(), text(gradient_checkpointing=True))
    )
    assert checkpointed.activations < 0.4 * plain.activations
    assert (checkpointed.states, checkpointed.head, checkpointed.working) == (plain.states, plain.head, plain.working)
    # Each block stores the outputs of attention and of two norms, with their sums. One is recomputed at a time.
    config = build_meta_network(text(), 250_002).encoder.config
    stored = 2 * 768 + 4 * 12 + 2 * 4 * 768
    masked = 2 * 768 + 4 * 12 + 0.15 * 2 * 4 * 768
    expected = 15 * stored + masked + 4 * 768 * 2 + block_bytes(config) - stored
    assert checkpointed.activations == pytest.approx(32_768 * expected)


@given(st.integers(1, 5000), st.floats(1, 512), st.integers(512, 70_000), st.integers(1, 64))
def test_micro_batch_is_at_most_micro_tokens(examples: int, length: float, micro_tokens: int, gpus: int) -> None:
    task, load = text().mrtd, ObjectiveLoad(examples, length)
    assert task is not None
    found = tokens_at_once(task, load, micro_tokens, gpus)
    assert found <= micro_tokens + 1e-6
    parts = load.tokens / gpus / found
    assert parts == pytest.approx(round(parts))
    assert tokens_at_once(task, load, micro_tokens // 2, gpus) <= found + 1e-6


def test_small_step_is_one_micro_batch() -> None:
    task = text().mrtd
    assert task is not None
    assert tokens_at_once(task, ObjectiveLoad(100, 500.0), 65_536, 1) == 50_000
    assert tokens_at_once(task, ObjectiveLoad(100, 500.0), 65_536, 4) == 12_500
    assert tokens_at_once(task, ObjectiveLoad(200, 500.0), 65_536, 1) == 50_000  # in two equal parts


def test_in_batch_negatives_are_never_split() -> None:
    loads = {"mlm": ObjectiveLoad(16, 100.0), "tlm": ObjectiveLoad(16, 100.0), "xlco": ObjectiveLoad(4096, 100.0)}
    queue = infoxlm("base").replace(micro_tokens=4096)
    batch = queue.set(["xlco.queue=0"])
    split, whole = (
        estimate_memory(each, build_meta_network(each, 1000), loads, H200).activations for each in (queue, batch)
    )
    assert whole > 50 * split


def test_frozen_key_encoder_has_no_optimizer_states() -> None:
    loads = {"mlm": ObjectiveLoad(16, 100.0), "tlm": ObjectiveLoad(16, 100.0), "xlco": ObjectiveLoad(16, 100.0)}
    recipe = infoxlm("tiny")
    net = build_meta_network(recipe, 1000)
    trained, frozen = (sum(p.numel() for p in net.parameters() if p.requires_grad is on) for on in (True, False))
    queue = sum(b.numel() * b.element_size() for b in net.parts["queue"].buffers())
    assert frozen > 0
    assert estimate_memory(recipe, net, loads, H200).states == 16 * trained + 4 * frozen + queue


def test_two_streams_store_activations_of_both() -> None:
    recipe = veco("base")
    plain = xlm_r("base").replace(micro_tokens=recipe.micro_tokens)
    loads = {"tlm": ObjectiveLoad(1, 10.0), "ca_mlm": ObjectiveLoad(1024, 512.0), "ca_tlm": ObjectiveLoad(1, 10.0)}
    two = estimate_memory(recipe, build_meta_network(recipe, 1000), loads, H200).activations
    one = estimate_memory(plain, build_meta_network(plain, 1000), {"mlm": ObjectiveLoad(1024, 512.0)}, H200).activations
    assert 2.2 < two / one < 2.6


def test_states_are_sharded_if_they_would_fill_a_third_of_the_gpu() -> None:
    base, xl = text("base", 8192), text("xl", 8192)
    assert not estimate_memory(base, build_meta_network(base, 250_002), FULL, A100, gpus=8).sharded
    alone, sharded = (estimate_memory(xl, build_meta_network(xl, 250_002), FULL, A100, gpus=gpus) for gpus in (1, 8))
    assert (alone.sharded, sharded.sharded) == (False, True)
    assert sharded.states == pytest.approx(alone.states / 8)
    forced = base.replace(parallel="fsdp")
    assert estimate_memory(forced, build_meta_network(forced, 250_002), FULL, A100, gpus=8).sharded
    assert not estimate_memory(xl.replace(parallel="ddp"), build_meta_network(xl, 250_002), FULL, A100, gpus=8).sharded


def test_fit_takes_the_largest_micro_batch() -> None:
    recipe = text("large")
    net = build_meta_network(recipe, 250_002)
    found = fit_to_memory(recipe, net, FULL, A100)
    assert found is not None
    assert (found.micro_tokens, found.gradient_checkpointing) == (16_384, False)
    assert estimate_memory(found, net, FULL, A100).fits(A100)
    assert not estimate_memory(found.replace(micro_tokens=32_768), net, FULL, A100).fits(A100)


def test_fit_uses_checkpointing_if_needed_and_returns_none_if_nothing_fits() -> None:
    recipe = text("large")
    net = build_meta_network(recipe, 250_002)
    found = fit_to_memory(recipe, net, FULL, replace(A100, memory_gib=20))
    assert found is not None
    assert found.gradient_checkpointing
    assert fit_to_memory(recipe, net, FULL, replace(A100, memory_gib=8)) is None


def test_larger_sizes_need_more_memory() -> None:
    assert gib(text("small")) < gib(text("base")) < gib(text("large")) < gib(text("xl"))


def test_muon_has_one_momentum_and_stacks_matrices() -> None:
    """With 12 + 4 layers and hidden size 768, feed-forward matrices form the largest stack."""
    adam, muon = text(), text().set(["optimizer.matrices=muon"])
    net = build_meta_network(adam, 250_002)
    before, found = (estimate_memory(each, net, FULL, H200) for each in (adam, muon))
    matrices = 16 * (3 + 1 + 4 + 4) * 768**2
    assert before.states - found.states == 4 * matrices
    assert before.backward_end - found.backward_end == 4 * matrices
    assert before.optimizer_step == before.states
    assert found.optimizer_step == found.states + 24 * 16 * 4 * 768**2
    apart = muon.set(["optimizer.generator_lr_factor=0.5"])  # the generator's matrices form their own stack
    assert estimate_memory(apart, net, FULL, H200).optimizer_step == found.states + 24 * 12 * 4 * 768**2


def test_optimizer_step_is_the_peak_with_few_tokens() -> None:
    """Wide blocks, a small vocabulary, and hardly any tokens."""
    shape = ["model.width=1536", "model.feed_forward=6144", "model.layers=24", "optimizer.matrices=muon"]
    recipe = text().set(shape)
    found = estimate_memory(recipe, build_meta_network(recipe, 300), {"mrtd": ObjectiveLoad(1, 8.0)}, H200)
    assert found.gib == pytest.approx(found.optimizer_step / GIB)


def test_muon_is_never_sharded() -> None:
    recipe = text("xl", 8192).set(["optimizer.matrices=muon"])
    net = build_meta_network(recipe, 250_002)
    alone, several = (estimate_memory(recipe, net, FULL, A100, gpus=gpus) for gpus in (1, 8))
    assert not several.sharded
    assert several.states == alone.states
