"""Every bench runs on a CPU, in a small form, and its rows say what they should; figures are no test's business."""

from __future__ import annotations

import math
import socket
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

from crossling import recipes
from crossling.bench import BENCHES, attention, bench, growth, head, peers, sentences, step
from crossling.bench.chance import ChanceShards
from crossling.bench.clock import Speed, Timing, timed
from crossling.bench.row import Row
from crossling.bench.setting import CPU_SHAPE, Setting
from crossling.bench.training import measured, operations, sized
from crossling.errors import BadInput, Failed
from crossling.model.shape import SIZES

LESS_IS_BETTER = ("ms", "s")
ROWS = {
    "step": [
        *("matrix product of 512^3", "xlm_e, batch 4", "xlm_e, batch 8", "xlm_e, best batch"),
        *("xlm_e, batch", "xlm_e, packed bitext, batch 4", "xlm_e, recompute, batch 4"),
        *("xlm_e, text and bitext, batch 4", "waiting for the loader, batch"),
    ],
    "recipes": ["infoxlm (MLM, TLM, contrast), batch 4", "veco (CA-MLM, TLM), batch 4", "xlm_r (MLM), batch 4"],
    "attention": [
        *["gated attention 4x2x64x32, both ways"] * 2,
        "gated attention 4x2x64x32, both ways, rows with borders, gate made by the queries",
    ],
    "head": ["head, 38 x 64 x 1,000: loss, gradients, draws"],
    "encode": ["embedding 240 sentences"] * 2,
    "evaluate": ["Tatoeba, 2 pairs, 3 layers"],
    "growth": [
        *("length 32", "length 64", "vocabulary 500", "vocabulary 1,000"),
        *("batch 4", "batch 8", "layers 1", "layers 2"),
    ],
}


@pytest.fixture
def at() -> Setting:
    """As small as it gets."""
    shape = replace(CPU_SHAPE, layers=1, width=16, feed_forward=32)
    return replace(Setting.of(), shape=shape, vocabulary=100, length=32, batches=(2,), times=2)


@pytest.mark.parametrize("name", ROWS)
def test_a_bench_yields_its_rows(name: str) -> None:
    rows = list(bench([name]))
    assert len(rows) == len(ROWS[name])
    for row, expected in zip(rows, ROWS[name], strict=True):
        assert row.name.startswith(expected)
        assert (row.bench, row.device) == (name, Setting.of().device_name)
        assert math.isfinite(row.ours)
        assert row.ours >= 0
        assert row.peak_gib is None  # a CPU does not tell
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


def test_every_bench_is_tested_and_named_for_the_command_line() -> None:
    assert [*BENCHES] == ["step", "recipes", "attention", "head", "data", "encode", "evaluate", "growth"]
    assert {*BENCHES} == {*ROWS, "data"}


@pytest.mark.parametrize(("asked", "meant"), [("stp", "step"), ("atention", "attention"), ("grow", "growth")])
def test_an_unknown_name_is_refused_before_anything_is_measured(asked: str, meant: str) -> None:
    with pytest.raises(BadInput, match=f"{asked}: there is no such bench; did you mean '{meant}'"):
        bench(["step", asked])


def test_an_unknown_size_names_the_nearest() -> None:
    with pytest.raises(BadInput, match="--size bas: there is no such size; did you mean 'base'"):
        bench(["step"], size="bas")


# ---- what fails, and what is not there -----------------------------------------------------------------------


def test_what_fails_is_told_and_the_rest_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> Speed:
        raise RuntimeError("no such kernel\nand a long trace")

    monkeypatch.setattr(peers, "electra", broken)
    rows: list[Row] = []
    with pytest.warns(UserWarning, match=r"ELECTRA pair.* RuntimeError: no such kernel$"), pytest.raises(Failed) as end:
        rows.extend(bench(["step"]))  # extend keeps what came before the end
    assert rows[-1].name.startswith("waiting for the loader")
    assert {row.peer for row in rows if row.name in ("xlm_e, batch 4", "xlm_e, batch 8")} == {None}
    assert "ELECTRA pair" in str(end.value)


def test_a_bench_that_breaks_leaves_its_rows_and_the_benches_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(at: Setting) -> Iterator[Row]:
        yield Row("one", 1.0, None, None, "s", at.device_name)
        raise ValueError("oh")

    monkeypatch.setitem(BENCHES, "attention", broken)
    rows: list[Row] = []
    with (
        pytest.warns(UserWarning, match="bench attention could not be measured: ValueError: oh"),
        pytest.raises(Failed),
    ):
        rows.extend(bench(["attention", "head"]))
    assert [row.bench for row in rows] == ["attention", "head"]


def test_bad_input_inside_a_bench_is_no_failure_to_measure(at: Setting) -> None:
    def refused() -> None:
        raise BadInput("no")

    with pytest.raises(BadInput):
        at.tried("this", refused)
    assert at.failed == []


@pytest.mark.parametrize("name", ["encode", "evaluate"])
def test_without_sentence_transformers_ours_is_measured_alone(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sentences, "find_spec", lambda _: None)
    [row] = bench([name])
    assert (row.peer, row.ratio) == (None, None)
    assert row.ours > 0


@pytest.mark.parametrize("name", ["encode", "evaluate"])
def test_a_peer_that_breaks_leaves_our_row(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise OSError("no such module")

    monkeypatch.setattr(sentences, "find_spec", lambda _: True)
    monkeypatch.setattr(sentences, "_peer", broken)
    rows: list[Row] = []
    with pytest.warns(UserWarning, match="Sentence Transformers.* OSError: no such module"), pytest.raises(Failed):
        rows.extend(bench([name]))
    assert [(row.peer, row.ratio) for row in rows] == [(None, None)]


@pytest.mark.parametrize("name", ["encode", "evaluate"])
def test_no_bench_of_sentences_asks_the_network(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def refuse(*address: Any, **_: Any) -> None:
        asked.append(address)
        raise OSError("no network")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    assert [*bench([name])]
    assert asked == []


def test_what_takes_long_is_not_measured_three_times(at: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 3.0, 3.0, 7.0])
    monkeypatch.setattr("crossling.bench.sentences.time.perf_counter", lambda: next(clock))
    calls: list[int] = []
    assert sentences._seconds(replace(at, times=3), lambda: calls.append(1)) == pytest.approx(3.5)
    assert len(calls) == 3


def test_what_is_being_measured_is_said_at_once(at: Setting, capsys: pytest.CaptureFixture[str]) -> None:
    def measure() -> None:
        assert capsys.readouterr().err == "bench: this one\n"

    at.tried("this one", measure)
    assert at.failed == []


# ---- the clock -----------------------------------------------------------------------------------------------


def test_time_is_the_median_without_the_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 1.0, 10.0, 12.0, 20.0, 29.0])
    monkeypatch.setattr("crossling.bench.clock.time.perf_counter", lambda: next(clock))
    calls: list[int] = []
    assert timed(lambda: calls.append(1), torch.device("cpu"), warmup=2, times=3) == Timing(2.0, None)
    assert len(calls) == 5


def test_rows_say_how_many_times_better_ours_is(at: Setting) -> None:
    assert at.ms("a", Timing(0.001, 2.0), Timing(0.003, 4.0), "b", mfu=0.5).ratio == pytest.approx(3)
    quick = at.tokens("a", Speed(300, 2.0, 0.5, "plain"), Speed(100, 4.0), "b")
    assert quick.ratio == pytest.approx(3)
    assert (quick.mfu, quick.peak_gib, quick.peer_peak_gib) == (0.5, 2.0, 4.0)
    assert at.tokens("a", Speed(300, None), None, "b").dump() == {
        **{"name": "a", "ours": 300, "peer": None, "ratio": None, "unit": "tokens/s"},
        **{"device": at.device_name, "peer_name": "b"},
    }


# ---- random shards and the step on them ----------------------------------------------------------------------


def test_random_shards_are_what_their_manifest_says() -> None:
    shards = ChanceShards.of(1000, 64)
    [text] = shards.text.values()
    entry = shards.manifest["text"]["qaa"]
    assert len(text.tokens) == entry["tokens"]
    assert {len(text[i]) for i in range(len(text))} == {63}  # with <s>, full blocks
    [bitext] = shards.bitexts
    pairs = shards.manifest["pairs"]["chance.qaa-qab"]
    assert bitext.pairs == len(bitext.sides[0]) == len(bitext.sides[1]) == pairs["pairs"]
    for side, tokens in zip(bitext.sides, pairs["tokens"], strict=True):
        assert len(side.tokens) == pytest.approx(tokens, rel=0.05)
        assert side.tokens[side.tokens != 2].min() > 3  # no special piece but </s>
        assert side.tokens.max() < 999
    assert (ChanceShards.of(1000, 64).text["qaa"].tokens == text.tokens).all()


def test_a_step_of_text_has_no_padding_and_all_its_tokens(at: Setting) -> None:
    from crossling.bench.training import _Training

    [(_, batch)] = _Training(sized(recipes.xlm_e().but(trtd=None), at, 2), at).batches[0].micro
    assert batch["ids"].shape == (2, 32)
    assert (batch["ids_segments"] > 0).all()


def test_the_recipes_keep_their_proportions() -> None:
    at = Setting.of("base")
    infoxlm, veco = (sized(recipes.named(name, "base"), at, 64) for name in ("infoxlm", "veco"))
    assert (infoxlm.mlm.tokens, infoxlm.tlm.sequences, infoxlm.xlco.pairs) == (32_768, 64, 64)  # type: ignore[union-attr]
    assert (veco.ca_mlm.sequences, veco.ca_tlm.sequences, veco.ca_tlm.length) == (64, 256, 128)  # type: ignore[union-attr]
    assert infoxlm.xlco.queue == 131_072  # type: ignore[union-attr]
    for recipe in (infoxlm, veco, sized(recipes.xlm_e(), at, 64)):
        recipe.check()
        assert recipe.model.layers == SIZES["base"].layers


def test_operations_of_the_base_step_are_those_of_the_published_comparison() -> None:
    """170 + 19 + 57 + 6 + 58 million forwards, times 3, and the dense maps inside the heads."""
    at = Setting.of("base")
    found = operations(sized(recipes.xlm_e().but(trtd=None), at, 64), ChanceShards.of(at.vocabulary, at.length))
    assert found == pytest.approx(929e6, rel=0.005)


def test_mfu_is_operations_by_time_over_the_matrix_product(at: Setting) -> None:
    recipe = sized(recipes.xlm_r(), at, 2)
    speed = measured(recipe, at)
    each = operations(recipe, ChanceShards.of(at.vocabulary, at.length))
    assert speed.mfu == pytest.approx(speed.tokens * each / at.matmul)


def test_a_row_says_whether_the_network_was_compiled(at: Setting) -> None:
    from crossling.bench.training import _Training

    training = _Training(sized(recipes.xlm_r(), at, 2), at)
    assert not training.compiled
    assert measured(sized(recipes.xlm_r(), at, 2), at).path == "plain torch"
    training.learner.engine.net.encoder.blocks[0].compile()
    assert training.compiled


def test_without_bias_there_is_none() -> None:
    shape = step.without_bias(recipes.xlm_e()).model
    assert not shape.relative
    assert not shape.gate


def test_growth_changes_one_thing_at_a_time(at: Setting) -> None:
    for point in growth.points(at):
        here = point.at.length, point.at.vocabulary, point.batch, point.at.shape.layers
        there = at.length, at.vocabulary, at.batches[0], at.shape.layers
        changed = {
            name for name, a, b in zip(("length", "vocabulary", "batch", "layers"), here, there, strict=True) if a != b
        }
        if point.what == "length":  # as many tokens in all
            assert point.batch * point.at.length == at.batches[0] * at.length
            changed -= {"batch"}
        assert changed <= {point.what}


# ---- the peers do the same work ------------------------------------------------------------------------------


def test_the_pair_says_the_same_with_its_head_at_the_masked_positions_alone(at: Setting) -> None:
    torch.manual_seed(0)
    pair = peers._Pair(at, everywhere=True)
    ids = torch.randint(4, at.vocabulary - 1, (2, at.length))
    place = torch.randperm(ids.numel())[:9]
    losses = []
    for everywhere in (True, False):
        pair.everywhere = everywhere
        torch.manual_seed(1)  # of dropout and of the draws
        losses.append(pair(ids, place).item())
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    assert pair.generator.get_input_embeddings() is pair.discriminator.get_input_embeddings()
    assert pair.generator.generator_lm_head.weight is pair.generator.get_input_embeddings().weight


def test_our_attention_is_the_materialised_one(at: Setting) -> None:
    torch.manual_seed(0)
    inputs = attention.Inputs.random(at)
    found = {}
    for name, attend in {"ours": attention.ours, "peer": attention.materialised}.items():
        output = attend(inputs)
        found[name] = [output, *torch.autograd.grad(output, inputs.learned, inputs.gradient_BLHK)]
    for mine, theirs in zip(found["ours"], found["peer"], strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4)
    assert not torch.allclose(found["ours"][0], attention.unbiased(inputs), atol=1e-3)


@pytest.mark.filterwarnings("ignore::UserWarning")  # that it is slow when it is not compiled
def test_flex_attention_is_given_the_same_bias(at: Setting) -> None:
    torch.manual_seed(0)
    inputs = attention.Inputs.random(at)
    names = ("query_BLHK", "key_BLHK", "value_BLHK", "gate_BHL", "table_HW")
    inputs = replace(inputs, **{name: getattr(inputs, name).detach() for name in names})
    found = attention.flex(at, gate=True, table=True)(inputs)
    torch.testing.assert_close(found, attention.materialised(inputs), rtol=1e-4, atol=1e-4)


def test_our_head_is_that_of_all_logits(at: Setting) -> None:
    torch.manual_seed(0)
    inputs = head.Inputs.random(at)
    learned = [inputs.hidden_MD, inputs.table_VD, inputs.bias_V]
    mine, theirs = (
        [loss.detach(), *torch.autograd.grad(loss, learned)]
        for loss in (predict(inputs)[0] for predict in (head.ours, head.all_logits))
    )
    for a, b in zip(mine, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)
