"""How much memory of a GPU a step takes, from shapes alone. docs/scaling.md has the equations and what was measured.

When the way back begins:

    states        12 bytes a parameter: weight and the two moments of Adam in float32; 4 more for its gradient where
                  there is one from an earlier micro-batch, or several processes; 4 in all where nothing learns.
                  What Muon moves has one momentum, 4 bytes less
    activations   what the layers keep for the way back, for the tokens that are computed at once
    head          the gradient of the token table that the head has already made
    working       weights once more in bfloat16; in shards (FSDP2) what is gathered of them

When it ends, all gradients are there and no activations, but two more of the token table's on their way. In the middle
of the head there are a chunk of logits and the table in bfloat16, and the activations of the network it stands on: of a
pair, the generator's. When the optimizer moves the weights, there are all states and what Muon stacks of the matrices
of one shape. The largest of the four counts. Counted are the plain layers under bfloat16, with attention that keeps no
scores (flash, or the kernel).
"""
# D width, F feed-forward, H heads, V vocabulary

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from torch import nn

from crossling.hardware import GIB, Card
from crossling.model.config import CrosslingConfig
from crossling.model.heads import LMHead
from crossling.model.prediction import CHUNK
from crossling.model.shape import Shape
from crossling.model.transformer import CrosslingModel
from crossling.objectives import CAMLM, Network, Objective, XLCo
from crossling.recipe import Recipe
from crossling.recipe.cost import Load
from crossling.train.muon import STACKED_BYTES, Muon
from crossling.train.parallel import FROZEN_BYTES, LARGEST_SHARE, LEARNED_BYTES, MOMENT_BYTES

ROOM = 0.9  # of a card that may be filled: the rest is the driver's, the allocator's gaps, and what is not counted here
MOST_AT_ONCE = 65_536  # tokens: more of them keep a card no busier


@dataclass(frozen=True)
class Memory:
    """Bytes on one GPU."""

    states: float
    activations: float
    head: float
    working: float
    at_the_end: float  # of the way back
    at_the_head: float  # in its middle
    at_the_step: float  # of the optimizer
    sharded: bool  # the states are shared out over the GPUs (FSDP2)

    @property
    def gib(self) -> float:
        turning = self.states + self.activations + self.head + self.working
        return max(turning, self.at_the_end, self.at_the_head, self.at_the_step) / GIB

    def fits(self, card: Card) -> bool:
        return self.gib <= ROOM * card.gib


def memory(recipe: Recipe, net: Network, loads: Mapping[str, Load], card: Card, gpus: int = 1) -> Memory:
    """At the peak of a step, on each of the GPUs. `net` may have no weights."""
    states = sum(p.numel() * (LEARNED_BYTES if p.requires_grad else FROZEN_BYTES) for p in net.parameters())
    queue = sum(buffer.numel() * buffer.element_size() for buffer in net.buffers())
    too_large = states > LARGEST_SHARE * card.gib * GIB
    stacks = _stacks(recipe, net)
    states -= MOMENT_BYTES * sum(stacks)
    wanted = recipe.parallel == "fsdp" or (recipe.parallel == "auto" and too_large)
    shared_out = gpus > 1 and wanted and not stacks  # Muon needs whole matrices
    kept, head, under_head, micro_batches = 0.0, 0.0, 0.0, 0.0
    table = 4.0 * net.encoder.config.vocab_size * net.encoder.config.hidden_size
    for name, objective in recipe.objectives.items():
        tokens = at_once(objective, loads[name], recipe.micro_tokens, gpus)
        kept = max(kept, _kept(objective, net, recipe.recompute) * tokens)
        micro_batches += loads[name].tokens / gpus / tokens
        if any(isinstance(net.parts[part], LMHead) for part in _parts(objective, net)):
            head = max(head, table * len(objective.weights) if isinstance(objective, CAMLM) else table)
            masked = objective.rate * tokens  # type: ignore[attr-defined]
            chunk = min(CHUNK, 2 * net.encoder.config.vocab_size * masked) + table / 2
            under_head = max(under_head, _kept(objective, net, recipe.recompute, under_head=True) * tokens + chunk)
    working = _gathered(net) if shared_out else 2.0 * _in_blocks(net)
    shares = gpus if shared_out else 1
    first = gpus == 1 and round(micro_batches) == 1 and not recipe.alternate  # no gradient lies there from before
    gradients = 4 * sum(p.numel() for p in net.parameters() if p.requires_grad) if first else 0
    begun = (states - gradients) / shares + queue
    return Memory(
        begun,
        kept,
        head,
        working,
        at_the_end=states / shares + queue + working + 2 * table,
        at_the_head=begun + head + working + under_head,
        at_the_step=states / shares + queue + STACKED_BYTES * max(stacks, default=0),
        sharded=shared_out,
    )


def fitted(recipe: Recipe, net: Network, loads: Mapping[str, Load], card: Card, gpus: int = 1) -> Recipe | None:
    """The recipe with the most tokens at once that the card has room for; activations are computed again only where
    less than 8,192 would fit without. Nothing if the card is too small all the same."""
    for recompute, least in ((recipe.recompute, 8192), (True, 1)):
        micro_tokens = MOST_AT_ONCE
        while micro_tokens >= max(least, *(objective.length for objective in recipe.objectives.values())):
            tried = recipe.but(micro_tokens=micro_tokens, recompute=recompute)
            if memory(tried, net, loads, card, gpus).fits(card):
                return tried
            micro_tokens //= 2
    return None


def at_once(objective: Objective, load: Load, micro_tokens: int, gpus: int) -> float:
    """Tokens of one GPU whose activations are there at the same time."""
    own = load.tokens / gpus
    return own if objective.whole else own / math.ceil(own / micro_tokens)


def block_bytes(config: CrosslingConfig, crossed: bool = False) -> float:
    """What one block keeps of a token. In bfloat16: what q, k, v are made from, these three, what attention gives,
    what the two norms read, what the feed-forward reads, and its inner values before and after GELU; in float32 the
    logarithms of attention's sums; a byte for each place of the two dropouts. Cross-attention is the like once more."""
    wide, inner, heads = config.hidden_size, config.intermediate_size, config.num_attention_heads
    drop = 1 if config.dropout else 0
    own = 2 * (8 * wide + 2 * inner) + 4 * heads + 2 * drop * wide
    cross = 2 * 6 * wide + 4 * heads + drop * wide
    return own + (cross if crossed else 0)


def _kept(objective: Objective, net: Network, recompute: bool, under_head: bool = False) -> float:
    """Bytes that the networks an objective learns through keep of each of its tokens; or only the one that the head
    over the vocabulary stands on."""
    encoder = net.encoder
    if isinstance(objective, XLCo):
        layers = encoder.config.universal_layer if objective.layer is None else objective.layer
        learns = objective.symmetric or (objective.queue == 0 and objective.momentum == 0)
        again = block_bytes(encoder.config) if recompute else 0
        return (_stack(encoder.config, layers, recompute) + again) * (1.0 if learns else 0.5)  # of keys nothing is kept
    if isinstance(objective, CAMLM):
        layers = len(encoder.blocks)
        again = block_bytes(encoder.config, crossed=True) if recompute else 0
        return again + sum(_stack(encoder.config, layers, recompute, crossed) for crossed in (False, True))
    read = [encoder, *(net.parts[name] for name in _parts(objective, net))]
    networks = [part for part in read if isinstance(part, CrosslingModel)]
    if under_head:
        return _stack(networks[-1].config, len(networks[-1].blocks), recompute)
    again = max(block_bytes(part.config) for part in networks) if recompute else 0  # of one block at a time
    return again + sum(_stack(part.config, len(part.blocks), recompute) for part in networks)


def _stack(config: CrosslingConfig, layers: int, recompute: bool, crossed: bool = False) -> float:
    """The embeddings and so many blocks: all that each of them keeps, or its input alone."""
    return 4 * config.hidden_size + layers * (2 * config.hidden_size if recompute else block_bytes(config, crossed))


def _stacks(recipe: Recipe, net: Network) -> list[int]:
    """Elements of the matrices that Muon moves at once, of each shape."""
    optimizer = recipe.optimizer.build(net)
    if not isinstance(optimizer, Muon):
        return []
    return [sum(weight.numel() for weight in weights) for _, weights in optimizer.stacks()]


def _parts(objective: Objective, net: Network) -> list[str]:
    return [*objective.parts(net.encoder, Shape(1, 1, 1, 1, 1))]  # the shape does not change the names


def _in_blocks(net: Network) -> int:
    return sum(p.numel() for block in _blocks(net) for p in block.parameters())


def _gathered(net: Network) -> float:
    """Of shards: two blocks at a time, in bfloat16 and with a gradient; all else whole while the step lasts, with its
    gradient."""
    block = max(sum(p.numel() for p in block.parameters()) for block in _blocks(net))
    rest = sum(p.numel() for p in net.parameters()) - _in_blocks(net)
    return 2 * (2 + 4) * block + (4 + 4) * rest


def _blocks(net: Network) -> Iterator[nn.Module]:
    for part in (net.encoder, *net.parts.values()):
        if isinstance(part, CrosslingModel):
            yield from part.blocks
