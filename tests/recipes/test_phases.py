"""Settings that change during a run: how they are given, what a run reads, and what is planned."""

from __future__ import annotations

from pathlib import Path

import pytest

from crossling.core.errors import BadInput
from crossling.data.packing import bucket_size
from crossling.data.shards import Shards
from crossling.planning import plan
from crossling.recipes.network import add_phases, make_batches
from crossling.recipes.pretrain import pretrain
from crossling.recipes.recipe import Recipe
from crossling.recipes.sampling_preview import preview_text
from tests.train.run_helpers import assert_same_run, before_step, crash

MASKING = ["mlm.rate=0.3", "mlm.rate=0.15@0.6", "mlm.rate=0.05@90"]


@pytest.fixture
def recipe(full_recipe: Recipe) -> Recipe:
    objectives = ["mrtd=off", "trtd=off", "xlco=off", "mlm.tokens=400", "mlm.length=32"]
    return full_recipe.set([*objectives, "steps=100", "optimizer.warmup=2", "log_every=2"])


@pytest.fixture(scope="session")
def three(shards: Shards) -> list[str]:
    return sorted(shards.manifest["text"])


def test_each_phase_is_a_recipe(recipe: Recipe) -> None:
    phased = recipe.set([*MASKING, "sampling.text_alpha=0.3@0.6"])
    assert phased.phases == "mlm.rate=0.15@0.6 mlm.rate=0.05@90 sampling.text_alpha=0.3@0.6"
    found = [(each.steps, each.mlm.rate, each.sampling.text_alpha) for each in phased.split() if each.mlm]
    assert found == [(60, 0.3, 0.7), (30, 0.15, 0.3), (10, 0.05, 0.3)]
    assert recipe.split() == [recipe]
    assert phased.set([f"phases={phased.phases}"]) == phased
    assert phased.set(["phases=none"]) == recipe.set(["mlm.rate=0.3"])


def test_a_setting_replaces_that_of_the_same_start(recipe: Recipe) -> None:
    assert recipe.set(["mlm.rate=0.2@0.5", "mlm.rate=0.1@0.5"]).phases == "mlm.rate=0.1@0.5"


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("mlm.rate=2@0.5", "phases: mlm.rate must be at least 0 and at most 1, found 2.0."),
        ("mlm.rate=0.2@100", "mlm.rate=0.2@100 starts at step 100 of 100. Set another start."),
        ("mlm.rate=0.2@0", "starts at step 0 of 100"),
        ("mlm.rate=0.2@1e", "has no number after @"),
        ("tlm.rate=0.2@0.5", "changes tlm, which is off. Omit it."),
        ("phases=lr=3@0.4", "'lr=3@0.4' is no phase setting. Give key=value@start for OBJECTIVE.rate"),
        ("sampling.languages=qq9@0.4", "'qq9' is not a language code"),
        (
            "phases=mlm.rate=0.2@0.5 mlm.rate=0.1@50",
            "phases: mlm.rate=0.2@0.5 and mlm.rate=0.1@50 both start at step 50 of 100. Change one.",
        ),
    ],
)
def test_settings_that_contradict_the_run_are_refused(recipe: Recipe, setting: str, expected: str) -> None:
    with pytest.raises(BadInput) as error:
        recipe.set([setting]).check()
    assert expected in str(error.value)


def test_dro_and_phases_exclude_each_other(full_recipe: Recipe) -> None:
    with pytest.raises(BadInput, match="dro chooses the sampling probabilities itself"):
        full_recipe.set(["dro=on", "sampling.pair_alpha=0.3@5"]).check()


def test_the_masking_rate_follows_its_schedule(recipe: Recipe, shards: Shards) -> None:
    recipe = recipe.set([*MASKING, "mlm.tokens=4000"])
    batches = add_phases(make_batches(recipe, shards), recipe, shards)
    plain = make_batches(recipe, shards)
    for step, masked in ((59, 0.3), (60, 0.15), (89, 0.15), (90, 0.05), (99, 0.05)):
        work, same = batches[step], plain[step]
        assert work.counts["mlm"] / work.tokens == pytest.approx(masked, rel=0.15)
        assert work.tokens == same.tokens  # the same examples


def test_masked_positions_are_padded_to_few_shapes_in_every_phase(recipe: Recipe, shards: Shards) -> None:
    recipe = recipe.set(MASKING)
    batches = add_phases(make_batches(recipe, shards, has_bucketed_shapes=True), recipe, shards)
    assert batches.has_bucketed_shapes
    sizes = [len(batch["masked_at"]) for step in (0, 60, 90) for _, batch in batches[step].micro_batches]
    assert sizes == [bucket_size(size) for size in sizes]
    assert sizes[0] > 1.5 * sizes[1] > 3 * sizes[2]  # not padded for the highest masking rate


def test_a_run_in_phases_resumes_exactly(
    recipe: Recipe, shards: Shards, three: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = [f"sampling.languages={','.join(three[:2])}", f"sampling.languages={','.join(three)}@3"]
    recipe = recipe.set(["steps=6", "checkpoint_every=2", "mlm.rate=0.1@4", *settings])
    pretrain(recipe, shards, tmp_path / "one")
    for step in (3, 6):  # before and after the phases start
        with monkeypatch.context() as patch:
            before_step(patch, step, crash)
            with pytest.raises(RuntimeError, match="the machine went down"):
                pretrain(recipe, shards, tmp_path / "two")
    pretrain(recipe, shards, tmp_path / "two")
    assert_same_run(tmp_path / "one", tmp_path / "two", 6)
    with pytest.raises(BadInput, match="different: phases"):
        pretrain(recipe.set(["mlm.rate=0.2@4"]), shards, tmp_path / "two")


def test_the_plan_adds_up_the_phases(recipe: Recipe, shards: Shards, three: list[str]) -> None:
    late, others = three[0], ",".join(three[1:])
    phased = recipe.set([f"sampling.languages={others}", f"sampling.languages={','.join(three)}@0.75"])
    found, whole = preview_text(phased, shards), preview_text(recipe, shards)
    assert found is not None
    assert whole is not None
    assert found.probabilities[late] == pytest.approx(0.25 * whole.probabilities[late])
    assert found.epochs[late] == pytest.approx(0.25 * whole.epochs[late], rel=0.01)
    assert sum(found.probabilities.values()) == pytest.approx(1)


def test_the_plan_has_mean_flops_and_the_largest_memory(recipe: Recipe, shards: Shards) -> None:
    constant = {masked: plan(recipe.set([f"mlm.rate={masked}"]), shards) for masked in (0.05, 0.15, 0.3)}
    phased = plan(recipe.set(["mlm.rate=0.05", "mlm.rate=0.3@0.6", "mlm.rate=0.15@0.9"]), shards)
    mean = sum(
        part * constant[masked].flops_per_token["full"] for masked, part in ((0.05, 0.6), (0.3, 0.3), (0.15, 0.1))
    )
    assert phased.flops_per_token["full"] == pytest.approx(mean)
    assert phased.estimate.memory == constant[0.3].estimate.memory
