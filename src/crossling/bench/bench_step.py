"""The whole training step: forward, backward, clipping and optimizer, in real tokens per second.

XLM-E is beside Hugging Face's ELECTRA pair, as shipped and with its head at masked positions only. The other recipes
are beside Hugging Face's XLM-R. Tokens are random and in memory; waiting for the loader has its own row. MFU counts all
matrix products, heads and attention, forward and backward, relative to one large matrix product.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from crossling import recipes
from crossling.bench import peers
from crossling.bench.train_timing import loader_wait, measure_speed, scale_recipe
from crossling.bench.workload import BenchRow, BenchSetup, Measurement, compare
from crossling.core.hardware import require_fp8
from crossling.recipes.recipe import Recipe

LOADER_STEPS = 30
GROWTH_TIMES = 6  # runs of each measurement of growth
STEP_SIZES = {"small": (64, 256), "base": (16, 64, 256)}  # batch sizes on a GPU
SHIPPED, MASKED, XLM_R = 16, 64, 32  # batch sizes of the peers: larger ones do not fit or are not faster


def step_rows(at: BenchSetup) -> Iterator[BenchRow]:
    yield BenchRow(f"matrix product of {at.matrix}^3", at.matmul / 1e12, None, "TFLOP/s")
    ours: dict[int, Measurement] = {}
    masked = _measure_electra(at, MASKED, everywhere=False)
    for batch in at.batches:
        speed = _measure(f"xlm_e, batch {batch}", text_recipe(), at, batch)
        if speed:
            ours[batch] = speed
            peer_name = _peer_name("ELECTRA pair, head at masked", MASKED, at)
            yield compare(f"xlm_e, batch {batch}", speed, masked, peer_name)
    best = max(ours, key=lambda batch: ours[batch].value, default=at.batches[0])
    name = f"xlm_e, best batch ({best})"
    if best in ours:
        shipped = _measure_electra(at, SHIPPED, everywhere=True)
        yield compare(name, ours[best], shipped, _peer_name("ELECTRA pair as shipped", SHIPPED, at))
    free = _measure("xlm_e without bias", remove_bias(text_recipe()), at, best)
    if best in ours and free:
        yield compare(f"xlm_e, batch {best}, with gated bias", ours[best], free, "ours without position bias")
    yield from _variant_rows(at, ours.get(at.batches[0]))
    yield from _loader_rows(at, best)
    if at.on_gpu and best in ours:  # last, because compilation is slow
        compiled = _measure_electra(at, MASKED, everywhere=False, compiled=True)
        yield compare(name, ours[best], compiled, _peer_name("ELECTRA pair, head at masked, compiled", MASKED, at))


def recipe_rows(at: BenchSetup) -> Iterator[BenchRow]:
    """Measure the other recipes."""
    batch = at.batches[0]
    for name, what in {"infoxlm": "MLM, TLM, XLCo", "veco": "CA-MLM, TLM"}.items():
        speed = _measure(name, recipes.get_recipe(name, "base"), at, batch)
        if speed:
            yield compare(f"{name} ({what}), batch {batch}", speed)
    speed = _measure("xlm_r", recipes.xlm_r(), at, batch)
    for compiled in (False, True) if at.on_gpu else (False,):
        if speed:
            name = _peer_name("XLM-R, compiled" if compiled else "XLM-R", XLM_R, at)
            peer = at.try_measure(name, peers.xlm_r, at, _batch_size(XLM_R, at), compiled)
            yield compare(f"xlm_r (MLM), batch {batch}", speed, peer, name)


def step_size_rows(at: BenchSetup) -> Iterator[BenchRow]:
    """Measure steps from those in which the host may take longer than the device to the best batch size of base."""
    for size, batches in STEP_SIZES.items() if at.on_gpu else [("", at.batches)]:
        own = replace(BenchSetup.of(size), failed=at.failed) if at.on_gpu else at
        peer, peer_name = None, ""
        for batch in batches:
            name = f"xlm_e {size}, batch {batch}".replace(" ,", ",")
            speed = _measure(name, text_recipe(), own, batch)
            if batch <= MASKED or own.shape.width < at.shape.width:  # the peer's larger batches are not faster
                peer = own.try_measure("the ELECTRA pair", peers.electra, own, batch, everywhere=False)
                peer_name = f"Hugging Face ELECTRA pair, head at masked, batch {batch}"
            if speed:
                yield compare(name, speed, peer, peer_name)
            if speed and at.on_gpu and size == "small" and batch == batches[0]:
                plain = _measure("the same without CUDA graphs", text_recipe().replace(cuda_graphs=False), own, batch)
                yield compare(name, speed, plain, "ours without CUDA graphs")
        fp8 = _measure("fp8", text_recipe().replace(precision="fp8"), own, batches[-1]) if size == "base" else None
        if fp8:
            yield compare(f"xlm_e {size}, fp8, batch {batches[-1]}", fp8, speed, "ours in bf16")
        if size != "base":
            name = f"rosetta {size}, batch {batches[0]}".replace(" ,", ",")
            speed = _measure(name, recipes.rosetta("small"), own, batches[0])
            if speed:
                yield compare(name, speed)


def fp8_rows(at: BenchSetup) -> Iterator[BenchRow]:
    """Measure XLM-E with the linear layers in fp8. On a CPU plain torch emulates fp8."""
    if at.on_gpu:
        require_fp8(at.device)
    for batch in at.batches:
        name = f"xlm_e, fp8, batch {batch}"
        fp8 = _measure(name, text_recipe().replace(precision="fp8"), at, batch)
        bf16 = _measure(f"xlm_e, bf16, batch {batch}", text_recipe(), at, batch)
        if fp8:
            yield compare(name, fp8, bf16, "ours in bf16" if at.on_gpu else "ours in float32")


def _variant_rows(at: BenchSetup, own: Measurement | None) -> Iterator[BenchRow]:
    """Measure packed bitext and gradient checkpointing at the first batch size."""
    batch = at.batches[0]
    for name, recipe in {
        "packed bitext": recipes.xlm_e().replace(mrtd=None),
        "gradient checkpointing": text_recipe().replace(gradient_checkpointing=True),
        "text and bitext": recipes.xlm_e(),
    }.items():
        speed = _measure(f"xlm_e, {name}", recipe, at, batch)
        if speed:
            yield compare(f"xlm_e, {name}, batch {batch}", speed, own, "ours on text")


def _loader_rows(at: BenchSetup, batch: int) -> Iterator[BenchRow]:
    steps = LOADER_STEPS if at.on_gpu else at.times
    recipe = scale_recipe(text_recipe(), at, batch)
    percent = at.try_measure("waiting for the loader", loader_wait, recipe, at, steps)
    if percent is not None:
        yield BenchRow(f"waiting for the loader, batch {batch}", percent, None, "% of the step")


def remove_bias(recipe: Recipe) -> Recipe:
    return recipe.replace(model=replace(recipe.model, relative=False, gate=False))


def text_recipe() -> Recipe:
    """Return XLM-E on text only, as the peers."""
    return recipes.xlm_e().replace(trtd=None)


def _measure(name: str, recipe: Recipe, at: BenchSetup, batch: int) -> Measurement | None:
    return at.try_measure(name, measure_speed, scale_recipe(recipe, at, batch), at)


def _measure_electra(at: BenchSetup, batch: int, everywhere: bool, compiled: bool = False) -> Measurement | None:
    name = f"the ELECTRA pair{' as shipped' if everywhere else ''}{', compiled' if compiled else ''}"
    return at.try_measure(name, peers.electra, at, _batch_size(batch, at), everywhere, compiled)


def _batch_size(size: int, at: BenchSetup) -> int:
    return size if at.on_gpu else at.batches[0]


def _peer_name(peer: str, batch: int, at: BenchSetup) -> str:
    return f"Hugging Face {peer}, batch {_batch_size(batch, at)}"


@dataclass(frozen=True)
class GrowthPoint:
    """One changed size."""

    what: str
    value: int
    at: BenchSetup
    batch: int


def growth_points(at: BenchSetup) -> list[GrowthPoint]:
    """Return all measurements; each kind includes the reference step."""
    batch, length, vocabulary, layers = at.batches[0], at.length, at.vocabulary, at.shape.layers
    lengths = [128, 512, 1024, 2048] if at.on_gpu else [length // 2, length]
    sizes = [32_000, 128_000, 250_002, 500_000] if at.on_gpu else [vocabulary // 2, vocabulary]
    batches = [16, 64, 256] if at.on_gpu else [batch, 2 * batch]
    depths = [6, 12, 24] if at.on_gpu else [1, layers]
    return [
        *(GrowthPoint("length", each, replace(at, length=each), max(1, batch * length // each)) for each in lengths),
        *(GrowthPoint("vocabulary", each, replace(at, vocabulary=each), batch) for each in sizes),
        *(GrowthPoint("batch", each, at, each) for each in batches),
        *(GrowthPoint("layers", each, replace(at, shape=replace(at.shape, layers=each)), batch) for each in depths),
    ]


def growth_rows(at: BenchSetup) -> Iterator[BenchRow]:
    """Measure the growth of step cost with sequence length, vocabulary, batch size and layers.

    One is changed at a time; with the length, the tokens per step stay the same. The peer of each row is the reference,
    so that the ratio is the effect on speed.
    """
    at = replace(at, times=min(at.times, GROWTH_TIMES))
    text = recipes.xlm_e().replace(trtd=None)
    batch = at.batches[0]
    reference = at.try_measure("the reference step", measure_speed, scale_recipe(text, at, batch), at)
    if reference is None:
        return
    description = f"{at.length} tokens, {at.vocabulary:,} vocabulary entries, batch {batch}, {at.shape.layers} layers"
    for point in growth_points(at):
        name = f"{point.what} {point.value:,}"
        speed: Measurement | None = reference
        if (point.at, point.batch) != (at, batch):
            speed = at.try_measure(name, measure_speed, scale_recipe(text, point.at, point.batch), point.at)
        if speed is not None:
            yield compare(name, speed, reference, description)
