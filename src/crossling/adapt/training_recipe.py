"""The recipe of an adaptation, and the time of one of its steps on this machine."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import torch

from crossling.adapt.adapt_settings import AdaptSettings
from crossling.adapt.choose_settings import WARMUP
from crossling.adapt.model_facts import ModelFacts
from crossling.core.errors import BadInput
from crossling.data.shards import Shards
from crossling.model.model_shape import SIZES
from crossling.objectives import MLM, TLM, Distillation, XLCo
from crossling.recipes.network import build_network, make_batches
from crossling.recipes.recipe import Recipe
from crossling.sampling import Sampling
from crossling.train.optimizer import OptimizerSettings
from crossling.vocabulary.open_vocabulary import open_vocabulary

NAME = "adapt"  # of the recipe
DISTILLATION_WEIGHT = 20.0  # 1 - cosine is small; this makes both gradients similar
TIMED_STEPS = 2
MARGIN = 1.1  # of the measured time, for checkpoints and validation


def build_recipe(
    settings: AdaptSettings, facts: ModelFacts, assignments: Sequence[str] = (), *, seed: int = 0
) -> Recipe:
    """Return the recipe that trains with these settings.

    Args:
        settings: Choices of the adaptation.
        facts: The model, whose architecture the recipe takes.
        assignments: Further `key=value` settings of the recipe.
        seed: Seed of the run.

    Raises:
        BadInput: A setting is unknown, or contradicts the model or another one.
    """
    length = settings.length
    recipe = Recipe(
        name=NAME,
        model=replace(SIZES["small"], dropout=0.0, relative=False, gate=False, lora=settings.lora or None),
        mlm=MLM(tokens=settings.tokens, length=length) if settings.has("mlm") else None,
        tlm=TLM(tokens=settings.tlm_tokens, length=length) if settings.has("tlm") else None,
        xlco=_contrastive(settings, facts) if settings.has("xlco") else None,
        distillation=_distillation(settings, facts) if settings.has("distillation") else None,
        sampling=Sampling(focus=settings.focus, replay=settings.replay),
        optimizer=OptimizerSettings(
            warmup=WARMUP if settings.steps >= 10 else 0.0,
            clip=1.0,
            decay=0.0 if settings.lora else 0.01,
            matrices=settings.matrices,
        ),
        lr=settings.lr,
        steps=settings.steps,
        seed=seed,
        checkpoint_every=max(10, settings.steps // 10),
        log_every=max(1, settings.steps // 20),
        micro_tokens=8192 if facts.device == "cpu" else 65_536,
        keep_last=1,
    )
    recipe = facts.initial.adapt(recipe.set(assignments))
    if recipe.model.max_length < length:
        raise BadInput(f"length={length}: {facts.name} reads {recipe.model.max_length} tokens. Set a shorter length.")
    if settings.lora and recipe.xlco and recipe.xlco.momentum:
        raise BadInput("xlco.momentum: a moving average is not supported with LoRA. Omit one of them.")
    recipe.check()
    return recipe


def _distillation(settings: AdaptSettings, facts: ModelFacts) -> Distillation:
    return Distillation(
        sentences=settings.pairs,
        length=settings.length,
        pooling=facts.pooling,
        distance="cosine",
        weight=DISTILLATION_WEIGHT,
    )


def _contrastive(settings: AdaptSettings, facts: ModelFacts) -> XLCo:
    """Return contrastive learning of the vectors that the exported model gives: no projection between them."""
    return XLCo(
        pairs=settings.pairs,
        queue=0,
        momentum=0.0,
        mixup=False,
        symmetric=True,
        normalize=True,
        pooling=facts.pooling,
        projection="identity",
        temperature=0.05,
        rate=0.05,
        length=settings.length,
    )


def seconds_per_step(recipe: Recipe, facts: ModelFacts, shards: Shards) -> float:
    """Return the time of a training step, measured on a few of them with a margin."""
    device = torch.device(facts.device)
    net = build_network(recipe, shards.vocabulary_size)
    facts.initial.initialize(net, open_vocabulary(shards.vocabulary_path), recipe.seed)
    net.to(device).train()
    batches = make_batches(recipe, shards)
    optimizer = recipe.optimizer.build(net)
    for group in optimizer.param_groups:
        group["lr"] = 0.0
    seconds = []
    for step in range(1 + TIMED_STEPS):  # the first one is slow
        started = time.perf_counter()
        for name, batch in batches[step].micro_batches:
            objective = recipe.objectives[name]
            with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
                sums = objective.loss(net, {key: values.to(device) for key, values in batch.items()})
            torch.stack([sums[term] for term in objective.loss_weights]).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        if device.type == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - started)
    return MARGIN * sum(seconds[1:]) / TIMED_STEPS
