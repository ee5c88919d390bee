"""Pairs with equal texts, and a model that is a table of vectors."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from crossling.data.packing import Batch
from crossling.finetune.sentence_vectors.sentence_pairs import SentencePair
from crossling.finetune.sentence_vectors.vector_batches import PairBatches
from crossling.finetune.sentence_vectors.vector_texts import VectorTexts

ROWS = [
    SentencePair("a", "A", ("n",)),
    SentencePair("b", "B"),
    SentencePair("a", "C"),  # the same anchor with another positive
    SentencePair("d", "A"),  # another anchor with the same positive
    SentencePair("e", "e", ("B",)),  # equal texts
]


class Table(nn.Module):
    """A model whose texts have one token, the number of their vector."""

    def __init__(self, texts: int, width: int = 4) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table = nn.Embedding(texts, width)

    def forward(self, batch: Batch) -> Tensor:
        chunks = [batch[name][:, 0] for name in sorted(batch) if name.startswith("ids_")]
        found: Tensor = self.table(torch.cat(chunks)[batch["order"]])
        return found


def one_batch(rows: Sequence[SentencePair], loss: str, symmetric: bool = False) -> tuple[VectorTexts, Batch]:
    """Return the texts of some pairs, and all pairs as one batch. A text has its number as its only token."""
    texts = VectorTexts.of(rows)
    ids = [[number] for number in range(len(texts.strings))]
    batches = PairBatches(
        loss=loss,
        texts=texts,
        ids=(ids, ids),
        prompt_lengths=(0, 0),
        pad=0,
        batch=len(rows),
        symmetric=symmetric,
        seed=0,
        micro_tokens=3,
    )
    [(_, batch)] = batches[0].micro_batches
    return texts, batch
