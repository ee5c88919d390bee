"""What a decoder remembers of what it has read, so that each new token costs no more than itself."""
# B sequences, H heads, L new positions, T positions with those before, K width of a head

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from torch import Tensor
from transformers import EncoderDecoderCache


class Past(NamedTuple):
    """Of one layer. The cache is Hugging Face's, which has heads before positions."""

    cache: EncoderDecoderCache
    layer: int

    def own(self, key_BLHK: Tensor, value_BLHK: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of all tokens so far, these the last, [B, T, H, K]."""
        key, value = self.cache.self_attention_cache.update(
            key_BLHK.transpose(1, 2), value_BLHK.transpose(1, 2), self.layer
        )
        return key.transpose(1, 2), value.transpose(1, 2)

    def paired(self, read: Callable[[Tensor], tuple[Tensor, ...]], paired_BTD: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of the paired sequence, which are read once."""
        if not self.cache.is_updated.get(self.layer):
            key_BTHK, value_BTHK = read(paired_BTD)
            self.cache.cross_attention_cache.update(key_BTHK.transpose(1, 2), value_BTHK.transpose(1, 2), self.layer)
            self.cache.is_updated[self.layer] = True
        kept: Any = self.cache.cross_attention_cache.layers[self.layer]
        return kept.keys.transpose(1, 2), kept.values.transpose(1, 2)
