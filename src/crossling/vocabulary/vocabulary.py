"""Unigram vocabulary that converts text to token ids, in memory and on disk.

A vocabulary folder holds the same vocabulary twice: `sentencepiece.model` for speed and `tokenizer.json` for Hugging
Face. Both give the same ids; text_normalization.py explains how. Special ids: 0 <s>, 1 <pad>, 2 </s>, 3 <unk>, and
<mask> as the last.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import sentencepiece
import xxhash
from sentencepiece import sentencepiece_model_pb2 as proto
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from crossling.core.errors import BadInput
from crossling.core.files import atomic_folder, check_format, read_json, write_json
from crossling.core.folder_kinds import kind_note
from crossling.core.resumable import check_output_folder
from crossling.corpora.corpus import Corpora
from crossling.vocabulary import text_normalization, text_sample, unigram
from crossling.vocabulary.special_tokens import BOS as BOS
from crossling.vocabulary.special_tokens import EOS as EOS
from crossling.vocabulary.special_tokens import PAD as PAD
from crossling.vocabulary.special_tokens import UNK as UNK
from crossling.vocabulary.special_tokens import SpecialTokens

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

SPECIAL = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
VOCABULARY_FORMAT = 2  # version of the vocabulary folder, in its vocab.json
REPORT = "vocab.json"
FILES = {"sentencepiece.model", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", REPORT}
LINES_AT_ONCE = 10_000
_Entry = proto.ModelProto.SentencePiece


@dataclass(frozen=True)
class Vocabulary:
    """Unigram vocabulary that converts text to token ids.

    `crossling.vocab` makes one and writes it to a folder.

    Args:
        model: Serialized SentencePiece model.

    Example:
        >>> vocabulary = Vocabulary.load("vocab")
        >>> vocabulary.encode(["the white house"])
    """

    model: bytes = field(repr=False)

    @classmethod
    def from_scores(
        cls, scores: Mapping[str, float], charsmap: bytes, normalizer_name: str = text_normalization.NAME
    ) -> Vocabulary:
        """Create a vocabulary from its subwords.

        Args:
            scores: Log probability of every subword but the special ones, in the order of their ids.
            charsmap: Compiled normalization rules of SentencePiece.
            normalizer_name: Name of these rules. It distinguishes our own from those of other vocabularies.

        Returns:
            The vocabulary with the special tokens added.

        Example:
            >>> Vocabulary.from_scores({"▁a": -1.0, "b": -2.0}, charsmap=b"").size
            7
        """
        model = proto.ModelProto()
        for token in SPECIAL[:-1]:
            model.pieces.add(piece=token, score=0.0, type=_Entry.UNKNOWN if token == "<unk>" else _Entry.CONTROL)
        for subword, score in scores.items():
            model.pieces.add(piece=subword, score=score)
        # A control token is never produced from text, so "<mask>" in a corpus stays ordinary characters.
        model.pieces.add(piece="<mask>", score=0.0, type=_Entry.CONTROL)
        spec = model.trainer_spec
        spec.model_type, spec.vocab_size = proto.TrainerSpec.UNIGRAM, len(model.pieces)
        spec.bos_id, spec.pad_id, spec.eos_id, spec.unk_id, spec.unk_surface = BOS, PAD, EOS, UNK, "<unk>"
        model.normalizer_spec.name = normalizer_name
        model.normalizer_spec.precompiled_charsmap = charsmap
        return cls(model.SerializeToString())

    @classmethod
    def train(
        cls,
        corpora: Corpora,
        size: int,
        *,
        alpha: float = 0.5,
        characters: int = text_sample.SAMPLE_CHARACTERS,
        seed: int = 0,
        threads: int = 2,
    ) -> Vocabulary:
        """Train one joint vocabulary on a sample of the corpora.

        Args:
            corpora: Text to train on.
            size: Number of vocabulary entries, special tokens included.
            alpha: Exponent that smooths the sampling probabilities of the languages.
            characters: Size of the sample.
            seed: Seed of the sample.
            threads: Threads of SentencePiece.

        Returns:
            The vocabulary.

        Raises:
            BadInput: If the text yields no vocabulary of this size.

        Example:
            >>> Vocabulary.train(Corpora("corpora"), 32_000).save("vocab")
        """
        settings = text_sample.SampleSettings(characters, alpha, seed)
        with tempfile.TemporaryDirectory(prefix="crossling-") as folder:
            sample = text_sample.sample_corpora(corpora, Path(folder), settings)
        assert sample is not None  # no other machine has a part
        return cls.from_sample(sample, size, threads=threads, where=corpora.path)

    @classmethod
    def from_sample(cls, sample: text_sample.TextSample, size: int, *, threads: int, where: object) -> Vocabulary:
        """Train one joint vocabulary on a sample.

        Args:
            sample: Text to train on.
            size: Number of vocabulary entries, special tokens included.
            threads: Threads of SentencePiece.
            where: Corpora that are named in an error.

        Returns:
            The vocabulary.

        Raises:
            BadInput: If the text yields no vocabulary of this size.

        Example:
            >>> Vocabulary.from_sample(sample, 32_000, threads=2, where="corpora")
        """
        lines = map(text_normalization.normalize_nfkc, sample.all_lines())
        try:
            scores = unigram.train(lines, size - len(SPECIAL), threads)
        except unigram.UnattainableSize as error:
            raise BadInput(f"{where}: cannot train {size} vocabulary entries on this text. {error}") from None
        return cls.from_scores(scores, text_normalization.build_charsmap(sample.unnormalized_clusters))

    @cached_property
    def processor(self) -> sentencepiece.SentencePieceProcessor:
        """SentencePiece processor of the model."""
        return sentencepiece.SentencePieceProcessor(model_proto=self.model)

    @property
    def size(self) -> int:
        """Number of vocabulary entries, special tokens included."""
        return int(self.processor.get_piece_size())

    @property
    def mask_id(self) -> int:
        """Id of <mask>."""
        return self.size - 1

    @property
    def special(self) -> SpecialTokens:
        """Ids of the special tokens."""
        return SpecialTokens.standard(self.size)

    @property
    def fingerprint(self) -> str:
        """Hash of the model."""
        return xxhash.xxh3_128_hexdigest(self.model)

    @cached_property
    def scores(self) -> dict[str, float]:
        """Log probability of every subword but the special ones, in the order of their ids."""
        return {entry.piece: entry.score for entry in self._proto.pieces[len(SPECIAL) - 1 : -1]}

    @property
    def charsmap(self) -> bytes:
        """Compiled normalization rules of SentencePiece."""
        return bytes(self._proto.normalizer_spec.precompiled_charsmap)

    @property
    def normalizer_name(self) -> str:
        """Name of the normalization rules."""
        return str(self._proto.normalizer_spec.name)

    def normalize(self, lines: Iterable[str]) -> list[str]:
        """Apply NFKC, unless the normalization rules are those of another vocabulary.

        Args:
            lines: Lines of text.

        Returns:
            The lines as the SentencePiece model expects them.

        Example:
            >>> vocabulary.normalize(["ﬁne"])
            ['fine']
        """
        is_own = self.normalizer_name == text_normalization.NAME
        return list(map(text_normalization.normalize_nfkc, lines)) if is_own else list(lines)

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        """Convert lines to token ids, without special tokens.

        Args:
            lines: Lines of text.

        Returns:
            The ids of each line.

        Example:
            >>> [ids] = vocabulary.encode(["the white house"])
        """
        # One thread: several processes encode at the same time.
        ids: list[list[int]] = self.processor.encode(self.normalize(lines), out_type=int, num_threads=1)
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """Convert token ids to text.

        Args:
            ids: Token ids without special tokens.

        Returns:
            The text.

        Example:
            >>> vocabulary.decode(ids)
            'the white house'
        """
        return str(self.processor.decode(list(ids)))

    def count_tokens(self, lines: Iterable[str]) -> np.ndarray:
        """Count how often each id occurs in the lines.

        Args:
            lines: Lines of text, read once.

        Returns:
            The counts by id.

        Example:
            >>> vocabulary.count_tokens(["the white house"]).sum()
        """
        counts = np.zeros(self.size, dtype=np.int64)
        lines = iter(lines)
        while batch := list(islice(lines, LINES_AT_ONCE)):
            counts += np.bincount(list(chain.from_iterable(self.encode(batch))), minlength=self.size)
        return counts

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Vocabulary:
        """Read a vocabulary folder.

        Args:
            folder: Folder that `crossling vocab` wrote.

        Returns:
            The vocabulary.

        Raises:
            BadInput: If the folder holds no vocabulary, or one of another format version.

        Example:
            >>> Vocabulary.load("vocab").size
        """
        file = Path(folder) / "sentencepiece.model"
        if not file.is_file():
            inside = Path(folder) / "vocab"
            has_own = (inside / "sentencepiece.model").is_file()
            fix = f"Give {inside}." if has_own else "Make one with `crossling vocab`."
            raise BadInput(f"{folder}: no vocabulary (expected sentencepiece.model{kind_note(folder)}). {fix}")
        read_report(Path(folder))
        try:
            vocabulary = cls(file.read_bytes())
            entries = [vocabulary.processor.id_to_piece(i) for i in range(vocabulary.size)]
            if not entries:
                raise ValueError("empty")
        except Exception:
            raise BadInput(f"{file}: not a SentencePiece model. Make one with `crossling vocab`.") from None
        check_special_tokens(entries, file, "Make one with `crossling vocab`.")
        return vocabulary

    def save(self, folder: str | os.PathLike[str], report: Mapping[str, Any] | None = None) -> Path:
        """Write a vocabulary folder. It replaces an earlier vocabulary, and nothing else.

        Args:
            folder: Folder to write.
            report: Content of vocab.json beside the format version.

        Returns:
            The folder.

        Raises:
            BadInput: If the folder holds other files.

        Example:
            >>> vocabulary.save("vocab")
        """
        path = Path(folder)
        check_vocabulary_folder(path)
        with atomic_folder(path) as temporary:
            (temporary / "sentencepiece.model").write_bytes(self.model)
            self.tokenizer().save_pretrained(temporary)
            write_json(temporary / REPORT, {"format": VOCABULARY_FORMAT, **(report or {})})
        return path

    def tokenizer(self) -> PreTrainedTokenizerFast:
        """Return the same vocabulary as a Hugging Face tokenizer.

        Returns:
            A tokenizer that encodes a pair as <s> source </s> target </s>.

        Example:
            >>> vocabulary.tokenizer()("the white house")["input_ids"]
        """
        from transformers import PreTrainedTokenizerFast  # takes a second, and worker processes do not need it

        fast = Tokenizer(models.Unigram([(entry.piece, entry.score) for entry in self._proto.pieces], unk_id=UNK))
        if self.normalizer_name == text_normalization.NAME:
            fast.normalizer = text_normalization.fast_normalizer(self.charsmap)
            # NFKC can produce the names of special tokens (from full-width letters), but text must not become a
            # special token. No learned subword crosses from letters to punctuation: split before the >.
            split = pre_tokenizers.Split(Regex("(?<=<s|<pad|</s|<unk|<mask)(?=>)"), "isolated")
            fast.pre_tokenizer = pre_tokenizers.Sequence([_METASPACE, split])
        else:  # as `transformers` does for XLM-R
            fast.normalizer = normalizers.Precompiled(self.charsmap) if self.charsmap else None
            fast.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), _METASPACE])
        fast.decoder = decoders.Metaspace(replacement="▁", prepend_scheme="always")
        fast.post_processor = processors.TemplateProcessing(
            single="<s> $A </s>", pair="<s> $A </s> $B </s>", special_tokens=[("<s>", BOS), ("</s>", EOS)]
        )
        fast.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL])
        return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call, unused-ignore]
            tokenizer_object=fast,
            bos_token="<s>",
            cls_token="<s>",
            eos_token="</s>",
            sep_token="</s>",
            pad_token="<pad>",
            unk_token="<unk>",
            mask_token="<mask>",
            model_input_names=["input_ids", "attention_mask"],
        )

    @cached_property
    def _proto(self) -> Any:
        model = proto.ModelProto()
        model.ParseFromString(self.model)
        return model


_METASPACE = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")


def check_special_tokens(entries: Sequence[str], where: object, fix: str) -> None:
    """Raise BadInput unless the first four entries and the last are the special tokens, as in XLM-R."""
    if (*entries[:4], *entries[-1:]) != SPECIAL:
        raise BadInput(
            f"{where}: expected the special tokens {', '.join(SPECIAL[:4])} first and <mask> last,"
            f" found {', '.join(entries[:4])} and {''.join(entries[-1:])}. {fix}"
        )


def read_report(folder: Path, fix: str = "Make the vocabulary again with `crossling vocab`.") -> dict[str, Any] | None:
    """Return the content of vocab.json, or None if there is none; BadInput for another format version."""
    file = folder / REPORT
    if not file.is_file():
        return None
    try:
        report: dict[str, Any] = read_json(file)
        version = report.get("format", 1)
    except (ValueError, AttributeError):
        raise BadInput(f"{file}: not readable. {fix}") from None
    check_format(file, version, VOCABULARY_FORMAT, fix)
    return report


def check_vocabulary_folder(folder: Path) -> None:
    """Raise BadInput if a folder holds anything but a vocabulary."""
    check_output_folder(folder, holds=FILES, command="crossling vocab", exclusive=True)


def copy_vocabulary(source: Path, target: Path) -> None:
    """Copy a vocabulary folder into the shards or the run that use it."""
    with atomic_folder(target) as temporary:
        shutil.copytree(source, temporary, dirs_exist_ok=True)
