"""The same runs in one process and in several, and how far apart their rows of metrics are."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from crossling.data.shards import Shards
from crossling.recipes import infoxlm, veco, xlm_e
from crossling.recipes.pretrain import pretrain
from crossling.recipes.recipe import Recipe
from tests.copied_processes import start_copies

SMALL = [
    *("model.layers=2", "model.width=16", "model.heads=2", "model.feed_forward=32", "model.generator_layers=1"),
    *("model.max_length=64", "model.dropout=0.1", "optimizer.warmup=2", "lr=0.01", "steps=4", "log_every=1"),
    *("checkpoint_every=100", "micro_tokens=200"),
]
TEXT, PAIRS = ("tokens=780", "length=32"), ("tokens=780", "length=40")
XLCO_SIZES = ["xlco.pairs=13", "xlco.length=40", "xlco.layer=1"]
IN_BATCH = ["xlco.queue=0", "xlco.mixup=false", "model.dropout=0"]


def _only(recipe: Recipe, *kept: str) -> Recipe:
    """Some objectives of a recipe, at four micro-batches a step: as many for one process as for four."""
    recipe = recipe.set([f"{name}=off" for name in recipe.objectives if name not in kept])
    sizes = [f"{name}.{size}" for name in kept if name != "xlco" for size in (TEXT if "tlm" not in name else PAIRS)]
    return recipe.set([*SMALL, *(XLCO_SIZES if "xlco" in kept else []), *sizes])


def cases() -> dict[str, Recipe]:
    """Every objective."""
    rtd = _only(xlm_e("tiny").set(["trtd=off", "mrtd=on"]), "mrtd")
    xlco = _only(infoxlm("tiny"), "xlco").set(["xlco.queue=50", "xlco.momentum=0.9"])
    return {
        "mlm": _only(infoxlm("tiny").set(["mlm=on"]), "mlm"),
        "tlm": _only(infoxlm("tiny").set(["tlm=on"]), "tlm"),
        "mrtd": rtd,
        "trtd": _only(xlm_e("tiny"), "trtd").set(["trtd.tokens=780", "trtd.length=40"]),
        "mrtd, gdes": rtd.set(["model.token_table=gdes"]),
        "xlco, queue": xlco.set(["xlco.mixup=false", "xlco.pairs=26"]),
        "xlco, queue and mixup": xlco,
        "xlco, in the batch": xlco.set([*IN_BATCH, "xlco.momentum=0"]),
        "xlco, in the batch, momentum, mixup": xlco.set([*IN_BATCH, "xlco.mixup=true"]),
        "ca_mlm": _only(veco("tiny"), "ca_mlm"),
        "ca_tlm": _only(veco("tiny"), "ca_tlm"),
        "all in turn": xlm_e("tiny").set(
            [*SMALL, "xlco=on", *XLCO_SIZES, "xlco.queue=50", "alternate=true", "gradient_checkpointing=true"]
            + [f"{name}.{size}" for name, sizes in (("mrtd", TEXT), ("trtd", PAIRS)) for size in sizes]
        ),
    }


def rows(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def apart(one: Path, other: Path) -> dict[str, float]:
    """The largest relative difference of each figure over all rows but the times; of one below 1, the difference."""
    left, right = rows(one), rows(other)
    assert [row.keys() for row in left] == [row.keys() for row in right]
    found: dict[str, float] = {}
    for a, b in zip(left, right, strict=True):
        for name in a.keys() - {"seconds", "tokens_per_second", "loader_wait"}:
            found[name] = max(found.get(name, 0.0), abs(a[name] - b[name]) / max(1.0, abs(a[name])))
    return found


def trained(shards: Path, out: Path, recipes: Mapping[str, Recipe]) -> None:
    """Each recipe in a folder of its own."""
    data = Shards.open(shards)
    for name, recipe in recipes.items():
        pretrain(recipe, data, out / name)


def in_processes(number: int, act: Callable[..., None], *arguments: Any) -> None:
    """`act` in so many processes, as torchrun starts them."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    start_copies(_worker, (number, port, act, arguments), number)


def _worker(rank: int, number: int, port: int, act: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    torch.set_num_threads(1)
    os.environ |= {
        **{"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(number), "LOCAL_WORLD_SIZE": str(number)},
        **{"MASTER_ADDR": "localhost", "MASTER_PORT": str(port), "CUDA_VISIBLE_DEVICES": ""},
    }
    act(*arguments)
