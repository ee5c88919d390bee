"""Models with a task head for fine-tuning.

Sequence classification: first token, dropout, dense, tanh, dropout, linear, as RoBERTa and COCO-LM. Token
classification and question answering: one linear layer on every token. With `plug_in`, a head reads two states of
every token side by side.
"""
# B sequences, C choices, L positions, T positions of the translation, D width, K labels

from __future__ import annotations

from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import modeling_outputs
from transformers.modeling_outputs import BaseModelOutput

from crossling.model.config import CrosslingConfig
from crossling.model.encoder_model import CrosslingModel, CrosslingPreTrainedModel
from crossling.model.heads import token_loss


class SequenceClassificationHead(nn.Module):
    """Classifier of the first token's state."""

    def __init__(self, config: CrosslingConfig, width: int, outputs: int) -> None:
        super().__init__()
        self.dropout = nn.Dropout(config.dropout)
        self.dense = nn.Linear(width, config.hidden_size)
        self.out = nn.Linear(config.hidden_size, outputs)

    def forward(self, hidden_BLD: Tensor) -> Tensor:
        pooled_BD = torch.tanh(self.dense(self.dropout(hidden_BLD[:, 0])))
        return self.out(self.dropout(pooled_BD))


class CrosslingTaskModel(CrosslingPreTrainedModel):
    """Base class of an encoder with a task head.

    With `plug_in` it encodes x with its translation y, and the head reads [H : S] of x. H is the state by
    self-attention alone. S is the state with cross-attention to the last layer's H of y (VECO, section 3.1).
    Pre-training stops the gradient at H of y to avoid a network of twice the depth. Fine-tuning lets it flow: y is
    encoded in the same pass as x.

    Subclasses define `output_class` and `add_head`, and `compute_loss` if it is another one.
    """

    classifier: nn.Module
    output_class: ClassVar[type[Any]]

    def __init__(self, config: CrosslingConfig) -> None:
        super().__init__(config)
        if config.plug_in and not config.cross_attention:
            raise ValueError("plug_in: the model has no cross-attention. Set plug_in to False.")
        self.encoder = CrosslingModel(config)
        self.add_head(config.hidden_size * (2 if config.plug_in else 1))
        self.post_init()

    def add_head(self, width: int) -> None:
        """Create the modules of the head, which reads states of `width` numbers."""
        raise NotImplementedError

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        paired_input_ids: Tensor | None = None,
        paired_attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
        return_dict: bool | None = None,
        **inputs: Any,
    ) -> Any:
        """Compute the logits of the task.

        Args:
            input_ids: Token ids, [B, L]; for multiple choice [B, C, L], as all of these.
            attention_mask: 1 for tokens and 0 for padding.
            paired_input_ids: Token ids of the translations, if `config.plug_in`.
            paired_attention_mask: 1 for tokens and 0 for padding of the translations.
            labels: Targets. -100 means no loss for a token.
            return_dict: False returns a tuple.
            inputs: Further arguments of `CrosslingModel.forward`.

        Returns:
            Logits, the mean loss if there are labels, and the hidden states and attention weights if requested.

        Raises:
            ValueError: The translations do not fit `config.plug_in`, or attention weights are requested with it.
        """
        output: Any = self.encode(input_ids, attention_mask, paired_input_ids, paired_attention_mask, **inputs)
        logits = self.compute_logits(output.last_hidden_state, input_ids.shape)
        loss = None if labels is None else self.compute_loss(logits, labels)
        states = {"hidden_states": output.hidden_states, "attentions": output.attentions}
        result = self.output_class(loss=loss, logits=logits, **states)
        return result.to_tuple() if return_dict is False else result

    def compute_logits(self, hidden_BLD: Tensor, shape: torch.Size) -> Tensor:  # noqa: ARG002 - for multiple choice
        """Return the logits of hidden states. `shape` is that of the token ids."""
        return self.classifier(hidden_BLD)

    def compute_loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the mean loss: the cross-entropy of one class per row."""
        return F.cross_entropy(logits.float(), labels)

    def encode(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None,
        paired_input_ids: Tensor | None,
        paired_attention_mask: Tensor | None,
        **inputs: Any,
    ) -> BaseModelOutput:
        """Return the input of the head as `last_hidden_state`. `hidden_states` are those of x by itself."""
        if (paired_input_ids is not None) != self.config.plug_in:
            raise ValueError(
                "paired_input_ids: missing. The model encodes every sequence with its translation."
                if self.config.plug_in
                else "paired_input_ids: the model was built with plug_in=False. Omit them."
            )
        if paired_input_ids is None:
            return self.encoder(input_ids, attention_mask, **inputs)
        if inputs.get("output_attentions"):
            raise ValueError(
                "output_attentions: plug_in encodes every sequence twice. Call the encoder of the model instead."
            )
        x, y = (input_ids, attention_mask), (paired_input_ids, paired_attention_mask)
        hidden_BLD, paired_BTD, states = self._encode_separately(x, y, **inputs)
        crossed = self.encoder(*x, encoder_hidden_states=paired_BTD, encoder_attention_mask=y[1])
        both: Any = torch.cat([hidden_BLD, crossed.last_hidden_state], -1)
        return BaseModelOutput(last_hidden_state=both, hidden_states=states)

    def _encode_separately(
        self, x: tuple[Tensor, Tensor | None], y: tuple[Tensor, Tensor | None], **inputs: Any
    ) -> tuple[Tensor, Tensor, Any]:
        """Return the last states of x and of y, and all states of x if requested, in one pass if the shapes allow."""
        (x_BL, x_mask_BL), (y_BT, y_mask_BT) = x, y
        if x_BL.shape != y_BT.shape or x_mask_BL is None or y_mask_BT is None:
            output = self.encoder(*x, **inputs)
            return output.last_hidden_state, self.encoder(*y).last_hidden_state, output.hidden_states
        rows = len(x_BL)
        output = self.encoder(torch.cat([x_BL, y_BT]), torch.cat([x_mask_BL, y_mask_BT]), **inputs)
        states = output.hidden_states and tuple(state_BLD[:rows] for state_BLD in output.hidden_states)
        return *output.last_hidden_state.split(rows), states


class CrosslingForSequenceClassification(CrosslingTaskModel):
    """Encoder with a classifier of sentences or sentence pairs. With one label it is a regression.

    Args:
        config: Configuration with `num_labels`. The weights are initialized at random.

    Example:
        >>> from transformers import AutoModelForSequenceClassification
        >>> model = AutoModelForSequenceClassification.from_pretrained("exported", num_labels=3)
    """

    output_class = modeling_outputs.SequenceClassifierOutput

    def add_head(self, width: int) -> None:
        self.classifier = SequenceClassificationHead(self.config, width, int(self.config.num_labels or 1))

    def compute_loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the cross-entropy, or the mean squared error with one label."""
        if logits.shape[1] == 1:
            return F.mse_loss(logits[:, 0].float(), labels.flatten().float())
        return super().compute_loss(logits, labels.flatten())


class CrosslingForTokenClassification(CrosslingTaskModel):
    """Encoder with a classifier of tokens, for NER and POS tagging.

    Args:
        config: Configuration with `num_labels`. The weights are initialized at random.

    Example:
        >>> from transformers import AutoModelForTokenClassification
        >>> model = AutoModelForTokenClassification.from_pretrained("exported", num_labels=7)
    """

    output_class = modeling_outputs.TokenClassifierOutput

    def add_head(self, width: int) -> None:
        self.dropout = nn.Dropout(self.config.dropout)
        self.classifier = nn.Linear(width, int(self.config.num_labels or 1))

    def compute_logits(self, hidden_BLD: Tensor, shape: torch.Size) -> Tensor:
        """Return the logits of every token."""
        return super().compute_logits(self.dropout(hidden_BLD), shape)

    def compute_loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the cross-entropy over tokens with a label."""
        return token_loss(logits, labels)


class CrosslingForMultipleChoice(CrosslingTaskModel):
    """Encoder that scores several sequences, of which one is correct.

    Args:
        config: Configuration. The weights are initialized at random.

    Example:
        >>> from transformers import AutoModelForMultipleChoice
        >>> model = AutoModelForMultipleChoice.from_pretrained("exported")
    """

    output_class = modeling_outputs.MultipleChoiceModelOutput

    def add_head(self, width: int) -> None:
        self.classifier = SequenceClassificationHead(self.config, width, 1)

    def encode(self, *choices_BCL: Tensor | None, **inputs: Any) -> BaseModelOutput:
        """Encode every choice as a sequence of its own."""
        flat = [None if values is None else values.flatten(0, 1) for values in choices_BCL]
        return super().encode(*flat, **inputs)  # type: ignore[arg-type]

    def compute_logits(self, hidden_BLD: Tensor, shape: torch.Size) -> Tensor:
        """Return the scores of the choices, [B, C]."""
        return super().compute_logits(hidden_BLD, shape).view(*shape[:2])


class CrosslingForQuestionAnswering(CrosslingTaskModel):
    """Encoder with an extractive question answering head: logits of the first and last token of the answer.

    Args:
        config: Configuration. The weights are initialized at random.

    Example:
        >>> from transformers import AutoModelForQuestionAnswering
        >>> model = AutoModelForQuestionAnswering.from_pretrained("exported")
    """

    def add_head(self, width: int) -> None:
        self.qa_outputs = nn.Linear(width, 2)

    def forward(  # type: ignore[override]
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        start_positions: Tensor | None = None,
        end_positions: Tensor | None = None,
        paired_input_ids: Tensor | None = None,
        paired_attention_mask: Tensor | None = None,
        return_dict: bool | None = None,
        **inputs: Any,
    ) -> modeling_outputs.QuestionAnsweringModelOutput | tuple[Any, ...]:
        """Compute start and end logits, [B, L]. The targets are positions of tokens, [B]."""
        output = self.encode(input_ids, attention_mask, paired_input_ids, paired_attention_mask, **inputs)
        start_BL, end_BL = self.qa_outputs(output.last_hidden_state).unbind(-1)
        loss: Any = None
        if start_positions is not None and end_positions is not None:
            targets = (start_BL, start_positions), (end_BL, end_positions)
            loss = sum(F.cross_entropy(logits_BL.float(), position_B) for logits_BL, position_B in targets) / 2
        result = modeling_outputs.QuestionAnsweringModelOutput(
            loss=loss,
            start_logits=start_BL,
            end_logits=end_BL,
            hidden_states=output.hidden_states,
            attentions=output.attentions,
        )
        return result.to_tuple() if return_dict is False else result
