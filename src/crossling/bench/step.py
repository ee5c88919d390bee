"""The whole step of pre-training: forward, backward, clipping, optimizer, through the trainer; in real tokens a second.

Here XLM-E, beside Hugging Face's ELECTRA pair, as shipped and with its head at the masked positions alone; then the
other recipes, beside Hugging Face's XLM-R. Tokens are random and already there; the wait for the loader has a row of
its own. MFU counts all matrices, heads and attention, both ways (crossling inspect: `full`), as a share of one large
matrix product.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from crossling import recipes
from crossling.bench import peers
from crossling.bench.clock import Speed
from crossling.bench.row import Row
from crossling.bench.setting import Setting
from crossling.bench.training import measured, sized, waiting
from crossling.recipe import Recipe

LOADED_STEPS = 30  # of the row that waits for the loader
SHIPPED, MASKED, XLM_R = 16, 64, 32  # sequences of the peers' steps: more do not fit, or gain nothing


def rows(at: Setting) -> Iterator[Row]:
    yield Row(f"matrix product of {at.matrix}^3", at.matmul / 1e12, None, None, "TFLOP/s", at.device_name)
    ours: dict[int, Speed] = {}
    masked = _pair(at, MASKED, everywhere=False)
    for batch in at.batches:
        speed = _measured(f"xlm_e, batch {batch}", _text(), at, batch)
        if speed:
            ours[batch] = speed
            yield at.tokens(f"xlm_e, batch {batch}", speed, masked, _named("ELECTRA pair, head at masked", MASKED, at))
    best = max(ours, key=lambda batch: ours[batch].tokens, default=at.batches[0])
    name = f"xlm_e, best batch ({best})"
    if best in ours:
        shipped = _pair(at, SHIPPED, everywhere=True)
        yield at.tokens(name, ours[best], shipped, _named("ELECTRA pair as shipped", SHIPPED, at))
    yield from _without_bias(at, best, ours.get(best))
    yield from _variations(at, ours.get(at.batches[0]))
    yield from _loader(at, best)
    if at.on_gpu and best in ours:  # late, as compilation takes long
        compiled = _pair(at, MASKED, everywhere=False, compiled=True)
        yield at.tokens(name, ours[best], compiled, _named("ELECTRA pair, head at masked, compiled", MASKED, at))


def other_rows(at: Setting) -> Iterator[Row]:
    """The recipes besides XLM-E."""
    batch = at.batches[0]
    for name, what in {"infoxlm": "MLM, TLM, contrast", "veco": "CA-MLM, TLM"}.items():
        speed = _measured(name, recipes.named(name, "base"), at, batch)
        if speed:
            yield at.tokens(f"{name} ({what}), batch {batch}", speed)
    speed = _measured("xlm_r", recipes.xlm_r(), at, batch)
    for compiled in (False, True) if at.on_gpu else (False,):
        if speed:
            name = _named("XLM-R, compiled" if compiled else "XLM-R", XLM_R, at)
            peer = at.tried(name, partial(peers.xlm_r, at, _batch(XLM_R, at), compiled))
            yield at.tokens(f"xlm_r (MLM), batch {batch}", speed, peer, name)


def _without_bias(at: Setting, batch: int, own: Speed | None) -> Iterator[Row]:
    free = _measured("xlm_e without bias", without_bias(_text()), at, batch)
    if own and free:
        yield at.tokens(f"xlm_e, batch {batch}, with gated bias", own, free, "ours without position bias")


def _variations(at: Setting, own: Speed | None) -> Iterator[Row]:
    """What bitext in packed rows, and activations computed twice cost, at the first batch."""
    batch = at.batches[0]
    for name, recipe in {
        "packed bitext": recipes.xlm_e().but(mrtd=None),
        "recompute": _text().but(recompute=True),
        "text and bitext": recipes.xlm_e(),
    }.items():
        speed = _measured(f"xlm_e, {name}", recipe, at, batch)
        if speed:
            yield at.tokens(f"xlm_e, {name}, batch {batch}", speed, own, "ours on text")


def _loader(at: Setting, batch: int) -> Iterator[Row]:
    steps = LOADED_STEPS if at.on_gpu else at.times
    share = at.tried("the wait for the loader", partial(waiting, sized(_text(), at, batch), at, steps))
    if share is not None:
        yield Row(f"waiting for the loader, batch {batch}", share, None, None, "% of the step", at.device_name)


def without_bias(recipe: Recipe) -> Recipe:
    return recipe.but(model=replace(recipe.model, relative=False, gate=False))


def _text() -> Recipe:
    """XLM-E on text alone: what the peers do too."""
    return recipes.xlm_e().but(trtd=None)


def _measured(name: str, recipe: Recipe, at: Setting, batch: int) -> Speed | None:
    return at.tried(name, partial(measured, sized(recipe, at, batch), at))


def _pair(at: Setting, batch: int, everywhere: bool, compiled: bool = False) -> Speed | None:
    name = f"the ELECTRA pair{' as shipped' if everywhere else ''}{', compiled' if compiled else ''}"
    return at.tried(name, partial(peers.electra, at, _batch(batch, at), everywhere, compiled))


def _batch(asked: int, at: Setting) -> int:
    return asked if at.on_gpu else at.batches[0]


def _named(peer: str, batch: int, at: Setting) -> str:
    return f"Hugging Face {peer}, batch {_batch(batch, at)}"
