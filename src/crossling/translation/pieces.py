"""Sentences as a translator reads and writes them: a source with the tag of its target language, a target, its end."""
# P pieces of a sentence

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence

import numpy as np
from tokenizers import AddedToken
from transformers import PreTrainedTokenizerFast

from crossling.errors import BadInput
from crossling.transfer.frame import Frame
from crossling.translation.directions import tag

AT_ONCE = 10_000  # texts


def tagged(tokenizer: PreTrainedTokenizerFast, languages: Iterable[str]) -> PreTrainedTokenizerFast:
    """The tokenizer, copied, that knows the tags of these languages as special tokens."""
    known = copy.deepcopy(tokenizer)
    # What stands right of a tag is the beginning of the sentence: a space between them says nothing.
    tags = [AddedToken(tag(language), special=True, rstrip=True, normalized=False) for language in languages]
    known.add_tokens(tags, special_tokens=True)
    return known


class Pieces:
    """What is put around a source is what its tokenizer puts there: `tokenizer("<2de> a dog")` is the same source."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast, end: int, with_tags: bool) -> None:
        self.tokenizer, self.end, self.with_tags = tokenizer, end, with_tags
        self.frame = Frame(tokenizer, typed=False)

    def sources(self, texts: Sequence[str], languages: Sequence[str]) -> list[np.ndarray]:
        """Each to be translated into its language."""
        return self._tagged(self._split(texts), languages)

    def pairs(
        self, sources: Sequence[str], languages: Sequence[str], targets: Sequence[str]
    ) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Sources and their translations; a text that is both, in two directions, is split once."""
        found = self._split([*sources, *targets])
        ended = [np.append(ids, np.int32(self.end)) for ids in found[len(sources) :]]
        return self._tagged(found[: len(sources)], languages), ended

    def text(self, ids: list[list[int]]) -> list[str]:
        """Without special tokens."""
        return [each.strip() for each in self.tokenizer.batch_decode(ids, skip_special_tokens=True)]

    def cut(self, source: np.ndarray, most: int) -> np.ndarray:
        """A source that is too long, without the end of its sentence but with what stands after it."""
        empty = self.frame.one(np.empty(0, dtype=np.int32))
        after = len(empty.ids) - empty.first
        return (
            source if len(source) <= most else np.concatenate([source[: most - after], source[len(source) - after :]])
        )

    def _tagged(self, sources: Sequence[np.ndarray], languages: Sequence[str]) -> list[np.ndarray]:
        tags = {language: self._tag(language) for language in {*languages}}
        return [
            self.frame.one(np.concatenate([tags[language], ids])).ids
            for ids, language in zip(sources, languages, strict=True)
        ]

    def _tag(self, language: str) -> np.ndarray:
        if not self.with_tags:
            return np.empty(0, dtype=np.int32)
        number = self.tokenizer.convert_tokens_to_ids(tag(language))
        if number is None or number == self.tokenizer.unk_token_id:
            raise BadInput(f"the tokenizer of this translator has no tag {tag(language)}; it was not trained for it")
        return np.array([number], dtype=np.int32)

    def _split(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Pieces of each text; what looks like a special token is text here."""
        distinct = list(dict.fromkeys(texts))
        found: dict[str, np.ndarray] = {}
        for start in range(0, len(distinct), AT_ONCE):
            some = distinct[start : start + AT_ONCE]
            split = self.tokenizer(
                some,
                add_special_tokens=False,
                split_special_tokens=True,
                return_attention_mask=False,
                return_token_type_ids=False,
                verbose=False,
            )["input_ids"]
            found |= {text: np.array(ids, dtype=np.int32) for text, ids in zip(some, split, strict=True)}
        return [found[text] for text in texts]
