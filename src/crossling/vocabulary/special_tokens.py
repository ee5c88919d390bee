"""Ids of the special tokens of a vocabulary, which data, masking and packing need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np

BOS, PAD, EOS, UNK = 0, 1, 2, 3  # in the vocabularies of crossling and of XLM-R, where <mask> is the last entry


@dataclass(frozen=True, kw_only=True)
class SpecialTokens:
    """Ids of the special tokens, and the size of the vocabulary.

    Args:
        size: Number of vocabulary entries.
        bos: Start of a sequence: <s>, [CLS].
        pad: Padding.
        eos: End of a sentence: </s>, [SEP].
        unk: Unknown text. None in byte-level vocabularies.
        mask: Masked token.
        others: Further ids that no text becomes.

    Example:
        >>> SpecialTokens.standard(32_000).mask
        31999
    """

    size: int
    bos: int
    pad: int
    eos: int
    unk: int | None
    mask: int
    others: tuple[int, ...] = ()

    @classmethod
    def standard(cls, size: int) -> Self:
        """Return the special tokens of a vocabulary of crossling or XLM-R.

        Args:
            size: Number of vocabulary entries.

        Returns:
            0 <s>, 1 <pad>, 2 </s>, 3 <unk>, and <mask> as the last.

        Example:
            >>> SpecialTokens.standard(100).eos
            2
        """
        return cls(size=size, bos=BOS, pad=PAD, eos=EOS, unk=UNK, mask=size - 1)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Return the special tokens that `dump` described.

        Args:
            values: Ids by role, and the size.

        Returns:
            The special tokens.

        Example:
            >>> SpecialTokens.from_dict(SpecialTokens.standard(100).dump()).pad
            1
        """
        return cls(**{**values, "others": tuple(values["others"])})

    def dump(self) -> dict[str, Any]:
        """Return the special tokens as a JSON object.

        Returns:
            Ids by role, and the size.

        Example:
            >>> SpecialTokens.standard(100).dump()["mask"]
            99
        """
        return asdict(self) | {"others": list(self.others)}

    @property
    def ids(self) -> frozenset[int]:
        """Ids of all special tokens."""
        named = (self.bos, self.pad, self.eos, self.mask, *self.others)
        return frozenset(named if self.unk is None else (*named, self.unk))

    @cached_property
    def text_ids(self) -> np.ndarray:
        """Ids of all other entries, in ascending order. A random token is one of them."""
        return np.delete(np.arange(self.size), [*self.ids])
