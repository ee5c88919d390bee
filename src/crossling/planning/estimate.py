"""Memory and time of a run on given GPUs or on this CPU, for a recipe and for the sizes its paper trained."""
# D width, F feed-forward, H heads, V vocabulary

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from crossling.core.hardware import ACCELERATORS, GIB, Accelerator
from crossling.model.encoder_model import CrosslingModel
from crossling.model.kernels.prediction import CHUNK_BYTES
from crossling.model.native_encoder import NativeEncoder
from crossling.objectives import Network
from crossling.planning.communication import tokens_at_once, waiting_seconds
from crossling.recipes import RECIPES, has_size
from crossling.recipes.network import ObjectiveLoad, build_meta_network, count_parameters, flops_per_token, total_tokens
from crossling.recipes.recipe import OBJECTIVES, Recipe
from crossling.train.muon import STACKED_BYTES, Muon
from crossling.train.optimizer import OptimizerSettings
from crossling.train.parallel import BUFFER_BYTES, FROZEN_BYTES, MAX_STATE_FRACTION, MOMENT_BYTES, TRAINED_BYTES

USABLE = 0.9  # of the memory: the rest is for the driver, fragmentation, and what is not counted here
MAX_MICRO_TOKENS = 65_536  # larger micro-batches are no faster
CPU_ACTIVATIONS = 2  # float32 in place of bfloat16
CPU_PROCESS_BYTES = 0.45 * GIB  # of Python and torch
CPU_SCORE_BYTES = 24  # stored for each score of attention with a learned bias, which no fused kernel computes


@dataclass(frozen=True, kw_only=True)
class MemoryEstimate:
    """Bytes on one GPU, or in main memory."""

    states: float
    activations: float
    head: float
    working: float
    backward_end: float
    head_peak: float
    optimizer_step: float
    sharded: bool  # states are sharded over the GPUs (FSDP2)

    @property
    def gib(self) -> float:
        """Peak memory of a step."""
        backward_start = self.states + self.activations + self.head + self.working
        return max(backward_start, self.backward_end, self.head_peak, self.optimizer_step) / GIB

    def fits(self, accelerator: Accelerator) -> bool:
        """Return whether the memory of the device is enough."""
        return self.gib <= USABLE * accelerator.memory_gib


def estimate_memory(
    recipe: Recipe, net: Network, loads: Mapping[str, ObjectiveLoad], accelerator: Accelerator, *, gpus: int = 1
) -> MemoryEstimate:
    """Return the memory of each GPU at the peak of a step. `net` may be on the meta device."""
    states = sum(p.numel() * (TRAINED_BYTES if p.requires_grad else FROZEN_BYTES) for p in net.parameters())
    queue = sum(buffer.numel() * buffer.element_size() for buffer in net.buffers())
    gradients = BUFFER_BYTES * sum(p.numel() for p in net.parameters() if p.requires_grad)
    too_large = states > MAX_STATE_FRACTION * accelerator.memory_gib * GIB
    stacks = _stack_sizes(recipe.optimizer, net)
    states -= MOMENT_BYTES * sum(stacks)
    wants_sharding = recipe.parallel == "fsdp" or (recipe.parallel == "auto" and too_large)
    sharded = gpus > 1 and wants_sharding and not stacks  # Muon needs whole matrices
    activations, head, below_head, micro_batches = 0.0, 0.0, 0.0, 0.0
    table = 4.0 * net.encoder.config.vocab_size * net.encoder.config.hidden_size
    for name, objective in recipe.objectives.items():
        micro_batches += loads[name].tokens / gpus / tokens_at_once(objective, loads[name], recipe.micro_tokens, gpus)
    # The phase with the highest masking rate needs the most.
    for name, objective in (item for phase in recipe.split() for item in phase.objectives.items()):
        tokens = tokens_at_once(objective, loads[name], recipe.micro_tokens, gpus)
        stored = objective.activation_bytes(net, recipe.gradient_checkpointing)
        if accelerator.is_cpu:
            stored = CPU_ACTIVATIONS * stored + _score_bytes(recipe, objective.length)
        activations = max(activations, stored * tokens)
        lm_head = objective.head_memory(net, recipe.gradient_checkpointing)
        if lm_head is not None:
            head = max(head, table * lm_head.table_gradients)
            logits = 2 * net.encoder.config.vocab_size * lm_head.predicted * tokens
            chunk = min(CHUNK_BYTES, logits) + table / 2
            below_head = max(below_head, lm_head.activation_bytes * tokens + chunk)
    working = CPU_PROCESS_BYTES if accelerator.is_cpu else _working_bytes(net, sharded)
    shards = gpus if sharded else 1
    # With CUDA graphs the gradient of the step has memory of its own beside that of the micro-batch. Without them, the
    # only micro-batch of a step finds no earlier gradients.
    has_buffer = recipe.cuda_graphs and not sharded and not accelerator.is_cpu
    is_single = gpus == 1 and round(micro_batches) == 1 and not recipe.alternate
    first_states = (states - (gradients if is_single and not has_buffer else 0)) / shards + queue
    return MemoryEstimate(
        states=first_states,
        activations=activations,
        head=head,
        working=working,
        backward_end=states / shards + queue + working + 2 * table + (gradients if has_buffer else 0),
        head_peak=first_states + head + working + below_head,
        optimizer_step=states / shards + queue + STACKED_BYTES * max(stacks, default=0),
        sharded=sharded,
    )


def fit_to_memory(
    recipe: Recipe, net: Network, loads: Mapping[str, ObjectiveLoad], accelerator: Accelerator, *, gpus: int = 1
) -> Recipe | None:
    """Return the recipe with the largest micro-batch that fits, or None if none does.

    Gradient checkpointing is used only if fewer than 8,192 tokens would fit without it.
    """
    for gradient_checkpointing, least in ((recipe.gradient_checkpointing, 8192), (True, 1)):
        micro_tokens = MAX_MICRO_TOKENS
        while micro_tokens >= max(least, *(objective.length for objective in recipe.objectives.values())):
            candidate = recipe.replace(micro_tokens=micro_tokens, gradient_checkpointing=gradient_checkpointing)
            if estimate_memory(candidate, net, loads, accelerator, gpus=gpus).fits(accelerator):
                return candidate
            micro_tokens //= 2
    return None


def _score_bytes(recipe: Recipe, length: int) -> float:
    """Return the bytes per token that the scores of attention with a relative bias take in plain torch."""
    shape = recipe.model
    if not shape.relative or shape.position is not None or shape.native is not None:
        return 0.0
    layers = shape.layers + (shape.generator_layers if recipe.has_rtd else 0)
    return float(CPU_SCORE_BYTES * shape.heads * length * (1 if recipe.gradient_checkpointing else layers))


@lru_cache(maxsize=16)
def _stack_sizes(settings: OptimizerSettings, net: Network) -> tuple[int, ...]:
    """Return the number of elements in each stack of matrices that Muon updates at once."""
    optimizer = settings.build(net)
    if not isinstance(optimizer, Muon):
        return ()
    return tuple(sum(weight.numel() for weight in weights) for _, weights in optimizer.stacks())


@lru_cache(maxsize=16)
def _working_bytes(net: Network, sharded: bool) -> float:
    """Return the bytes of weights for computing: the blocks in bfloat16, or what FSDP2 gathers.

    It gathers two blocks in bfloat16 with their gradients, and everything outside of blocks with its gradients.
    """
    models = [part for part in (net.encoder, *net.parts.values()) if isinstance(part, CrosslingModel | NativeEncoder)]
    blocks = [sum(p.numel() for p in block.parameters()) for model in models for block in model.blocks]
    if not sharded:
        return 2.0 * sum(blocks)
    rest = sum(p.numel() for p in net.parameters()) - sum(blocks)
    return 2 * (2 + 4) * max(blocks) + (4 + 4) * rest


FILE = Path(__file__).with_name("measured.json")
CHECKPOINTING_TIME = 1.1  # of a step, measured at base: the outputs of attention and norms are stored


@dataclass(frozen=True, kw_only=True)
class ThroughputRecord:
    """Measured throughput of one run of the trainer on one GPU."""

    gpu: str  # a key of `hardware.ACCELERATORS`
    width: int
    gradient_checkpointing: bool
    flops_per_token: float
    tokens_per_second: float

    @property
    def mfu(self) -> float:
        """Fraction of the vendor's peak that was reached."""
        return self.tokens_per_second * self.flops_per_token / ACCELERATORS[self.gpu].peak_flops


@cache
def throughput_records() -> list[ThroughputRecord]:
    """Return the bundled measurements."""
    rows = json.loads(FILE.read_text(encoding="utf-8"))
    return [ThroughputRecord(**{field.name: row[field.name] for field in fields(ThroughputRecord)}) for row in rows]


def mfu(recipe: Recipe, records: Sequence[ThroughputRecord] | None = None) -> float:
    """Return the MFU at the width of the recipe, from the fastest run of each width without checkpointing."""
    records = throughput_records() if records is None else records
    best: dict[int, float] = {}
    for record in records:
        if not record.gradient_checkpointing:
            best[record.width] = max(best.get(record.width, 0.0), record.mfu)
    widths = sorted(best)
    return float(np.interp(math.log(recipe.model.width), np.log(widths), [best[width] for width in widths]))


def tokens_per_second(recipe: Recipe, flops_per_token: float, accelerator: Accelerator, gpus: int) -> float:
    """Return the throughput of all GPUs together if none waits for another."""
    throughput = gpus * accelerator.peak_flops * mfu(recipe) / flops_per_token
    return throughput / CHECKPOINTING_TIME if recipe.gradient_checkpointing else throughput


# Hardware of the papers, and time where they give it.
HARDWARE = {
    ("xlm_r", "base"): "500 V100-32GB",
    ("xlm_r", "large"): "500 V100-32GB",
    ("xlm_e", "base"): "64 A100, 1.7 days",
    ("infoxlm", "base"): "64 V100-32GB",
    ("infoxlm", "large"): "64 V100-32GB",
    ("xy_lent", "base"): "128 A100-40GB",
    ("xy_lent", "large"): "128 A100-40GB",
    ("xy_lent", "xl"): "512 A100-80GB",
    ("veco", "large"): "64 V100-32GB",
}
# XLM-E, Table 4: FLOPs of the whole run. Those of InfoXLM come on top of XLM-R's, from which it is initialized.
TABLE_4 = {("xlm_r", "base"): 9.6e21, ("infoxlm", "base"): 1.7e20, ("xlm_e", "base"): 9.5e19}
PUBLISHED_SIZES = ("base", "large", "xl")
LoadsOf = Callable[[Recipe], Mapping[str, ObjectiveLoad]]


@dataclass(frozen=True, kw_only=True)
class RunEstimate:
    """Predicted memory and time of a run."""

    accelerator: Accelerator
    gpus: int  # 1 for a CPU
    memory: MemoryEstimate  # of each GPU, or main memory
    tokens_per_second: float  # of all GPUs, or of the CPU
    waiting: float  # fraction of the time in which the GPUs wait for each other
    days: float

    @property
    def hardware(self) -> str:
        """Number and name of the GPUs, or name of the CPU."""
        return describe_hardware(self.accelerator, self.gpus)

    @property
    def has_measured_speed(self) -> bool:
        """The throughput was measured on this machine, not predicted from runs on another."""
        return self.accelerator.is_cpu

    @property
    def fits(self) -> bool:
        """The device has enough memory."""
        return self.memory.fits(self.accelerator)

    def dump(self) -> dict[str, Any]:
        """Return the estimate as a JSON object."""
        is_cpu = self.accelerator.is_cpu
        return {
            "device": self.accelerator.name,
            "is_measured": self.has_measured_speed,
            "gpu": None if is_cpu else self.accelerator.name,
            "gpus": 0 if is_cpu else self.gpus,
            "memory_gib": self.memory.gib,
            "fits": self.fits,
            "sharded": self.memory.sharded,
            "tokens_per_second": self.tokens_per_second,
            "waiting": self.waiting,
            "days": self.days,
        }


def estimate_run(
    recipe: Recipe, net: Network, loads: Mapping[str, ObjectiveLoad], accelerator: Accelerator, *, gpus: int = 1
) -> RunEstimate:
    """Return memory and time of a run. `net` may be on the meta device. The speed of a CPU is measured."""
    if accelerator.is_cpu:
        return _estimate_on_cpu(recipe, net, loads, accelerator)
    throughput = tokens_per_second(recipe, flops_per_token(recipe, net, loads)["full"], accelerator, gpus)
    memory = estimate_memory(recipe, net, loads, accelerator, gpus=gpus)
    computing = total_tokens(recipe, loads) / recipe.steps / throughput
    waiting = waiting_seconds(
        recipe, net, loads, accelerator, gpus=gpus, sharded=memory.sharded, compute_seconds=computing
    )
    return RunEstimate(
        accelerator=accelerator,
        gpus=gpus,
        memory=memory,
        tokens_per_second=throughput * computing / (computing + waiting),
        waiting=waiting / (computing + waiting),
        days=recipe.steps * (computing + waiting) / 86_400,
    )


def _estimate_on_cpu(
    recipe: Recipe, net: Network, loads: Mapping[str, ObjectiveLoad], accelerator: Accelerator
) -> RunEstimate:
    from crossling.planning.cpu_speed import cpu_speed  # imports the trainer

    tokens = total_tokens(recipe, loads) / recipe.steps
    flops = flops_per_token(recipe, net, loads)["full"] * tokens
    seconds = cpu_speed(recipe, net, loads).step_seconds(flops, sum(count_parameters(net).values()))
    return RunEstimate(
        accelerator=accelerator,
        gpus=1,
        memory=estimate_memory(recipe, net, loads, accelerator),
        tokens_per_second=tokens / seconds,
        waiting=0.0,
        days=recipe.steps * seconds / 86_400,
    )


def describe_hardware(accelerator: Accelerator, gpus: int) -> str:
    """Return number and name of GPUs, or the name of a CPU."""
    return accelerator.name if accelerator.is_cpu else f"{gpus} x {accelerator.name}"


@dataclass(frozen=True, kw_only=True)
class PublishedSize:
    """A size as its paper trained it, predicted for given GPUs."""

    size: str
    parameters: int
    recipe: Recipe  # with the micro-batch that fits
    estimate: RunEstimate
    flops: dict[str, float]  # of the whole run, in both conventions
    paper: str  # hardware, time and FLOPs that the paper reports

    def dump(self) -> dict[str, Any]:
        """Return size, estimate and published figures as a JSON object."""
        return {
            "size": self.size,
            "parameters": self.parameters,
            "micro_tokens": self.recipe.micro_tokens,
            "gradient_checkpointing": self.recipe.gradient_checkpointing,
            **self.estimate.dump(),
            "flops": self.flops,
            "paper": self.paper,
        }


def published_sizes(
    recipe: Recipe, loads_of: LoadsOf, vocabulary_size: int, accelerator: Accelerator, *, gpus: int = 1
) -> Iterator[PublishedSize]:
    """Yield Base, Large and XL of a recipe with its objectives, unless it has objectives that the paper's lacks."""
    off = dict.fromkeys(name for name in OBJECTIVES if name not in recipe.objectives)
    for size in PUBLISHED_SIZES:
        if recipe.name not in RECIPES or not has_size(recipe.name, size):
            continue
        sized = RECIPES[recipe.name](size).replace(**off)
        if {*sized.objectives} != {*recipe.objectives}:
            continue
        net, loads = build_meta_network(sized, vocabulary_size), loads_of(sized)
        smallest = sized.replace(gradient_checkpointing=True, micro_tokens=sized.model.max_length)
        sized = fit_to_memory(sized, net, loads, accelerator, gpus=gpus) or smallest
        tokens = total_tokens(sized, loads)
        yield PublishedSize(
            size=size,
            parameters=sum(count_parameters(net).values()),
            recipe=sized,
            estimate=estimate_run(sized, net, loads, accelerator, gpus=gpus),
            flops={kind: flops * tokens for kind, flops in flops_per_token(sized, net, loads).items()},
            paper=published_figures(recipe.name, size),
        )


def published_figures(recipe: str, size: str) -> str:
    """Return hardware, time and FLOPs that the paper reports. Empty if it reports none."""
    flops = TABLE_4.get((recipe, size))
    return "; ".join(filter(None, (HARDWARE.get((recipe, size)), f"{flops:.1e} FLOPs" if flops else None)))
