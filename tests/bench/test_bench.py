"""Every benchmark runs on a CPU at a small size and yields its rows. Values are not tested."""

from __future__ import annotations

import math
import socket
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

from crossling import recipes
from crossling.bench import BENCHES, bench, bench_attention, bench_encode, bench_step, peers
from crossling.bench import bench_attention as bench_head
from crossling.bench import workload as timing
from crossling.bench.train_timing import RandomShards, measure_speed, scale_recipe, step_flops
from crossling.bench.workload import CPU_SHAPE, BenchRow, BenchSetup, Measurement, Timing, compare, time_work
from crossling.cli import research_commands
from crossling.core.errors import BadInput, Failed
from crossling.model.model_shape import SIZES

LESS_IS_BETTER = ("ms", "s")
ROWS = {
    "step": [
        *("matrix product of 512^3", "xlm_e, batch 4", "xlm_e, batch 8", "xlm_e, best batch"),
        *("xlm_e, batch", "xlm_e, packed bitext, batch 4", "xlm_e, gradient checkpointing, batch 4"),
        *("xlm_e, text and bitext, batch 4", "waiting for the loader, batch"),
    ],
    "step-sizes": ["xlm_e, batch 4", "xlm_e, batch 8", "rosetta, batch 4"],
    "fp8": ["xlm_e, fp8, batch 4", "xlm_e, fp8, batch 8"],
    "recipes": ["infoxlm (MLM, TLM, XLCo), batch 4", "veco (CA-MLM, TLM), batch 4", "xlm_r (MLM), batch 4"],
    "attention": [
        *["gated attention 4x2x64x32, forward and backward"] * 2,
        "gated attention 4x2x64x32, forward and backward, packed rows, gate from the queries",
    ],
    "head": ["head, 38 x 64 x 1,000: loss, gradients, samples"],
    "encode": ["embedding 240 sentences"] * 2,
    "evaluate": ["Tatoeba, 2 pairs, 3 layers"],
    "growth": [
        *("length 32", "length 64", "vocabulary 500", "vocabulary 1,000"),
        *("batch 4", "batch 8", "layers 1", "layers 2"),
    ],
}


@pytest.fixture
def at() -> BenchSetup:
    """Return the smallest setup."""
    shape = replace(CPU_SHAPE, layers=1, width=16, feed_forward=32)
    return replace(BenchSetup.of(), shape=shape, vocabulary=100, length=32, batches=(2,), times=2)


@pytest.mark.parametrize("name", ROWS)
def test_benchmark_yields_its_rows(name: str) -> None:
    rows = list(bench([name]))
    assert len(rows) == len(ROWS[name])
    for row, expected in zip(rows, ROWS[name], strict=True):
        assert row.name.startswith(expected)
        assert (row.bench, row.device) == (name, BenchSetup.of().device_name)
        assert math.isfinite(row.ours)
        assert row.ours >= 0
        assert row.peak_gib is None  # unknown on a CPU
        if row.peer is None:
            assert row.ratio is None
        else:
            better = row.peer / row.ours if row.unit in LESS_IS_BETTER else row.ours / row.peer
            assert row.ratio == pytest.approx(better)
            assert row.peer_name
        if row.unit == "tokens/s":
            assert row.mfu is not None
            assert row.mfu > 0
            assert row.path


def test_every_benchmark_is_tested() -> None:
    assert [*BENCHES] == [*research_commands.BENCHES]
    assert {*BENCHES} == {*ROWS, "data", "bundled", "start-up", "runs-at-once"}


@pytest.mark.parametrize(("name", "nearest"), [("stp", "step"), ("atention", "attention"), ("grow", "growth")])
def test_unknown_name_is_refused_before_measuring(name: str, nearest: str) -> None:
    with pytest.raises(BadInput, match=f"{name}: no such benchmark; did you mean '{nearest}'"):
        bench(["step", name])


def test_unknown_size_suggests_the_nearest() -> None:
    with pytest.raises(BadInput, match="size=bas: no such size; did you mean 'base'"):
        bench(["step"], size="bas")


# ---- failures and missing peers ------------------------------------------------------------------------------


def test_failed_measurement_is_reported_and_the_others_continue(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> Measurement:
        raise RuntimeError("no such kernel\nand a long trace")

    monkeypatch.setattr(peers, "electra", broken)
    rows: list[BenchRow] = []
    with pytest.warns(UserWarning, match=r"ELECTRA pair.* RuntimeError: no such kernel$"), pytest.raises(Failed) as end:
        rows.extend(bench(["step"]))  # extend keeps the rows before the error
    assert rows[-1].name.startswith("waiting for the loader")
    assert {row.peer for row in rows if row.name in ("xlm_e, batch 4", "xlm_e, batch 8")} == {None}
    assert "ELECTRA pair" in str(end.value)


def test_failed_benchmark_keeps_its_rows_and_later_benchmarks_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: BenchSetup) -> Iterator[BenchRow]:
        yield BenchRow("one", 1.0, None, "s")
        raise ValueError("oh")

    monkeypatch.setitem(BENCHES, "attention", broken)
    rows: list[BenchRow] = []
    with (
        pytest.warns(UserWarning, match="bench attention failed: ValueError: oh"),
        pytest.raises(Failed),
    ):
        rows.extend(bench(["attention", "head"]))
    assert [row.bench for row in rows] == ["attention", "head"]


def test_bad_input_is_not_caught(at: BenchSetup) -> None:
    def refused() -> None:
        raise BadInput("no")

    with pytest.raises(BadInput):
        at.try_measure("this", refused)
    assert at.failed == []


@pytest.mark.parametrize("name", ["encode", "evaluate"])
def test_without_sentence_transformers_there_is_no_ratio(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_encode, "find_spec", lambda _: None)
    [row] = bench([name])
    assert (row.peer, row.ratio) == (None, None)
    assert row.ours > 0


@pytest.mark.parametrize("name", ["encode", "evaluate"])
def test_failed_peer_keeps_our_row(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise OSError("no such module")

    monkeypatch.setattr(bench_encode, "find_spec", lambda _: True)
    monkeypatch.setattr(bench_encode, "_peer", broken)
    rows: list[BenchRow] = []
    with pytest.warns(UserWarning, match="Sentence Transformers.* OSError: no such module"), pytest.raises(Failed):
        rows.extend(bench([name]))
    assert [(row.peer, row.ratio) for row in rows] == [(None, None)]


@pytest.mark.parametrize("name", ["encode", "evaluate"])
def test_sentence_benchmarks_do_not_use_the_network(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    addresses = []

    def refuse(*address: Any, **_: Any) -> None:
        addresses.append(address)
        raise OSError("no network")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    assert [*bench([name])]
    assert addresses == []


def test_slow_work_is_timed_fewer_times(at: BenchSetup, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 3.0, 3.0, 7.0])
    monkeypatch.setattr(bench_encode.time, "perf_counter", lambda: next(clock))
    calls: list[int] = []
    assert bench_encode._seconds(replace(at, times=3), lambda: calls.append(1)) == pytest.approx(3.5)
    assert len(calls) == 3


def test_status_is_printed_before_measuring(at: BenchSetup, capsys: pytest.CaptureFixture[str]) -> None:
    def measure() -> None:
        assert capsys.readouterr().err == "bench: this one\n"

    at.try_measure("this one", measure)
    assert at.failed == []


# ---- timing --------------------------------------------------------------------------------------------------


def test_time_is_the_median_without_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 1.0, 10.0, 12.0, 20.0, 29.0])
    monkeypatch.setattr(timing.time, "perf_counter", lambda: next(clock))
    calls: list[int] = []
    assert time_work(lambda: calls.append(1), torch.device("cpu"), warmup=2, times=3) == Timing(2.0, None)
    assert len(calls) == 5


def test_ratio_is_above_one_where_ours_is_better(at: BenchSetup) -> None:
    ours, peer = (at.milliseconds(Timing(seconds, None), operations=1) for seconds in (0.001, 0.003))
    assert compare("a", ours, peer, "b").ratio == pytest.approx(3)
    ours, peer = Measurement(300, "tokens/s", 2.0, 0.5, "plain"), Measurement(100, "tokens/s", 4.0)
    quick = compare("a", ours, peer, "b")
    assert quick.ratio == pytest.approx(3)
    assert (quick.mfu, quick.peak_gib, quick.peer_peak_gib) == (0.5, 2.0, 4.0)
    assert compare("a", Measurement(300, "tokens/s", None), None, "b").dump() == {
        **{"name": "a", "ours": 300, "peer": None, "ratio": None, "unit": "tokens/s"},
        **{"peer_name": "b"},
    }


# ---- random shards and the step on them ----------------------------------------------------------------------


def test_random_shards_match_their_manifest() -> None:
    shards = RandomShards.of(1000, 64)
    [text] = shards.text.values()
    entry = shards.manifest["text"]["qaa"]
    assert len(text.tokens) == entry["tokens"]
    assert {len(text[i]) for i in range(len(text))} == {63}  # with <s>, full blocks
    [bitext] = shards.bitexts
    pairs = shards.manifest["pairs"]["random.qaa-qab"]
    assert bitext.pairs == len(bitext.sides[0]) == len(bitext.sides[1]) == pairs["pairs"]
    for side, tokens in zip(bitext.sides, pairs["tokens"], strict=True):
        assert len(side.tokens) == pytest.approx(tokens, rel=0.05)
        assert side.tokens[side.tokens != 2].min() > 3  # no special token but </s>
        assert side.tokens.max() < 999
    assert (RandomShards.of(1000, 64).text["qaa"].tokens == text.tokens).all()


def test_step_of_text_has_no_padding(at: BenchSetup) -> None:
    from crossling.bench.train_timing import TrainingLoop

    [(_, batch)] = TrainingLoop(scale_recipe(recipes.xlm_e().replace(trtd=None), at, 2), at).batches[0].micro_batches
    assert batch["ids"].shape == (2, 32)
    assert (batch["ids_segments"] > 0).all()


def test_scaled_recipes_keep_their_proportions() -> None:
    at = BenchSetup.of("base")
    infoxlm, veco = (scale_recipe(recipes.get_recipe(name, "base"), at, 64) for name in ("infoxlm", "veco"))
    assert (infoxlm.mlm.tokens, infoxlm.tlm.sequences, infoxlm.xlco.pairs) == (32_768, 64, 64)  # type: ignore[union-attr]
    assert (veco.ca_mlm.sequences, veco.ca_tlm.sequences, veco.ca_tlm.length) == (64, 256, 128)  # type: ignore[union-attr]
    assert infoxlm.xlco.queue == 131_072  # type: ignore[union-attr]
    for recipe in (infoxlm, veco, scale_recipe(recipes.xlm_e(), at, 64)):
        recipe.check()
        assert recipe.model.layers == SIZES["base"].layers


def test_flops_of_the_base_step_match_the_published_comparison() -> None:
    """170 + 19 + 57 + 6 + 58 million forward, times 3, and the dense layers inside the heads."""
    at = BenchSetup.of("base")
    flops = step_flops(scale_recipe(recipes.xlm_e().replace(trtd=None), at, 64), at)
    assert flops == pytest.approx(929e6, rel=0.005)


def test_mfu_is_relative_to_the_matrix_product(at: BenchSetup) -> None:
    recipe = scale_recipe(recipes.xlm_r(), at, 2)
    speed = measure_speed(recipe, at)
    flops = step_flops(recipe, at)
    assert speed.mfu == pytest.approx(speed.value * flops / at.matmul)


def test_path_shows_whether_the_network_is_compiled(at: BenchSetup) -> None:
    from crossling.bench.train_timing import TrainingLoop

    training = TrainingLoop(scale_recipe(recipes.xlm_r(), at, 2), at)
    assert not training.compiled
    assert measure_speed(scale_recipe(recipes.xlm_r(), at, 2), at).path == "plain torch"
    training.train_step.network.net.encoder.blocks[0].compile()
    assert training.compiled


def test_remove_bias_removes_relative_positions_and_gate() -> None:
    shape = bench_step.remove_bias(recipes.xlm_e()).model
    assert not shape.relative
    assert not shape.gate


def test_growth_changes_one_size_at_a_time(at: BenchSetup) -> None:
    for point in bench_step.growth_points(at):
        sizes = point.at.length, point.at.vocabulary, point.batch, point.at.shape.layers
        reference = at.length, at.vocabulary, at.batches[0], at.shape.layers
        changed = {
            name
            for name, a, b in zip(("length", "vocabulary", "batch", "layers"), sizes, reference, strict=True)
            if a != b
        }
        if point.what == "length":  # the same number of tokens per step
            assert point.batch * point.at.length == at.batches[0] * at.length
            changed -= {"batch"}
        assert changed <= {point.what}


# ---- equivalence with the peers ------------------------------------------------------------------------------


def test_electra_loss_is_the_same_with_the_head_at_masked_positions_only(at: BenchSetup) -> None:
    torch.manual_seed(0)
    pair = peers._ElectraPair(at, everywhere=True)
    ids = torch.randint(4, at.vocabulary - 1, (2, at.length))
    positions = torch.randperm(ids.numel())[:9]
    losses = []
    for everywhere in (True, False):
        pair.everywhere = everywhere
        torch.manual_seed(1)  # dropout and sampled tokens
        losses.append(pair(ids, positions).item())
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    assert pair.generator.get_input_embeddings() is pair.discriminator.get_input_embeddings()
    assert pair.generator.generator_lm_head.weight is pair.generator.get_input_embeddings().weight


def test_our_attention_equals_sdpa_with_bias(at: BenchSetup) -> None:
    torch.manual_seed(0)
    inputs = bench_attention.AttentionInputs.random(at)
    found = {}
    for name, attend in {"ours": bench_attention.our_attention, "peer": bench_attention.sdpa_with_bias}.items():
        output = attend(inputs)
        found[name] = [output, *torch.autograd.grad(output, inputs.learned, inputs.gradient_BLHK)]
    for mine, theirs in zip(found["ours"], found["peer"], strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4)
    assert not torch.allclose(found["ours"][0], bench_attention.sdpa_without_bias(inputs), atol=1e-3)


@pytest.mark.filterwarnings("ignore::UserWarning")  # slow without compilation
def test_flex_attention_has_the_same_bias(at: BenchSetup) -> None:
    torch.manual_seed(0)
    inputs = bench_attention.AttentionInputs.random(at)
    names = ("query_BLHK", "key_BLHK", "value_BLHK", "gate_BHL", "table_HW")
    inputs = replace(inputs, **{name: getattr(inputs, name).detach() for name in names})
    found = bench_attention.flex(at, gate=True, table=True)(inputs)
    torch.testing.assert_close(found, bench_attention.sdpa_with_bias(inputs), rtol=1e-4, atol=1e-4)


def test_our_head_equals_all_logits(at: BenchSetup) -> None:
    torch.manual_seed(0)
    inputs = bench_head.HeadInputs.random(at)
    learned = [inputs.hidden_MD, inputs.table_VD, inputs.bias_V]
    mine, theirs = (
        [loss.detach(), *torch.autograd.grad(loss, learned)]
        for loss in (predict(inputs)[0] for predict in (bench_head.our_head, bench_head.all_logits))
    )
    for a, b in zip(mine, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)
