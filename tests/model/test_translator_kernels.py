"""The encoder-decoder with kernels beside plain torch: by Triton's interpreter in a process of its own, as in
test_kernels.py; on a GPU with `pytest --noconftest` and this file, where it is also compiled and writes."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import Tensor

from crossling.model import attention, transformer, translator
from crossling.model.compiled import compile_parts
from crossling.model.config import CrosslingConfig
from crossling.model.transformer import CrosslingModel

triton = pytest.importorskip("triton")

ON_GPU = torch.cuda.is_available()
DEVICE = "cuda" if ON_GPU else "cpu"
DTYPE, CLOSE = (torch.bfloat16, 3e-2) if ON_GPU else (torch.float32, 1e-5)
by_kernel = pytest.mark.skipif(not (ON_GPU or triton.knobs.runtime.interpret), reason="neither a GPU nor interpreted")
on_gpu = pytest.mark.skipif(not ON_GPU, reason="no GPU")
ABSOLUTE = {"relative_positions": False}
FORMS = [
    pytest.param({}, ABSOLUTE, id="full"),
    pytest.param({"layers": 1, "tied": False}, ABSOLUTE | {"norm": "pre"}, id="shallow, untied, pre-norm"),
]
RELATIVE = pytest.param({}, {"absolute_positions": False}, id="relative", marks=on_gpu)


@pytest.mark.skipif(ON_GPU or triton.knobs.runtime.interpret, reason="they run here")
def test_the_translator_by_the_interpreter() -> None:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", __file__]
    done = subprocess.run(
        command, env=os.environ | {"TRITON_INTERPRET": "1"}, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    assert "passed" in done.stdout


def made(how: dict[str, Any], changes: dict[str, Any]) -> translator.CrosslingForConditionalGeneration:
    torch.manual_seed(0)
    config = CrosslingConfig(
        hidden_size=32, intermediate_size=64, num_attention_heads=2, num_hidden_layers=2, vocab_size=70, dropout=0.0,
        max_position_embeddings=64, initializer_range=0.15, cross_attention=True, **changes,
    )  # fmt: skip
    return translator.translator(CrosslingModel(config), None, **how).to(DEVICE).eval()


def batch() -> tuple[Tensor, Tensor, Tensor]:
    """Sources of two lengths, what is no padding, and targets of other lengths."""
    generator = torch.Generator().manual_seed(1)
    source, labels = (torch.randint(4, 69, (3, length), generator=generator) for length in (37, 21))
    present = torch.ones_like(source)
    present[0, 20:], labels[1, 9:] = 0, -100
    return source.to(DEVICE), present.to(DEVICE), labels.to(DEVICE)


def near(found: Tensor, expected: Tensor) -> None:
    difference, size = (found.float() - expected.float()).norm(), expected.float().norm()
    assert difference <= CLOSE * size, f"{difference / size:.2e}"


@by_kernel
@pytest.mark.parametrize(("how", "changes"), [*FORMS, RELATIVE])
def test_loss_and_gradient_by_kernels_are_those_of_plain_torch(
    how: dict[str, Any], changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = made(how, changes)
    source, present, labels = batch()

    def run(kernel: bool) -> tuple[Tensor, Tensor]:
        for place in (attention, transformer, translator):
            monkeypatch.setattr(place, "fused", lambda *_: kernel)
        monkeypatch.setattr(transformer, "by_kernel", lambda _: kernel)
        model.zero_grad()
        with torch.autocast(DEVICE, DTYPE, enabled=kernel and ON_GPU):
            found = model(source, present, labels=labels)
        found.loss.backward()
        return found.logits[labels != -100], torch.cat([p.grad.flatten() for p in model.parameters()])

    for one, true in zip(run(kernel=True), run(kernel=False), strict=True):
        near(one, true)


@on_gpu
@pytest.mark.parametrize(("how", "changes"), [*FORMS, RELATIVE])
def test_compiled_it_learns_and_writes_with_a_cache_as_without(how: dict[str, Any], changes: dict[str, Any]) -> None:
    model = made(how, changes).train()
    compile_parts(model)
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
    source, present, _ = batch()
    for half in (False, True):
        with torch.autocast(DEVICE, DTYPE, enabled=half):
            one, other = (
                model.generate(
                    source,
                    attention_mask=present,
                    num_beams=4,
                    max_length=20,
                    use_cache=cached,
                    return_dict_in_generate=True,
                    output_scores=True,
                )
                for cached in (True, False)
            )
        near(one.sequences_scores, other.sequences_scores)
        assert half or torch.equal(one.sequences, other.sequences)
