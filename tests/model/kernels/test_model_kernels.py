"""Encoder and encoder-decoder with kernels against plain torch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from crossling.model import attention, encoder, encoder_decoder
from crossling.model.config import CrosslingConfig
from crossling.model.encoder_decoder import CrosslingForConditionalGeneration, encoder_decoder_from_encoder
from crossling.model.encoder_model import CrosslingModel
from crossling.train.parallel import compile_modules

from .kernel_comparison import DEVICE, DTYPE, ON_GPU, assert_near, needs_kernels, soak

DECODER_TOLERANCE = 3e-2 if ON_GPU else 1e-5
on_gpu = pytest.mark.skipif(not ON_GPU, reason="needs a GPU")
ABSOLUTE = {"relative_positions": False}
FORMS = [
    pytest.param({}, ABSOLUTE, id="full"),
    pytest.param({"layers": 1, "tied": False}, ABSOLUTE | {"norm": "pre"}, id="shallow, untied, pre-norm"),
]
RELATIVE = pytest.param({}, {"absolute_positions": False}, id="relative", marks=on_gpu)


MODERN = {
    "position_embedding_type": "rotary", "hidden_act": "geglu", "biases": False, "first_norm": False, "norm": "pre",
}  # fmt: skip


def switch_kernels(monkeypatch: pytest.MonkeyPatch, uses_kernel: bool) -> None:
    for module in (attention, encoder, encoder_decoder):
        monkeypatch.setattr(module, "uses_attention_kernel", lambda *_: uses_kernel)
    monkeypatch.setattr(encoder, "uses_block_kernels", lambda _: uses_kernel)


@needs_kernels
@pytest.mark.parametrize("length", [24, pytest.param(70, marks=soak)])  # one tile, or two
def test_encoder_with_kernels_equals_plain_torch(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With dropout the seed decides, also with activation checkpointing."""
    torch.manual_seed(14)
    config = CrosslingConfig(
        hidden_size=32, intermediate_size=64, num_attention_heads=2, num_hidden_layers=1, vocab_size=20,
        dropout=0.3, attention_dropout=0.3, layer_norm_eps=1e-2,
    )  # fmt: skip
    net = CrosslingModel(config).to(DEVICE, DTYPE)
    net.embeddings.dropout.p = 0.0
    ids = torch.randint(20, (1, length), device=DEVICE)
    number = torch.ones_like(ids)
    number[:, length // 2 :] = 2

    def forward(seed: int) -> Tensor:
        torch.manual_seed(seed)
        return net(ids, segments=number).last_hidden_state

    def run(uses_kernel: bool, train: bool, seed: int, recompute: bool = False) -> tuple[Tensor, Tensor]:
        switch_kernels(monkeypatch, uses_kernel)
        net.train(train)
        (net.gradient_checkpointing_enable if recompute else net.gradient_checkpointing_disable)()
        net.zero_grad()
        hidden = forward(seed)
        hidden.float().cumsum(1).sin().sum().backward()
        return hidden.detach(), torch.cat([p.grad.flatten() for p in net.parameters() if p.grad is not None])

    for value, reference in zip(run(True, False, 1), run(False, False, 1), strict=True):
        assert_near(value, reference)
    for dropout, attention_dropout in ((0.3, 0.0), (0.0, 0.3)):
        for block in net.blocks:
            block.dropout.p, block.attention.dropout = dropout, attention_dropout
        first, same, again = run(True, True, 1), run(True, True, 1), run(True, True, 1, recompute=True)
        assert not torch.equal(first[0], forward(seed=2))
        for value, repeated, recomputed in zip(first, same, again, strict=True):
            assert torch.equal(value, repeated)
            assert torch.equal(value, recomputed)


@needs_kernels
def test_kernel_with_rotary_positions_equals_plain_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """On packed rows, with gated feed-forward layers and no biases."""
    torch.manual_seed(14)
    config = CrosslingConfig(
        hidden_size=32, intermediate_size=48, num_attention_heads=2, num_hidden_layers=1, vocab_size=20, dropout=0.0,
        **MODERN,
    )  # fmt: skip
    net = CrosslingModel(config).to(DEVICE, DTYPE)
    ids = torch.randint(20, (1, 24), device=DEVICE)
    number = torch.ones_like(ids)
    number[:, 10:] = 2
    found = []
    for uses_kernel in (True, False):
        switch_kernels(monkeypatch, uses_kernel)
        net.zero_grad()
        hidden = net(ids, segments=number).last_hidden_state
        hidden.float().cumsum(1).sin().sum().backward()
        gradients = torch.cat([p.grad.flatten() for p in net.parameters() if p.grad is not None])
        found.append((hidden.detach(), gradients))
    for value, reference in zip(*found, strict=True):
        assert_near(value, reference)


def make_encoder_decoder(options: dict[str, Any], changes: dict[str, Any]) -> CrosslingForConditionalGeneration:
    torch.manual_seed(0)
    config = CrosslingConfig(
        hidden_size=32, intermediate_size=64, num_attention_heads=2, num_hidden_layers=2, vocab_size=70, dropout=0.0,
        max_position_embeddings=64, initializer_range=0.15, cross_attention=True, **changes,
    )  # fmt: skip
    return encoder_decoder_from_encoder(CrosslingModel(config), None, **options).to(DEVICE).eval()


def make_batch() -> tuple[Tensor, Tensor, Tensor]:
    """Return sources, their padding mask, and targets."""
    generator = torch.Generator().manual_seed(1)
    source, labels = (torch.randint(4, 69, (2, length), generator=generator) for length in (37, 21))
    mask = torch.ones_like(source)
    mask[0, 20:], labels[1, 9:] = 0, -100
    return source.to(DEVICE), mask.to(DEVICE), labels.to(DEVICE)


@needs_kernels
@pytest.mark.parametrize(("options", "changes"), [*FORMS, RELATIVE])
def test_encoder_decoder_with_kernels_equals_plain_torch(
    options: dict[str, Any], changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make_encoder_decoder(options, changes)
    source, mask, labels = make_batch()

    def run(uses_kernel: bool) -> tuple[Tensor, Tensor]:
        switch_kernels(monkeypatch, uses_kernel)
        model.zero_grad()
        with torch.autocast(DEVICE, DTYPE, enabled=uses_kernel and ON_GPU):
            found = model(source, mask, labels=labels)
        found.loss.backward()
        return found.logits[labels != -100], torch.cat([p.grad.flatten() for p in model.parameters()])

    for value, reference in zip(run(uses_kernel=True), run(uses_kernel=False), strict=True):
        assert_near(value, reference, DECODER_TOLERANCE)


@on_gpu
@pytest.mark.parametrize(("options", "changes"), [*FORMS, RELATIVE])
def test_compiled_encoder_decoder_trains_and_generates_with_and_without_a_cache(
    options: dict[str, Any], changes: dict[str, Any]
) -> None:
    model = make_encoder_decoder(options, changes).train()
    compile_modules(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses = []
    for step in range(60):
        words = torch.randint(4, 12, (16, 4 + step % 3), device=DEVICE)
        labels = torch.nn.functional.pad(words, (0, 1), value=2)
        with torch.autocast(DEVICE, DTYPE):
            loss = model(words, torch.ones_like(words), labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    assert losses[-1] < 0.9 * losses[0]
    model.eval()
    source, mask, _ = make_batch()
    for is_half in (False, True):
        with torch.autocast(DEVICE, DTYPE, enabled=is_half):
            one, other = (
                model.generate(
                    source,
                    attention_mask=mask,
                    num_beams=4,
                    max_length=20,
                    use_cache=cached,
                    return_dict_in_generate=True,
                    output_scores=True,
                )
                for cached in (True, False)
            )
        assert_near(one.sequences_scores, other.sequences_scores, DECODER_TOLERANCE)
        assert is_half or torch.equal(one.sequences, other.sequences)
