"""The heads of Hugging Face encoders, called with states that are already computed.

A head in `transformers` is part of the forward pass of its model. Here that forward pass runs with the encoder replaced
by given states. The linear layer from states to logits is replaced too, where it is the last operation. The logits are
then computed in chunks, as by our own head. The heads own no weights.
"""
# M masked positions, D width, V vocabulary, E width of the token table, R rows, W tokens of a row

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers.modeling_outputs import BaseModelOutput

from crossling.model.heads import LMHead, RTDHead
from crossling.model.kernels.prediction import IGNORE_INDEX, TokenPrediction, predict, sample_tokens
from crossling.model.native_encoder import NativeEncoder, find_decoder, find_name

CHUNK = 1024  # positions whose logits exist at a time, where all logits of a position are needed


class NativeHead(nn.Module):
    """Head of the model in a `NativeEncoder`."""

    def __init__(self, encoder: NativeEncoder) -> None:
        super().__init__()
        self._owner = (encoder,)  # in a tuple, because its weights belong to the encoder alone

    @property
    def encoder(self) -> NativeEncoder:
        """Encoder whose model has the head."""
        return self._owner[0]

    def run(self, states: Tensor, **replacements: nn.Module) -> Tensor:
        """Return the logits of the model for the states [..., D] of its last layer."""
        model = self.encoder.model
        given = _GivenStates(states, self.encoder.base)
        head = _with_submodules(model, {model.base_model_prefix: given, **replacements})
        logits: Tensor = head(input_ids=None).logits
        return logits


class NativeLMHead(NativeHead):
    """Language model head of a Hugging Face model, with the interface of `LMHead`."""

    def predict(
        self,
        hidden_MD: Tensor,
        table_VE: Tensor,
        targets_M: Tensor,
        noise_M: Tensor | None = None,
    ) -> TokenPrediction:
        """Return the loss, the correct predictions and samples, as `LMHead.predict`.

        Args:
            hidden_MD: States of the last layer.
            table_VE: Token table of the encoder, which is the output table too if the model ties them.
            targets_M: Tokens to predict.
            noise_M: Uniform numbers with which tokens are sampled.
        """
        decoder, model = find_decoder(self.encoder.model), self.encoder.model
        transformed_1ME = None if decoder is None else self._transform(hidden_MD[None], decoder)
        if decoder is None or transformed_1ME is None:
            return self._predict_in_chunks(hidden_MD, targets_M, noise_M)
        weight_VE = table_VE if model.config.tie_word_embeddings else decoder.weight
        bias_V = weight_VE.new_zeros(len(weight_VE)) if decoder.bias is None else decoder.bias
        return predict(transformed_1ME[0], weight_VE, bias_V, targets_M, noise_M)

    def _transform(self, hidden_1MD: Tensor, decoder: nn.Linear) -> Tensor | None:
        """Return the input of the decoder, or None if it is not the last operation of the head."""
        passed = _Passthrough()
        try:
            transformed_1ME = self.run(hidden_1MD, **{find_name(self.encoder.model, decoder): passed})
        except (AttributeError, RuntimeError):  # the head reads the weight of the decoder, or adds a bias of its own
            return None
        return transformed_1ME if transformed_1ME is passed.states else None

    def _predict_in_chunks(self, hidden_MD: Tensor, targets_M: Tensor, noise_M: Tensor | None) -> TokenPrediction:
        losses, correct, sampled = [], [], []
        noise_M = torch.zeros_like(targets_M, dtype=torch.float32) if noise_M is None else noise_M
        for chunk in zip(hidden_MD.split(CHUNK), targets_M.split(CHUNK), noise_M.split(CHUNK), strict=True):
            loss, hits, samples_M = checkpoint(self._predict_chunk, *chunk, use_reentrant=False)
            losses.append(loss)
            correct.append(hits)
            sampled.append(samples_M)
        return TokenPrediction(torch.stack(losses).sum(), torch.stack(correct).sum(), torch.cat(sampled))

    def _predict_chunk(self, hidden_MD: Tensor, targets_M: Tensor, noise_M: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        logits_MV = self.run(hidden_MD[None])[0].float()
        loss = nn.functional.cross_entropy(logits_MV, targets_M, reduction="sum", ignore_index=IGNORE_INDEX)
        return loss, (logits_MV.argmax(-1) == targets_M).sum(), sample_tokens(logits_MV.detach(), noise_M)


class NativeRTDHead(NativeHead):
    """Replaced token detection head of ELECTRA. Returns one logit per token."""

    def forward(self, hidden_RWD: Tensor) -> Tensor:
        return self.run(hidden_RWD)


def build_lm_head(encoder: Any) -> nn.Module:
    """Return the masked language modelling head of an encoder: that of its model, or a new one."""
    return NativeLMHead(encoder) if isinstance(encoder, NativeEncoder) else LMHead(encoder.config)


def build_rtd_head(encoder: Any) -> nn.Module:
    """Return the replaced token detection head of an encoder: that of ELECTRA, or a new one."""
    is_native = isinstance(encoder, NativeEncoder) and type(encoder.model).__name__ == "ElectraForPreTraining"
    return NativeRTDHead(encoder) if is_native else RTDHead(encoder.config)


class _EncoderOutput(BaseModelOutput):
    """Output of an encoder. Fields that only some families have are None."""

    def __getattr__(self, name: str) -> None:
        return None


class _GivenStates(nn.Module):
    """Stands in for an encoder and returns given states. Everything else is that of the encoder."""

    def __init__(self, states: Tensor, base: nn.Module) -> None:
        super().__init__()
        self._states, self._base = states, (base,)

    def forward(self, *_: Any, **__: Any) -> BaseModelOutput:
        return _EncoderOutput(last_hidden_state=self._states)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.__dict__["_base"][0], name)


class _Passthrough(nn.Module):
    """Stands in for a linear layer and returns its input."""

    states: Tensor | None = None

    def forward(self, states: Tensor) -> Tensor:
        self.states = states
        return states


def _with_submodules(module: nn.Module, replacements: dict[str, nn.Module]) -> Any:
    """Return a module with some submodules replaced. It has its weights and all other submodules in common."""
    clone = copy.copy(module)
    clone._modules = dict(module._modules)
    for name, replacement in replacements.items():
        first, _, rest = name.partition(".")
        inner = clone._modules[first]
        assert inner is not None
        clone._modules[first] = _with_submodules(inner, {rest: replacement}) if rest else replacement
    return clone
