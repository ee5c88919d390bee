"""Pre-training heads and the Hugging Face models that have them."""
# B sequences, L positions, D width, V vocabulary, M masked positions

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers.modeling_outputs import MaskedLMOutput, TokenClassifierOutput

from crossling.model.config import CrosslingConfig
from crossling.model.embedding import init_weights
from crossling.model.encoder import ResidualLayerNorm
from crossling.model.encoder_model import CrosslingModel, CrosslingPreTrainedModel
from crossling.model.kernels.prediction import IGNORE_INDEX, TokenPrediction, predict


def token_loss(logits_BLK: Tensor, labels_BL: Tensor) -> Any:
    """Return the mean cross-entropy in float32 over the positions with a label."""
    return F.cross_entropy(logits_BLK.flatten(0, 1).float(), labels_BL.flatten(), ignore_index=IGNORE_INDEX)


class LMHead(nn.Module):
    """Language model head: dense, GELU, LayerNorm, then the tied token table with an output bias."""

    def __init__(self, config: CrosslingConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.norm = ResidualLayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.bias_V = nn.Parameter(torch.zeros(config.vocab_size))
        self.apply(lambda module: init_weights(module, config.initializer_range))

    def forward(self, hidden_MD: Tensor, table_VD: Tensor) -> Tensor:
        """Return the logits of every vocabulary entry."""
        return F.linear(self._transform(hidden_MD), table_VD, self.bias_V)

    def predict(
        self,
        hidden_MD: Tensor,
        table_VD: Tensor,
        targets_M: Tensor,
        noise_M: Tensor | None = None,
        label_smoothing: float = 0.0,
    ) -> TokenPrediction:
        """Return the loss, the correct predictions and samples without storing all logits: see `predict`."""
        transformed_MD = self._transform(hidden_MD)
        prediction = predict(transformed_MD, table_VD, self.bias_V, targets_M, noise_M)
        if not label_smoothing:
            return prediction
        # (1 - e) (z - l_target) + e (z - mean l) = (z - l_target) + e (l_target - mean l), with z = log sum exp l.
        # Only the mean of all logits is needed, which is the logit of the mean row.
        with torch.autocast(transformed_MD.device.type, enabled=False):
            margin_MD = F.embedding(targets_M, table_VD).float() - table_VD.float().mean(0)
            margin_M = (transformed_MD.float() * margin_MD).sum(-1) + self.bias_V[targets_M] - self.bias_V.mean()
        return replace(prediction, loss=prediction.loss + label_smoothing * margin_M.sum())

    def _transform(self, hidden_MD: Tensor) -> Tensor:
        return self.norm(F.gelu(self.dense(hidden_MD)))


class RTDHead(nn.Module):
    """Replaced token detection head (ELECTRA): dense, GELU, one logit per token. Positive means replaced."""

    def __init__(self, config: CrosslingConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.score = nn.Linear(config.hidden_size, 1)
        self.apply(lambda module: init_weights(module, config.initializer_range))

    def forward(self, hidden_BLD: Tensor) -> Tensor:
        return self.score(F.gelu(self.dense(hidden_BLD))).squeeze(-1)


class CrosslingLanguageModel(CrosslingPreTrainedModel):
    """Base class of models with a language model head whose output table is the token table of the input."""

    def __init__(self, config: CrosslingConfig) -> None:
        super().__init__(config)
        self.encoder = CrosslingModel(config)
        self.lm_head = LMHead(config)

    @property
    def table_VD(self) -> Tensor:  # noqa: N802 - named by its shape, as tensors are
        """Token table of input and output."""
        return self.encoder.embeddings.tokens.weight

    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, LMHead):
            nn.init.zeros_(module.bias_V)

    def get_output_embeddings(self) -> None:
        """Return None: the head uses the token table of the input."""

    def resize_token_embeddings(self, new_num_tokens: int | None = None, *args: Any, **kwargs: Any) -> nn.Embedding:
        """Resize the token table and the output bias. New biases are zero."""
        table = super().resize_token_embeddings(new_num_tokens, *args, **kwargs)
        old_V = self.lm_head.bias_V.data
        bias_V = old_V.new_zeros(table.num_embeddings)
        bias_V[: len(old_V)] = old_V[: len(bias_V)]
        self.lm_head.bias_V = nn.Parameter(bias_V)
        return table


class CrosslingForMaskedLM(CrosslingLanguageModel):
    """Encoder with a masked language modelling head: an MLM model, or the generator of replaced token detection.

    Args:
        config: Configuration. The weights are initialized at random. Use `from_pretrained` to load weights.

    Example:
        >>> from transformers import pipeline
        >>> fill_mask = pipeline("fill-mask", model="exported/generator")
    """

    def __init__(self, config: CrosslingConfig) -> None:
        super().__init__(config)
        self.post_init()

    def forward(
        self, input_ids: Tensor, labels: Tensor | None = None, return_dict: bool | None = None, **inputs: Any
    ) -> MaskedLMOutput | tuple[Any, ...]:
        """Predict the token at every position.

        Args:
            input_ids: Token ids, [B, L].
            labels: Target ids, [B, L]. -100 means no loss.
            return_dict: False returns a tuple.
            inputs: Further arguments of `CrosslingModel.forward`.

        Returns:
            Logits [B, L, V], and the mean loss if there are labels.
        """
        output = self.encoder(input_ids, **inputs)
        logits_BLV = self.lm_head(output.last_hidden_state, self.table_VD)
        loss = None if labels is None else token_loss(logits_BLV, labels)
        states = {"hidden_states": output.hidden_states, "attentions": output.attentions}
        result = MaskedLMOutput(loss=loss, logits=logits_BLV, **states)
        return result.to_tuple() if return_dict is False else result


class CrosslingForPreTraining(CrosslingPreTrainedModel):
    """Encoder with a replaced token detection head: the discriminator of XLM-E and ELECTRA.

    Args:
        config: Configuration. The weights are initialized at random. Use `from_pretrained` to load weights.

    Example:
        >>> from transformers import AutoModelForPreTraining
        >>> model = AutoModelForPreTraining.from_pretrained("exported")
        >>> is_replaced = model(input_ids).logits > 0
    """

    def __init__(self, config: CrosslingConfig) -> None:
        super().__init__(config)
        self.encoder = CrosslingModel(config)
        self.rtd_head = RTDHead(config)
        self.post_init()

    def forward(
        self, input_ids: Tensor, labels: Tensor | None = None, return_dict: bool | None = None, **inputs: Any
    ) -> TokenClassifierOutput | tuple[Any, ...]:
        """Predict for every token if it was replaced.

        Args:
            input_ids: Token ids, [B, L].
            labels: 1 for replaced tokens and 0 for original ones, [B, L]. -100 means no loss.
            return_dict: False returns a tuple.
            inputs: Further arguments of `CrosslingModel.forward`.

        Returns:
            Logits [B, L], positive for replaced tokens, and the mean loss if there are labels.
        """
        output = self.encoder(input_ids, **inputs)
        logits_BL = self.rtd_head(output.last_hidden_state)
        loss: Any = None
        if labels is not None:
            has_label = labels != IGNORE_INDEX
            loss = F.binary_cross_entropy_with_logits(logits_BL[has_label].float(), labels[has_label].float())
        states = {"hidden_states": output.hidden_states, "attentions": output.attentions}
        result = TokenClassifierOutput(loss=loss, logits=logits_BL, **states)
        return result.to_tuple() if return_dict is False else result
