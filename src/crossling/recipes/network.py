"""Build the network of a recipe, and load that of a run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

import torch

from crossling.data.batches import Batches, Stream
from crossling.data.example_sampler import sampling_probabilities
from crossling.data.phased_batches import PhasedBatches
from crossling.data.shards import Shards
from crossling.model.encoder_model import CrosslingModel
from crossling.model.model_shape import ModelShape
from crossling.model.native_encoder import NativeEncoder, build_model, load_config
from crossling.objectives import Network, PretrainingObjective
from crossling.recipes.recipe import Recipe
from crossling.recipes.run_checkpoints import find_checkpoint, run_of
from crossling.train import checkpoint
from crossling.vocabulary.open_vocabulary import open_vocabulary


def build_network(recipe: Recipe, vocabulary_size: int) -> Network:
    """Return the network of a recipe with random initial weights by its seed."""
    torch.manual_seed(recipe.seed)
    return _build(recipe.model, (*recipe.objectives.values(),), vocabulary_size)


def _build(shape: ModelShape, objectives: tuple[PretrainingObjective, ...], vocabulary_size: int) -> Network:
    encoder: CrosslingModel | NativeEncoder
    if shape.native is None:
        encoder = CrosslingModel(shape.to_config(vocabulary_size))
    else:
        config = load_config(shape.native, vocabulary_size)
        encoder = NativeEncoder(build_model(config), shape.to_config(config.vocab_size))
        if shape.lora:
            from crossling.model.lora import add_lora

            add_lora(encoder, shape.lora, json.loads(shape.native)["tokens"])
    parts: dict[str, torch.nn.Module] = {}
    for objective in objectives:
        for name, build in objective.modules(encoder, shape).items():
            if name not in parts:
                parts[name] = build()
    return Network(encoder, parts)


def load_run(path: Path) -> Network:
    """Return the network of a run at its latest complete checkpoint, or at a path RUN/checkpoints/STEP."""
    saved, run = find_checkpoint(path), run_of(path) or path
    recipe = Recipe.load(run / "recipe.json")
    special = open_vocabulary(run / "vocab").special
    net = build_network(recipe, special.size)
    for part in (net.encoder, *net.parts.values()):
        if isinstance(part, CrosslingModel):
            ids = special.pad, special.bos, special.eos
            part.config.pad_token_id, part.config.bos_token_id, part.config.eos_token_id = ids
    checkpoint.load_weights(saved, net)
    if recipe.model.lora:
        from crossling.model.lora import merge_lora

        merge_lora(net.encoder)
    return net


@dataclass(frozen=True)
class ObjectiveLoad:
    """Examples of one objective in one step."""

    examples: int
    length: float  # mean tokens of an example, without padding

    @property
    def tokens(self) -> float:
        """Tokens of one step."""
        return self.examples * self.length


def make_batches(
    recipe: Recipe, shards: Shards, rank: int = 0, world_size: int = 1, *, has_bucketed_shapes: bool = False
) -> Batches:
    """Return the batches of one process, in the first phase. Raises BadInput if the shards do not suffice."""
    return Batches(
        shards,
        recipe.objectives,
        recipe.sampling,
        seed=recipe.seed,
        micro_tokens=recipe.micro_tokens,
        alternate=recipe.alternate,
        rank=rank,
        world_size=world_size,
        has_bucketed_shapes=has_bucketed_shapes,
        later=[phase.sampling for phase in recipe.split()[1:]],
    )


def add_phases(batches: Batches, recipe: Recipe, shards: Shards) -> Batches | PhasedBatches:
    """Return the batches of all phases of a recipe, given those of the first one."""
    start, phases = 0, [(0, batches)]
    recipes = recipe.split()
    streams: set[Stream] = {objective.stream for objective in recipe.objectives.values()}
    for before, phase in pairwise(recipes):
        start += before.steps
        changed = streams if phase.sampling != before.sampling else set()
        probabilities = {stream: sampling_probabilities(shards, stream, phase.sampling) for stream in changed}
        phases.append((start, phases[-1][1].next_phase(phase.objectives, probabilities, start)))
    return PhasedBatches(phases) if len(phases) > 1 else batches


def objective_loads(batches: Batches) -> dict[str, ObjectiveLoad]:
    """Return the examples of each objective in one step."""
    return {
        name: ObjectiveLoad(batches.samplers[name].examples_per_step, length)
        for name, length in batches.mean_lengths.items()
    }


def total_tokens(recipe: Recipe, loads: Mapping[str, ObjectiveLoad]) -> float:
    """Return the tokens of a whole run."""
    return sum(load.tokens * recipe.stream_steps(recipe.objectives[name].stream) for name, load in loads.items())


def build_meta_network(recipe: Recipe, vocabulary_size: int) -> Network:
    """Return the network on the meta device, without weights. Calls with the same architecture return one network."""
    return _build_meta(recipe.model, (*recipe.objectives.values(),), vocabulary_size)


@lru_cache(maxsize=32)
def _build_meta(shape: ModelShape, objectives: tuple[PretrainingObjective, ...], vocabulary_size: int) -> Network:
    with torch.device("meta"):
        return _build(shape, objectives, vocabulary_size)


def count_parameters(net: Network) -> dict[str, int]:
    """Return the parameters of each module. Shared ones are counted in the first module that has them."""
    counted: set[int] = set()
    sizes: dict[str, int] = {}
    for name, part in {"encoder": net.encoder, **dict(net.parts.items())}.items():
        new = {id(parameter): parameter.numel() for parameter in part.parameters() if id(parameter) not in counted}
        counted |= {*new}
        sizes[name] = sum(new.values())
    return sizes


def count_layer_parameters(net: Network) -> int:
    """Return the parameters of the encoder, and of a decoder, without their embeddings."""
    models = [net.encoder, *([net.parts["decoder"]] if "decoder" in net.parts else [])]
    return sum(parameter.numel() for model in models for block in model.blocks for parameter in block.parameters())


def flops_per_token(recipe: Recipe, net: Network, loads: Mapping[str, ObjectiveLoad]) -> dict[str, float]:
    """Return the FLOPs per token of the forward and backward pass in two conventions.

    `full`: all matrices, heads and attention, averaged over the tokens of a step and over phases, for MFU.
    `paper`: 6 per weight of the encoder's layers, which seems to be the convention of XLM-E's Table 4.
    """
    flops = sum(
        phase.steps / recipe.steps * phase.objectives[name].flops_per_token(net, load.length) * load.tokens
        for phase in recipe.split()
        for name, load in loads.items()
    )
    tokens = sum(load.tokens for load in loads.values())
    return {"full": flops / tokens, "paper": 6.0 * count_layer_parameters(net)}
