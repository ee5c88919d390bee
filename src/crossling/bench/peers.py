"""Training steps with Hugging Face models: the ELECTRA pair, and XLM-R with MLM.

Shapes, dropout, masking, precision, clipping and optimizer are ours. They have no relative position bias.
"""
# B sequences, L positions, M masked positions, V vocabulary, D width

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import (
    ElectraConfig,
    ElectraForMaskedLM,
    ElectraForPreTraining,
    XLMRobertaConfig,
    XLMRobertaForMaskedLM,
)

from crossling.bench.workload import BenchSetup, Measurement
from crossling.vocabulary.vocabulary import UNK

MASK_PROBABILITY = 0.15
LAMBDA = 50.0
DROPOUT = 0.1
IGNORED = -100


def electra(at: BenchSetup, batch: int, everywhere: bool, compiled: bool = False) -> Measurement:
    """Measure the ELECTRA pair. `everywhere` computes logits at every position, as shipped."""
    with torch.device(at.device):
        pair = _ElectraPair(at, everywhere)
    return _steps(pair, at, batch, compiled)


def xlm_r(at: BenchSetup, batch: int, compiled: bool = False) -> Measurement:
    with torch.device(at.device):
        network = XLMRobertaForMaskedLM(xlm_r_config(at))
    return _steps(_MaskedLM(network), at, batch, compiled)


def xlm_r_config(at: BenchSetup) -> XLMRobertaConfig:
    return XLMRobertaConfig(**_shape(at, at.shape.layers, DROPOUT, positions=at.length + 2))


class _ElectraPair(nn.Module):
    """Generator and discriminator with shared token embeddings."""

    def __init__(self, at: BenchSetup, everywhere: bool) -> None:
        super().__init__()
        layers = at.shape.generator_layers
        width: dict[str, Any] = {"embedding_size": at.shape.width}
        self.generator = ElectraForMaskedLM(ElectraConfig(**_shape(at, layers, 0.0), **width))
        self.discriminator = ElectraForPreTraining(ElectraConfig(**_shape(at, at.shape.layers, DROPOUT), **width))
        table = self.generator.electra.embeddings.word_embeddings
        self.discriminator.electra.embeddings.word_embeddings = table
        self.everywhere = everywhere

    def forward(self, ids_BL: Tensor, position_M: Tensor) -> Tensor:
        target_M, masked_BL = ids_BL.flatten()[position_M], _mask_ids(self.generator, ids_BL, position_M)
        if self.everywhere:
            output = self.generator(masked_BL, labels=_labels(ids_BL, position_M))
            loss, logits_MV = output.loss, output.logits.flatten(0, 1)[position_M]
        else:
            hidden_MD = self.generator.electra(masked_BL).last_hidden_state.flatten(0, 1)[position_M]
            logits_MV = self.generator.generator_lm_head(self.generator.generator_predictions(hidden_MD))
            loss = F.cross_entropy(logits_MV.float(), target_M)
        with torch.no_grad():  # Gumbel-max sampling, as in ELECTRA's code
            noise_MV = torch.empty_like(logits_MV, dtype=torch.float32).exponential_()
            sampled_M = (logits_MV.float() - noise_MV.log()).argmax(-1)
        corrupt_BL = ids_BL.flatten().scatter(0, position_M, sampled_M).view_as(ids_BL)
        return loss + LAMBDA * self.discriminator(corrupt_BL, labels=(corrupt_BL != ids_BL).long()).loss


class _MaskedLM(nn.Module):
    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network: Any = network

    def forward(self, ids_BL: Tensor, position_M: Tensor) -> Tensor:
        return self.network(_mask_ids(self.network, ids_BL, position_M), labels=_labels(ids_BL, position_M)).loss


def _shape(at: BenchSetup, layers: int, dropout: float, positions: int | None = None) -> dict[str, Any]:
    return {
        "vocab_size": at.vocabulary,
        "hidden_size": at.shape.width,
        "num_hidden_layers": layers,
        "num_attention_heads": at.shape.heads,
        "intermediate_size": at.shape.feed_forward,
        "max_position_embeddings": positions or at.length,
        "hidden_dropout_prob": dropout,
        "attention_probs_dropout_prob": 0.0,
        "pad_token_id": 1,
    }


def _mask_ids(network: Any, ids_BL: Tensor, position_M: Tensor) -> Tensor:
    return ids_BL.flatten().index_fill(0, position_M, network.config.vocab_size - 1).view_as(ids_BL)


def _labels(ids_BL: Tensor, position_M: Tensor) -> Tensor:
    flat = ids_BL.flatten()
    return torch.full_like(flat, IGNORED).scatter(0, position_M, flat[position_M]).view_as(ids_BL)


def _steps(network: nn.Module, at: BenchSetup, batch: int, compiled: bool) -> Measurement:
    network.train()
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-6, betas=(0.9, 0.98), eps=1e-6, fused=True)
    loss: Callable[[Tensor, Tensor], Tensor] = torch.compile(network) if compiled else network
    ids_BL = torch.randint(UNK + 1, at.vocabulary - 1, (batch, at.length), device=at.device)
    position_M = torch.randperm(batch * at.length, device=at.device)[: round(MASK_PROBABILITY * batch * at.length)]

    def step() -> None:
        with torch.autocast(at.device.type, dtype=torch.bfloat16, enabled=at.on_gpu):
            value = loss(ids_BL, position_M)
        value.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 2.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    timing = at.time(step)
    return Measurement(ids_BL.numel() / timing.seconds, "tokens/s", timing.peak_gib)
