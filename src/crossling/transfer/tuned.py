"""A fine-tuned model: it predicts, and lives in a folder that Hugging Face's libraries read.

TUNED/seed-N/  config.json  model.safetensors  tokenizer.json     the model
               tuned.json                                         what it is, how it was trained, its dev scores
               languages/LL/                                      where each language has a model of its own (#M=N)
"""
# B features of a batch

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xxhash
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from crossling.benchmarks.examples import Example
from crossling.disk import write_json
from crossling.errors import BadInput
from crossling.model.pretrained import pretrained, quiet, tokenizer_of
from crossling.transfer.family import Family, Feature, Form, Prediction
from crossling.transfer.frame import Frame
from crossling.transfer.heads import FAMILIES, HEADS
from crossling.transfer.lengths import batches

FACTS = "tuned.json"
LANGUAGES = "languages"
TOKENS_PER_BATCH = 16_384  # padding included


@dataclass(frozen=True)
class Facts:
    """What tuned.json tells."""

    task: str
    model: str  # what it began as
    setting: str
    trained_on: str
    selection: str
    seed: int
    form: Form
    hyper: dict[str, Any]
    steps: int
    step: int  # that was chosen
    examples: int  # it was trained on
    pivot: str = "en"  # the language it was trained in
    data: str = ""  # a fingerprint of what it was trained on and chosen by
    dev: dict[str, float | None] = field(default_factory=dict)  # "english-dev", "all-dev", and "dev/LL" by language

    @property
    def mark(self) -> str:
        """Tells models of one encoder and task apart that were fine-tuned in other ways."""
        told = json.dumps([self.trained_on, self.data, self.hyper], sort_keys=True).encode()
        plugged = "plug-in, " if self.form.plug_in else ""
        return f"{plugged}lr {self.hyper.get('lr', 0):g}, {self.steps} steps, {xxhash.xxh3_64_hexdigest(told)[:6]}"


class Tuned:
    """A model of a task and its tokenizer, ready to predict."""

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, form: Form) -> None:
        self.model, self.tokenizer = model, tokenizer
        self.family = family(model, tokenizer, form)

    def predict(
        self,
        examples: Sequence[Example],
        features: Sequence[Feature] | None = None,
        translations: Sequence[Example] | None = None,
    ) -> list[Prediction]:
        """One prediction for each example, read with its translation where the model is plugged in; features that were
        made before need not be made again."""
        features = self.family.features(examples, False, translations) if features is None else features
        scores = [np.empty(0)] * len(features)
        device = self.model.device
        half = torch.autocast(device.type, dtype=torch.bfloat16, enabled=device.type == "cuda")
        self.model.eval()
        with torch.no_grad(), half:
            lengths = [feature.positions for feature in features]
            for rows in batches(lengths, TOKENS_PER_BATCH):
                batch = self.family.batch([features[row] for row in rows])
                output = self.family.output(self.model, {name: each.to(device) for name, each in batch.items()})
                for row, found in zip(rows, self.family.scores(output), strict=True):
                    scores[row] = found
        return self.family.predictions(examples, features, scores)

    def save(self, folder: Path) -> None:
        """Into a folder that is there."""
        with quiet():
            self.model.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)

    @classmethod
    def load(cls, folder: Path, language: str | None = None) -> Tuned:
        """The model of a folder; with a language, the one it has for that."""
        form = facts(folder).form
        own = folder / LANGUAGES / (language or "")
        place = own if language is not None and own.is_dir() else folder
        model = pretrained(place, place, HEADS[form.kind])
        model.to("cuda" if torch.cuda.is_available() else "cpu")  # type: ignore[arg-type]
        return cls(model, tokenizer_of(folder, folder), form)


def family(model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, form: Form) -> Family:
    typed = (getattr(model.config, "type_vocab_size", None) or 0) > 1
    return FAMILIES[form.kind](form, Frame(tokenizer, typed))


def is_tuned(folder: Path) -> bool:
    return (folder / FACTS).is_file()


def seeds(folder: Path) -> list[Path]:
    """The models of a TUNED folder, one for each seed; of a seed's own folder, itself."""
    found = [path for path in folder.glob("seed-*") if is_tuned(path)]
    return sorted(found, key=lambda path: facts(path).seed) or [folder]


def facts(folder: Path) -> Facts:
    file = folder / FACTS
    try:
        stored = json.loads(file.read_text(encoding="utf-8"))
        form = stored["form"] | {"labels": tuple(stored["form"]["labels"])}
        return Facts(**stored | {"form": Form(**form)})
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadInput(f"{file}: not what crossling finetune writes ({error}); fine-tune anew") from None


def write_facts(folder: Path, known: Facts) -> None:
    write_json(folder / FACTS, asdict(known))
