r"""Time that GPUs wait for each other in a training step.

A reduce-scatter, or an all-gather, of S bytes over m machines of g GPUs takes

    t(S) = S (g - 1) / (g b)  +  S (m - 1) / (g m c)

at bandwidths b of a GPU inside its machine and c to other machines. Each GPU exchanges parts of S inside its machine,
and a g-th of S with the same GPU of the other machines. An all-reduce takes 2 t(S). Latency is not counted.

Replicas sum the gradient, 4 bytes a parameter, once a step after the last backward pass. Nothing hides it. FSDP2
gathers all weights in the forward and in the backward pass of each micro-batch, blocks in bfloat16 and the rest in
float32, and scatters the gradient. It does so while it computes, so only what takes longer than that is waited for.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from crossling.core.errors import BadInput
from crossling.core.hardware import Accelerator
from crossling.model.encoder_model import CrosslingModel
from crossling.model.native_encoder import NativeEncoder
from crossling.objectives import Network, PretrainingObjective
from crossling.recipes.network import ObjectiveLoad
from crossling.recipes.recipe import Recipe

GPUS_PER_NODE = 8
LINK_EFFICIENCY = 0.8  # fraction of the vendors' bandwidth that large messages reach
GRADIENT_BYTES = 4  # per trained parameter


def check_gpus(gpus: int) -> None:
    """Raise BadInput for a number of GPUs that is no whole number above 0, or that does not fill its machines."""
    if isinstance(gpus, bool) or not isinstance(gpus, int) or gpus < 1:
        raise BadInput(f"gpus={gpus!r}: expected a whole number above 0.")
    if gpus > GPUS_PER_NODE and gpus % GPUS_PER_NODE:
        below = gpus - gpus % GPUS_PER_NODE
        raise BadInput(
            f"gpus={gpus}: more than {GPUS_PER_NODE} GPUs are machines of {GPUS_PER_NODE}. Give a multiple, such as"
            f" {below} or {below + GPUS_PER_NODE}."
        )


def scatter_seconds(size: float, accelerator: Accelerator, gpus: int) -> float:
    """Return the time of a reduce-scatter or an all-gather of `size` bytes."""
    local = min(gpus, GPUS_PER_NODE)
    machines = math.ceil(gpus / GPUS_PER_NODE)
    inside = size * (local - 1) / local / (LINK_EFFICIENCY * accelerator.link_bandwidth)
    between = size / local * (machines - 1) / machines / (LINK_EFFICIENCY * accelerator.network_bandwidth)
    return inside + between


def waiting_seconds(
    recipe: Recipe,
    net: Network,
    loads: Mapping[str, ObjectiveLoad],
    accelerator: Accelerator,
    *,
    gpus: int,
    sharded: bool,
    compute_seconds: float,
) -> float:
    """Return the time of a step in which the GPUs wait for communication. `net` may be on the meta device."""
    trained = sum(parameter.numel() for parameter in net.parameters() if parameter.requires_grad)
    scatter = scatter_seconds(GRADIENT_BYTES * trained, accelerator, gpus)
    if not sharded:
        return 2 * scatter
    gather = scatter_seconds(_gathered_bytes(net), accelerator, gpus)
    exchanged = micro_batches_per_step(recipe, loads, gpus) * (2 * gather + scatter)
    return max(0.0, exchanged - compute_seconds)


def micro_batches_per_step(recipe: Recipe, loads: Mapping[str, ObjectiveLoad], gpus: int) -> float:
    """Return the mean number of micro-batches of one GPU in a step."""
    number = 0.0
    for name, load in loads.items():
        objective = recipe.objectives[name]
        own = load.tokens / gpus / tokens_at_once(objective, load, recipe.micro_tokens, gpus)
        number += own * recipe.stream_steps(objective.stream) / recipe.steps
    return number


def tokens_at_once(objective: PretrainingObjective, load: ObjectiveLoad, micro_tokens: int, gpus: int) -> float:
    """Return the tokens of a micro-batch on one GPU."""
    own = load.tokens / gpus
    return own if objective.has_in_batch_negatives else own / math.ceil(own / micro_tokens)


def _gathered_bytes(net: Network) -> float:
    models = [part for part in (net.encoder, *net.parts.values()) if isinstance(part, CrosslingModel | NativeEncoder)]
    blocks = sum(parameter.numel() for model in models for block in model.blocks for parameter in block.parameters())
    return 2.0 * blocks + 4.0 * (sum(parameter.numel() for parameter in net.parameters()) - blocks)
