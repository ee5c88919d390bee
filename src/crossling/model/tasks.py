"""The heads of fine-tuned models, under the names Hugging Face's Auto classes look for.

A sequence: first token, dropout, dense, tanh, dropout, linear, as RoBERTa and COCO-LM. Tokens and answers: one linear
map on every token. Where cross-attention is plugged in, a head reads two states of every token side by side.
"""
# B sequences, C choices, L positions, T positions of the translation, D width, K labels

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
    BaseModelOutput,
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
        self.dense = nn.Linear(_width(config), config.hidden_size)
        self.out = nn.Linear(config.hidden_size, outputs)

    def forward(self, hidden_BLD: Tensor) -> Tensor:
        pooled_BD = torch.tanh(self.dense(self.dropout(hidden_BLD[:, 0])))
        return self.out(self.dropout(pooled_BD))


class TaskModel(CrosslingPreTrainedModel):
    """An encoder under a head.

    With `plug_in` it reads x with its translation y, and the head gets [H : S] of x: H by self-attention alone, S with
    cross-attention to the last layer's H of y (VECO §3.1). Pre-training stops the gradient at H of y, to be spared a
    network of twice the depth; here it flows, as all that a prediction is made of is tuned for it, and y is encoded in
    the same pass as x anyway.
    """

    def __init__(self, config: CrosslingConfig) -> None:
        super().__init__(config)
        if config.plug_in and not config.cross_attention:
            raise ValueError("plug_in: this model has no cross-attention to plug in")
        self.encoder = CrosslingModel(config)

    def read(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None,
        paired_input_ids: Tensor | None,
        paired_attention_mask: Tensor | None,
        **inputs: Any,
    ) -> BaseModelOutput:
        """What the head gets is `last_hidden_state`; `hidden_states` are those of x by itself."""
        if (paired_input_ids is not None) != self.config.plug_in:
            raise ValueError(
                "this model reads every sequence with its translation; give paired_input_ids"
                if self.config.plug_in
                else "this model reads no translations: its cross-attention is plugged out; leave paired_input_ids out"
            )
        if paired_input_ids is None:
            return self.encoder(input_ids, attention_mask, **inputs)
        x, y = (input_ids, attention_mask), (paired_input_ids, paired_attention_mask)
        hidden_BLD, paired_BTD, states = self._alone(x, y, **inputs)
        both = self.encoder(*x, encoder_hidden_states=paired_BTD, encoder_attention_mask=y[1])
        side_by_side: Any = torch.cat([hidden_BLD, both.last_hidden_state], -1)
        return BaseModelOutput(last_hidden_state=side_by_side, hidden_states=states)

    def _alone(
        self, x: tuple[Tensor, Tensor | None], y: tuple[Tensor, Tensor | None], **inputs: Any
    ) -> tuple[Tensor, Tensor, Any]:
        """The last states of x and y, each by self-attention, and all of x if they are asked for. One pass is enough
        where the shapes allow it."""
        (x_BL, seen_BL), (y_BT, seen_BT) = x, y
        if x_BL.shape != y_BT.shape or seen_BL is None or seen_BT is None:
            output = self.encoder(*x, **inputs)
            return output.last_hidden_state, self.encoder(*y).last_hidden_state, output.hidden_states
        rows = len(x_BL)
        output = self.encoder(torch.cat([x_BL, y_BT]), torch.cat([seen_BL, seen_BT]), **inputs)
        states = output.hidden_states and tuple(state_BLD[:rows] for state_BLD in output.hidden_states)
        return *output.last_hidden_state.split(rows), states


def _width(config: CrosslingConfig) -> int:
    """Of what a head reads."""
    return config.hidden_size * (2 if config.plug_in else 1)


class CrosslingForSequenceClassification(TaskModel):
    """The class of a sentence or a pair; with one label, a number."""

    def __init__(self, config: CrosslingConfig) -> None:
        super().__init__(config)
        self.classifier = SequenceHead(config, int(config.num_labels or 1))
        self.post_init()

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        paired_input_ids: Tensor | None = None,
        paired_attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
        return_dict: bool | None = None,
        **inputs: Any,
    ) -> SequenceClassifierOutput | tuple[Any, ...]:
        output = self.read(input_ids, attention_mask, paired_input_ids, paired_attention_mask, **inputs)
        logits_BK = self.classifier(output.last_hidden_state)
        loss: Any = None
        if labels is not None and logits_BK.shape[1] == 1:
            loss = F.mse_loss(logits_BK[:, 0].float(), labels.flatten().float())
        elif labels is not None:
            loss = F.cross_entropy(logits_BK.float(), labels.flatten())
        found = SequenceClassifierOutput(loss=loss, logits=logits_BK, hidden_states=output.hidden_states)
        return found.to_tuple() if return_dict is False else found


class CrosslingForTokenClassification(TaskModel):
    """A tag for every token."""

    def __init__(self, config: CrosslingConfig) -> None:
        super().__init__(config)
        self.dropout = nn.Dropout(config.dropout)
        self.classifier = nn.Linear(_width(config), int(config.num_labels or 1))
        self.post_init()

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        paired_input_ids: Tensor | None = None,
        paired_attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
        return_dict: bool | None = None,
        **inputs: Any,
    ) -> TokenClassifierOutput | tuple[Any, ...]:
        output = self.read(input_ids, attention_mask, paired_input_ids, paired_attention_mask, **inputs)
        logits_BLK = self.classifier(self.dropout(output.last_hidden_state))
        loss: Any = None
        if labels is not None:
            loss = F.cross_entropy(logits_BLK.flatten(0, 1).float(), labels.flatten(), ignore_index=IGNORED)
        found = TokenClassifierOutput(loss=loss, logits=logits_BLK, hidden_states=output.hidden_states)
        return found.to_tuple() if return_dict is False else found


class CrosslingForQuestionAnswering(TaskModel):
    """Where in the sequence an answer begins and ends."""

    def __init__(self, config: CrosslingConfig) -> None:
        super().__init__(config)
        self.qa_outputs = nn.Linear(_width(config), 2)
        self.post_init()

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        paired_input_ids: Tensor | None = None,
        paired_attention_mask: Tensor | None = None,
        start_positions: Tensor | None = None,
        end_positions: Tensor | None = None,
        return_dict: bool | None = None,
        **inputs: Any,
    ) -> QuestionAnsweringModelOutput | tuple[Any, ...]:
        output = self.read(input_ids, attention_mask, paired_input_ids, paired_attention_mask, **inputs)
        start_BL, end_BL = self.qa_outputs(output.last_hidden_state).unbind(-1)
        loss: Any = None
        if start_positions is not None and end_positions is not None:
            ends = (start_BL, start_positions), (end_BL, end_positions)
            loss = sum(F.cross_entropy(scores_BL.float(), place_B) for scores_BL, place_B in ends) / 2
        found = QuestionAnsweringModelOutput(
            loss=loss, start_logits=start_BL, end_logits=end_BL, hidden_states=output.hidden_states
        )
        return found.to_tuple() if return_dict is False else found


class CrosslingForMultipleChoice(TaskModel):
    """Which of several sequences is the right one: each is given a number."""

    def __init__(self, config: CrosslingConfig) -> None:
        super().__init__(config)
        self.classifier = SequenceHead(config, 1)
        self.post_init()

    def forward(
        self,
        input_ids: Tensor,  # [B, C, L], as those below
        attention_mask: Tensor | None = None,
        paired_input_ids: Tensor | None = None,
        paired_attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
        return_dict: bool | None = None,
        **inputs: Any,
    ) -> MultipleChoiceModelOutput | tuple[Any, ...]:
        given = input_ids, attention_mask, paired_input_ids, paired_attention_mask
        output = self.read(*(None if each is None else each.flatten(0, 1) for each in given), **inputs)  # type: ignore[arg-type]
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
