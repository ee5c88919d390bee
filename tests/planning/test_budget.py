"""Size, steps and batch size that a compute budget buys, and the command it prints."""

from __future__ import annotations

import json
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crossling import cli
from crossling.core.errors import BadInput
from crossling.core.hardware import ACCELERATORS
from crossling.data.shards import Shards
from crossling.model.model_shape import SIZES
from crossling.planning import estimate as throughput
from crossling.planning.budget import MAX_EPOCHS, MIN_STEPS, TOKENS_PER_PARAMETER, BudgetChoice, ComputeBudget
from crossling.planning.estimate import ThroughputRecord
from crossling.recipes import RECIPES, get_recipe
from crossling.recipes.network import build_meta_network, count_layer_parameters

H200, A100 = ACCELERATORS["h200"], ACCELERATORS["a100"]


def shards_of(tokens: float, pairs: float) -> Any:
    """Return text in two languages, in documents longer than a block, and one bitext with sides of 30 tokens."""
    text = {
        language: {"tokens": int(n), "sentences": int(n / 20), "documents": max(1, int(n / 20_000))}
        for language, n in {"en": 0.8 * tokens, "sw": 0.2 * tokens}.items()
    }
    entry = {"languages": ["en", "sw"], "pairs": int(pairs), "tokens": [int(30 * pairs)] * 2}
    bitexts = [SimpleNamespace(corpus="opus.en-sw", languages=("en", "sw"), pairs=int(pairs))]
    manifest = {"text": text, "pairs": {"opus.en-sw": entry}, "multi": {}}
    return SimpleNamespace(path=Path("my shards"), manifest=manifest, bitexts=bitexts, vocabulary_size=250_002)


MANY = shards_of(1e11, 3e9)


@pytest.fixture(autouse=True)
def _fixed_throughput(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the MFU to a third, independent of the bundled measurements."""
    run = ThroughputRecord(
        gpu="h200",
        width=768,
        gradient_checkpointing=False,
        flops_per_token=1e9,
        tokens_per_second=H200.peak_flops / 3e9,
    )
    monkeypatch.setattr(throughput, "throughput_records", lambda: [run])


def chosen(
    hours: float, gpus: int = 1, name: str = "xlm_e", shards: Any = MANY, accelerator: Any = H200, **more: Any
) -> BudgetChoice:
    return ComputeBudget(hours, gpus, accelerator).choose(name, shards, **more)


def tokens_of(choice: BudgetChoice) -> float:
    """Return the tokens of the whole run, by its time and throughput."""
    return choice.estimate.days * 86_400 * choice.estimate.tokens_per_second


# ---- size ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hours", "gpus", "size"),
    [(0.1, 1, "tiny"), (1, 1, "small"), (12, 1, "base"), (24, 8, "large"), (24 * 7, 64, "xl")],
)
def test_largest_size_with_enough_tokens_is_chosen(hours: float, gpus: int, size: str) -> None:
    found = chosen(hours, gpus)
    assert found.size == size
    assert found.tokens_per_parameter >= TOKENS_PER_PARAMETER
    larger = [*SIZES][[*SIZES].index(size) + 1 :][:1]
    for each in larger:
        assert chosen(hours, gpus, size=each).tokens_per_parameter < TOKENS_PER_PARAMETER


@settings(deadline=None, max_examples=6)
@given(st.floats(0.2, 2000), st.integers(1, 8))
def test_time_is_kept_and_more_of_it_never_buys_less(hours: float, gpus: int) -> None:
    one, two = (chosen(each, gpus) for each in (hours, 2 * hours))
    assert one.estimate.days <= hours / 24 * 1.001
    assert [*SIZES].index(str(one.size)) <= [*SIZES].index(str(two.size))
    assert one.recipe.steps >= MIN_STEPS


def test_given_size_is_used() -> None:
    assert chosen(12, size="large").size == "large"
    assert chosen(48, size="small").size == "small"


def test_little_data_gives_a_smaller_size() -> None:
    assert chosen(24, shards=shards_of(1e8, 1e6)).size == "small"
    assert chosen(24, shards=shards_of(1e5, 1e3)).size == "tiny"


def test_every_recipe_has_a_choice() -> None:
    for name in RECIPES:
        found = chosen(24, 8, name)
        assert found.recipe.name == name
        assert found.size in ("base", "large")


# ---- steps and batch ----------------------------------------------------------------------------------------


def test_steps_fill_the_time() -> None:
    found = chosen(12)
    assert found.estimate.days * 24 == pytest.approx(12, rel=0.001)
    assert found.reason == "all that 12 hours on 1 x H200 buy"
    assert tokens_of(found) / found.tokens_per_parameter == pytest.approx(
        count_layer_parameters(build_meta_network(found.recipe, 100))
    )


def test_at_most_the_published_steps() -> None:
    found = chosen(24 * 365, 64)
    assert (found.size, found.recipe.steps) == ("xl", 150_000)
    assert found.recipe == get_recipe("xlm_e", "xl").set(found.settings)
    assert "published" in found.reason
    assert found.estimate.days < 365
    assert not any(each.startswith(("optimizer", "mrtd", "trtd")) for each in found.settings)


def test_at_most_40_epochs() -> None:
    few = shards_of(1e8, 1e7)
    found = chosen(48, shards=few, size="small")
    assert found.reason == "more would be over 40 epochs on the shards"
    assert found.recipe.mrtd is not None
    assert found.recipe.steps * found.recipe.mrtd.tokens == pytest.approx(MAX_EPOCHS * 1e8, rel=0.01)
    pairs = shards_of(1e11, 1e5)  # pairs are the limit
    found = chosen(48, shards=pairs, size="small")
    assert found.recipe.trtd is not None
    assert found.recipe.steps * found.recipe.trtd.tokens / 61 == pytest.approx(MAX_EPOCHS * 1e5, rel=0.02)


def test_batch_is_halved_until_there_are_enough_steps() -> None:
    found = chosen(12)
    assert found.recipe.mrtd is not None
    assert found.recipe.trtd is not None
    assert found.recipe.mrtd.tokens == found.recipe.trtd.tokens == 262_144
    assert 20_000 <= found.recipe.steps < 40_000
    assert found.recipe.optimizer.warmup_steps(found.recipe.steps) / found.recipe.steps == pytest.approx(0.08, rel=0.01)
    assert found.recipe.lr == get_recipe("xlm_e").lr


def test_batch_is_not_halved_below_the_minimum_per_gpu() -> None:
    few, many = chosen(2, 1, size="base").recipe, chosen(2 / 64, 64, size="base").recipe
    assert few.mrtd is not None
    assert many.mrtd is not None
    assert (few.mrtd.tokens, many.mrtd.tokens) == (65_536, 524_288)


def test_sequences_and_pairs_are_halved_with_the_tokens() -> None:
    found = chosen(8, name="infoxlm", size="base").recipe
    assert found.mlm is not None
    assert found.tlm is not None
    assert found.xlco is not None
    divisor = 1_048_576 // found.mlm.tokens
    assert divisor > 1
    assert (found.tlm.sequences, found.xlco.pairs, found.xlco.queue) == (2048 // divisor, 2048 // divisor, 131_072)


def test_given_settings_are_kept() -> None:
    given = ["mrtd.tokens=2000000", "micro_tokens=16384", "optimizer.warmup=500", "trtd=off"]
    found = chosen(12, assignments=given, size="base")
    assert found.settings[:4] == given
    assert [each.partition("=")[0] for each in found.settings[4:]] == ["steps"]
    assert found.recipe.trtd is None


def test_micro_batch_fits_the_gpu() -> None:
    found = chosen(24, 8, accelerator=ACCELERATORS["a100-40"], size="large")
    assert "micro_tokens=16384" in found.settings
    assert found.estimate.memory.fits(ACCELERATORS["a100-40"])
    small = replace(ACCELERATORS["4090"], memory_gib=20)
    narrow = chosen(24 * 7, 1, accelerator=small, size="large")
    assert "gradient_checkpointing=true" in narrow.settings
    assert narrow.estimate.memory.fits(small)


# ---- impossible budgets -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hours", "gpus", "more", "message"),
    [
        (1e-4, 1, {}, r"hours=0\.0001: 1 x H200 train on .* tokens in that time, too few for tiny\. Give at least"),
        (0.1, 1, {"size": "xl"}, r"too few for xl\. Give at least .* hours"),
        (
            1,
            1,
            {"size": "xl", "accelerator": ACCELERATORS["4090"]},
            r"xl: does not fit on 1 x RTX 4090\. Give more or larger GPUs",
        ),
        (1, 12, {}, r"gpus=12: more than 8 GPUs are machines of 8\. Give a multiple, such as 8 or 16"),
        (1, 1, {"assignments": ["steps=5"]}, r"steps: the budget in hours determines the steps\. Omit it"),
        (1, 1, {"size": "huge"}, r"size huge: there is no such size"),
        (1, 1, {"name": "xml"}, r"xml: there is no such recipe; did you mean 'xlm'\?"),
        (0, 1, {}, r"hours=0: expected a number above 0"),
    ],
)
def test_impossible_budget_is_refused(hours: float, gpus: int, more: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message) as caught:
        chosen(hours, gpus, **more)
    assert "\n" not in str(caught.value)


def test_suggested_hours_are_enough() -> None:
    with pytest.raises(BadInput) as caught:
        chosen(1e-4)
    least = float(str(caught.value).split("Give at least ")[1].split()[0])
    assert chosen(1.05 * least).size == "tiny"


# ---- command ------------------------------------------------------------------------------------------------


def test_one_gpu_needs_no_launcher() -> None:
    words = shlex.split(chosen(12).command)
    assert words[:5] == ["crossling", "pretrain", "xlm_e", "--shards", "my shards"]
    assert words[words.index("--size") + 1] == "base"


@pytest.mark.parametrize(("gpus", "nodes"), [(2, ["--standalone", "--nproc-per-node=2"]), (16, ["--nnodes=2"])])
def test_several_gpus_use_torchrun(gpus: int, nodes: list[str]) -> None:
    words = shlex.split(chosen(12, gpus).command)
    assert words[0] == "torchrun"
    assert {*nodes} <= {*words}
    assert words[words.index("-m") : words.index("-m") + 3] == ["-m", "crossling", "pretrain"]


def test_settings_of_the_command_give_the_recipe() -> None:
    found = chosen(12, 2, assignments=["seed=3"])
    words = shlex.split(found.command)
    given = [words[index + 1] for index, word in enumerate(words) if word == "--set"]
    recipe = get_recipe(words[words.index("pretrain") + 1], words[words.index("--size") + 1]).set(given)
    assert recipe == found.recipe
    recipe.check()


def test_recipe_of_an_earlier_run(tmp_path: Path) -> None:
    file = tmp_path / "recipe.json"
    file.write_text(json.dumps({"format": 2, "recipe": get_recipe("xlm_e", "small").dump()}))
    found = chosen(2, name=str(file))
    assert found.size is None
    assert "--size" not in found.command
    assert found.recipe.model == SIZES["small"]


def crossling(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["crossling", *words])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return int(ended.value.code or 0), *capsys.readouterr()


def test_printed_command_can_be_run(
    shards: Shards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [
        "plan",
        "xlm_e",
        "--shards",
        str(shards.path),
        "--hours",
        "0.5",
        "--device",
        "h200",
        "--set",
        "trtd.length=64",
    ]
    status, out, _ = crossling(monkeypatch, capsys, *arguments)
    assert status == 0
    command = out.strip().splitlines()[-1]
    started: dict[str, Any] = {}
    monkeypatch.setattr("crossling.pretraining.train_recipe", lambda recipe, *_, **__: started.update(recipe=recipe))
    monkeypatch.chdir(tmp_path)
    status, out, _ = crossling(monkeypatch, capsys, *shlex.split(command)[1:])
    assert (status, out.strip()) == (0, "runs/xlm_e-tiny")
    assert started["recipe"].steps >= MIN_STEPS
    assert started["recipe"].trtd.length == 64
    assert not [*tmp_path.iterdir()]


def test_budget_is_in_the_json(
    shards: Shards, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["plan", "xlm_e", "--shards", str(shards.path), "--json", "--gpus", "2", "--device", "a100"]
    status, out, _ = crossling(monkeypatch, capsys, *arguments)
    found = json.loads(out)
    assert status == 0
    assert found["memory_gib"] > 0
    assert found["days"] > 0
    assert (found["gpu"], found["gpus"]) == ("A100-80GB", 2)
    assert "budget" not in found
    assert [each["size"] for each in found["published"]] == ["base", "large", "xl"]
    assert found["published"][0]["paper"].startswith("64 A100, 1.7 days")
    _, out, _ = crossling(monkeypatch, capsys, *arguments, "--hours", "2")
    budget = json.loads(out)["budget"]
    assert budget["command"].startswith("torchrun --standalone --nproc-per-node=2 -m crossling pretrain xlm_e")
    assert json.loads(out)["recipe"]["steps"] == budget["steps"]
    assert json.loads(out)["days"] <= 2 / 24


def test_unknown_gpu_is_refused(
    shards: Shards, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["plan", "xlm_e", "--shards", str(shards.path), "--device", "h2000"]
    status, out, err = crossling(monkeypatch, capsys, *arguments)
    assert (status, out) == (2, "")
    assert "device=h2000: no such device. Give cpu, or the most similar GPU of v100, " in err


def test_hours_must_be_positive_and_finite() -> None:
    for hours in (0.0, -1.0, float("inf"), float("nan")):
        with pytest.raises(BadInput, match="expected a number above 0"):
            ComputeBudget(hours, 1, H200)


def test_every_gpu_has_an_example() -> None:
    with pytest.raises(BadInput, match=r"a step of tiny has .* Give at most \d+ GPUs"):
        chosen(1, gpus=512, size="tiny")
    found = chosen(24, gpus=64, name="infoxlm", accelerator=A100)
    for objective in found.recipe.objectives.values():
        assert objective.examples_per_step(60.0) // (1 + getattr(objective, "mixup", False)) >= 64
