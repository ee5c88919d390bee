"""MRTD and TRTD against slow loops written from XLM-E's equations 1 to 5."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from crossling.data.batches import Examples
from crossling.data.noise import Noise
from crossling.objectives import MRTD, TRTD, Network
from crossling.objectives.mrtd import sample

from .conftest import MASK, network, pair_batch, text_batch, unpacked


def slow_rtd(net: Network, batch: dict[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """Generator and discriminator losses of Eq. 1 to 3, one sequence and one position at a time."""
    generator = discriminator = torch.zeros(())
    table = net.encoder.embeddings.tokens.weight
    for sequence in unpacked(batch):
        targets, noise = sequence["targets"], sequence["noise"]
        length = len(targets)
        hidden = net.parts["generator"](sequence["ids"][None]).last_hidden_state[0]
        corrupt = targets.clone()
        for i in range(length):
            if sequence["masked"][i]:
                p = torch.softmax(net.parts["generator_head"](hidden[i], table), -1)
                generator = generator - torch.log(p[targets[i]])
                chances = p.tolist()
                piece, passed = 0, chances[0]
                while passed <= float(noise[i]):  # the first piece at which the running sum passes the noise
                    piece += 1
                    passed += chances[piece]
                corrupt[i] = piece
        scores = net.parts["rtd_head"](net.encoder(corrupt[None]).last_hidden_state)[0]
        for i in range(length):
            replaced = torch.sigmoid(scores[i])
            truth = corrupt[i] != targets[i]
            discriminator = discriminator - torch.log(replaced if truth else 1 - replaced)
    return generator, discriminator


@pytest.mark.parametrize(
    ("objective", "make", "terms"),
    [(MRTD(rate=0.4), text_batch, ("mlm", "mrtd")), (TRTD(rate=0.4), pair_batch, ("tlm", "trtd"))],
)
def test_the_losses_are_the_equations_in_value_and_gradient(objective, make, terms) -> None:  # type: ignore[no-untyped-def]
    net, batch = network(objective), make(objective)
    sums = objective.loss(net, batch)
    fast = [sums[term] for term in terms]
    (fast[0] + 3 * fast[1]).backward()
    gradients = {name: p.grad.clone() for name, p in net.named_parameters() if p.grad is not None}
    net.zero_grad()
    slow = slow_rtd(net, batch)
    (slow[0] + 3 * slow[1]).backward()
    assert_close(fast, list(slow), rtol=1e-4, atol=1e-4)
    for name, parameter in net.named_parameters():
        if parameter.grad is not None:
            assert_close(gradients[name], parameter.grad, rtol=1e-3, atol=1e-3)


def test_weights_are_one_and_lambda() -> None:
    assert MRTD(lambda_=50.0).weights == {"mlm": 1.0, "mrtd": 50.0}
    assert TRTD(lambda_=7.0).weights == {"tlm": 1.0, "trtd": 7.0}


def test_each_loss_has_its_own_count() -> None:
    objective = MRTD(rate=0.3)
    batch = text_batch(objective)
    counts = objective.counts(batch)
    assert counts["mlm"] == int(batch["masked"].sum())
    assert counts["mrtd"] == int((batch["targets"] != 1).sum())


def test_every_masked_token_becomes_the_mask() -> None:
    out = MRTD(rate=0.5).corrupt(Examples([np.arange(4, 30)]), Noise([0], 0, 1), MASK).inputs["ids"].tokens
    assert (out["ids"][out["masked"]] == MASK).all()
    assert ((out["noise"] >= 0) & (out["noise"] < 1)).all()
    assert len(set(out["noise"].tolist())) == 27


def test_no_gradient_flows_from_the_discriminator_into_the_generator() -> None:
    objective = MRTD(rate=0.4)
    net = network(objective)
    objective.loss(net, text_batch(objective))["mrtd"].backward()
    own = {name: p for name, p in net.parts["generator"].named_parameters() if "embeddings.tokens" not in name}
    assert all(p.grad is None for p in own.values())


def test_the_token_table_is_shared_and_the_generator_has_no_dropout() -> None:
    objective = MRTD()
    net = network(objective, dropout=0.3)
    generator = net.parts["generator"]
    assert generator.embeddings.tokens is net.encoder.embeddings.tokens
    assert len(generator.blocks) == 2
    assert {module.p for module in generator.modules() if isinstance(module, torch.nn.Dropout)} == {0.0}
    assert {block.attention.dropout for block in generator.blocks} == {0.0}
    assert net.encoder.embeddings.dropout.p == 0.3


def test_sampling_follows_the_softmax() -> None:
    logits = torch.tensor([0.0, 1.0, 2.0, -30.0]).expand(40_000, 4)
    noise = torch.from_numpy(np.random.default_rng(0).random(40_000, dtype=np.float32))
    drawn = sample(logits, noise)
    expected = torch.softmax(logits[0], -1)
    observed = torch.bincount(drawn, minlength=4) / 40_000
    assert_close(observed, expected, atol=0.01, rtol=0)


def test_the_largest_noise_stays_inside_the_vocabulary() -> None:
    noise = torch.tensor([np.nextafter(np.float32(1), np.float32(0))])
    assert sample(torch.zeros(1, 50_000), noise).item() < 50_000
