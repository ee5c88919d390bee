r"""Self-distillation of sentence vectors, against forgetting.

    L(x) = 1 - cos(s(x), t(x))

The vector s(x) of a sentence is the mean of the states at the universal layer. The vector t(x) is that of the teacher,
which is the encoder as it was before the first step. The teacher is frozen. Its vocabulary is the one in training, so
that both read the same tokens.

The sentences are both sides of translation pairs of the languages to keep, `sampling.focus` excluded. Vectors that stay
where they were keep retrieval and alignment between these languages. So little text is enough: it is not learned, it
only samples the function to keep.
"""
# N sentences of one side, D width

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self

from crossling.core.settings import AT_LEAST_0, AT_LEAST_1, Bounds
from crossling.data.batches import LENGTH_MULTIPLE, CorruptedExamples, Stream, TokenizedExamples
from crossling.data.keyed_random import KeyedRandom
from crossling.data.packing import Batch, Sequences
from crossling.model.model_shape import ModelShape
from crossling.objectives import cost
from crossling.objectives.objective import ModuleBuilders, PretrainingObjective
from crossling.objectives.sequence_pooling import pool_sequences
from crossling.vocabulary.special_tokens import SpecialTokens

if TYPE_CHECKING:
    from torch import Tensor

    from crossling.model.encoder_model import CrosslingModel
    from crossling.model.native_encoder import NativeEncoder
    from crossling.objectives.training_network import Network

SIDES = ("source", "target")
TYPICAL_PAIR_TOKENS = 32  # to convert a number of tokens to a number of pairs


@dataclass(frozen=True, kw_only=True)
class SelfDistillation(PretrainingObjective):
    """Keep the sentence vectors of the languages outside of the focus where they were before training.

    Args:
        pairs: Batch size: translation pairs per step over all processes. Both sides are read, each by itself.
        layer: Layer of the sentence vectors. [default: the universal layer]
        pooling: Sentence vector: the first token (`cls`), or the mean of all (`mean`).
        length: Longest sequence in tokens, both sides together.
        weight: Weight of the mean loss.

    Example:
        >>> objective = crossling.SelfDistillation(pairs=64, length=128)
    """

    stream: ClassVar[Stream] = "pairs"
    reads_replay: ClassVar[bool] = True

    pairs: Annotated[int, AT_LEAST_1] = 64
    layer: int | None = None
    pooling: Literal["cls", "mean"] = "mean"
    length: Annotated[int, Bounds(at_least=LENGTH_MULTIPLE)] = 512
    weight: Annotated[float, AT_LEAST_0] = 1.0

    @classmethod
    def sized_like(cls, tokens: int, length: int) -> Self:
        return cls(pairs=max(1, tokens // length), length=length)

    @property
    def example_order(self) -> str:
        return "distill"

    @property
    def loss_weights(self) -> dict[str, float]:
        return {"distill": self.weight}

    @property
    def batch_setting(self) -> str:
        return "pairs"

    def examples_per_step(self, mean_length: float) -> int:  # noqa: ARG002
        return self.pairs

    def modules(self, encoder: CrosslingModel | NativeEncoder, shape: ModelShape) -> ModuleBuilders:  # noqa: ARG002
        from crossling.objectives.momentum import build_key_encoder

        return {"teacher": lambda: build_key_encoder(encoder, self._layer(encoder))}

    def prepare(self, net: Network, batches: Iterator[list[Batch]]) -> None:  # noqa: ARG002
        """Copy the encoder to the teacher."""
        from crossling.objectives.momentum import update_moving_average

        update_moving_average(net.parts["teacher"], net.encoder, 0.0)

    def corrupt(self, examples: TokenizedExamples, noise: KeyedRandom, special: SpecialTokens) -> CorruptedExamples:  # noqa: ARG002
        sides = examples.sequences(), examples.translation_sequences()
        inputs = {
            name: Sequences(side.lengths_N, {name: side.tokens["ids"]}) for name, side in zip(SIDES, sides, strict=True)
        }
        return CorruptedExamples(inputs)

    def counts(self, batch: Batch) -> dict[str, int]:
        return {"distill": sum(len(batch[f"{side}_starts"]) for side in SIDES)}

    def stateless_copy(self, tokens: int) -> Self:
        return replace(self, pairs=max(1, tokens // TYPICAL_PAIR_TOKENS))

    def loss(self, net: Network, batch: Batch) -> dict[str, Tensor]:
        import torch

        losses = []
        for side in SIDES:
            student_ND, teacher_ND = self._vectors(net, batch, side)
            with torch.autocast(student_ND.device.type, enabled=False):
                cosine_N = torch.cosine_similarity(student_ND.float(), teacher_ND.float(), dim=-1)
            losses.append((1 - cosine_N).sum())
        return {"distill": torch.stack(losses).sum()}

    def _vectors(self, net: Network, batch: Batch, side: str) -> tuple[Tensor, Tensor]:
        import torch

        layer = self._layer(net.encoder)
        with torch.no_grad():
            teacher_ND = pool_sequences(net.parts["teacher"], batch, side, layer, self.pooling)
        return pool_sequences(net.encoder, batch, side, layer, self.pooling), teacher_ND

    def _layer(self, encoder: CrosslingModel | NativeEncoder) -> int:
        return encoder.config.universal_layer if self.layer is None else self.layer

    def flops_per_token(self, net: Network, length: float) -> float:
        """Return the FLOPs of both sides, which are encoded separately: forward and backward, and forward once more."""
        layers = self._layer(net.encoder)
        return (cost.FORWARD_AND_BACKWARD + 1) * cost.encoder_flops(net.encoder, length / 2, layers)

    def activation_bytes(self, net: Network, gradient_checkpointing: bool) -> float:
        predicted = 0.0 if self.pooling == "cls" else 1.0
        return cost.peak_bytes(net.encoder, gradient_checkpointing, self._layer(net.encoder), predicted=predicted)
