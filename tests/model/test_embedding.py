"""Token tables of generator and discriminator: shared, gradient-disentangled or untied."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from crossling.model.config import CrosslingConfig
from crossling.model.embedding import DisentangledEmbedding, couple_token_tables
from crossling.model.encoder_model import CrosslingModel
from crossling.model.model_shape import TokenTable


def make_models(mode: TokenTable) -> tuple[CrosslingModel, CrosslingModel]:
    """Return a discriminator and a generator."""
    torch.manual_seed(0)
    config = CrosslingConfig(
        vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8, dropout=0.0
    )
    discriminator, generator = CrosslingModel(config), CrosslingModel(config)
    couple_token_tables(discriminator.embeddings, generator.embeddings, mode)
    return discriminator, generator


IDS = torch.tensor([[4, 5, 4, 9]])


def test_shared_models_have_one_table() -> None:
    discriminator, generator = make_models("shared")
    assert discriminator.embeddings.tokens is generator.embeddings.tokens
    (discriminator(IDS).last_hidden_state[..., 0].sum() + generator(IDS).last_hidden_state[..., 1].sum()).backward()
    assert discriminator.embeddings.tokens.weight.grad[[4, 5, 9]].any()


def test_untied_tables_have_separate_weights_and_gradients() -> None:
    discriminator, generator = make_models("untied")
    tables = discriminator.embeddings.tokens.weight, generator.embeddings.tokens.weight
    assert not torch.equal(*tables)
    discriminator(IDS).last_hidden_state[..., 0].sum().backward()
    assert tables[0].grad is not None
    assert tables[1].grad is None


def test_disentangled_table_is_the_generators_plus_a_delta_that_starts_at_zero() -> None:
    discriminator, generator = make_models("gdes")
    tokens, base = discriminator.embeddings.tokens, generator.embeddings.tokens
    assert isinstance(tokens, DisentangledEmbedding)
    assert not tokens.delta_VD.any()
    assert torch.equal(tokens.weight, base.weight)
    with torch.no_grad():
        tokens.delta_VD.normal_()
        base.weight += 1  # an update of the generator reaches the discriminator
    assert_close(tokens.weight, base.weight + tokens.delta_VD)
    assert_close(tokens(IDS), nn.functional.embedding(IDS, base.weight + tokens.delta_VD))


@pytest.mark.parametrize("used_as", ["input", "output"])
def test_gradient_of_the_discriminator_reaches_only_the_delta(used_as: str) -> None:
    discriminator, generator = make_models("gdes")
    tokens = discriminator.embeddings.tokens
    hidden = discriminator(IDS).last_hidden_state if used_as == "input" else torch.randn(3, 8) @ tokens.weight.T
    (hidden * torch.randn(hidden.shape)).sum().backward()
    assert generator.embeddings.tokens.weight.grad is None
    assert tokens.delta_VD.grad[[4, 5, 9]].any()


def test_gradient_of_the_delta_equals_that_of_an_ordinary_table() -> None:
    discriminator, _ = make_models("gdes")
    tokens = discriminator.embeddings.tokens
    plain = nn.Embedding.from_pretrained(tokens.weight.detach().clone(), freeze=False)
    upstream = torch.randn(1, 4, 8)
    tokens(IDS).backward(upstream)
    plain(IDS).backward(upstream)
    assert_close(tokens.delta_VD.grad, plain.weight.grad)


def test_gradient_of_the_generator_does_not_reach_the_delta() -> None:
    discriminator, generator = make_models("gdes")
    generator(IDS).last_hidden_state[..., 0].sum().backward()
    assert generator.embeddings.tokens.weight.grad[[4, 5, 9]].any()
    assert discriminator.embeddings.tokens.delta_VD.grad is None


def test_set_weight_changes_the_sum_and_not_the_base() -> None:
    discriminator, generator = make_models("gdes")
    before, wanted = generator.embeddings.tokens.weight.clone(), torch.randn(20, 8)
    discriminator.embeddings.tokens.set_weight(wanted)
    assert_close(discriminator.embeddings.tokens.weight, wanted)
    assert torch.equal(generator.embeddings.tokens.weight, before)


@pytest.mark.parametrize(("mode", "tables"), [("shared", 1), ("gdes", 2), ("untied", 2)])
def test_number_of_token_parameters(mode: TokenTable, tables: int) -> None:
    both = nn.ModuleList(make_models(mode))
    assert sum(p.numel() for name, p in both.named_parameters() if "tokens" in name) == tables * 20 * 8
