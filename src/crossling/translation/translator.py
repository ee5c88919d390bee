"""A model that translates, and the folder it lives in, which Hugging Face's libraries read.

MT/seed-N/  config.json  model.safetensors  tokenizer.json  generation_config.json     the model
            translator.json                                   its directions, how it was trained, its scores on dev
"""
# B sources of a batch

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xxhash
from transformers import AutoModelForSeq2SeqLM, PreTrainedTokenizerFast

from crossling.disk import write_json
from crossling.errors import BadInput
from crossling.model.pretrained import pretrained, quiet, tokenizer_of
from crossling.model.translator import CrosslingForConditionalGeneration
from crossling.transfer.lengths import batches
from crossling.translation.directions import Direction, directions, tag, targets
from crossling.translation.pieces import Pieces

FACTS = "translator.json"
BEAM = 5
MEMORY = {"cuda": 1 << 33, "cpu": 1 << 28}  # bytes for what a batch remembers, and about as many for its logits
LONGER, MORE = 2, 20  # a translation may have so many times the pieces of its source, and some more


@dataclass(frozen=True)
class Facts:
    """What translator.json tells."""

    pairs: list[str]  # "en-de"
    tags: dict[str, str]  # what is written before a source, by target language; none where there is one direction
    model: str  # what it began as
    start: str  # "pre-trained", "random" or "translator"
    seed: int
    hyper: dict[str, Any]
    steps: int  # it was trained for
    states: list[int]  # the mean of which it is, by step
    rows: dict[str, int]  # it was trained on, by direction
    data: str  # a fingerprint of what it was trained on and chosen by
    dev: dict[str, float] = field(default_factory=dict)  # sacreBLEU by direction
    curve: list[dict[str, float]] = field(default_factory=list)  # step, seconds, and the mean of dev at it

    @property
    def directions(self) -> tuple[Direction, ...]:
        return directions(self.pairs)

    @property
    def mark(self) -> str:
        """Tells translators of one model apart that were trained in other ways or on other text, whatever the seed."""
        hyper = self.hyper
        told = json.dumps([self.pairs, self.start, self.data, hyper], sort_keys=True).encode()
        words = [
            f"lr {hyper.get('lr', 0):g}",
            f"{hyper['steps']} steps" if hyper.get("steps") else f"{hyper.get('epochs', 0):g} epochs",
            f"decoder depth {hyper['decoder_layers']}" if hyper.get("decoder_layers") else "",
            "untied" if hyper.get("tied") is False else "",
            xxhash.xxh3_64_hexdigest(told)[:6],
        ]
        return ", ".join(filter(None, words))


def decoding(beam: int, length_penalty: float) -> str:
    """How a translation was looked for, in words: `beam 5`, `beam 5, length penalty 0.6`."""
    return f"beam {beam}" if length_penalty == 1 else f"beam {beam}, length penalty {length_penalty:g}"


class Translator:
    """A model, its tokenizer and its directions, ready to translate."""

    def __init__(
        self,
        model: CrosslingForConditionalGeneration,
        tokenizer: PreTrainedTokenizerFast,
        known: Sequence[Direction],
        with_tags: bool,
        name: str,
    ) -> None:
        self.model, self.tokenizer, self.directions, self.name = model, tokenizer, tuple(known), name
        self.pieces = Pieces(tokenizer, model.config.eos_token_id, with_tags)

    @property
    def longest(self) -> int:
        """Tokens of a source or a translation."""
        return int(self.model.config.max_position_embeddings)

    def translate(
        self,
        lines: Sequence[str],
        to: str | Sequence[str],
        beam: int = BEAM,
        length_penalty: float = 1.0,
        told: Callable[[int], None] | None = None,  # how many are done, as they are
    ) -> list[str]:
        """One translation for each line, in their order, into one language or each into its own. Lines of similar
        length are decoded together; one that is too long is cut, and a note says so; an empty one stays empty."""
        languages = [to] * len(lines) if isinstance(to, str) else list(to)
        full = [row for row, line in enumerate(lines) if line.strip()]
        sources = self.pieces.sources([lines[row] for row in full], [languages[row] for row in full])
        found = [""] * len(lines)
        too_long = sum(len(source) > self.longest for source in sources)
        if too_long:
            warnings.warn(
                f"{self.name}: {too_long} lines have more than {self.longest} tokens and are cut there", stacklevel=2
            )
            sources = [self.pieces.cut(source, self.longest) for source in sources]
        for rows in self._batches([len(source) for source in sources], beam):
            said = self._decoded([sources[row] for row in rows], beam, length_penalty)
            for row, text in zip(rows, self.pieces.text(said), strict=True):
                found[full[row]] = text
            if told is not None:
                told(len(rows))
        return found

    def _batches(self, lengths: Sequence[int], beam: int) -> Iterator[list[int]]:
        """As many of similar length as memory holds: of each token keys and values in every layer, of the source and
        of what is said so far; and for each beam the logits of every piece."""
        config, memory = self.model.config, MEMORY[self.model.device.type]
        tokens = memory // (16 * config.num_hidden_layers * config.hidden_size * beam)
        most = max(1, memory // (16 * config.vocab_size * beam))
        return batches([max(length, tokens // most) for length in lengths], tokens)

    def _decoded(self, sources: Sequence[np.ndarray], beam: int, length_penalty: float) -> list[list[int]]:
        model = self.model
        width = max(map(len, sources))
        ids_BL = torch.full((len(sources), width), int(model.config.pad_token_id or 0))
        for row, source in enumerate(sources):
            ids_BL[row, : len(source)] = torch.from_numpy(source)
        present_BL = torch.arange(width) < torch.tensor([[len(source)] for source in sources])
        device = model.device
        half = torch.autocast(device.type, dtype=torch.bfloat16, enabled=device.type == "cuda")
        was_training = model.training
        model.eval()
        try:
            with torch.no_grad(), half, quiet():
                said_BL: Any = model.generate(
                    ids_BL.to(device),
                    attention_mask=present_BL.long().to(device),
                    num_beams=beam,
                    length_penalty=length_penalty,
                    early_stopping=beam > 1,
                    do_sample=False,
                    max_length=min(self.longest, LONGER * width + MORE),
                )
        finally:
            model.train(was_training)
        return said_BL.tolist()

    def save(self, folder: Path) -> None:
        """Into a folder that is there."""
        with quiet():
            self.model.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)

    @classmethod
    def load(cls, folder: Path | str) -> Translator:
        folder = Path(folder)
        known = facts(folder)
        model: Any = pretrained(folder, folder, AutoModelForSeq2SeqLM)
        tokenizer = tokenizer_of(folder, folder)
        model.to("cuda" if torch.cuda.is_available() else "cpu")
        return cls(model, tokenizer, known.directions, bool(known.tags), str(folder))


def tags_of(known: Sequence[Direction]) -> dict[str, str]:
    return {language: tag(language) for language in targets(known)}


def is_translator(folder: Path) -> bool:
    return (folder / FACTS).is_file()


def seeds(folder: Path) -> list[Path]:
    """The models of an MT folder, one for each seed; of a seed's own folder, itself."""
    found = [path for path in folder.glob("seed-*") if is_translator(path)]
    return sorted(found, key=lambda path: facts(path).seed) or [folder]


def facts(folder: Path) -> Facts:
    file = folder / FACTS
    if not file.is_file():
        raise BadInput(
            f"{folder}: no translator (expected {FACTS}); make one with crossling finetune MODEL --task translation"
        )
    try:
        found = Facts(**json.loads(file.read_text(encoding="utf-8")))
        directions(found.pairs)
        return found
    except (OSError, ValueError, TypeError) as error:
        raise BadInput(f"{file}: not what crossling finetune writes ({error}); train anew") from None


def write_facts(folder: Path, known: Facts) -> None:
    write_json(folder / FACTS, asdict(known))
