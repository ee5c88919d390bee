"""The heads of fine-tuned models, under the names Hugging Face's Auto classes look for.

A sequence: first token, dropout, dense, tanh, dropout, linear, as RoBERTa and COCO-LM. Tokens and answers: one linear
map on every token.
"""
# B sequences, C choices, L positions, D width, K labels

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import (
    AutoModelForMultipleChoice,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
)
from transformers.modeling_outputs import (
    MultipleChoiceModelOutput,
    QuestionAnsweringModelOutput,
    SequenceClassifierOutput,
    TokenClassifierOutput,
)

from crossling.model.config import CrosslingConfig
from crossling.model.heads import IGNORED
from crossling.model.transformer import CrosslingModel, CrosslingPreTrainedModel


class SequenceHead(nn.Module):
    def __init__(self, config: CrosslingConfig, outputs: int) -> None:
        super().__init__()
        self.dropout = nn.Dropout(config.dropout)
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.out = nn.Linear(config.hidden_size, outputs)

    def forward(self, hidden_BLD: Tensor) -> Tensor:
        pooled_BD = torch.tanh(self.dense(self.dropout(hidden_BLD[:, 0])))
        return self.out(self.dropout(pooled_BD))


class CrosslingForSequenceClassification(CrosslingPreTrainedModel):
    """The class of a sentence or a pair; with one label, a number."""

    def __init__(self, config: CrosslingConfig) -> None:
        super().__init__(config)
        self.encoder = CrosslingModel(config)
        self.classifier = SequenceHead(config, int(config.num_labels or 1))
        self.post_init()

    def forward(
        self, input_ids: Tensor, labels: Tensor | None = None, return_dict: bool | None = None, **inputs: Any
    ) -> SequenceClassifierOutput | tuple[Any, ...]:
        output = self.encoder(input_ids, **inputs)
        logits_BK = self.classifier(output.last_hidden_state)
        loss: Any = None
        if labels is not None and logits_BK.shape[1] == 1:
            loss = F.mse_loss(logits_BK[:, 0].float(), labels.flatten().float())
        elif labels is not None:
            loss = F.cross_entropy(logits_BK.float(), labels.flatten())
        found = SequenceClassifierOutput(loss=loss, logits=logits_BK, hidden_states=output.hidden_states)
        return found.to_tuple() if return_dict is False else found


class CrosslingForTokenClassification(CrosslingPreTrainedModel):
    """A tag for every token."""

    def __init__(self, config: CrosslingConfig) -> None:
        super().__init__(config)
        self.encoder = CrosslingModel(config)
        self.dropout = nn.Dropout(config.dropout)
        self.classifier = nn.Linear(config.hidden_size, int(config.num_labels or 1))
        self.post_init()

    def forward(
        self, input_ids: Tensor, labels: Tensor | None = None, return_dict: bool | None = None, **inputs: Any
    ) -> TokenClassifierOutput | tuple[Any, ...]:
        output = self.encoder(input_ids, **inputs)
        logits_BLK = self.classifier(self.dropout(output.last_hidden_state))
        loss: Any = None
        if labels is not None:
            loss = F.cross_entropy(logits_BLK.flatten(0, 1).float(), labels.flatten(), ignore_index=IGNORED)
        found = TokenClassifierOutput(loss=loss, logits=logits_BLK, hidden_states=output.hidden_states)
        return found.to_tuple() if return_dict is False else found


class CrosslingForQuestionAnswering(CrosslingPreTrainedModel):
    """Where in the sequence an answer begins and ends."""

    def __init__(self, config: CrosslingConfig) -> None:
        super().__init__(config)
        self.encoder = CrosslingModel(config)
        self.qa_outputs = nn.Linear(config.hidden_size, 2)
        self.post_init()

    def forward(
        self,
        input_ids: Tensor,
        start_positions: Tensor | None = None,
        end_positions: Tensor | None = None,
        return_dict: bool | None = None,
        **inputs: Any,
    ) -> QuestionAnsweringModelOutput | tuple[Any, ...]:
        output = self.encoder(input_ids, **inputs)
        start_BL, end_BL = self.qa_outputs(output.last_hidden_state).unbind(-1)
        loss: Any = None
        if start_positions is not None and end_positions is not None:
            ends = (start_BL, start_positions), (end_BL, end_positions)
            loss = sum(F.cross_entropy(scores_BL.float(), place_B) for scores_BL, place_B in ends) / 2
        found = QuestionAnsweringModelOutput(
            loss=loss, start_logits=start_BL, end_logits=end_BL, hidden_states=output.hidden_states
        )
        return found.to_tuple() if return_dict is False else found


class CrosslingForMultipleChoice(CrosslingPreTrainedModel):
    """Which of several sequences is the right one: each is given a number."""

    def __init__(self, config: CrosslingConfig) -> None:
        super().__init__(config)
        self.encoder = CrosslingModel(config)
        self.classifier = SequenceHead(config, 1)
        self.post_init()

    def forward(
        self,
        input_ids: Tensor,  # [B, C, L]
        attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
        return_dict: bool | None = None,
        **inputs: Any,
    ) -> MultipleChoiceModelOutput | tuple[Any, ...]:
        seen = None if attention_mask is None else attention_mask.flatten(0, 1)
        output = self.encoder(input_ids.flatten(0, 1), seen, **inputs)
        logits_BC = self.classifier(output.last_hidden_state).view(*input_ids.shape[:2])
        loss: Any = None
        if labels is not None:
            loss = F.cross_entropy(logits_BC.float(), labels)
        found = MultipleChoiceModelOutput(loss=loss, logits=logits_BC, hidden_states=output.hidden_states)
        return found.to_tuple() if return_dict is False else found


AutoModelForSequenceClassification.register(CrosslingConfig, CrosslingForSequenceClassification)
AutoModelForTokenClassification.register(CrosslingConfig, CrosslingForTokenClassification)
AutoModelForQuestionAnswering.register(CrosslingConfig, CrosslingForQuestionAnswering)
AutoModelForMultipleChoice.register(CrosslingConfig, CrosslingForMultipleChoice)
