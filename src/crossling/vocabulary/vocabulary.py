"""Text <-> ids: train, save, load.

Trained by SentencePiece (unigram), shipped twice: `sentencepiece.model` for speed and `tokenizer.json` for Hugging
Face; both give the same ids for NFKC text, and here text is brought to NFKC first. (SentencePiece composes, but leaves
combining marks in the order in which they were typed; Arabic, Hebrew, Burmese and Yoruba have many.)
Special ids are 0 <s>, 1 <pad>, 2 </s>, 3 <unk> and <mask> as the very last.
"""

from __future__ import annotations

import io
import re
import shutil
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
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
from crossling.sampling import tempered

BOS, PAD, EOS, UNK = 0, 1, 2, 3
SPECIAL = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
_NFKC = normalizers.NFKC()
# What is a space to SentencePiece's character map, beside what is one to NFKC.
_SPACES = "\u1680\u200b\u200c\u200e\u200f\u2028\u2029\u2581\ufeff\ufffd"
FILES = {"sentencepiece.model", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.json"}
LONGEST = 4096  # characters of one training sentence; SentencePiece's cost grows with the square of a long word


@dataclass(frozen=True)
class Vocabulary:
    model: bytes  # the serialised SentencePiece model

    def __post_init__(self) -> None:
        object.__setattr__(self, "_pieces", sentencepiece.SentencePieceProcessor(model_proto=self.model))

    @property
    def pieces(self) -> sentencepiece.SentencePieceProcessor:
        return self._pieces  # type: ignore[attr-defined]

    @property
    def size(self) -> int:
        return int(self.pieces.get_piece_size())

    @property
    def mask(self) -> int:
        return self.size - 1

    @property
    def fingerprint(self) -> str:
        return xxhash.xxh3_128_hexdigest(self.model)

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        """Ids of each line, without special tokens."""
        return self.pieces.encode(list(map(_nfkc, lines)), out_type=int)

    @classmethod
    def train(
        cls,
        corpora: Corpora,
        size: int,
        alpha: float = 0.5,
        characters: int = 40_000_000,
        seed: int = 0,
        threads: int = 2,
    ) -> Vocabulary:
        """A joint unigram vocabulary on a sample of `characters`, drawn per language with exponent `alpha`."""
        sample = smoothed_sample(corpora, alpha, characters, seed)
        stream = io.BytesIO()
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=map(_nfkc, sample),
                model_writer=stream,
                model_type="unigram",
                vocab_size=size - 1,  # <mask> comes last, below
                character_coverage=0.9995,
                bos_id=BOS,
                pad_id=PAD,
                eos_id=EOS,
                unk_id=UNK,
                unk_surface="<unk>",
                hard_vocab_limit=True,
                num_threads=threads,
                max_sentence_length=LONGEST * 4,
                input_sentence_size=0,
                minloglevel=2,
            )
        except RuntimeError as error:
            raise BadInput(
                f"{corpora.path}: a vocabulary of {size} pieces cannot be trained on this text, {_remedy(error)}"
            ) from None
        return cls(_finished(stream.getvalue()))

    @classmethod
    def load(cls, folder: Path) -> Vocabulary:
        file = Path(folder) / "sentencepiece.model"
        if not file.is_file():
            raise BadInput(
                f"{folder}: no vocabulary here (expected sentencepiece.model); make one with crossling vocab"
            )
        model = proto.ModelProto()
        try:
            model.ParseFromString(file.read_bytes())
            pieces = [piece.piece for piece in model.pieces]
            if not pieces:
                raise ValueError("empty")
            vocabulary = cls(file.read_bytes())
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
        model = proto.ModelProto()
        model.ParseFromString(self.model)
        fast = Tokenizer(models.Unigram([(p.piece, p.score) for p in model.pieces], unk_id=UNK, byte_fallback=False))
        fast.normalizer = normalizers.Sequence(
            [
                # The character map in the hands of `tokenizers` composes only short sequences, and loses a mark of some
                # (<o, dot below, acute> becomes <o with dot below>): with NFKC before, only single characters are left,
                # and what it takes for spaces must not come with a mark.
                _NFKC,
                normalizers.Replace(Regex(f"[{_SPACES}]"), " "),
                normalizers.Precompiled(model.normalizer_spec.precompiled_charsmap),
                # What SentencePiece does to spaces after its map: fold runs into one, and trim. To spaces only, where
                # `Strip` would take other white space too.
                normalizers.Replace(Regex(" {2,}"), " "),
                normalizers.Replace(Regex(r"\A | \z"), ""),
            ]
        )
        fast.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always"),
                # The names of the special pieces can come out of NFKC (full-width letters). Text is no special piece:
                # cut before the >, where no learned piece crosses from letters to punctuation.
                pre_tokenizers.Split(Regex("(?<=<s|<pad|</s|<unk|<mask)(?=>)"), "isolated"),
            ]
        )
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


def vocab(corpora: Corpora, size: int, out: Path, alpha: float = 0.5, seed: int = 0) -> Vocabulary:
    """Train a vocabulary and write it with its report: pieces, coverage and fertility per language."""
    check_place(Path(out))  # before the long part, too
    if not 0 <= alpha <= 1:
        raise BadInput(f"--alpha {alpha}: expected a number from 0 (all languages alike) to 1 (as much as there is)")
    vocabulary = Vocabulary.train(corpora, size, alpha=alpha, seed=seed)
    vocabulary.save(out, {"size": vocabulary.size, "languages": describe(vocabulary, corpora)})
    return vocabulary


def check_place(folder: Path) -> None:
    """Refuses to write a vocabulary over anything but a vocabulary."""
    strangers = {entry.name for entry in folder.iterdir()} - FILES if folder.is_dir() else set()
    if strangers or folder.is_file():
        what = f"{min(strangers)} is in it" if strangers else "a file"
        raise BadInput(f"{folder}: there is something else here already ({what}); give another -o folder")


def describe(vocabulary: Vocabulary, corpora: Corpora, lines: int = 2000) -> dict[str, dict[str, float]]:
    """Per language, on its first lines: distinct pieces used, share of pieces known, pieces per word."""
    report = {}
    for language in corpora.languages:
        sample = [line for line, _ in zip(_lines(corpora, language), range(lines), strict=False)]
        ids = np.concatenate([np.asarray(row, dtype=np.int64) for row in vocabulary.encode(sample)])
        report[language] = {
            "pieces": int(np.unique(ids).size),
            "coverage": round(float(np.count_nonzero(ids != UNK)) / max(1, ids.size), 5),
            "fertility": round(ids.size / max(1, sum(len(line.split()) for line in sample)), 3),
        }
    return report


def smoothed_sample(corpora: Corpora, alpha: float, characters: int, seed: int) -> list[str]:
    """About `characters` of text in which each language's share is its exponent-smoothed share of the corpora.

    Two passes: one counts, one keeps each line with its language's rate; a language smaller than its share is kept
    whole.
    """
    sizes = {language: sum(map(len, _lines(corpora, language))) for language in corpora.languages}
    shares = tempered(sizes, alpha)
    sample = []
    for index, language in enumerate(corpora.languages):
        rate = min(1.0, characters * shares[language] / max(1, sizes[language]))
        draws = np.random.default_rng([seed, index])
        sample += [line[:LONGEST] for line in _lines(corpora, language) if rate == 1.0 or draws.random() < rate]
    return sample


def copy_vocabulary(source: Path, target: Path) -> None:
    """A vocabulary travels with the shards and the runs that used it."""
    with new_folder(target) as new:
        shutil.copytree(source, new, dirs_exist_ok=True)


def _lines(corpora: Corpora, language: str) -> Iterator[str]:
    """Every line of a language, in text, pairs and multi-way sets."""
    for text in corpora.text:
        if text.language == language:
            for document in text.documents():
                yield from document
    for pairs in corpora.pairs:
        if language in pairs.languages:
            side = pairs.languages.index(language)
            yield from (row[side] for row in pairs.rows())
    for multi in corpora.multi:
        if language in multi.files:
            yield from filter(None, multi.lines(language))


def _nfkc(line: str) -> str:
    # By `tokenizers` itself: it and Python know different versions of Unicode.
    return line if unicodedata.is_normalized("NFKC", line) else _NFKC.normalize_str(line)


def _finished(model: bytes) -> bytes:
    """With <mask>, and with scores whose sums are exact."""
    parsed = proto.ModelProto()
    parsed.ParseFromString(model)
    # SentencePiece adds scores in 32 bits over a line, `tokenizers` in 64 over a word. Of two segmentations that are
    # equally good (`.` `...` and `...` `.`) each would take another by its rounding, were there any to do.
    for piece in parsed.pieces:
        piece.score = round(piece.score * 256) / 256
    # A control piece is never produced from text, so "<mask>" in a corpus stays ordinary characters.
    parsed.pieces.add(piece="<mask>", score=0.0, type=proto.ModelProto.SentencePiece.CONTROL)
    parsed.trainer_spec.vocab_size = len(parsed.pieces)
    return parsed.SerializeToString()


def _remedy(error: RuntimeError) -> str:
    """SentencePiece's messages carry source file, line, the failed condition, and sizes without <mask>."""
    if found := re.search(r"required_chars\. \d+ vs (\d+)", str(error)):
        return f"which needs {int(found[1]) + 1} or more for its characters alone: give a larger --size"
    if found := re.search(r"set it to a value <= (\d+)", str(error)):
        return f"which yields {int(found[1]) + 1} at most: give a smaller --size or more text"
    return "SentencePiece refuses: give another --size or more text"
