"""Sentence pairs to train translators on, as memory-mapped token IDs in every direction.

They come from shards that `crossling tokenize` wrote, or raw text is tokenized once into shards of its own. Sentences
in shards end in </s> and have no other special tokens, so both directions of a language pair read the same arrays.
"""
# N rows

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
from transformers import PreTrainedTokenizerFast

from crossling.core.errors import BadInput
from crossling.core.files import read_json
from crossling.corpora.corpus import Corpora
from crossling.data.shards import Shards, TokenizedBitext, TokenizedSentences
from crossling.data.tokenize import write_shards
from crossling.finetune.translation.parallel_text import Direction, TrainingCorpus
from crossling.finetune.translation.translator import TranslationTokenizer
from crossling.vocabulary.vocabulary import Vocabulary

LENGTH_SAMPLE = 1000  # rows of a corpus from which its lengths are estimated


@dataclass(frozen=True, kw_only=True)
class DirectedBitext:
    """One corpus in one direction."""

    direction: Direction
    bitext: TokenizedBitext
    before: np.ndarray  # special tokens before a source sentence, with the tag of the target language
    after: np.ndarray  # special tokens after it
    end: int  # last token of a target sentence

    def __len__(self) -> int:
        return self.bitext.pairs

    @cached_property
    def sides(self) -> tuple[TokenizedSentences, TokenizedSentences]:
        """Source and target sentences."""
        first, second = self.bitext.sides
        return (first, second) if self.bitext.languages[0] == self.direction.source else (second, first)

    def rows(self, index_N: np.ndarray) -> np.ndarray:
        """Return the positions of pairs among the rows of the corpus, some of which may lack a side."""
        if self.bitext.pairs == len(self.bitext.sides[0]):
            return index_N
        return np.fromiter(map(self.bitext.row, index_N.tolist()), dtype=np.int64, count=len(index_N))

    def lengths(self, row_N: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the number of tokens of source and target, as the model reads and predicts them."""
        source_N, target_N = (side.offsets[row_N + 1] - side.offsets[row_N] for side in self.sides)
        return source_N - 1 + len(self.before) + len(self.after), target_N

    def pair(self, row: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the token IDs of source and target. The </s> of the shards becomes the end token of the model."""
        source, target = (side[row][:-1].astype(np.int64) for side in self.sides)
        return np.concatenate([self.before, source, self.after]), np.append(target, self.end)

    def sample_lengths(self) -> np.ndarray:
        """Return the longer side of evenly spaced pairs: of all pairs in a small corpus."""
        rows = len(self.sides[0])
        row_N = np.arange(0, rows, -(-rows // LENGTH_SAMPLE))
        present = [side.offsets[row_N + 1] > side.offsets[row_N] for side in self.sides]
        row_N = row_N[present[0] & present[1]]
        if not len(row_N):  # pairs so rare that the sample has none
            row_N = np.asarray([self.bitext.row(0)])
        return np.asarray(np.maximum(*self.lengths(row_N)))


@dataclass(frozen=True)
class TranslationPairs:
    """All corpora in all directions to train."""

    groups: Sequence[DirectedBitext] = field(repr=False)

    @classmethod
    def from_shards(
        cls, shards: Shards, directions: Sequence[Direction], tokenizer: TranslationTokenizer
    ) -> TranslationPairs:
        """Return the pairs of some directions in shards."""
        groups: list[DirectedBitext] = []
        for direction in directions:
            before, after = tokenizer.source_affixes(direction.target)
            groups += [
                DirectedBitext(direction=direction, bitext=bitext, before=before, after=after, end=tokenizer.end)
                for bitext in _bitexts(shards, direction)
            ]
        return cls(groups)

    @property
    def counts(self) -> dict[Direction, int]:
        """Number of pairs in each direction."""
        counts: Counter[Direction] = Counter()
        for group in self.groups:
            counts[group.direction] += len(group)
        return dict(counts)


def _bitexts(shards: Shards, direction: Direction) -> list[TokenizedBitext]:
    """Return the corpora with pairs of a direction. Raises BadInput if there is none."""
    languages = {direction.source, direction.target}
    bitexts = [bitext for bitext in shards.bitexts if {*bitext.languages} == languages and bitext.pairs]
    if not bitexts:
        raise BadInput(f"{shards.path}: no sentence pairs of {direction}. Add some, or omit this direction.")
    return bitexts


def open_pair_shards(path: Path, directions: Sequence[Direction], tokenizer: PreTrainedTokenizerFast) -> Shards:
    """Open shards that `crossling tokenize` wrote, with pairs of all directions and the vocabulary of the model."""
    shards = Shards.open(path)
    processor = Vocabulary.load(shards.vocabulary_path).processor
    entries = [processor.id_to_piece(index) for index in range(shards.vocabulary_size)]
    if entries != tokenizer.convert_ids_to_tokens([*range(len(entries))]):
        raise BadInput(
            f"{path}: these shards have another vocabulary than the model. Tokenize the text with the model's own:"
            " crossling vocab --from MODEL, then crossling tokenize."
        )
    for direction in directions:
        _bitexts(shards, direction)
    return shards


def tokenize_training_text(corpora: Sequence[TrainingCorpus], tokenizer: TranslationTokenizer, out: Path) -> None:
    """Tokenize training text into shards, unless they are there. An interrupted call resumes."""
    manifest = out / "manifest.json"
    if manifest.is_file() and read_json(manifest)["vocabulary"]["fingerprint"] == tokenizer.fingerprint:
        return
    write_shards(Corpora.of_translations(corpora), tokenizer, out)
    dropped: Counter[str] = Counter()
    for entry in open_training_shards(out).entries().values():
        dropped.update(entry["dropped"])
    if dropped:
        reasons = ", ".join(f"{reason}: {number:,}" for reason, number in dropped.items())
        warnings.warn(f"training text: skipped rows ({reasons})", stacklevel=2)


def open_training_shards(path: Path) -> Shards:
    """Open shards that `tokenize_training_text` wrote. They have no vocabulary folder."""
    return Shards(path, read_json(path / "manifest.json"))
