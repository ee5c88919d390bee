"""What some hours on some cards buy: the rules of size, steps and batch, and a command that runs as it is printed."""

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
from crossling.data.shards import Shards
from crossling.errors import BadInput
from crossling.hardware import CARDS
from crossling.inspect import pace
from crossling.inspect.budget import LEAST_STEPS, MOST_EPOCHS, TOKENS_PER_PARAMETER, Budget, Choice
from crossling.inspect.pace import Measured
from crossling.model.shape import SIZES
from crossling.recipe.cost import layer_parameters, network
from crossling.recipes import RECIPES, named

H200, A100 = CARDS["h200"], CARDS["a100"]


def shards_of(tokens: float, pairs: float) -> Any:
    """Text in two languages, in documents longer than a block, and one bitext whose sides have 30 tokens each."""
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
def _measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """A third of the peak, whatever was measured lately."""
    run = Measured("2026-11-15", "h200", "any", 768, 65_536, False, 1e9, H200.peak / 3e9, None)
    monkeypatch.setattr(pace, "measured", lambda: [run])


def chosen(
    hours: float, gpus: int = 1, name: str = "xlm_e", shards: Any = MANY, card: Any = H200, **more: Any
) -> Choice:
    return Budget(hours, gpus, card).choose(name, shards, **more)


def tokens_of(choice: Choice) -> float:
    """Read in the whole run, by its own time and speed."""
    return choice.estimate.days * 86_400 * choice.estimate.tokens_per_second


# ---- size ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hours", "gpus", "size"),
    [(0.1, 1, "tiny"), (1, 1, "small"), (12, 1, "base"), (24, 8, "large"), (24 * 7, 64, "xl")],
)
def test_the_largest_size_that_still_gets_enough_tokens(hours: float, gpus: int, size: str) -> None:
    found = chosen(hours, gpus)
    assert found.size == size
    assert found.tokens_per_parameter >= TOKENS_PER_PARAMETER
    larger = [*SIZES][[*SIZES].index(size) + 1 :][:1]
    for each in larger:
        assert chosen(hours, gpus, size=each).tokens_per_parameter < TOKENS_PER_PARAMETER


@settings(deadline=None, max_examples=6)
@given(st.floats(0.2, 2000), st.integers(1, 8))
def test_the_time_is_kept_and_more_of_it_never_buys_less(hours: float, gpus: int) -> None:
    one, two = (chosen(each, gpus) for each in (hours, 2 * hours))
    assert one.estimate.days <= hours / 24 * 1.001
    assert [*SIZES].index(str(one.size)) <= [*SIZES].index(str(two.size))
    assert one.recipe.steps >= LEAST_STEPS


def test_a_size_that_is_asked_for_is_not_questioned() -> None:
    assert chosen(12, size="large").size == "large"
    assert chosen(48, size="small").size == "small"


def test_few_data_do_with_a_smaller_size() -> None:
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
    assert found.why == "as many as 12 hours on 1 x H200 buy"
    assert tokens_of(found) / found.tokens_per_parameter == pytest.approx(layer_parameters(network(found.recipe, 100)))


def test_no_more_than_was_published() -> None:
    found = chosen(24 * 365, 64)
    assert (found.size, found.recipe.steps) == ("xl", 150_000)
    assert found.recipe == named("xlm_e", "xl").set(found.settings)
    assert "published" in found.why
    assert found.estimate.days < 365
    assert not any(each.startswith(("optimizer", "mrtd", "trtd")) for each in found.settings)


def test_no_more_than_so_many_epochs() -> None:
    few = shards_of(1e8, 1e7)
    found = chosen(48, shards=few, size="small")
    assert found.why == "with more the shards would be seen over 40 times"
    assert found.recipe.mrtd is not None
    assert found.recipe.steps * found.recipe.mrtd.tokens == pytest.approx(MOST_EPOCHS * 1e8, rel=0.01)
    pairs = shards_of(1e11, 1e5)  # those are what there is least of
    found = chosen(48, shards=pairs, size="small")
    assert found.recipe.trtd is not None
    assert found.recipe.steps * found.recipe.trtd.tokens / 61 == pytest.approx(MOST_EPOCHS * 1e5, rel=0.02)


def test_a_batch_made_for_many_steps_is_halved_until_there_are_enough() -> None:
    found = chosen(12)
    assert found.recipe.mrtd is not None
    assert found.recipe.trtd is not None
    assert found.recipe.mrtd.tokens == found.recipe.trtd.tokens == 262_144
    assert 20_000 <= found.recipe.steps < 40_000
    assert found.recipe.optimizer.warmup_steps(found.recipe.steps) / found.recipe.steps == pytest.approx(0.08, rel=0.01)
    assert found.recipe.lr == named("xlm_e").lr


def test_a_batch_is_not_halved_below_what_feeds_the_gpus() -> None:
    few, many = chosen(2, 1, size="base").recipe, chosen(2 / 64, 64, size="base").recipe
    assert few.mrtd is not None
    assert many.mrtd is not None
    assert (few.mrtd.tokens, many.mrtd.tokens) == (65_536, 524_288)


def test_sequences_and_pairs_are_halved_with_the_tokens() -> None:
    found = chosen(8, name="infoxlm", size="base").recipe
    assert found.mlm is not None
    assert found.tlm is not None
    assert found.xlco is not None
    share = 1_048_576 // found.mlm.tokens
    assert share > 1
    assert (found.tlm.sequences, found.xlco.pairs, found.xlco.queue) == (2048 // share, 2048 // share, 131_072)


def test_what_is_given_stays() -> None:
    given = ["mrtd.tokens=2000000", "micro_tokens=16384", "optimizer.warmup=500", "trtd=off"]
    found = chosen(12, differences=given, size="base")
    assert found.settings[:4] == given
    assert [each.partition("=")[0] for each in found.settings[4:]] == ["steps"]
    assert found.recipe.trtd is None


def test_what_is_computed_at_once_fits_the_card() -> None:
    found = chosen(24, 8, card=CARDS["a100-40"], size="large")
    assert "micro_tokens=16384" in found.settings
    assert found.estimate.memory.fits(CARDS["a100-40"])
    small = replace(CARDS["4090"], gib=20)
    narrow = chosen(24 * 7, 1, card=small, size="large")
    assert "recompute=true" in narrow.settings
    assert narrow.estimate.memory.fits(small)


# ---- what cannot be had -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hours", "gpus", "more", "message"),
    [
        (1e-4, 1, {}, r"--hours 0\.0001: 1 x H200 read .* tokens in that time, too few for tiny; give at least"),
        (0.1, 1, {"size": "xl"}, r"too few for xl; give at least .* hours"),
        (1, 1, {"size": "xl", "card": CARDS["4090"]}, r"xl does not fit on 1 x RTX 4090; give more or larger GPUs"),
        (1, 12, {}, r"--gpus 12: more than 8 are counted in machines of 8"),
        (1, 1, {"differences": ["steps=5"]}, r"--set steps: --hours chooses the steps; leave it out"),
        (1, 1, {"size": "huge"}, r"--size huge: there is no such size"),
        (1, 1, {"name": "xml"}, r"xml: there is no such recipe; did you mean 'xlm'\?"),
        (0, 1, {}, r"--hours 0: give a number of hours above 0"),
    ],
)
def test_refused(hours: float, gpus: int, more: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message) as told:
        chosen(hours, gpus, **more)
    assert "\n" not in str(told.value)


def test_the_hours_it_asks_for_are_enough() -> None:
    with pytest.raises(BadInput) as told:
        chosen(1e-4)
    least = float(str(told.value).split("give at least ")[1].split()[0])
    assert chosen(1.05 * least).size == "tiny"


# ---- the command --------------------------------------------------------------------------------------------


def test_one_gpu_needs_no_launcher() -> None:
    words = shlex.split(chosen(12).command(MANY))
    assert words[:5] == ["crossling", "pretrain", "xlm_e", "--shards", "my shards"]
    assert words[words.index("--size") + 1] == "base"


@pytest.mark.parametrize(("gpus", "nodes"), [(2, ["--standalone", "--nproc-per-node=2"]), (16, ["--nnodes=2"])])
def test_several_are_launched(gpus: int, nodes: list[str]) -> None:
    words = shlex.split(chosen(12, gpus).command(MANY))
    assert words[0] == "torchrun"
    assert {*nodes} <= {*words}
    assert words[words.index("-m") : words.index("-m") + 3] == ["-m", "crossling", "pretrain"]


def test_the_settings_of_the_command_make_the_recipe() -> None:
    found = chosen(12, 2, differences=["seed=3"])
    words = shlex.split(found.command(MANY))
    given = [words[place + 1] for place, word in enumerate(words) if word == "--set"]
    recipe = named(words[words.index("pretrain") + 1], words[words.index("--size") + 1]).set(given)
    assert recipe == found.recipe
    recipe.check()


def test_the_recipe_of_an_earlier_run(tmp_path: Path) -> None:
    file = tmp_path / "recipe.json"
    file.write_text(json.dumps({"recipe": named("xlm_e", "small").dump()}))
    found = chosen(2, name=str(file))
    assert found.size is None
    assert "--size" not in found.command(MANY)
    assert found.recipe.model == SIZES["small"]


def crossling(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["crossling", *words])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return int(ended.value.code or 0), *capsys.readouterr()


def test_what_is_printed_can_be_run(
    shards: Shards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["inspect", "xlm_e", "--shards", str(shards.path), "--hours", "0.5", "--set", "trtd.length=64"]
    status, out, _ = crossling(monkeypatch, capsys, *asked)
    assert status == 0
    command = out.strip().splitlines()[-1]
    started: dict[str, Any] = {}
    monkeypatch.setattr("crossling.recipe.pretrain", lambda recipe, *_: started.update(recipe=recipe))
    monkeypatch.chdir(tmp_path)
    status, out, _ = crossling(monkeypatch, capsys, *shlex.split(command)[1:])
    assert (status, out.strip()) == (0, "runs/xlm_e-tiny")
    assert started["recipe"].steps >= LEAST_STEPS
    assert started["recipe"].trtd.length == 64
    assert not [*tmp_path.iterdir()]


def test_json(shards: Shards, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["inspect", "xlm_e", "--shards", str(shards.path), "--json", "--gpus", "2", "--gpu", "a100"]
    status, out, _ = crossling(monkeypatch, capsys, *asked)
    found = json.loads(out)
    assert status == 0
    assert found["memory_gib"] > 0
    assert found["days"] > 0
    assert (found["gpu"], found["gpus"]) == ("A100-80GB", 2)
    assert "budget" not in found
    assert [each["size"] for each in found["published"]] == ["base", "large", "xl"]
    assert found["published"][0]["paper"].startswith("64 A100, 1.7 days")
    _, out, _ = crossling(monkeypatch, capsys, *asked, "--hours", "2")
    budget = json.loads(out)["budget"]
    assert budget["command"].startswith("torchrun --standalone --nproc-per-node=2 -m crossling pretrain xlm_e")
    assert json.loads(out)["recipe"]["steps"] == budget["steps"]
    assert json.loads(out)["days"] <= 2 / 24


def test_a_bad_card_is_one_sentence(
    shards: Shards, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["inspect", "xlm_e", "--shards", str(shards.path), "--gpu", "h2000"]
    status, out, err = crossling(monkeypatch, capsys, *asked)
    assert (status, out) == (2, "")
    assert "--gpu h2000: no card of that name is known (v100, " in err


def test_hours_have_an_end() -> None:
    for hours in (0.0, -1.0, float("inf"), float("nan")):
        with pytest.raises(BadInput, match="give a number of hours above 0"):
            Budget(hours, 1, H200)


def test_every_gpu_has_something_to_do() -> None:
    with pytest.raises(BadInput, match=r"a step of tiny has .* give at most so many GPUs"):
        chosen(1, gpus=512, size="tiny")
    found = chosen(24, gpus=64, name="infoxlm", card=A100)
    for objective in found.recipe.objectives.values():
        assert objective.examples(60.0) // (1 + getattr(objective, "mixup", False)) >= 64
