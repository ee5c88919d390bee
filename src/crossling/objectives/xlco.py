r"""Cross-lingual contrast (InfoXLM §3.3, Eq. 5 and 6).

    L_XLCo(c1, c2) = - log( f(c1, c2) / sum over c' in N of f(c1, c') ),    f(a, b) = exp(g_Q(a) . g_K(b) / tau)

g is the encoder up to the universal layer, pooled and projected. The query encoder g_Q is the one in training; the key
encoder g_K follows it, K <- m K + (1 - m) Q after each step, and learns nothing by itself. N holds the translation c2
and a queue of earlier keys, of constant length and filled before the first step; the keys of a step enter it after the
step. With `queue = 0`, N holds the keys of the step itself; if also m = 0 there is one encoder, and the keys have
gradients too.

Mixup: a pair <c1, c2> is joined with another <d1, d2> of another corpus (or of another language pair of the same one)
in a random order, as <c1 d1, c2 d2> or crossed as <c1 d2, d1 c2>. No row of a multi-way set meets its own translations
as negatives, neither in the batch nor in the queue.

The loss maximises a lower bound of mutual information (Eq. 4), which is watched beside it: I(c1; c2) >= log |N| - L.

At `temperature = 1`, not normalised and not symmetric this is Eq. 6 to the letter. Temperature, a projection without
bias, and masked inputs are those of the authors' code and not in the paper.
"""
# N pairs of a micro-batch, A candidates, R rows of W tokens, P tokens in all, D width

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from crossling.data.batches import Corrupted, Examples, opened
from crossling.data.noise import Noise
from crossling.data.packing import Batch, Sequences
from crossling.distributed import gathered, speaks
from crossling.model.initial import initialise
from crossling.model.shape import Shape
from crossling.model.transformer import CrosslingModel
from crossling.objectives.mlm import masked
from crossling.objectives.momentum import KeyQueue, follow, key_encoder
from crossling.objectives.objective import Network, Objective, Parts
from crossling.progress import Progress

EXPECTED = 32  # tokens of a pair, where it has to be said how many pairs are a small batch


@dataclass(frozen=True)
class XLCo(Objective):
    stream: ClassVar[Literal["text", "pairs"]] = "pairs"

    pairs: int = 2048  # of one step; with mixup, of joined ones
    layer: int | None = None  # 0 is the embedding output; none: the universal layer of the model
    momentum: float = 0.999  # m; 0: the key encoder is the query encoder
    queue: int = 131_072  # |N| - 1; 0: the pairs of a step are each other's negatives
    mixup: bool = True
    temperature: float = 0.25  # tau
    normalise: bool = False  # cosine instead of dot product
    symmetric: bool = False  # also from c2 to c1, the mean of both
    pooling: Literal["cls", "mean"] = "cls"  # mean: on CUDA its sums are in no fixed order
    rate: float = 0.15  # masked on both sides
    keep: float = 0.1  # of the masked: stays as it is
    random: float = 0.1  # of the masked: becomes a random piece
    length: int = 512  # tokens of both sides together
    weight: float = 1.0

    @classmethod
    def beside(cls, tokens: int, length: int) -> XLCo:
        """As large as the paper's is beside tasks of so many tokens a step: a pair for each sequence of theirs, and the
        keys of 64 steps in the queue.

        Smaller than the paper's it contrasts means by cosine: there, plain products of [CLS] were seen to tell new keys
        from old ones by how far the encoder had moved on, and to learn nothing (docs/log.md).
        """
        pairs = max(2, tokens // length)
        sized = cls(pairs=pairs, queue=64 * pairs, length=length)
        if pairs >= cls.pairs:
            return sized
        return replace(sized, momentum=0.99, pooling="mean", normalise=True, temperature=0.05)

    @property
    def order(self) -> str:
        """Its own: other pairs than those that a masked language model beside it reads."""
        return "xlco"

    @property
    def whole(self) -> bool:
        return not self.queue

    @property
    def weights(self) -> dict[str, float]:
        return {"xlco": self.weight}

    def examples(self, expected_length: float) -> int:  # noqa: ARG002
        return self.pairs * (2 if self.mixup else 1)

    def parts(self, encoder: CrosslingModel, shape: Shape) -> Parts:  # noqa: ARG002
        def projection() -> nn.Module:
            linear = nn.Linear(encoder.config.hidden_size, encoder.config.hidden_size, bias=False)
            initialise(linear, encoder.config.initializer_range)
            return linear

        parts: Parts = {"projection": projection}
        if self.momentum:
            parts["key_encoder"] = lambda: key_encoder(encoder, self._layer(encoder))
            parts["key_projection"] = lambda: projection().requires_grad_(False)
        if self.queue:
            parts["queue"] = lambda: KeyQueue(self.queue, encoder.config.hidden_size)
        return parts

    def units(self, group_N: np.ndarray, noise: Noise) -> np.ndarray:
        return mates(group_N, noise) if self.mixup else super().units(group_N, noise)

    def corrupt(self, examples: Examples, noise: Noise, mask: int) -> Corrupted:
        assert examples.row_N is not None
        if self.mixup:
            query, key, rows_N2, noise = mixed_up(examples, noise)
        else:
            query, key = examples.alone(), examples.translations()
            rows_N2 = np.stack([examples.row_N, examples.row_N], 1)
        inputs = {}
        for name, side in {"query": query, "key": key}.items():
            if self.rate:
                side = masked(side, noise, mask, self.rate, self.keep, self.random, purpose=name)
            inputs[name] = Sequences(side.lengths_N, {name: side.tokens["ids"]})
        return Corrupted(inputs, {"rows": rows_N2})

    def counts(self, batch: Batch) -> dict[str, int]:
        return dict.fromkeys(("xlco", "xlco_accuracy", "xlco_bound"), len(batch["rows"]))

    def small(self, tokens: int) -> XLCo:
        """Pairs that are each other's negatives: a queue would take them in. As many whatever their length, as the
        loss grows with their number."""
        return replace(self, pairs=max(2, tokens // EXPECTED), queue=0, mixup=False)

    def begin(self, net: Network, more: Iterator[list[Batch]]) -> None:
        if self.momentum:
            self._follow(net, 0.0)
        if self.queue:
            queue = net.parts["queue"]
            with Progress("queue", self.queue, shown=speaks()) as progress:
                while queue.filled < self.queue:
                    for batch in next(more):
                        queue.add(self._keys(net, batch, "key"), batch["rows"])
                    queue.shift()
                    progress.update(queue.filled, "keys")

    def after_step(self, net: Network) -> None:
        if self.queue:
            net.parts["queue"].shift()
        if self.momentum:
            self._follow(net, self.momentum)

    def loss(self, net: Network, batch: Batch) -> dict[str, Tensor]:
        rows_N2 = batch["rows"]
        ways = [("query", "key"), ("key", "query")] if self.symmetric else [("query", "key")]
        live = {side: self.represent(net, batch, side) for side, _ in ways}
        sums = []
        for asking, answering in ways:
            if self.queue or self.momentum:
                key_ND = self._keys(net, batch, answering)
            else:
                key_ND = live[answering] if self.symmetric else self.represent(net, batch, answering)
            if self.queue and asking == "query":
                net.parts["queue"].add(key_ND, rows_N2)
            sums.append(self._contrast(net, live[asking], key_ND, rows_N2))
        loss, right, bound = (sum(each) / len(ways) for each in zip(*sums, strict=True))
        return {"xlco": loss, "xlco_accuracy": right, "xlco_bound": bound}

    def _contrast(self, net: Network, query_ND: Tensor, key_ND: Tensor, rows_N2: Tensor) -> tuple[Tensor, ...]:
        """The loss, how many find their translation, and the bound on mutual information."""
        with torch.autocast(query_ND.device.type, enabled=False):
            if self.queue:  # its own translation first, then the queue
                queue = net.parts["queue"]
                scores_NA = torch.cat([(query_ND * key_ND).sum(-1, keepdim=True), query_ND @ queue.keys_AD.T], 1)
                left_out_NA = F.pad(_related(rows_N2, queue.rows_A2), (1, 0), value=False)
                target_N = torch.zeros(len(query_ND), dtype=torch.long, device=query_ND.device)
            else:
                (candidate_AD, first), (rows_A2, _) = gathered(key_ND), gathered(rows_N2)
                scores_NA = query_ND @ candidate_AD.T
                target_N = first + torch.arange(len(query_ND), device=query_ND.device)
                left_out_NA = _related(rows_N2, rows_A2).scatter(1, target_N[:, None], value=False)
        scores_NA = (scores_NA / self.temperature).masked_fill(left_out_NA, -torch.inf)
        loss = F.cross_entropy(scores_NA, target_N, reduction="sum")
        right = (scores_NA.argmax(-1) == target_N).sum()
        bound = (~left_out_NA).sum(1).log().sum() - loss.detach()
        return loss, right, bound

    def represent(self, net: Network, batch: Batch, side: str) -> Tensor:
        """g_Q of every sequence of one side, in the order of the pairs."""
        return self._represent(net.encoder, net.parts["projection"], batch, side)

    @torch.no_grad()
    def _keys(self, net: Network, batch: Batch, side: str) -> Tensor:
        """g_K of every sequence of one side."""
        if self.momentum:
            return self._represent(net.parts["key_encoder"], net.parts["key_projection"], batch, side)
        return self.represent(net, batch, side)

    def _represent(self, encoder: CrosslingModel, projection: nn.Module, batch: Batch, side: str) -> Tensor:
        segments_RW, starts_N = batch[f"{side}_segments"], batch[f"{side}_starts"]
        hidden_RWD = encoder(batch[side], segments=segments_RW, layers=self._layer(encoder)).last_hidden_state
        if self.pooling == "cls":
            pooled_ND = hidden_RWD.flatten(0, 1)[starts_N]
        else:
            number_P = segments_RW.flatten()
            length_N = torch.bincount(number_P, minlength=len(starts_N) + 1)[1:]
            sum_ND = hidden_RWD.new_zeros(len(starts_N) + 1, hidden_RWD.shape[-1])
            pooled_ND = sum_ND.index_add(0, number_P, hidden_RWD.flatten(0, 1))[1:] / length_N[:, None]
        with torch.autocast(pooled_ND.device.type, enabled=False):  # cosines / 0.05 need more than bfloat16's digits
            vector_ND = projection(pooled_ND.float())
        return F.normalize(vector_ND, dim=-1) if self.normalise else vector_ND

    def _layer(self, encoder: CrosslingModel) -> int:
        return encoder.config.universal_layer if self.layer is None else self.layer

    def _follow(self, net: Network, momentum: float) -> None:
        follow(net.parts["key_encoder"], net.encoder, momentum)
        follow(net.parts["key_projection"], net.parts["projection"], momentum)


def _related(rows_N2: Tensor, rows_A2: Tensor) -> Tensor:
    """Which candidates hold a translation of what a query holds: they share a row of a multi-way set."""
    same = [rows_N2[:, i, None] == rows_A2[None, :, j] for i in (0, 1) for j in (0, 1)]
    return same[0] | same[1] | same[2] | same[3]


def mixed_up(examples: Examples, noise: Noise) -> tuple[Sequences, Sequences, np.ndarray, Noise]:
    """Each pair joined with its mate, which follows it: both sides, the rows of the two in each, and the noise that
    belongs to them."""
    assert examples.row_N is not None
    first_N = np.arange(0, len(examples.ids), 2)
    noise = noise.of(first_N)
    crossed, query_turned, key_turned = (
        noise.each(purpose) < 0.5 for purpose in ("crossed", "query order", "key order")
    )
    query, key = [], []
    for i, cross, turn_query, turn_key in zip(first_N.tolist(), crossed, query_turned, key_turned, strict=True):
        ids, others = examples.ids[i + 1], examples.others[i + 1]
        mate = (others, ids) if cross else (ids, others)
        query.append((mate[0], examples.ids[i]) if turn_query else (examples.ids[i], mate[0]))
        key.append((mate[1], examples.others[i]) if turn_key else (examples.others[i], mate[1]))
    joined = [opened([a for a, _ in side], [b for _, b in side]) for side in (query, key)]
    return joined[0], joined[1], examples.row_N.reshape(-1, 2), noise


def mates(corpus_N: np.ndarray, noise: Noise) -> np.ndarray:
    """Which pairs are joined, [N / 2, 2]: at random, and of different corpora unless one has more than half of all.

    Sorted by corpus, and at random within one, each of the first half is joined with the one half of all further on.
    """
    corpora, number_N = np.unique(corpus_N, return_inverse=True)
    place_G = np.ones(len(corpora))
    np.minimum.at(place_G, number_N, noise.each("corpus"))  # the corpora in a random order
    order_N = np.lexsort((noise.each("mate"), number_N, place_G[number_N]))
    half = len(order_N) // 2
    joined_N2 = np.stack([order_N[:half], order_N[half : 2 * half]], 1)
    return joined_N2[np.argsort(joined_N2[:, 0])]  # back in the order of the draw, which knows no corpora
