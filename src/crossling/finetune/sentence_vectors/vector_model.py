"""A sentence encoder in training: the encoder, its pooling and the layers after it."""
# T texts, L tokens of a row, E width of the vectors

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from crossling.data.packing import Batch
from crossling.finetune.tuned_model import save_pretrained
from crossling.inference.sentence_encoder import Encoder
from crossling.inference.sentence_head import SentenceHead
from crossling.inference.write_sentence_head import write_sentence_head
from crossling.model.embedding import DisentangledEmbedding
from crossling.model.encoder import EncoderNetwork

DOCUMENT_PROMPTS = ("document", "passage", "corpus")  # names of prompts of positives; that of anchors is `query`


class SentenceModel(nn.Module):
    """Encoder and head, which compute the vectors that `Encoder.encode` returns.

    Args:
        model: Encoder of transformers.
        head: Pooling and layers.
    """

    def __init__(self, model: PreTrainedModel, head: SentenceHead) -> None:
        super().__init__()
        self.model, self.head = model, head
        self.layers = head.layers  # so that its parameters are those of the module

    @property
    def device(self) -> torch.device:
        return self.model.device

    def forward(self, batch: Batch) -> Tensor:
        """Return the vectors of the texts of a batch, [T, E].

        The texts are in chunks. If there are several, the activations of each are recomputed in the backward pass, so
        that memory does not grow with the number of negatives (GradCache, Gao et al. 2021).
        """
        chunks = [
            (batch[f"ids_{number}"], batch[f"mask_{number}"], batch[f"pooled_{number}"]) for number in _numbers(batch)
        ]
        if len(chunks) == 1 or not torch.is_grad_enabled():
            vectors = [self.encode(*chunk) for chunk in chunks]
        else:
            vectors = [checkpoint(self.encode, *chunk, use_reentrant=False) for chunk in chunks]
        return torch.cat(vectors)[batch["order"]]

    def encode(self, ids_TL: Tensor, mask_TL: Tensor, pooled_TL: Tensor) -> Tensor:
        """Return the vectors of padded rows."""
        layer, inputs = self.head.layer, {"input_ids": ids_TL, "attention_mask": mask_TL}
        if layer is None:
            states = self.model(**inputs).last_hidden_state
        else:
            limit: dict[str, Any] = {"layers": layer} if isinstance(self.model, EncoderNetwork) else {}
            states = self.model(**inputs, **limit, output_hidden_states=True).hidden_states[layer]
        return self.head.compute_pooled(states, pooled_TL)


def _numbers(batch: Batch) -> range:
    return range(sum(name.startswith("ids_") for name in batch))


def build_sentence_model(encoder: Encoder, pooling: str, prompts: Sequence[str | None]) -> SentenceModel:
    """Return a copy of an encoder to train, with the vectors that its folder declares.

    Without declared ones, those of our models are the mean of the universal layer, and of others of the last layer.

    Args:
        encoder: The encoder, which stays as it is.
        pooling: Pooling of an encoder that declares none.
        prompts: Texts before anchors and before positives, or None for those that the folder declares.
    """
    model = copy.deepcopy(encoder.model).requires_grad_(True)
    assert isinstance(model, PreTrainedModel)
    for module in [*model.modules()]:
        if isinstance(module, DisentangledEmbedding):
            model.set_input_embeddings(module.to_embedding())
    head = encoder.head
    if head is None:
        is_ours = isinstance(model, EncoderNetwork)
        layer = encoder.universal_layer if is_ours and encoder.universal_layer < encoder.num_layers else None
        width = encoder.hidden_size
        head = SentenceHead(poolings=(pooling,), layers=nn.Sequential(), width=width, layer=layer)
    named = dict(zip(("query", "document"), prompts, strict=True))
    given = {name: text for name, text in named.items() if text is not None}
    head = replace(head, layers=copy.deepcopy(head.layers).requires_grad_(True), prompts={**head.prompts, **given})
    return SentenceModel(model, head)


def find_prompts(head: SentenceHead) -> tuple[str, str]:
    """Return the texts before anchors and before positives."""
    default = head.find_prompt(None)
    document = next((name for name in DOCUMENT_PROMPTS if name in head.prompts), None)
    return head.prompts.get("query", default), head.prompts[document] if document else default


def as_sentence_encoder(model: SentenceModel, encoder: Encoder, name: str) -> Encoder:
    """Return the model in training as an encoder."""
    options: dict[str, Any] = {"seed": encoder.seed, "head": model.head}
    if isinstance(model.model, EncoderNetwork):
        options["universal_layer"] = encoder.universal_layer
    return Encoder(model.model, encoder.tokenizer, name, **options)


def save_sentence_model(model: SentenceModel, encoder: Encoder, folder: Path) -> None:
    """Write the model in the format of transformers and of Sentence Transformers."""
    folder.mkdir(parents=True, exist_ok=True)
    save_pretrained(model.model, encoder.tokenizer, folder)
    write_sentence_head(folder, model.head, model.model.config, encoder.max_length)
