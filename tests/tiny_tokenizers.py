"""Tiny tokenizers of Hugging Face whose special tokens have the ids and names of well-known models."""

from __future__ import annotations

from collections.abc import Iterable

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

# Order of the first special tokens; those after the bar are the last entries.
GEMMA = ("<pad>", "<eos>", "<bos>", "<unk>", "<mask>")  # mmBERT
WORDPIECE = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")  # BERT, ELECTRA


def train_tokenizer(lines: Iterable[str], special: tuple[str, ...] = GEMMA, size: int = 300) -> PreTrainedTokenizerFast:
    """Train a BPE tokenizer (`<bos>`) or a WordPiece one (`[CLS]`) on some lines."""
    is_bpe = "<bos>" in special
    first, last = ("<bos>", "<eos>") if is_bpe else ("[CLS]", "[SEP]")
    pad, unk, mask = ("<pad>", "<unk>", "<mask>") if is_bpe else ("[PAD]", "[UNK]", "[MASK]")
    if is_bpe:
        backend = Tokenizer(models.BPE(unk_token=unk, byte_fallback=False))
        backend.normalizer = normalizers.Replace(" ", "▁")
        backend.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
        backend.decoder = decoders.Replace("▁", " ")
        trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=[*special], show_progress=False)
    else:
        backend = Tokenizer(models.WordPiece(unk_token=unk))
        backend.normalizer = normalizers.BertNormalizer(lowercase=False)
        backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        backend.decoder = decoders.WordPiece()
        trainer = trainers.WordPieceTrainer(vocab_size=size, special_tokens=[*special], show_progress=False)
    backend.train_from_iterator(lines, trainer)
    ids = [(token, backend.token_to_id(token)) for token in (first, last)]
    backend.post_processor = processors.TemplateProcessing(
        single=f"{first} $A {last}", pair=f"{first} $A {last} $B {last}", special_tokens=ids
    )
    names = {"bos_token": first, "eos_token": last} if is_bpe else {"cls_token": first, "sep_token": last}
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call, unused-ignore]
        tokenizer_object=backend, **names, pad_token=pad, unk_token=unk, mask_token=mask
    )
