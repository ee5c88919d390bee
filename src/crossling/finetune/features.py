"""Tokenization of texts, and model inputs with the special tokens of a tokenizer."""
# B sequences, L positions, P tokens of a text

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedTokenizerFast

from crossling.data.batches import LENGTH_MULTIPLE
from crossling.data.packing import Batch

TEXTS_PER_CALL = 10_000  # the tokenizer's output takes many times the memory of the token ids


@dataclass(frozen=True)
class TokenizedText:
    """Tokens of one text, without special tokens."""

    ids: np.ndarray  # [P]
    spans: np.ndarray  # [P, 2]: start and end of each token in the characters of the text; [0, 2] without offsets


@dataclass(frozen=True)
class InputSequence:
    """One sequence with its special tokens, as the model reads it."""

    ids: np.ndarray  # [L]
    types: np.ndarray  # [L]: token type ids, for models that use them
    first: int  # position of the first token of the text; of a text pair, of the second text


class SequenceBuilder:
    """Tokenizes texts, and adds special tokens to token ids the way the tokenizer itself does.

    Tokenizing and adding special tokens are separate, so that a text is tokenized once and can be cut anywhere.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerFast, has_token_types: bool) -> None:
        self.tokenizer, self.has_token_types, self.pad = tokenizer, has_token_types, tokenizer.pad_token_id
        self._templates = {1: self._template("a"), 2: self._template("a", "a")}  # by number of texts

    def tokenize(
        self, texts: Sequence[str], *, offsets: bool = True, special_tokens_as_text: bool = False
    ) -> Iterator[TokenizedText]:
        """Yield the tokens of each text. Equal texts of one call to the tokenizer share one result."""
        for start in range(0, len(texts), TEXTS_PER_CALL):
            chunk = texts[start : start + TEXTS_PER_CALL]
            distinct = list(dict.fromkeys(chunk))
            output = self.tokenizer(
                distinct,
                add_special_tokens=False,
                split_special_tokens=special_tokens_as_text,
                return_offsets_mapping=offsets,
                return_attention_mask=False,
                return_token_type_ids=False,
                verbose=False,
            )
            spans = output["offset_mapping"] if offsets else [[]] * len(distinct)
            by_text = {
                text: TokenizedText(np.array(ids, dtype=np.int32), np.array(own, dtype=np.int32).reshape(-1, 2))
                for text, ids, own in zip(distinct, output["input_ids"], spans, strict=True)
            }
            yield from (by_text[text] for text in chunk)

    def special_token_count(self, texts: int) -> int:
        """Return how many special tokens are added to one text or to a text pair."""
        return sum(len(ids) for ids, _ in self._templates[texts][::2])

    def build(self, *texts: np.ndarray) -> InputSequence:
        """Add special tokens to one text, or join a text pair with them."""
        ids: list[np.ndarray] = []
        types: list[np.ndarray] = []
        first = 0
        for slot, (special_ids, special_types) in enumerate(self._templates[len(texts)]):
            text = texts[slot // 2] if slot % 2 else None
            if text is not None:
                first = sum(map(len, ids))
            ids.append(np.array(special_ids, dtype=np.int32) if text is None else text)
            types.append(np.array(special_types if text is None else special_types * len(text), dtype=np.int8))
        return InputSequence(np.concatenate(ids), np.concatenate(types), first)

    def batch(self, sequences: Sequence[InputSequence], max_length: int) -> Batch:
        """Return padded tensors [B, L] under the argument names of transformers."""
        width = padded_width(max(len(sequence.ids) for sequence in sequences), max_length)
        batch = {
            "input_ids": _pad([sequence.ids for sequence in sequences], width, self.pad),
            "attention_mask": _pad([np.ones_like(sequence.ids) for sequence in sequences], width, 0),
        }
        if self.has_token_types:
            batch["token_type_ids"] = _pad([sequence.types for sequence in sequences], width, 0)
        return batch

    def _template(self, *texts: str) -> list[tuple[list[int], list[int]]]:
        """Return ids and types of the special tokens before, between and after the texts.

        Even entries are special tokens. Odd entries are the slots of the texts and hold the type of each text.
        """
        output: Any = self.tokenizer(*texts, return_token_type_ids=True)
        sequence_ids, ids, types = output.sequence_ids(0), output["input_ids"], output["token_type_ids"]
        parts: list[tuple[list[int], list[int]]] = []
        end = 0
        for number in range(len(texts)):
            positions = [position for position, sequence in enumerate(sequence_ids) if sequence == number]
            first = positions[0]
            parts += [(ids[end:first], types[end:first]), ([], [types[first]])]
            end = positions[-1] + 1
        return [*parts, (ids[end:], types[end:])]


def padded_width(longest: int, max_length: int) -> int:
    """Return the width of a batch: a multiple of eight, unless that exceeds `max_length`."""
    return max(longest, min(-(-longest // LENGTH_MULTIPLE) * LENGTH_MULTIPLE, max_length))


def _pad(sequences: Sequence[np.ndarray], width: int, padding: int) -> torch.Tensor:
    padded = np.full((len(sequences), width), padding, dtype=np.int64)
    for row, values in enumerate(sequences):
        padded[row, : len(values)] = values
    return torch.from_numpy(padded)
