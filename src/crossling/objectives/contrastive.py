r"""Cross-lingual contrastive learning (XLCo; InfoXLM §3.3, Eq. 5 and 6).

    L_XLCo(c1, c2) = - log( f(c1, c2) / sum over c' in N of f(c1, c') ),    f(a, b) = exp(g_Q(a) . g_K(b) / tau)

g is the encoder up to the universal layer, pooled and projected. The query encoder g_Q is the one in training. The key
encoder g_K is its moving average, K <- m K + (1 - m) Q after each step, and has no gradient. N contains the translation
c2 and a queue of earlier keys. The queue has a constant length and is filled before the first step. The keys of a step
are added after the step. With `queue = 0`, N contains the keys of the step itself (in-batch negatives). If also m = 0,
there is one encoder, and the keys have gradients too.

Mixup: a pair <c1, c2> is joined with a pair <d1, d2> of another corpus or language pair. The result is <c1 d1, c2 d2>,
or crossed <c1 d2, d1 c2>, each side in random order. Translations from one row of a multi-way corpus are never
negatives of each other, neither in the batch nor in the queue.

Matryoshka: the loss is the mean of those of several prefixes of the vectors, so that users can truncate them. Keys are
the projections of all prefixes side by side, in the queue too. Accuracy and bound are those of the full width.

The loss maximizes a lower bound of mutual information (Eq. 4), which is logged beside it: I(c1; c2) >= log |N| - L.

With `temperature = 1`, not normalized and not symmetric, this is exactly Eq. 6. Temperature, a projection without bias,
and masked inputs are from the authors' code and not in the paper.
"""
# N pairs of a micro-batch, A candidates or keys in the queue, R rows of W tokens, P tokens, D width, m of a prefix

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self

import numpy as np

from crossling.core.errors import BadInput
from crossling.core.settings import AT_LEAST_0, FRACTION, POSITIVE, PROBABILITY, Bounds
from crossling.data.batches import LENGTH_MULTIPLE, CorruptedExamples, Stream, TokenizedExamples, prepend_bos
from crossling.data.keyed_random import KeyedRandom
from crossling.data.packing import Batch, Sequences
from crossling.model.model_shape import ModelShape
from crossling.objectives import cost
from crossling.objectives.matryoshka import parse_widths, project_prefixes
from crossling.objectives.mlm import mask_tokens, masking_problems
from crossling.objectives.objective import ModuleBuilders, PretrainingObjective
from crossling.objectives.sentence_states import Pooling, pool_sentences, resolve_layer
from crossling.vocabulary.special_tokens import SpecialTokens

if TYPE_CHECKING:
    from torch import Tensor, nn

    from crossling.model.encoder_model import CrosslingModel
    from crossling.model.native_encoder import NativeEncoder
    from crossling.objectives.training_network import Network

TYPICAL_PAIR_TOKENS = 32  # to convert a number of tokens to a number of pairs


@dataclass(frozen=True, kw_only=True)
class XLCo(PretrainingObjective):
    """Contrastive learning on the two sides of translation pairs.

    Args:
        pairs: Batch size: translation pairs per step over all processes. With mixup, joined pairs.
        layer: Layer of the sentence vectors; 0 is the embedding output. [default: the universal layer]
        momentum: Momentum of the key encoder. With 0, queries and keys have one encoder.
        queue: Earlier keys that are negatives. With 0, the pairs of a step are negatives of each other.
        mixup: Join pairs two by two, straight and crossed.
        temperature: Divisor of the scores.
        normalize: Score with cosine similarity instead of the dot product.
        symmetric: Average the loss from source to target with that from target to source.
        pooling: Sentence vector: the first token (`cls`), or the mean of all (`mean`, not deterministic on CUDA).
        rate: Masking rate of both sides.
        keep: Fraction of the masked tokens that stay unchanged.
        random: Fraction of the masked tokens that become a random token. The rest becomes `<mask>`.
        length: Longest sequence in tokens, both sides together.
        weight: Weight of the mean loss.
        matryoshka: Widths of prefixes of the vectors that are trained too, as `64,128,256`. [default: none]
        projection: Compare vectors after a new linear layer (`linear`), which is not exported, or the pooled states
            themselves (`identity`), to adapt an encoder whose vectors are good already. [default: linear]

    Example:
        >>> objective = crossling.XLCo(pairs=256, queue=4096)
    """

    stream: ClassVar[Stream] = "pairs"

    pairs: Annotated[int, Bounds(at_least=2)] = 2048
    layer: int | None = None
    momentum: Annotated[float, FRACTION] = 0.999
    queue: Annotated[int, Bounds(at_least=0, at_most=2**24)] = 131_072
    mixup: bool = True
    temperature: Annotated[float, POSITIVE] = 0.25
    normalize: bool = False
    symmetric: bool = False
    pooling: Pooling = "cls"
    rate: Annotated[float, PROBABILITY] = 0.15
    keep: Annotated[float, PROBABILITY] = 0.1
    random: Annotated[float, PROBABILITY] = 0.1
    length: Annotated[int, Bounds(at_least=LENGTH_MULTIPLE)] = 512
    weight: Annotated[float, AT_LEAST_0] = 1.0
    matryoshka: str | None = None
    projection: Literal["linear", "identity"] | None = None

    @classmethod
    def sized_like(cls, tokens: int, length: int) -> Self:
        """Return the objective in the paper's proportion to others of `tokens` a step: one pair per sequence.

        The queue contains the keys of 64 steps. If it is smaller than the paper's, it uses mean pooling and cosine
        similarity. There, dot products of [CLS] were seen to distinguish new keys from old ones by the drift of the
        encoder, and to learn nothing (docs/research/log.md).
        """
        pairs = max(2, tokens // length)
        sized = cls(pairs=pairs, queue=64 * pairs, length=length)
        if pairs >= cls.pairs:
            return sized
        return replace(sized, momentum=0.99, pooling="mean", normalize=True, temperature=0.05)

    @property
    def example_order(self) -> str:
        """Name of an order of its own, so that other objectives of the recipe read other pairs at a step."""
        return "xlco"

    @property
    def has_in_batch_negatives(self) -> bool:
        return not self.queue

    @property
    def exchanges_tensors(self) -> bool:
        return True  # keys

    @property
    def _keys_have_gradients(self) -> bool:
        return self.queue == 0 and self.momentum == 0

    @property
    def loss_weights(self) -> dict[str, float]:
        return {"xlco": self.weight}

    @property
    def batch_setting(self) -> str:
        return "pairs"

    @property
    def examples_per_unit(self) -> int:
        return 2 if self.mixup else 1

    def problems(self, name: str) -> Iterator[str]:
        yield from masking_problems(name, self.keep, self.random)
        if self.projection == "identity" and (self.matryoshka or self.momentum):
            yield f"{name}.projection=identity: not with {name}.matryoshka or {name}.momentum. Omit one of them."
        try:
            self.widths(0)
        except BadInput as problem:
            yield str(problem)

    def widths(self, full: int) -> list[int]:
        """Return the widths of the prefixes. The last is the full width."""
        return [*(parse_widths(self.matryoshka, "xlco.matryoshka") if self.matryoshka else ()), full]

    def examples_per_step(self, mean_length: float) -> int:  # noqa: ARG002
        return self.pairs * self.examples_per_unit

    def modules(self, encoder: CrosslingModel | NativeEncoder, shape: ModelShape) -> ModuleBuilders:  # noqa: ARG002
        from torch import nn

        from crossling.model.embedding import init_weights
        from crossling.objectives.momentum import KeyQueue, build_key_encoder

        def projection() -> nn.Module:
            if self.projection == "identity":
                return nn.Identity()
            linear = nn.Linear(encoder.config.hidden_size, encoder.config.hidden_size, bias=False)
            init_weights(linear, encoder.config.initializer_range)
            return linear

        modules: ModuleBuilders = {"projection": projection}
        if self.momentum:
            modules["key_encoder"] = lambda: build_key_encoder(encoder, resolve_layer(encoder, self.layer))
            modules["key_projection"] = lambda: projection().requires_grad_(False)
        if self.queue:
            modules["queue"] = lambda: KeyQueue(self.queue, sum(self.widths(encoder.config.hidden_size)))
        return modules

    def example_units(self, group_N: np.ndarray, noise: KeyedRandom) -> np.ndarray:
        """Return the pairs that mixup joins."""
        return choose_partners(group_N, noise) if self.mixup else super().example_units(group_N, noise)

    def corrupt(self, examples: TokenizedExamples, noise: KeyedRandom, special: SpecialTokens) -> CorruptedExamples:
        assert examples.row_N is not None
        if self.mixup:
            query, key, rows_N2, noise = mix_pairs(examples, noise)
        else:
            query, key = examples.sequences(), examples.translation_sequences()
            rows_N2 = np.stack([examples.row_N, examples.row_N], 1)
        rates = {"rate": self.rate, "keep": self.keep, "random": self.random}
        inputs = {}
        for name, side in {"query": query, "key": key}.items():
            if self.rate:
                side = mask_tokens(side, noise, special, **rates, purpose=name)
            inputs[name] = Sequences(side.lengths_N, {name: side.tokens["ids"]})
        return CorruptedExamples(inputs, {"rows": rows_N2, "batch_positions": noise.position_N})

    def counts(self, batch: Batch) -> dict[str, int]:
        return dict.fromkeys(("xlco", "xlco_accuracy", "xlco_bound"), len(batch["rows"]))

    def stateless_copy(self, tokens: int) -> Self:
        """Return a copy with in-batch negatives: a queue has keys of earlier steps.

        The number of pairs does not depend on their length, because the loss grows with it.
        """
        return replace(self, pairs=max(2, tokens // TYPICAL_PAIR_TOKENS), queue=0, mixup=False)

    def prepare(self, net: Network, batches: Iterator[list[Batch]]) -> None:
        """Copy the encoder to the key encoder, and fill the queue."""
        from crossling.core.distributed import is_main_process
        from crossling.core.progress import Progress

        if self.momentum:
            self._update_key_encoder(net, 0.0)
        if self.queue:
            queue = net.parts["queue"]
            with Progress("queue", self.queue, enabled=is_main_process()) as progress:
                while queue.filled < self.queue:
                    queue.add([{**batch, "keys": self._keys(net, batch, "key")} for batch in next(batches)])
                    progress.update(queue.filled, "keys")

    def after_step(self, net: Network, progress: Tensor, outputs: Sequence[Mapping[str, Tensor]]) -> None:  # noqa: ARG002
        """Add the keys of the step to the queue, and update the key encoder."""
        if self.queue and outputs:
            net.parts["queue"].add(outputs)
        if self.momentum:
            self._update_key_encoder(net, self.momentum)

    def loss(self, net: Network, batch: Batch) -> dict[str, Tensor]:
        import torch

        rows_N2 = batch["rows"]
        directions = [("query", "key"), ("key", "query")][: 2 if self.symmetric else 1]
        vectors = {side: self.represent(net, batch, side) for side, _ in directions}
        sums: list[dict[str, Tensor]] = []
        new_keys: dict[str, Tensor] = {}
        for query_side, key_side in directions:
            if self.queue or self.momentum:
                key_ND = self._keys(net, batch, key_side)
            else:
                key_ND = vectors[key_side] if self.symmetric else self.represent(net, batch, key_side)
            if self.queue and query_side == "query":
                new_keys = {name: batch[name] for name in ("rows", "batch_positions")} | {"keys": key_ND.detach()}
            sums.append(self._contrastive_sums(net, vectors[query_side], key_ND, rows_N2))
        return {name: torch.stack([each[name] for each in sums]).sum(0) / len(sums) for name in sums[0]} | new_keys

    def _contrastive_sums(self, net: Network, query_ND: Tensor, key_ND: Tensor, rows_N2: Tensor) -> dict[str, Tensor]:
        """Return the loss, how many queries rank their translation first, and the bound on mutual information.

        With prefixes, the last two are those of the full width.
        """
        import torch
        import torch.nn.functional as F

        from crossling.core.distributed import all_gather_rows

        widths, device = self.widths(net.encoder.config.hidden_size), query_ND.device
        if self.queue:  # the translation is candidate 0, followed by the queue
            queue = net.parts["queue"]
            candidate_AD = queue.keys_AD
            excluded_NA = F.pad(_share_row(rows_N2, queue.rows_A2), (1, 0), value=False)
            target_N = torch.zeros(len(query_ND), dtype=torch.long, device=device)
        else:
            (candidate_AD, first), (rows_A2, _) = all_gather_rows(key_ND), all_gather_rows(rows_N2)
            target_N = first + torch.arange(len(query_ND), device=device)
            excluded_NA = _share_row(rows_N2, rows_A2).scatter(1, target_N[:, None], value=False)
        prefixes = zip(*(each.split(widths, 1) for each in (query_ND, key_ND, candidate_AD)), strict=True)
        losses = []
        for query_Nm, key_Nm, candidate_Am in prefixes:
            with torch.autocast(device.type, enabled=False):
                scores_NA = query_Nm @ candidate_Am.T
                if self.queue:
                    scores_NA = torch.cat([(query_Nm * key_Nm).sum(-1, keepdim=True), scores_NA], 1)
            scores_NA = (scores_NA / self.temperature).masked_fill(excluded_NA, -torch.inf)
            losses.append(F.cross_entropy(scores_NA, target_N, reduction="sum"))
        correct = (scores_NA.argmax(-1) == target_N).sum()  # of the last prefix, the full width
        bound = (~excluded_NA).sum(1).log().sum() - losses[-1].detach()
        return {"xlco": torch.stack(losses).mean(), "xlco_accuracy": correct, "xlco_bound": bound}

    def _keys(self, net: Network, batch: Batch, side: str) -> Tensor:
        """Return g_K of every sequence of one side. Without momentum it is g_Q without gradient."""
        import torch

        with torch.no_grad():
            return self.represent(net, batch, side, prefix="key_" if self.momentum else "")

    def represent(self, net: Network, batch: Batch, side: str, prefix: str = "") -> Tensor:
        """Return g_Q, or g_K with the prefix `key_`, of every sequence of one side, in the order of the pairs."""
        import torch
        import torch.nn.functional as F

        encoder = net.parts["key_encoder"] if prefix else net.encoder
        projection = net.parts[f"{prefix}projection"]
        layer = resolve_layer(encoder, self.layer)
        pooled_ND = pool_sentences(encoder, batch, side, layer=layer, pooling=self.pooling)
        with torch.autocast(pooled_ND.device.type, enabled=False):  # cosine / 0.05 needs more digits than bfloat16 has
            if self.matryoshka:
                return project_prefixes(projection, pooled_ND.float(), self.widths(pooled_ND.shape[-1]), self.normalize)
            vector_ND = projection(pooled_ND.float())
        return F.normalize(vector_ND, dim=-1) if self.normalize else vector_ND

    def _update_key_encoder(self, net: Network, momentum: float) -> None:
        from crossling.objectives.momentum import update_moving_average

        update_moving_average(net.parts["key_encoder"], net.encoder, momentum)
        update_moving_average(net.parts["key_projection"], net.parts["projection"], momentum)

    def flops_per_token(self, net: Network, length: float) -> float:
        """Return the FLOPs of both sides, which are encoded separately. Keys without gradient have no backward pass."""
        side_length = length if self.mixup else length / 2  # mixup joins two pairs
        layers = cost.encoder_flops(net.encoder, side_length, resolve_layer(net.encoder, self.layer))
        widths = self.widths(net.encoder.config.hidden_size)
        one_side = layers + 2 * len(widths) * cost.matrix_weights(net.parts["projection"]) / side_length
        candidates = self.queue or self.pairs
        scores: float = 2 * sum(widths) * candidates / (2 * side_length)
        with_backward = cost.FORWARD_AND_BACKWARD
        sides = with_backward if self._keys_have_gradients else (with_backward + 1) / 2
        passes = 2 if self.symmetric and not self._keys_have_gradients else 1
        return sides * passes * one_side + with_backward * (2 if self.symmetric else 1) * scores

    def activation_bytes(self, net: Network, gradient_checkpointing: bool) -> float:
        predicted = 0.0 if self.pooling == "cls" else 1.0  # one position of a sequence, or all
        layers = resolve_layer(net.encoder, self.layer)
        stored = cost.peak_bytes(net.encoder, gradient_checkpointing, layers, predicted=predicted)
        return stored * (1.0 if self.symmetric or self._keys_have_gradients else 0.5)  # keys store nothing


def _share_row(rows_N2: Tensor, rows_A2: Tensor) -> Tensor:
    """Return which candidates share a row of a multi-way corpus with a query: they contain a translation of it."""
    same = [rows_N2[:, i, None] == rows_A2[None, :, j] for i in (0, 1) for j in (0, 1)]
    return same[0] | same[1] | same[2] | same[3]


def mix_pairs(examples: TokenizedExamples, noise: KeyedRandom) -> tuple[Sequences, Sequences, np.ndarray, KeyedRandom]:
    """Join each pair with its partner, which is the next one (mixup).

    Returns:
        Queries, keys, the corpus rows of the two joined pairs [N, 2], and the random numbers of the joined pairs.
    """
    assert examples.row_N is not None
    first_N = np.arange(0, len(examples.ids), 2)
    noise = noise.select(first_N)
    # The names are part of the random key.
    crossed_N, query_swapped_N, key_swapped_N = (
        noise.per_example(purpose) < 0.5 for purpose in ("crossed", "query order", "key order")
    )
    query, key = [], []
    for n, i in enumerate(first_N.tolist()):
        partner_sides = [examples.ids[i + 1], examples.translation_ids[i + 1]]
        partner_query, partner_key = reversed(partner_sides) if crossed_N[n] else partner_sides
        query.append([examples.ids[i], partner_query][:: -1 if query_swapped_N[n] else 1])
        key.append([examples.translation_ids[i], partner_key][:: -1 if key_swapped_N[n] else 1])
    queries, keys = (prepend_bos(*zip(*side, strict=True), bos=examples.bos) for side in (query, key))
    return queries, keys, examples.row_N.reshape(-1, 2), noise


def choose_partners(corpus_N: np.ndarray, noise: KeyedRandom) -> np.ndarray:
    """Return which pairs are joined, [N / 2, 2]: random pairs of different corpora, if none has more than half of all.

    The pairs are sorted by corpus and shuffled within it. Pair i of the first half is joined with pair i + N / 2.
    """
    corpora, number_N = np.unique(corpus_N, return_inverse=True)
    random_G = np.ones(len(corpora))
    np.minimum.at(random_G, number_N, noise.per_example("corpus"))  # corpora in random order
    order_N = np.lexsort((noise.per_example("mate"), number_N, random_G[number_N]))
    half = len(order_N) // 2
    joined_N2 = np.stack([order_N[:half], order_N[half : 2 * half]], 1)
    return joined_N2[np.argsort(joined_N2[:, 0])]  # in sampling order, which does not depend on the corpora
