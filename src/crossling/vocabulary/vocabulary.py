"""Text <-> ids: a unigram vocabulary, in memory and on disk.

Shipped twice: `sentencepiece.model` for speed and `tokenizer.json` for Hugging Face. Both give the same ids; see
normalise.py for what that takes. Special ids are 0 <s>, 1 <pad>, 2 </s>, 3 <unk> and <mask> as the very last.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece
import xxhash
from sentencepiece import sentencepiece_model_pb2 as proto
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from crossling.corpora.corpus import Corpora
from crossling.disk import new_folder, write_json
from crossling.errors import BadInput
from crossling.vocabulary import normalise, unigram
from crossling.vocabulary.sample import CHARACTERS, Survey, joined, smoothed_sample, survey

BOS, PAD, EOS, UNK = 0, 1, 2, 3
SPECIAL = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
FILES = {"sentencepiece.model", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.json"}
LINES_AT_ONCE = 10_000
_Piece = proto.ModelProto.SentencePiece


@dataclass(frozen=True)
class Vocabulary:
    model: bytes = field(repr=False)  # the serialised SentencePiece model

    @classmethod
    def of(cls, scores: Mapping[str, float], rules: bytes, name: str = normalise.NAME) -> Vocabulary:
        """Pieces with their log probabilities in the order of their ids, special ones aside.

        `rules` are what text goes through first, compiled; `name` tells ours from those of others.
        """
        model = proto.ModelProto()
        for piece in SPECIAL[:-1]:
            model.pieces.add(piece=piece, score=0.0, type=_Piece.UNKNOWN if piece == "<unk>" else _Piece.CONTROL)
        for piece, score in scores.items():
            model.pieces.add(piece=piece, score=score)
        # A control piece is never produced from text, so "<mask>" in a corpus stays ordinary characters.
        model.pieces.add(piece="<mask>", score=0.0, type=_Piece.CONTROL)
        spec = model.trainer_spec
        spec.model_type, spec.vocab_size = proto.TrainerSpec.UNIGRAM, len(model.pieces)
        spec.bos_id, spec.pad_id, spec.eos_id, spec.unk_id, spec.unk_surface = BOS, PAD, EOS, UNK, "<unk>"
        model.normalizer_spec.name = name
        model.normalizer_spec.precompiled_charsmap = rules
        return cls(model.SerializeToString())

    @classmethod
    def train(
        cls,
        corpora: Corpora,
        size: int,
        alpha: float = 0.5,
        characters: int = CHARACTERS,
        seed: int = 0,
        threads: int = 2,
        seen: Survey | None = None,
    ) -> Vocabulary:
        """A joint vocabulary on a sample of `characters`, drawn per language with exponent `alpha`.

        `seen` is what a survey found, where there was one already.
        """
        seen = seen or survey(corpora)
        sample = smoothed_sample(corpora, seen.characters, alpha, characters, seed)
        try:
            scores = unigram.train(map(normalise.nfkc, joined(sample)), size - len(SPECIAL), threads)
        except unigram.DoesNotFit as fault:
            raise BadInput(
                f"{corpora.path}: a vocabulary of {size} pieces cannot be trained on this text, which {fault}"
            ) from None
        return cls.of(scores, normalise.character_map(seen.odd))

    @cached_property
    def pieces(self) -> sentencepiece.SentencePieceProcessor:
        return sentencepiece.SentencePieceProcessor(model_proto=self.model)

    @property
    def size(self) -> int:
        return int(self.pieces.get_piece_size())

    @property
    def mask(self) -> int:
        return self.size - 1

    @property
    def fingerprint(self) -> str:
        return xxhash.xxh3_128_hexdigest(self.model)

    @cached_property
    def scores(self) -> dict[str, float]:
        """The log probability of every piece but the special ones, in the order of their ids."""
        return {piece.piece: piece.score for piece in self._proto.pieces[len(SPECIAL) - 1 : -1]}

    @property
    def rules(self) -> bytes:
        """What text goes through first, compiled."""
        return bytes(self._proto.normalizer_spec.precompiled_charsmap)

    @property
    def rules_name(self) -> str:
        return str(self._proto.normalizer_spec.name)

    def normalised(self, lines: Iterable[str]) -> list[str]:
        """The lines as its model should see them: in NFKC, but as they are where the rules are those of others."""
        return list(map(normalise.nfkc, lines)) if self.rules_name == normalise.NAME else list(lines)

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        """Ids of each line, without special tokens."""
        # One thread: several processes encode side by side, each for itself.
        return self.pieces.encode(self.normalised(lines), out_type=int, num_threads=1)

    def counts(self, lines: Iterable[str]) -> np.ndarray:
        """How often each id is used in the lines."""
        counts = np.zeros(self.size, dtype=np.int64)
        lines = iter(lines)
        while some := list(islice(lines, LINES_AT_ONCE)):
            counts += np.bincount(list(chain.from_iterable(self.encode(some))), minlength=self.size)
        return counts

    @classmethod
    def load(cls, folder: Path) -> Vocabulary:
        file = Path(folder) / "sentencepiece.model"
        if not file.is_file():
            raise BadInput(
                f"{folder}: no vocabulary here (expected sentencepiece.model); make one with crossling vocab"
            )
        try:
            vocabulary = cls(file.read_bytes())
            pieces = [vocabulary.pieces.id_to_piece(i) for i in range(vocabulary.size)]
            if not pieces:
                raise ValueError("empty")
        except Exception:
            raise BadInput(f"{file}: not a SentencePiece model; make one with crossling vocab") from None
        if tuple(pieces[:4]) + tuple(pieces[-1:]) != SPECIAL:
            raise BadInput(
                f"{file}: the special pieces must be {', '.join(SPECIAL[:4])} first and <mask> last,"
                f" found {', '.join(pieces[:4])} and {''.join(pieces[-1:])}; make one with crossling vocab"
            )
        return vocabulary

    def save(self, folder: Path, report: dict[str, Any] | None = None) -> Path:
        """Writes the folder; takes the place of an earlier vocabulary, and of nothing else."""
        check_place(Path(folder))
        with new_folder(Path(folder)) as new:
            (new / "sentencepiece.model").write_bytes(self.model)
            self.tokenizer().save_pretrained(new)
            if report is not None:
                write_json(new / "vocab.json", report)
        return Path(folder)

    def tokenizer(self) -> PreTrainedTokenizerFast:
        """The same vocabulary as a Hugging Face tokenizer; a pair becomes <s> source </s> target </s>."""
        fast = Tokenizer(models.Unigram([(p.piece, p.score) for p in self._proto.pieces], unk_id=UNK))
        if self.rules_name == normalise.NAME:
            fast.normalizer = normalise.fast_normalizer(self.rules)
            # The names of the special pieces can come out of NFKC (full-width letters). Text is no special piece: cut
            # before the >, where no learned piece crosses from letters to punctuation.
            cut = pre_tokenizers.Split(Regex("(?<=<s|<pad|</s|<unk|<mask)(?=>)"), "isolated")
            fast.pre_tokenizer = pre_tokenizers.Sequence([_METASPACE, cut])
        else:  # as `transformers` does for XLM-R
            fast.normalizer = normalizers.Precompiled(self.rules) if self.rules else None
            fast.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), _METASPACE])
        fast.decoder = decoders.Metaspace(replacement="▁", prepend_scheme="always")
        fast.post_processor = processors.TemplateProcessing(
            single="<s> $A </s>", pair="<s> $A </s> $B </s>", special_tokens=[("<s>", BOS), ("</s>", EOS)]
        )
        fast.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL])
        return PreTrainedTokenizerFast(
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


def check_place(folder: Path) -> None:
    """Refuses to write a vocabulary over anything but a vocabulary."""
    strangers = {entry.name for entry in folder.iterdir()} - FILES if folder.is_dir() else set()
    if strangers or folder.is_file():
        what = f"{min(strangers)} is in it" if strangers else "a file"
        raise BadInput(f"{folder}: there is something else here already ({what}); give another -o folder")


def copy_vocabulary(source: Path, target: Path) -> None:
    """A vocabulary travels with the shards and the runs that used it."""
    with new_folder(target) as new:
        shutil.copytree(source, new, dirs_exist_ok=True)
