"""Speed of a CPU: measured once, stored, and used in the plan of a run."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest
import torch
from rich.console import Console

from crossling.core.errors import BadInput
from crossling.core.hardware import get_accelerator, local_cpu
from crossling.data.shards import Shards
from crossling.planning import cpu_speed as module
from crossling.planning import plan
from crossling.planning.plan_page import plan_tables
from crossling.recipes import get_recipe
from crossling.recipes.network import build_meta_network
from crossling.recipes.pretrain import pretrain
from crossling.recipes.recipe import Recipe
from crossling.recipes.sampling_preview import preview_loads, preview_pairs, preview_text
from tests.known_cpu_speed import SPEED

from .fake_shards import WORKED, recipe, shards_of

measure = module.cpu_speed  # before a fixture replaces it
Measure = Callable[..., module.CpuSpeed]


def speed_of(chosen: Recipe) -> module.CpuSpeed:
    shards = shards_of(WORKED)
    loads = preview_loads(chosen, shards, preview_text(chosen, shards), preview_pairs(chosen, shards))
    return measure(chosen, build_meta_network(chosen, shards.vocabulary_size), loads)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "crossling" / "cpu-speed"


SMALL = [
    *("model.layers=2", "model.width=16", "model.heads=2", "model.feed_forward=32", "model.generator_layers=1"),
    *("mrtd.length=32", "trtd.length=32", "mrtd.tokens=512", "trtd.tokens=512"),
]


def test_is_measured_once_for_all_batch_sizes(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = get_recipe("xlm_e", "tiny").set(SMALL)
    state = torch.get_rng_state()
    found = speed_of(small)
    assert torch.equal(torch.get_rng_state(), state)
    assert found.flops > 0
    assert found.parameters > 0
    [file] = cache.iterdir()
    assert json.loads(file.read_text())["threads"] == torch.get_num_threads()
    monkeypatch.setattr(module, "_measure", lambda *_: SPEED)
    assert speed_of(small.set(["mrtd.tokens=256", "steps=5", "sampling.text_alpha=0.1"])) == found
    assert speed_of(small.set(["model.layers=1"])) == SPEED  # another network
    assert len([*cache.iterdir()]) == 2
    os.utime(file, (0, 0))  # old: the machine may have been busy
    assert speed_of(small) == SPEED
    file.write_text("{")  # damaged
    assert speed_of(small) == SPEED


def test_a_folder_that_cannot_be_written_does_no_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(module, "_measure", lambda *_: SPEED)
    assert speed_of(get_recipe("xlm_e", "tiny")) == SPEED


def test_a_part_of_a_large_network_is_timed(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[Recipe, int]] = []

    def store(recipe: Recipe, vocabulary: int) -> module.CpuSpeed:
        seen.append((recipe, vocabulary))
        return SPEED

    monkeypatch.setattr(module, "_measure", store)
    base = get_recipe("infoxlm", "base")
    shards = shards_of(WORKED)
    loads = preview_loads(base, shards, preview_text(base, shards), preview_pairs(base, shards))
    measure(base, build_meta_network(base, 250_002), loads)
    [(part, vocabulary)] = seen
    assert (part.model.layers, part.model.width, vocabulary) == (2, 768, 32_768)
    assert part.mlm is not None
    assert (part.mlm.length, part.mlm.tokens) == (64, 128)
    part.check()
    assert cache.is_dir()


def test_every_recipe_can_be_timed(cache: Path) -> None:
    """With its own objectives, and text and pairs in turn."""
    for name in ("infoxlm", "veco"):
        small = get_recipe(name, "tiny")
        lengths = [f"{each}.length=32" for each in small.objectives]
        sizes = [f"{each}.tokens=64" for each, objective in small.objectives.items() if objective.tokens]
        found = speed_of(small.set([*SMALL[:5], *lengths, *sizes]).replace(alternate=name == "veco"))
        assert found.flops > 0
    assert len([*cache.iterdir()]) == 2


# ---- plan ---------------------------------------------------------------------------------------------------


def test_plan_states_the_cpu_and_how_its_speed_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*GPU")
        planned = plan(recipe(), shards_of(WORKED), tmp_path / "plan.html")
    found, steps = planned.dump(), planned.recipe.steps
    assert (found["device"], found["is_measured"], found["gpu"], found["gpus"]) == (local_cpu().name, True, None, 0)
    assert found["published"] == []
    flops = found["flops_per_token"]["full"] * found["tokens_per_step"]
    seconds = flops / SPEED.flops + found["parameters"] / SPEED.parameters
    assert found["days"] * 86_400 == pytest.approx(steps * seconds)
    assert found["tokens_per_second"] == pytest.approx(found["tokens_per_step"] / seconds)
    out = StringIO()
    Console(file=out, width=200).print(*plan_tables(planned))
    assert f"on {local_cpu().name}, " in out.getvalue()
    assert "(measured here)" in out.getvalue()
    assert "of main memory" in out.getvalue()
    page = (tmp_path / "plan.html").read_text()
    assert f"on {local_cpu().name}, throughput measured on it" in page


def test_plan_for_another_device() -> None:
    found = plan(recipe(), shards_of(WORKED), device="a100").dump()
    assert (found["device"], found["is_measured"], found["gpus"]) == ("A100-80GB", False, 1)
    assert plan(recipe(), shards_of(WORKED), device="cpu").dump()["is_measured"]
    assert get_accelerator("CPU").is_cpu
    with pytest.raises(BadInput, match=r"gpus=2: the device is cpu\. Omit one of them\."):
        plan(recipe(), shards_of(WORKED), device="cpu", gpus=2)
    with pytest.raises(BadInput, match=r"device=h1000: no such device\. Give cpu, or the most similar GPU of v100"):
        plan(recipe(), shards_of(WORKED), device="h1000")


def test_hours_choose_size_and_steps_for_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr(module, "matmul_flops", lambda: 4e10)
    shards = shards_of(WORKED, {"en": 10**9, "de": 10**9, "sw": 10**9})
    planned = plan("xlm_r", shards, hours=4)
    choice = planned.budget
    assert choice is not None
    assert choice.size == "tiny"
    assert planned.estimate.days * 24 == pytest.approx(4, rel=0.01)
    assert choice.command.startswith("crossling pretrain xlm_r ")
    assert choice.tokens_per_parameter < 133  # few, but there is no smaller size
    more = plan("xlm_r", shards, hours=4000).budget
    assert more is not None
    assert more.size == "small"
    with pytest.raises(BadInput, match="Give at least"):
        plan("xlm_r", shards, hours=0.01)


@pytest.mark.soak
def test_prediction_is_close_to_the_time_of_a_run(
    shards: Shards, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other processes slow either one down, so the bounds are wide."""
    monkeypatch.setattr(module, "cpu_speed", measure)
    assert not cache.exists()
    chosen = get_recipe("rosetta", "tiny").set(["steps=20", "checkpoint_every=1000"])
    predicted = plan(chosen, shards, device="cpu").estimate.days * 86_400
    pretrain(chosen, shards, tmp_path / "run")
    seconds = json.loads((tmp_path / "run" / "cost.json").read_text())["seconds"]
    assert 0.4 < predicted / seconds < 2.5
