r"""Distillation of sentence vectors (Reimers and Gurevych 2020, Eq. 1).

    L(s) = 1/E ||P u(s) - t(s)||^2        distance `mse`
    L(s) = 1 - cos(P u(s), t(s))          distance `cosine`

The student is the encoder in training, and u(s) its pooled vector of the sentence s at one layer. The vector t(s) of
the teacher, of width E, is computed before training. For a translation pair <e, f>, both sides have the vector of the
source: t(e) = t(f). The sum of L(e) and L(f) is then Eq. 1 of the paper: the student copies the teacher on the source,
and maps translations to the same vector. P is a linear layer that is trained too if the widths differ, and otherwise
the identity. A teacher that is the model itself, before training, keeps languages that training would change.

Sentences and vectors are in the shards, see crossling.data.teacher_vectors. The mean cosine is logged beside the loss.
"""
# N sentences, D width of the encoder, E width of the teacher

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self

from crossling.core.settings import AT_LEAST_0, AT_LEAST_1, Bounds
from crossling.data.batches import LENGTH_MULTIPLE, CorruptedExamples, Stream, TokenizedExamples
from crossling.data.keyed_random import KeyedRandom
from crossling.data.packing import Batch
from crossling.model.model_shape import ModelShape
from crossling.objectives import cost
from crossling.objectives.objective import ModuleBuilders, PretrainingObjective
from crossling.objectives.sentence_states import Pooling, pool_sentences, resolve_layer
from crossling.vocabulary.special_tokens import SpecialTokens

if TYPE_CHECKING:
    from torch import Tensor, nn

    from crossling.model.encoder_model import CrosslingModel
    from crossling.model.native_encoder import NativeEncoder
    from crossling.objectives.training_network import Network

TYPICAL_TOKENS = 32  # of a sentence, to convert a number of tokens to a number of sentences
PROJECTION = "distillation_projection"


@dataclass(frozen=True, kw_only=True)
class Distillation(PretrainingObjective):
    """Distillation of sentence vectors: the model copies those of a teacher.

    Args:
        sentences: Batch size: sentences per step over all processes.
        layer: Layer of the sentence vectors; 0 is the embedding output. [default: the universal layer]
        pooling: Sentence vector: the first token (`cls`), or the mean of all (`mean`, not deterministic on CUDA).
        distance: Mean squared error (`mse`), or one minus the cosine (`cosine`), which ignores lengths.
        width: Width of the teacher, if it is not that of the model. A linear layer to it is trained too.
        length: Longest sentence in tokens.
        weight: Weight of the mean loss.

    Example:
        >>> objective = crossling.Distillation(sentences=512, distance="cosine")
    """

    stream: ClassVar[Stream] = "sentences"

    sentences: Annotated[int, AT_LEAST_1] = 256
    layer: int | None = None
    pooling: Pooling = "mean"
    distance: Literal["mse", "cosine"] = "mse"
    width: Annotated[int | None, AT_LEAST_1] = None
    length: Annotated[int, Bounds(at_least=LENGTH_MULTIPLE)] = 128
    weight: Annotated[float, AT_LEAST_0] = 1.0

    @classmethod
    def sized_like(cls, tokens: int, length: int) -> Self:
        """Return the objective with sentences of about so many tokens."""
        return cls(sentences=max(1, tokens // TYPICAL_TOKENS), length=length)

    @property
    def loss_weights(self) -> dict[str, float]:
        return {"distillation": self.weight}

    @property
    def batch_setting(self) -> str:
        return "sentences"

    def examples_per_step(self, mean_length: float) -> int:  # noqa: ARG002
        return self.sentences

    def stateless_copy(self, tokens: int) -> Self:
        return replace(self, sentences=max(1, tokens // TYPICAL_TOKENS))

    def modules(self, encoder: CrosslingModel | NativeEncoder, shape: ModelShape) -> ModuleBuilders:  # noqa: ARG002
        from torch import nn

        from crossling.model.embedding import init_weights

        def projection() -> nn.Module:
            linear = nn.Linear(encoder.config.hidden_size, self.width or encoder.config.hidden_size)
            init_weights(linear, encoder.config.initializer_range)
            return linear

        return {} if self.width is None else {PROJECTION: projection}

    def corrupt(self, examples: TokenizedExamples, noise: KeyedRandom, special: SpecialTokens) -> CorruptedExamples:  # noqa: ARG002
        assert examples.vector_NE is not None
        return CorruptedExamples({"ids": examples.sequences()}, {"teacher": examples.vector_NE})

    def counts(self, batch: Batch) -> dict[str, int]:
        return dict.fromkeys(("distillation", "distillation_cosine"), len(batch["teacher"]))

    def loss(self, net: Network, batch: Batch) -> dict[str, Tensor]:
        import torch
        import torch.nn.functional as F

        layer = resolve_layer(net.encoder, self.layer)
        pooled_ND = pool_sentences(net.encoder, batch, "ids", layer=layer, pooling=self.pooling)
        with torch.autocast(pooled_ND.device.type, enabled=False):  # small differences need more digits than bfloat16
            student_NE = pooled_ND.float() if self.width is None else net.parts[PROJECTION](pooled_ND.float())
            teacher_NE = batch["teacher"].float()
            cosine = F.cosine_similarity(student_NE, teacher_NE).sum()
            error = (student_NE - teacher_NE).square().mean(-1).sum()
        loss = error if self.distance == "mse" else len(teacher_NE) - cosine
        return {"distillation": loss, "distillation_cosine": cosine.detach()}

    def flops_per_token(self, net: Network, length: float) -> float:
        layers = cost.encoder_flops(net.encoder, length, resolve_layer(net.encoder, self.layer))
        projection = 0 if self.width is None else 2 * cost.matrix_weights(net.parts[PROJECTION]) / length
        return float(cost.FORWARD_AND_BACKWARD * (layers + projection))

    def activation_bytes(self, net: Network, gradient_checkpointing: bool) -> float:
        predicted = 0.0 if self.pooling == "cls" else 1.0  # one position of a sentence, or all
        layers = resolve_layer(net.encoder, self.layer)
        return cost.peak_bytes(net.encoder, gradient_checkpointing, layers, predicted=predicted)
