"""Task heads: their computation and their registration with transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import (
    AutoModelForMultipleChoice,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
)

from crossling.model import task_heads as tasks
from crossling.model.config import CrosslingConfig

CLASSES = {
    AutoModelForSequenceClassification: tasks.CrosslingForSequenceClassification,
    AutoModelForTokenClassification: tasks.CrosslingForTokenClassification,
    AutoModelForQuestionAnswering: tasks.CrosslingForQuestionAnswering,
    AutoModelForMultipleChoice: tasks.CrosslingForMultipleChoice,
}
IDS = torch.tensor([[0, 5, 6, 7, 2], [0, 8, 2, 1, 1]])
MASK = (IDS != 1).long()


def config(labels: int = 3) -> CrosslingConfig:
    return CrosslingConfig(
        vocab_size=20,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=16,
        num_labels=labels,
        initializer_range=0.5,
    )


def log_softmax(scores: Tensor) -> Tensor:
    return scores - scores.exp().sum().log()


@pytest.mark.parametrize("auto", CLASSES, ids=lambda auto: auto.__name__)
def test_save_and_load(auto: Any, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = auto.from_config(config()).eval()
    assert type(model) is CLASSES[auto]
    model.save_pretrained(tmp_path)
    again = auto.from_pretrained(tmp_path).eval()
    ids = IDS[:, None] if auto is AutoModelForMultipleChoice else IDS
    with torch.no_grad():
        ours, theirs = model(ids).to_tuple(), again(ids).to_tuple()
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)  # rounding may depend on memory alignment
    assert isinstance(model(ids, return_dict=False), tuple)


def test_sequence_head_reads_the_first_token_through_dense_tanh_and_linear() -> None:
    model = tasks.CrosslingForSequenceClassification(config()).eval()
    with torch.no_grad():
        hidden = model.encoder(IDS, attention_mask=MASK).last_hidden_state[:, 0]
        head = model.classifier
        expected = torch.tanh(hidden @ head.dense.weight.T + head.dense.bias) @ head.out.weight.T + head.out.bias
        torch.testing.assert_close(model(IDS, attention_mask=MASK).logits, expected)
    model.train()
    torch.manual_seed(0)
    dropped = [model.classifier(torch.ones(1, 1, 16)) for _ in range(2)]
    assert not torch.equal(*dropped)  # the head has dropout


def test_losses_are_means_over_labels() -> None:
    with torch.no_grad():
        classes = tasks.CrosslingForSequenceClassification(config()).eval()(IDS, labels=torch.tensor([2, 0]))
        slow = -(log_softmax(classes.logits[0])[2] + log_softmax(classes.logits[1])[0]) / 2
        torch.testing.assert_close(classes.loss, slow)

        number = tasks.CrosslingForSequenceClassification(config(1)).eval()(IDS, labels=torch.tensor([0.5, 2.0]))
        errors = number.logits[:, 0] - torch.tensor([0.5, 2.0])
        torch.testing.assert_close(number.loss, (errors[0] ** 2 + errors[1] ** 2) / 2)

        labels = torch.tensor([[-100, 1, -100, 2, -100], [-100, 0, -100, -100, -100]])
        tags = tasks.CrosslingForTokenClassification(config()).eval()(IDS, labels=labels)
        positions = [(0, 1), (0, 3), (1, 1)]
        slow = -sum(log_softmax(tags.logits[position])[labels[position]] for position in positions) / 3
        torch.testing.assert_close(tags.loss, slow)

        answer = tasks.CrosslingForQuestionAnswering(config()).eval()(
            IDS, start_positions=torch.tensor([1, 0]), end_positions=torch.tensor([3, 0])
        )
        ends = (answer.start_logits, (1, 0)), (answer.end_logits, (3, 0))
        slow = -sum(log_softmax(scores[row])[position[row]] for scores, position in ends for row in (0, 1)) / 4
        torch.testing.assert_close(answer.loss, slow)


def test_choices_are_encoded_separately() -> None:
    model = tasks.CrosslingForMultipleChoice(config()).eval()
    with torch.no_grad():
        both = model(IDS[None], attention_mask=MASK[None], labels=torch.tensor([1]))
        alone = [model(IDS[None, [row]], attention_mask=MASK[None, [row]]).logits for row in (0, 1)]
    torch.testing.assert_close(both.logits, torch.cat(alone, 1))
    torch.testing.assert_close(both.loss, -log_softmax(both.logits[0])[1])


@pytest.mark.parametrize(
    ("task", "layers"),
    [
        (tasks.CrosslingForSequenceClassification, ("classifier.dense", "classifier.out")),
        (tasks.CrosslingForMultipleChoice, ("classifier.dense", "classifier.out")),
        (tasks.CrosslingForTokenClassification, ("classifier",)),
    ],
)
def test_dropout_before_each_linear_layer_of_a_head_in_training(task: Any, layers: tuple[str, ...]) -> None:
    shape = config()
    shape.dropout = 0.5
    torch.manual_seed(0)
    model = task(shape)
    inputs: list[Tensor] = []
    for name in layers:
        model.get_submodule(name).register_forward_pre_hook(lambda _, given: inputs.append(given[0]))
    ids = IDS.repeat(20, 1)
    for training in (True, False):
        inputs.clear()
        model.train(training)(ids[None] if task is tasks.CrosslingForMultipleChoice else ids)
        dropped = [float((values == 0).float().mean()) for values in inputs]
        assert len(dropped) == len(layers)
        assert all(0.4 < part < 0.6 if training else part == 0 for part in dropped), dropped
