"""The heads that stand on the encoder, and the models Hugging Face knows them by."""
# B sequences, L positions, D width, V vocabulary, M masked positions

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AutoModelForMaskedLM, AutoModelForPreTraining, AutoTokenizer, PreTrainedTokenizerFast
from transformers.modeling_outputs import MaskedLMOutput, TokenClassifierOutput

from crossling.model.config import CrosslingConfig
from crossling.model.initial import initialise
from crossling.model.prediction import Predicted, predict
from crossling.model.transformer import CrosslingModel, CrosslingPreTrainedModel, Norm

IGNORED = -100  # a label that is none, as everywhere in Hugging Face


class LMHead(nn.Module):
    """Dense, GELU, LayerNorm, then the token table it is handed, with a free bias."""

    def __init__(self, config: CrosslingConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.norm = Norm(config.hidden_size, eps=config.layer_norm_eps)
        self.bias_V = nn.Parameter(torch.zeros(config.vocab_size))
        self.apply(lambda module: initialise(module, config.initializer_range))

    def forward(self, hidden_MD: Tensor, table_VD: Tensor) -> Tensor:
        """The logits of every piece."""
        return F.linear(self._ready(hidden_MD), table_VD, self.bias_V)

    def predict(
        self,
        hidden_MD: Tensor,
        table_VD: Tensor,
        targets_M: Tensor,
        noise_M: Tensor | None = None,
        smoothing: float = 0.0,  # the part of the truth that is shared out among all pieces
    ) -> Predicted:
        """What training needs of the logits, without them."""
        ready_MD = self._ready(hidden_MD)
        found = predict(ready_MD, table_VD, self.bias_V, targets_M, noise_M)
        if not smoothing:
            return found
        # (1 - e) (z - l_target) + e (z - mean l) = (z - l_target) + e (l_target - mean l), with z = log sum exp l: of
        # all logits it takes their mean alone, which is that of the mean row.
        with torch.autocast(ready_MD.device.type, enabled=False):
            beyond_MD = F.embedding(targets_M, table_VD).float() - table_VD.float().mean(0)
            beyond_M = (ready_MD.float() * beyond_MD).sum(-1) + self.bias_V[targets_M] - self.bias_V.mean()
        return replace(found, loss=found.loss + smoothing * beyond_M.sum())

    def _ready(self, hidden_MD: Tensor) -> Tensor:
        return self.norm(F.gelu(self.dense(hidden_MD)))


class RTDHead(nn.Module):
    """ELECTRA's head: dense, GELU, one number per token; positive means replaced."""

    def __init__(self, config: CrosslingConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.score = nn.Linear(config.hidden_size, 1)
        self.apply(lambda module: initialise(module, config.initializer_range))

    def forward(self, hidden_BLD: Tensor) -> Tensor:
        return self.score(F.gelu(self.dense(hidden_BLD))).squeeze(-1)


class LanguageModel(CrosslingPreTrainedModel):
    """What all models that predict pieces have in common: a head that is handed the table of the input."""

    def __init__(self, config: CrosslingConfig) -> None:
        super().__init__(config)
        self.encoder = CrosslingModel(config)
        self.lm_head = LMHead(config)

    @property
    def table_VD(self) -> Tensor:  # noqa: N802 - named by its shape, as tensors are
        return self.encoder.embeddings.tokens.weight

    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, LMHead):
            nn.init.zeros_(module.bias_V)

    def get_output_embeddings(self) -> None:
        """None of its own: the head is handed the table of the input."""

    def resize_token_embeddings(self, new_num_tokens: int | None = None, *args: Any, **kwargs: Any) -> nn.Embedding:
        table = super().resize_token_embeddings(new_num_tokens, *args, **kwargs)
        old_V = self.lm_head.bias_V.data
        bias_V = old_V.new_zeros(table.num_embeddings)
        bias_V[: len(old_V)] = old_V[: len(bias_V)]
        self.lm_head.bias_V = nn.Parameter(bias_V)
        return table


class CrosslingForMaskedLM(LanguageModel):
    """An encoder that fills in what was masked: a generator, or a model trained by masked language modelling."""

    def __init__(self, config: CrosslingConfig) -> None:
        super().__init__(config)
        self.post_init()

    def forward(
        self, input_ids: Tensor, labels: Tensor | None = None, return_dict: bool | None = None, **inputs: Any
    ) -> MaskedLMOutput | tuple[Any, ...]:
        output = self.encoder(input_ids, **inputs)
        logits_BLV = self.lm_head(output.last_hidden_state, self.table_VD)
        loss: Any = None
        if labels is not None:
            loss = F.cross_entropy(logits_BLV.flatten(0, 1).float(), labels.flatten(), ignore_index=IGNORED)
        found = MaskedLMOutput(loss=loss, logits=logits_BLV, hidden_states=output.hidden_states)
        return found.to_tuple() if return_dict is False else found


class CrosslingForPreTraining(CrosslingPreTrainedModel):
    """A discriminator: how replaced each token looks (label 1 and a positive score: replaced)."""

    def __init__(self, config: CrosslingConfig) -> None:
        super().__init__(config)
        self.encoder = CrosslingModel(config)
        self.rtd_head = RTDHead(config)
        self.post_init()

    def forward(
        self, input_ids: Tensor, labels: Tensor | None = None, return_dict: bool | None = None, **inputs: Any
    ) -> TokenClassifierOutput | tuple[Any, ...]:
        output = self.encoder(input_ids, **inputs)
        logits_BL = self.rtd_head(output.last_hidden_state)
        loss: Any = None
        if labels is not None:
            scored = labels != IGNORED
            loss = F.binary_cross_entropy_with_logits(logits_BL[scored].float(), labels[scored].float())
        found = TokenClassifierOutput(loss=loss, logits=logits_BL, hidden_states=output.hidden_states)
        return found.to_tuple() if return_dict is False else found


AutoTokenizer.register(CrosslingConfig, fast_tokenizer_class=PreTrainedTokenizerFast)
AutoModelForMaskedLM.register(CrosslingConfig, CrosslingForMaskedLM)
AutoModelForPreTraining.register(CrosslingConfig, CrosslingForPreTraining)
