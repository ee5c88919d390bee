"""MRTD and TRTD against slow loops written from XLM-E's equations 1 to 5."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from crossling.data.batches import TokenizedExamples
from crossling.data.keyed_random import KeyedRandom
from crossling.data.packing import Batch
from crossling.model.kernels.prediction import sample_tokens
from crossling.objectives import MRTD, TRTD, Network, PretrainingObjective

from . import slow
from .conftest import MASK, SPECIAL, VOCABULARY, corrupted, network, packed, pair_batch, text_batch, unpacked

BOTH = pytest.mark.parametrize(
    ("objective", "make"), [(MRTD(rate=0.4), text_batch), (TRTD(rate=0.4, span=2.0), pair_batch)], ids=["mrtd", "trtd"]
)
TABLES = pytest.mark.parametrize("token_table", ["shared", "gdes", "untied"])


class SlowRTD:
    """Eq. 1 to 3, one sequence and one position at a time."""

    def __init__(self, net: Network, batch: Batch) -> None:
        generator, encoder = net.parts["generator"], net.encoder
        self.generator_loss = self.detector_loss = torch.zeros((), dtype=torch.double)
        self.masked = self.guessed = self.replaced = self.detected = self.tokens = 0
        for sequence in unpacked(batch):
            original = sequence["targets"].tolist()
            hidden = slow.states(generator, sequence["ids"])[-1]
            p = slow.language_model(net.parts["generator_head"], hidden, slow.table(generator))
            text = list(original)
            for i, x in enumerate(original):
                if sequence["masked"][i]:
                    self.generator_loss = self.generator_loss - torch.log(p[i, x])
                    self.masked += 1
                    self.guessed += int(p[i].argmax()) == x
                    text[i] = draw(p[i].tolist(), sequence["noise"][i].item())
            replaced = slow.detector(net.parts["rtd_head"], slow.states(encoder, torch.tensor(text))[-1])
            for i, x in enumerate(original):
                truth = text[i] != x
                self.detector_loss = self.detector_loss - torch.log(replaced[i] if truth else 1 - replaced[i])
                self.tokens += 1
                self.replaced += truth
                self.detected += (replaced[i].item() > 0.5) == truth


def draw(chances: list[float], noise: float) -> int:
    """Return the first token at which the cumulative probability exceeds the noise."""
    passed = 0.0
    for token, chance in enumerate(chances):
        passed += chance
        if passed > noise:
            return token
    raise AssertionError


@BOTH
@TABLES
def test_the_losses_equal_the_equations_in_value_and_gradient(
    objective: MRTD, make: Callable[[PretrainingObjective], Batch], token_table: str
) -> None:
    net, batch = network(objective, token_table=token_table), make(objective)
    sums, expected = objective.loss(net, batch), SlowRTD(net, batch)
    slow.agree(
        net,
        sums[objective.generator_term] + 3 * sums[objective.term],
        expected.generator_loss + 3 * expected.detector_loss,
    )


@BOTH
def test_logged_metrics(objective: MRTD, make: Callable[[PretrainingObjective], Batch]) -> None:
    net, batch = network(objective), make(objective)
    with torch.no_grad():
        sums, expected = objective.loss(net, batch), SlowRTD(net, batch)
    generator, detector = objective.generator_term, objective.term
    bound = expected.masked * math.log(VOCABULARY) - expected.generator_loss
    assert_close(sums[f"{generator}_bound"].double(), bound, rtol=1e-5, atol=1e-4)
    assert int(sums[f"{generator}_accuracy"]) == expected.guessed
    assert int(sums[f"{detector}_replaced"]) == expected.replaced > 0
    assert int(sums[f"{detector}_accuracy"]) == expected.detected
    counts = objective.counts(batch)
    assert counts.keys() == sums.keys()
    assert {counts[generator], counts[f"{generator}_bound"], counts[f"{generator}_accuracy"]} == {expected.masked}
    assert {counts[detector], counts[f"{detector}_replaced"], counts[f"{detector}_accuracy"]} == {expected.tokens}


def test_loss_weights_are_one_and_lambda() -> None:
    assert MRTD(lambda_=50.0).loss_weights == {"mlm": 1.0, "mrtd": 50.0}
    assert TRTD(lambda_=7.0).loss_weights == {"tlm": 1.0, "trtd": 7.0}


def test_every_masked_token_becomes_the_mask() -> None:
    out = (
        MRTD(rate=0.5)
        .corrupt(TokenizedExamples([np.arange(4, 30)]), KeyedRandom([0], 0, 1), SPECIAL)
        .inputs["ids"]
        .tokens
    )
    assert (out["ids"][out["masked"]] == MASK).all()
    assert ((out["noise"] >= 0) & (out["noise"] < 1)).all()
    assert len(set(out["noise"].tolist())) == 27


@pytest.mark.parametrize(("predicted", "replaced"), [(7, False), (9, True)], ids=["right", "wrong"])
def test_a_sample_equal_to_the_original_is_original(predicted: int, replaced: bool) -> None:
    """All text is token 7, and the generator always predicts one token."""
    objective = MRTD(rate=0.5)
    net = network(objective)
    with torch.no_grad():
        net.parts["generator_head"].bias_V[predicted] = 1e4
    batch = packed(corrupted(objective, TokenizedExamples([np.array([7, 7, 7, 7, 7, 7, 2])] * 3)))
    chosen = batch["masked"]
    with torch.no_grad():
        sums, (_, text, scores) = objective.loss(net, batch), objective.detect(net, batch)
    assert (text[chosen] == predicted).all()
    assert int(sums["mrtd_replaced"]) == (int(chosen.sum()) if replaced else 0)
    p = torch.sigmoid(scores.double())
    present = batch["targets"] != 1
    expected = -torch.log(1 - p[present & ~chosen]).sum() - torch.log(p if replaced else 1 - p)[chosen].sum()
    assert_close(sums["mrtd"].double(), expected, rtol=1e-6, atol=0)


@TABLES
def test_no_gradient_flows_from_the_discriminator_into_the_generator(token_table: str) -> None:
    """But for the table where they share one."""
    objective = MRTD(rate=0.4)
    net = network(objective, token_table=token_table)
    found = slow.gradients(net, objective.loss(net, text_batch(objective))["mrtd"])
    reached = {name for name, values in found.items() if values.any()}
    generator = {name for name in reached if name.startswith(("parts.generator.", "parts.generator_head."))}
    assert generator == set()
    assert all(name in reached for name in found if name.startswith("parts.rtd_head."))
    tables = {"shared": "tokens.weight", "gdes": "tokens.delta_VD", "untied": "tokens.weight"}
    assert {name for name in reached if "tokens" in name} == {f"encoder.embeddings.{tables[token_table]}"}


@TABLES
def test_the_generator_loss_trains_its_own_table(token_table: str) -> None:
    objective = MRTD(rate=0.4)
    net = network(objective, token_table=token_table)
    objective.loss(net, text_batch(objective))["mlm"].backward()
    moved = {id(p) for p in net.parameters() if p.grad is not None and p.grad.any()}
    assert id(net.parts["generator"].embeddings.tokens.weight) in moved
    encoder = {id(p) for p in net.encoder.parameters()}
    both = {id(p) for p in net.parts["generator"].parameters()}
    assert moved & encoder <= both  # of the discriminator, at most what the generator has too


@TABLES
def test_token_tables_are_shared_as_the_recipe_defines(token_table: str) -> None:
    net = network(MRTD(), token_table=token_table)
    ours, its = net.encoder.embeddings.tokens, net.parts["generator"].embeddings.tokens
    assert (ours is its) == (token_table == "shared")
    if token_table == "gdes":
        assert ours.base is its
    if token_table == "untied":
        assert not torch.allclose(ours.weight, its.weight, atol=0.5)


def test_the_generator_has_fewer_layers_and_no_cross_attention() -> None:
    net = network(MRTD(), cross_attention=True)
    generator = net.parts["generator"]
    assert len(generator.blocks) == 2
    assert generator.config.hidden_size == net.encoder.config.hidden_size
    assert not any("cross" in name for name, _ in generator.named_parameters())


def test_the_generator_has_no_dropout_while_the_discriminator_has() -> None:
    objective = MRTD(rate=0.4)
    net, batch = network(objective, dropout=0.3).train(), text_batch(objective)
    with torch.no_grad():
        (found, text, scores), (again, same_text, others) = (objective.detect(net, batch) for _ in range(2))
    assert torch.equal(found.loss, again.loss)
    assert torch.equal(text, same_text)
    assert not torch.equal(scores, others)


def test_sampling_follows_the_softmax() -> None:
    logits = torch.tensor([0.0, 1.0, 2.0, -30.0]).expand(40_000, 4)
    noise = torch.from_numpy(np.random.default_rng(0).random(40_000, dtype=np.float32))
    sampled = sample_tokens(logits, noise)
    expected = torch.softmax(logits[0], -1)
    observed = torch.bincount(sampled, minlength=4) / 40_000
    assert_close(observed, expected, atol=0.01, rtol=0)


def test_the_largest_noise_stays_inside_the_vocabulary() -> None:
    noise = torch.tensor([np.nextafter(np.float32(1), np.float32(0))])
    assert sample_tokens(torch.zeros(1, 50_000), noise).item() < 50_000


def test_a_token_of_probability_zero_is_never_sampled() -> None:
    logits = torch.tensor([[-torch.inf, 0.0, -torch.inf, 0.0, -torch.inf]]).expand(4, 5)
    assert sample_tokens(logits, torch.tensor([0.0, 0.4999, 0.5, 0.9999])).tolist() == [1, 1, 3, 3]
