"""How a tokenizer splits text, and what it puts around one sequence or two."""
# B sequences, L positions, P pieces of a text

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedTokenizerFast

from crossling.data.batches import MULTIPLE
from crossling.data.packing import Batch

AT_ONCE = 10_000  # texts: what the tokenizer tells of a piece takes many times the room of the piece


@dataclass(frozen=True)
class Pieces:
    """Of one text, without special tokens."""

    ids: np.ndarray  # [P]
    spans: np.ndarray  # [P, 2]: the characters of the text that each piece stands for


@dataclass(frozen=True)
class Input:
    """One sequence as the model reads it."""

    ids: np.ndarray  # [L]
    types: np.ndarray  # [L]: which of two texts a token belongs to, for models that are told
    first: int  # where the pieces of the text begin; of two texts, those of the second


class Frame:
    """Special tokens are put around pieces by hand, as the tokenizer itself does: so texts can be split once and cut
    anywhere."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast, typed: bool) -> None:
        self.tokenizer, self.typed, self.pad = tokenizer, typed, tokenizer.pad_token_id
        self._one, self._two = self._around("a"), self._around("a", "a")

    def split(self, texts: Sequence[str]) -> Iterator[Pieces]:
        """Each by itself, some at a time; equal texts among these share theirs."""
        for start in range(0, len(texts), AT_ONCE):
            some = texts[start : start + AT_ONCE]
            distinct = list(dict.fromkeys(some))
            found = self.tokenizer(
                distinct,
                add_special_tokens=False,
                return_offsets_mapping=True,
                return_attention_mask=False,
                return_token_type_ids=False,
                verbose=False,
            )
            by_text = {
                text: Pieces(np.array(ids, dtype=np.int32), np.array(spans, dtype=np.int32).reshape(-1, 2))
                for text, ids, spans in zip(distinct, found["input_ids"], found["offset_mapping"], strict=True)
            }
            yield from (by_text[text] for text in some)

    def room(self, texts: int) -> int:
        """How many special tokens stand around one text or two."""
        return sum(len(ids) for ids, _ in (self._one if texts == 1 else self._two)[::2])

    def one(self, ids: np.ndarray) -> Input:
        return _filled(self._one, ids)

    def two(self, first: np.ndarray, second: np.ndarray) -> Input:
        return _filled(self._two, first, second)

    def batch(self, inputs: Sequence[Input], most: int) -> Batch:
        """Rows of one length, [B, L], in the words of transformers; a multiple of eight unless that is too long."""
        longest = max(len(each.ids) for each in inputs)
        width = max(longest, min(-(-longest // MULTIPLE) * MULTIPLE, most))
        batch = {
            "input_ids": _rows([each.ids for each in inputs], width, self.pad),
            "attention_mask": _rows([np.ones_like(each.ids) for each in inputs], width, 0),
        }
        if self.typed:
            batch["token_type_ids"] = _rows([each.types for each in inputs], width, 0)
        return batch

    def _around(self, *texts: str) -> list[tuple[list[int], list[int]]]:
        """What stands before, between and after the texts: ids and types, in turn with the type of each text."""
        found: Any = self.tokenizer(*texts, return_token_type_ids=True)
        places, ids, types = found.sequence_ids(0), found["input_ids"], found["token_type_ids"]
        parts: list[tuple[list[int], list[int]]] = []
        end = 0
        for number in range(len(texts)):
            own = [place for place, sequence in enumerate(places) if sequence == number]
            parts += [(ids[end : own[0]], types[end : own[0]]), ([], [types[own[0]]])]
            end = own[-1] + 1
        return [*parts, (ids[end:], types[end:])]


def _filled(around: Sequence[tuple[list[int], list[int]]], *texts: np.ndarray) -> Input:
    ids: list[np.ndarray] = []
    types: list[np.ndarray] = []
    first = 0
    for place, (own, own_types) in enumerate(around):
        text = texts[place // 2] if place % 2 else None
        if text is not None:
            first = sum(map(len, ids))
        ids.append(np.array(own, dtype=np.int32) if text is None else text)
        types.append(np.array(own_types if text is None else own_types * len(text), dtype=np.int8))
    return Input(np.concatenate(ids), np.concatenate(types), first)


def _rows(values: Sequence[np.ndarray], width: int, padding: int) -> torch.Tensor:
    filled = np.full((len(values), width), padding, dtype=np.int64)
    for row, own in enumerate(values):
        filled[row, : len(own)] = own
    return torch.from_numpy(filled)
