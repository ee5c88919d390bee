"""How generator and discriminator hold their token tables: shared, as a sum without the other's gradient, or apart."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from crossling.model.config import CrosslingConfig
from crossling.model.tables import DisentangledEmbedding, TokenTable, couple
from crossling.model.transformer import CrosslingModel


def two(how: TokenTable) -> tuple[CrosslingModel, CrosslingModel]:
    """A discriminator and a generator."""
    torch.manual_seed(0)
    config = CrosslingConfig(
        vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8, dropout=0.0
    )
    discriminator, generator = CrosslingModel(config), CrosslingModel(config)
    couple(discriminator.embeddings, generator.embeddings, how)
    return discriminator, generator


IDS = torch.tensor([[4, 5, 4, 9]])


def test_a_shared_table_is_one() -> None:
    discriminator, generator = two("shared")
    assert discriminator.embeddings.tokens is generator.embeddings.tokens
    (discriminator(IDS).last_hidden_state[..., 0].sum() + generator(IDS).last_hidden_state[..., 1].sum()).backward()
    assert discriminator.embeddings.tokens.weight.grad[[4, 5, 9]].any()


def test_untied_tables_have_nothing_in_common() -> None:
    discriminator, generator = two("untied")
    tables = discriminator.embeddings.tokens.weight, generator.embeddings.tokens.weight
    assert not torch.equal(*tables)
    discriminator(IDS).last_hidden_state[..., 0].sum().backward()
    assert tables[0].grad is not None
    assert tables[1].grad is None


def test_a_disentangled_table_is_the_generators_plus_a_delta_that_starts_at_zero() -> None:
    discriminator, generator = two("gdes")
    tokens, base = discriminator.embeddings.tokens, generator.embeddings.tokens
    assert isinstance(tokens, DisentangledEmbedding)
    assert not tokens.delta_VD.any()
    assert torch.equal(tokens.weight, base.weight)
    with torch.no_grad():
        tokens.delta_VD.normal_()
        base.weight += 1  # what the generator learns, the discriminator has too
    assert_close(tokens.weight, base.weight + tokens.delta_VD)
    assert_close(tokens(IDS), nn.functional.embedding(IDS, base.weight + tokens.delta_VD))


@pytest.mark.parametrize("used_as", ["input", "output"])
def test_the_discriminators_gradient_reaches_the_delta_and_not_the_generator(used_as: str) -> None:
    discriminator, generator = two("gdes")
    tokens = discriminator.embeddings.tokens
    hidden = discriminator(IDS).last_hidden_state if used_as == "input" else torch.randn(3, 8) @ tokens.weight.T
    (hidden * torch.randn(hidden.shape)).sum().backward()
    assert generator.embeddings.tokens.weight.grad is None
    assert tokens.delta_VD.grad[[4, 5, 9]].any()


def test_the_gradient_of_the_delta_is_that_of_a_plain_table() -> None:
    discriminator, _ = two("gdes")
    tokens = discriminator.embeddings.tokens
    plain = nn.Embedding.from_pretrained(tokens.weight.detach().clone(), freeze=False)
    upstream = torch.randn(1, 4, 8)
    tokens(IDS).backward(upstream)
    plain(IDS).backward(upstream)
    assert_close(tokens.delta_VD.grad, plain.weight.grad)


def test_the_generators_gradient_does_not_reach_the_delta() -> None:
    discriminator, generator = two("gdes")
    generator(IDS).last_hidden_state[..., 0].sum().backward()
    assert generator.embeddings.tokens.weight.grad[[4, 5, 9]].any()
    assert discriminator.embeddings.tokens.delta_VD.grad is None


def test_a_table_can_be_assigned_to_the_sum() -> None:
    discriminator, generator = two("gdes")
    before, wanted = generator.embeddings.tokens.weight.clone(), torch.randn(20, 8)
    discriminator.embeddings.tokens.assign(wanted)
    assert_close(discriminator.embeddings.tokens.weight, wanted)
    assert torch.equal(generator.embeddings.tokens.weight, before)


@pytest.mark.parametrize(("how", "tables"), [("shared", 1), ("gdes", 2), ("untied", 2)])
def test_how_many_numbers_are_learned(how: TokenTable, tables: int) -> None:
    both = nn.ModuleList(two(how))
    assert sum(p.numel() for name, p in both.named_parameters() if "tokens" in name) == tables * 20 * 8
