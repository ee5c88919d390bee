"""The tokenizer of a Hugging Face model, of any type, in the role of a vocabulary: BPE, WordPiece, unigram.

A vocabulary folder of this kind holds the tokenizer files of the model, and the ids of the special tokens in
vocab.json. Ids are those of the model, so its embeddings need no change.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import xxhash

from crossling.core.errors import BadInput, first_line
from crossling.core.files import atomic_folder, write_json
from crossling.core.hub import quiet_transformers
from crossling.vocabulary.special_tokens import SpecialTokens
from crossling.vocabulary.vocabulary import (
    REPORT,
    VOCABULARY_FORMAT,
    check_vocabulary_folder,
    read_report,
)

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

TOKENIZER, CONFIG = "tokenizer.json", "tokenizer_config.json"


@dataclass(frozen=True)
class FastVocabulary:
    """Tokenizer of a Hugging Face model that converts text to token ids.

    Args:
        files: Content of `tokenizer.json` and `tokenizer_config.json`.

    Example:
        >>> vocabulary = FastVocabulary.load("mmBERT-base")
        >>> vocabulary.encode(["the white house"])
    """

    files: Mapping[str, bytes] = field(repr=False)

    @classmethod
    def load(cls, folder: str | os.PathLike[str], name: str | None = None) -> FastVocabulary:
        """Read the tokenizer in a model folder or a vocabulary folder.

        Args:
            folder: Folder with the files of a tokenizer.
            name: Name of the model in messages [default: the folder].

        Returns:
            The vocabulary.

        Raises:
            BadInput: If `transformers` cannot load it, or a special token is missing.

        Example:
            >>> FastVocabulary.load("mmBERT-base").special.mask
            4
        """
        name = name or os.fspath(folder)
        read_report(Path(folder))
        vocabulary = cls.from_tokenizer(_load_tokenizer(Path(folder), name))
        vocabulary._check(name)
        return vocabulary

    @classmethod
    def from_tokenizer(cls, tokenizer: PreTrainedTokenizerFast) -> FastVocabulary:
        """Return the vocabulary of a tokenizer.

        Args:
            tokenizer: Fast tokenizer of `transformers`.

        Returns:
            The vocabulary with the files of the tokenizer.

        Example:
            >>> FastVocabulary.from_tokenizer(AutoTokenizer.from_pretrained("mmBERT-base"))
        """
        with tempfile.TemporaryDirectory() as folder:
            tokenizer.save_pretrained(folder)
            return cls({name: (Path(folder) / name).read_bytes() for name in (TOKENIZER, CONFIG)})

    def _check(self, name: str) -> None:
        """Raise BadInput unless the tokenizer has all special tokens that training needs."""
        tokenizer = self.tokenizer()
        ids = {"mask": tokenizer.mask_token_id, "padding": tokenizer.pad_token_id}
        ids |= {"start": _start_id(tokenizer), "end": _end_id(tokenizer)}
        missing = [role for role, number in ids.items() if number is None]
        if missing:
            raise BadInput(f"{name}: its tokenizer has no {missing[0]} token. Add one to {CONFIG}.")

    @property
    def size(self) -> int:
        """Number of vocabulary entries, which is one more than the largest id."""
        return self.special.size

    @cached_property
    def special(self) -> SpecialTokens:
        """Ids of the special tokens."""
        tokenizer: Any = self.tokenizer()
        return SpecialTokens(
            size=1 + max(tokenizer.get_vocab().values()),
            bos=_start_id(tokenizer),  # type: ignore[arg-type]  # `_check` has refused None
            pad=tokenizer.pad_token_id,
            eos=_end_id(tokenizer),  # type: ignore[arg-type]
            unk=tokenizer.unk_token_id,
            mask=tokenizer.mask_token_id,
            others=tuple(sorted(tokenizer.all_special_ids)),
        )

    @property
    def fingerprint(self) -> str:
        """Hash of the tokenizer."""
        return xxhash.xxh3_128_hexdigest(self.files[TOKENIZER])

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        """Convert lines to token ids, without special tokens.

        Args:
            lines: Lines of text.

        Returns:
            The ids of each line.

        Example:
            >>> [ids] = vocabulary.encode(["the white house"])
        """
        return [encoding.ids for encoding in self._backend.encode_batch(list(lines), add_special_tokens=False)]

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
        return str(self.tokenizer().decode(list(ids)))

    def save(self, folder: str | os.PathLike[str], report: Mapping[str, Any] | None = None) -> Path:
        """Write a vocabulary folder. It replaces an earlier vocabulary, and nothing else.

        Args:
            folder: Folder to write.
            report: Content of vocab.json beside the format version and the special tokens.

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
            self.write_tokenizer(temporary)
            special = {"special": self.special.dump()}
            write_json(temporary / REPORT, {"format": VOCABULARY_FORMAT, **special, **(report or {})})
        return path

    def write_tokenizer(self, folder: Path) -> None:
        """Write the tokenizer files of Hugging Face.

        Args:
            folder: Existing folder.

        Example:
            >>> vocabulary.write_tokenizer(Path("exported"))
        """
        for name, content in self.files.items():
            (folder / name).write_bytes(content)

    def tokenizer(self) -> PreTrainedTokenizerFast:
        """Return the tokenizer of Hugging Face.

        Returns:
            The tokenizer of the model.

        Example:
            >>> vocabulary.tokenizer()("the white house")["input_ids"]
        """
        return self._tokenizer

    @cached_property
    def _tokenizer(self) -> PreTrainedTokenizerFast:
        with tempfile.TemporaryDirectory() as folder:
            self.write_tokenizer(Path(folder))
            return _load_tokenizer(Path(folder), TOKENIZER)

    @cached_property
    def _backend(self) -> Tokenizer:
        from tokenizers import Tokenizer

        backend = Tokenizer.from_str(self.files[TOKENIZER].decode())
        backend.no_padding()
        backend.no_truncation()
        backend.encode_special_tokens = True  # "<mask>" in a corpus stays ordinary characters
        return backend

    def __reduce__(self) -> tuple[Any, ...]:
        return FastVocabulary, (dict(self.files),)  # without the tokenizers, which worker processes load themselves


def _start_id(tokenizer: Any) -> int | None:
    found: int | None = tokenizer.bos_token_id if tokenizer.cls_token_id is None else tokenizer.cls_token_id
    return found


def _end_id(tokenizer: Any) -> int | None:
    found: int | None = tokenizer.eos_token_id if tokenizer.sep_token_id is None else tokenizer.sep_token_id
    return found


def _load_tokenizer(folder: Path, name: str) -> PreTrainedTokenizerFast:
    from transformers import AutoTokenizer, PreTrainedTokenizerFast  # takes a second, and is not needed to encode

    try:
        with quiet_transformers():
            tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # each type of tokenizer raises its own errors
        reason = first_line(error)
        raise BadInput(f"{name}: transformers cannot load the tokenizer ({reason}). Give another model.") from None
    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        raise BadInput(f"{name}: no fast tokenizer. Save tokenizer.json, as AutoTokenizer does, into the folder.")
    return tokenizer
