"""The memory of a step: what autograd really keeps, and how the sum follows the settings."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from crossling.hardware import CARDS, GIB
from crossling.inspect.memory import at_once, block_bytes, fitted, memory
from crossling.model.config import CrosslingConfig
from crossling.model.transformer import Block
from crossling.recipe import Recipe
from crossling.recipe.cost import Load, network
from crossling.recipes import infoxlm, veco, xlm_e, xlm_r

H200, A100 = CARDS["h200"], CARDS["a100-40"]
FULL = {"mrtd": Load(2048, 512.0)}


def text(size: str = "base", micro_tokens: int = 32_768, recompute: bool = False) -> Recipe:
    return xlm_e(size).but(trtd=None, micro_tokens=micro_tokens, recompute=recompute)


def gib(recipe: Recipe, gpus: int = 1) -> float:
    return memory(recipe, network(recipe, 250_002), FULL, H200, gpus).gib


def kept_by_autograd(config: CrosslingConfig, rows: int, length: int, paired: bool) -> float:
    """Bytes of a token that a block keeps under bfloat16, its weights and their copies not counted."""
    torch.manual_seed(0)
    block, kept = Block(config).train(), dict[int, int]()
    weights = {tuple(p.shape) for p in block.parameters()} | {
        tuple(p.T.shape) for p in block.parameters() if p.ndim == 2
    }

    def keep(values: torch.Tensor) -> torch.Tensor:
        if tuple(values.shape) not in weights:
            kept[values.untyped_storage().data_ptr()] = values.untyped_storage().nbytes()
        return values

    hidden, pair = (torch.randn(rows, length, config.hidden_size, dtype=torch.bfloat16) for _ in range(2))
    hidden.requires_grad_()
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda values: values), torch.autocast("cpu", torch.bfloat16):
        block(hidden, None, None, pair if paired else None)
    kept.pop(pair.data_ptr(), None)  # the same for all blocks
    return sum(kept.values()) / (rows * length)


@pytest.mark.parametrize(("width", "inner"), [(128, 512), (192, 256)])
@pytest.mark.parametrize("paired", [False, True])
def test_a_block_keeps_what_the_formula_says(width: int, inner: int, paired: bool) -> None:
    config = CrosslingConfig(
        hidden_size=width, num_attention_heads=4, intermediate_size=inner, relative_positions=False, gated=False,
        cross_attention=paired, dropout=0.0, vocab_size=50,
    )  # fmt: skip
    found = kept_by_autograd(config, rows=5, length=31, paired=paired)
    assert found == pytest.approx(block_bytes(config, paired), rel=0.02)


def test_base_by_hand() -> None:
    """12 + 4 layers of 768 under 32,768 tokens, the twelve with dropout."""
    recipe, tokens = text(), 32_768
    net = network(recipe, 250_002)
    found = memory(recipe, net, FULL, H200)
    parameters = sum(p.numel() for p in net.parameters())
    block = 2 * (8 * 768 + 2 * 3072) + 4 * 12
    assert found.states == 16 * parameters
    assert found.activations == tokens * (12 * (block + 2 * 768) + 4 * block + 2 * 4 * 768)
    table = 250_002 * 768
    assert found.head == 4 * table
    blocks = sum(
        p.numel() for part in (net.encoder, net.parts["generator"]) for b in part.blocks for p in b.parameters()
    )
    assert found.working == 2 * blocks
    total = found.states + found.activations + found.head + found.working
    assert found.gib == pytest.approx(total / GIB)
    assert not found.sharded


@pytest.mark.parametrize(
    ("rows", "recompute", "measured"),
    [(64, False, 17.0), (64, True, 7.19), (256, False, 54.6)],  # benchmarks/results/2026-11-15-speed-step.json
)
def test_base_as_measured_on_an_h200(rows: int, recompute: bool, measured: float) -> None:
    """One micro-batch is the whole step, so that no gradient lies there from before."""
    recipe = text(micro_tokens=512 * rows, recompute=recompute)
    found = memory(recipe, network(recipe, 250_002), {"mrtd": Load(rows, 512.0)}, H200)
    assert found.gib == pytest.approx(measured, rel=0.05)


def test_a_head_on_the_whole_encoder_as_measured() -> None:
    """XLM-R: when the head makes its logits, all activations are there."""
    recipe = xlm_r("base").but(micro_tokens=32_768)
    assert memory(recipe, network(recipe, 250_002), {"mlm": Load(64, 512.0)}, H200).gib == pytest.approx(15.9, rel=0.05)


def test_gradients_of_an_earlier_micro_batch_or_of_other_processes_lie_beside() -> None:
    recipe = text()
    net, one = network(recipe, 250_002), {"mrtd": Load(64, 512.0)}
    alone = memory(recipe, net, one, H200).states
    for loads, gpus in (({"mrtd": Load(128, 512.0)}, 1), ({"mrtd": Load(128, 512.0)}, 2)):
        assert memory(recipe, net, loads, H200, gpus).states == pytest.approx(alone * 16 / 12)


def test_what_is_computed_again_is_not_kept() -> None:
    kept, again = (memory(r, network(r, 250_002), FULL, H200) for r in (text(), text(recompute=True)))
    assert again.activations < 0.3 * kept.activations
    assert (again.states, again.head, again.working) == (kept.states, kept.head, kept.working)
    block = block_bytes(network(text(), 250_002).encoder.config)
    assert again.activations == 32_768 * (2 * 768 * (12 + 4) + 4 * 768 * 2 + block)


@given(st.integers(1, 5000), st.floats(1, 512), st.integers(512, 70_000), st.integers(1, 64))
def test_no_more_than_asked_for_is_computed_at_once(examples: int, length: float, micro_tokens: int, gpus: int) -> None:
    task, load = text().mrtd, Load(examples, length)
    assert task is not None
    found = at_once(task, load, micro_tokens, gpus)
    assert found <= micro_tokens + 1e-6
    parts = load.tokens / gpus / found
    assert parts == pytest.approx(round(parts))
    assert at_once(task, load, micro_tokens // 2, gpus) <= found + 1e-6


def test_a_step_smaller_than_what_may_be_computed_at_once() -> None:
    task = text().mrtd
    assert task is not None
    assert at_once(task, Load(100, 500.0), 65_536, 1) == 50_000
    assert at_once(task, Load(100, 500.0), 65_536, 4) == 12_500
    assert at_once(task, Load(200, 500.0), 65_536, 1) == 50_000  # in two equal parts


def test_contrast_within_the_batch_is_never_split() -> None:
    loads = {"mlm": Load(16, 100.0), "tlm": Load(16, 100.0), "xlco": Load(4096, 100.0)}
    queue = infoxlm("base").but(micro_tokens=4096)
    batch = queue.set(["xlco.queue=0"])
    held, whole = (memory(each, network(each, 1000), loads, H200).activations for each in (queue, batch))
    assert whole > 50 * held


def test_frozen_keys_have_no_optimizer() -> None:
    loads = {"mlm": Load(16, 100.0), "tlm": Load(16, 100.0), "xlco": Load(16, 100.0)}
    recipe = infoxlm("tiny")
    net = network(recipe, 1000)
    learned, frozen = (sum(p.numel() for p in net.parameters() if p.requires_grad is on) for on in (True, False))
    queue = sum(b.numel() * b.element_size() for b in net.parts["queue"].buffers())
    assert frozen > 0
    assert memory(recipe, net, loads, H200).states == 16 * learned + 4 * frozen + queue


def test_two_streams_keep_both() -> None:
    recipe = veco("base")
    plain = xlm_r("base").but(micro_tokens=recipe.micro_tokens)
    loads = {"tlm": Load(1, 10.0), "ca_mlm": Load(1024, 512.0), "ca_tlm": Load(1, 10.0)}
    two = memory(recipe, network(recipe, 1000), loads, H200).activations
    one = memory(plain, network(plain, 1000), {"mlm": Load(1024, 512.0)}, H200).activations
    assert 2.2 < two / one < 2.6


def test_states_are_shared_out_where_they_would_fill_a_third_of_the_card() -> None:
    base, xl = text("base", 8192), text("xl", 8192)
    assert not memory(base, network(base, 250_002), FULL, A100, 8).sharded
    alone, among = (memory(xl, network(xl, 250_002), FULL, A100, gpus) for gpus in (1, 8))
    assert (alone.sharded, among.sharded) == (False, True)
    assert among.states == pytest.approx(alone.states / 8)
    asked = base.but(parallel="fsdp")
    assert memory(asked, network(asked, 250_002), FULL, A100, 8).sharded
    assert not memory(xl.but(parallel="ddp"), network(xl, 250_002), FULL, A100, 8).sharded


def test_fitted_takes_the_most_that_has_room() -> None:
    recipe = text("large")
    net = network(recipe, 250_002)
    found = fitted(recipe, net, FULL, A100)
    assert found is not None
    assert (found.micro_tokens, found.recompute) == (16_384, False)
    assert memory(found, net, FULL, A100).fits(A100)
    assert not memory(found.but(micro_tokens=32_768), net, FULL, A100).fits(A100)


def test_fitted_computes_again_where_it_must_and_gives_up_where_nothing_helps() -> None:
    recipe = text("large")
    net = network(recipe, 250_002)
    found = fitted(recipe, net, FULL, replace(A100, gib=20))
    assert found is not None
    assert found.recompute
    assert fitted(recipe, net, FULL, replace(A100, gib=8)) is None


def test_sizes_stand_in_their_order() -> None:
    assert gib(text("small")) < gib(text("base")) < gib(text("large")) < gib(text("xl"))


def test_what_muon_moves_has_one_momentum_and_is_stacked_meanwhile() -> None:
    """12 + 4 layers of 768: of the maps in the blocks those of the feed-forward are the most of one shape."""
    adam, muon = text(), text().set(["optimizer.matrices=muon"])
    net = network(adam, 250_002)
    before, found = (memory(each, net, FULL, H200) for each in (adam, muon))
    maps = 16 * (3 + 1 + 4 + 4) * 768**2
    assert before.states - found.states == 4 * maps
    assert before.at_the_end - found.at_the_end == 4 * maps
    assert before.at_the_step == before.states
    assert found.at_the_step == found.states + 24 * 16 * 4 * 768**2
    apart = muon.set(["optimizer.generator_rate=0.5"])  # the generator's are moved by themselves
    assert memory(apart, net, FULL, H200).at_the_step == found.states + 24 * 12 * 4 * 768**2


def test_the_step_is_the_peak_where_little_else_is_there() -> None:
    """Blocks that are wide beside a small table, and hardly a token."""
    shape = ["model.width=1536", "model.feed_forward=6144", "model.layers=24", "optimizer.matrices=muon"]
    recipe = text().set(shape)
    found = memory(recipe, network(recipe, 300), {"mrtd": Load(1, 8.0)}, H200)
    assert found.gib == pytest.approx(found.at_the_step / GIB)


def test_muon_lies_whole_on_every_gpu() -> None:
    recipe = text("xl", 8192).set(["optimizer.matrices=muon"])
    net = network(recipe, 250_002)
    alone, among = (memory(recipe, net, FULL, A100, gpus) for gpus in (1, 8))
    assert not among.sharded
    assert among.states == alone.states
