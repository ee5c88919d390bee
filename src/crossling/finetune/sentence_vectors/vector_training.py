"""Training of one sentence encoder: a run of the training engine, whose best checkpoint on dev becomes the model."""
# N pairs, Q distinct queries, A distinct candidates

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from crossling.core.distributed import main_process_first
from crossling.core.files import read_json, write_json
from crossling.finetune.finetune_settings import EmbeddingSettings
from crossling.finetune.sentence_vectors.hard_negatives import mine_hard_negatives
from crossling.finetune.sentence_vectors.sentence_pairs import SentencePairs
from crossling.finetune.sentence_vectors.vector_batches import Negatives, PairBatches
from crossling.finetune.sentence_vectors.vector_losses import SentenceObjective
from crossling.finetune.sentence_vectors.vector_model import (
    SentenceModel,
    as_sentence_encoder,
    build_sentence_model,
    find_prompts,
    save_sentence_model,
)
from crossling.finetune.sentence_vectors.vector_scores import score_pairs
from crossling.finetune.sentence_vectors.vector_texts import VectorTexts, tokenize_texts
from crossling.finetune.supervised_training import (
    PROBE,
    ModelTraining,
    fit_model,
    load_mean_weights,
    write_model_folder,
)
from crossling.finetune.tuned_model import InfoFile
from crossling.inference.sentence_encoder import Encoder
from crossling.recipes.run_checkpoints import pretraining_cost
from crossling.train import checkpoint
from crossling.train.optimizer import OptimizerSettings

DEV = "dev"  # metric that selects the checkpoint


@dataclass(frozen=True, kw_only=True)
class VectorInfo:
    """Contents of embedding.json: how sentence vectors were trained."""

    model: str  # the encoder that was fine-tuned
    trained_on: str  # file of the training pairs
    seed: int
    hyperparameters: dict[str, Any]
    loss: str
    steps: int
    step: int  # of the selected checkpoint
    pairs: int  # of the training set
    language: str
    data: str = ""  # fingerprint of training and dev pairs
    pretraining: dict[str, Any] = field(default_factory=dict)
    dev: dict[str, float] = field(default_factory=dict)  # by direction and metric

    @property
    def identity(self) -> dict[str, Any]:
        """Options and hyperparameters that determine the model, apart from seed and data."""
        return {"model": self.model, **self.hyperparameters}

    @property
    def dev_score(self) -> float:
        """Score that compares models of different seeds."""
        return self.dev[DEV]


VECTOR_INFO = InfoFile("embedding.json", 1, lambda stored: VectorInfo(**stored), "crossling finetune --type embedding")


@dataclass
class VectorRun(ModelTraining[VectorInfo, EmbeddingSettings]):
    """Fine-tuning of the sentence vectors of an encoder."""

    encoder: Encoder
    train: SentencePairs
    dev: SentencePairs
    trained_on: str
    language: str

    info_file = VECTOR_INFO

    @property
    def loss(self) -> str:
        """Name of the loss."""
        if self.settings.loss != "auto":
            return self.settings.loss
        return "cosent" if self.train.is_scored else "ranking"

    @cached_property
    def info(self) -> VectorInfo:
        settings = self.settings
        return VectorInfo(
            model=self.encoder.name,
            trained_on=self.trained_on,
            seed=settings.seed,
            hyperparameters=settings.hyperparameters,
            loss=self.loss,
            steps=0,
            step=0,
            pairs=len(self.train.rows),
            language=self.language,
            data=f"{self.train.fingerprint}-{self.dev.fingerprint}",
            pretraining=pretraining_cost(Path(self.encoder.name)),
        )

    def build(self, device: torch.device) -> None:
        self.device, self.model = device, self._build()

    def _build(self) -> SentenceModel:
        prompts = self.settings.query_prompt, self.settings.document_prompt
        return build_sentence_model(self.encoder, self.settings.pooling, prompts)

    def fit(self, work: Path) -> int:
        settings, texts = self.settings, VectorTexts.of(self.train.rows)
        self.model.to(self.device)
        encoder, head = as_sentence_encoder(self.model, self.encoder, self.encoder.name), self.model.head
        prompts = find_prompts(head)
        steps = settings.total_steps(len(texts))
        batches = PairBatches(
            loss=self.loss,
            texts=texts,
            ids=self._tokenize(encoder, texts, prompts),
            prompt_lengths=(0, 0) if head.counts_prompt else self._prompt_lengths(encoder, prompts),
            pad=encoder.tokenizer.pad_token_id,
            batch=min(settings.batch, len(texts)),
            negatives=lambda epoch: self._negatives(encoder, texts, work, epoch),
            symmetric=settings.symmetric,
            seed=settings.seed,
            micro_tokens=settings.micro_tokens,
        )
        return fit_model(
            self.model,
            settings,
            work,
            objective=SentenceObjective(self.loss, settings.temperature, settings.symmetric),
            batches=batches,
            optimizer=self._optimizer(),
            steps=steps,
            recipe={"name": "embedding", "model": self.info.model, "data": self.info.data},
            probe=lambda: self._score(self.model),
            selection_metrics=[DEV],
        )

    def _tokenize(
        self, encoder: Encoder, texts: VectorTexts, prompts: tuple[str, str]
    ) -> tuple[Sequence[list[int]], Sequence[list[int]]]:
        first = tokenize_texts(encoder, texts.strings, prompts[0], self.settings.length)
        if prompts[0] == prompts[1]:
            return first, first
        return first, tokenize_texts(encoder, texts.strings, prompts[1], self.settings.length)

    def _prompt_lengths(self, encoder: Encoder, prompts: tuple[str, str]) -> tuple[int, int]:
        first, second = (len(tokenize_texts(encoder, [each], "", 1 << 16)[0]) - 1 if each else 0 for each in prompts)
        return first, second

    def _negatives(self, encoder: Encoder, texts: VectorTexts, work: Path, epoch: int) -> Negatives:
        """Return the hard negatives of an epoch. They are stored in the run folder, so that a resumed run has them."""
        settings = self.settings
        if not settings.hard_negatives or len(texts.distinct_candidates) < 2:
            return ()
        file = work / f"negatives-{epoch if settings.remine else 0}.json"
        with main_process_first():
            if not file.is_file():
                write_json(file, mine_hard_negatives(encoder, texts, settings.hard_negatives, settings.margin))
        return [tuple(row) for row in read_json(file)]

    def save_model(self, out: Path, work: Path, steps: int) -> VectorInfo:
        """Write the checkpoint that is best on dev, with its scores."""
        saved = checkpoint.list_checkpoints(work / "checkpoints")
        best = checkpoint.best_checkpoints(saved)[f"{PROBE}{DEV}"]
        model = self._build().to(self.device)
        load_mean_weights(model, [best])
        info = replace(self.info, steps=steps, step=int(best.name), dev=self._score(model))
        with write_model_folder(out, work) as new:
            if new is not None:
                save_sentence_model(model, self.encoder, new)
                VECTOR_INFO.write(new, info)
        return info

    def _score(self, model: SentenceModel) -> dict[str, float]:
        """Return the scores on dev: those of each direction, and the mean of their first metrics."""
        scores = score_pairs(as_sentence_encoder(model, self.encoder, self.encoder.name), self.dev)
        return {DEV: fmean(each.main for each in scores)} | {
            f"{each.direction}/{name}": value for each in scores for name, value in each.values.items()
        }

    def _optimizer(self) -> OptimizerSettings:
        decay = self.settings.weight_decay
        return OptimizerSettings(warmup=self.settings.warmup, beta2=0.999, epsilon=1e-8, decay=decay, clip=1.0)
