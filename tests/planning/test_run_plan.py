"""Plan of a run: probabilities, epochs, loads, infeasible rules and languages in focus."""

from __future__ import annotations

import warnings
from io import StringIO
from types import SimpleNamespace

import pytest
from rich.console import Console

from crossling.core.errors import BadInput
from crossling.data.batches import Batches
from crossling.data.example_sampler import sampling_probabilities
from crossling.data.shards import Shards
from crossling.planning import plan, run_plan
from crossling.planning.plan_page import plan_tables
from crossling.planning.run_plan import PretrainingPlan
from crossling.recipes.recipe import Recipe
from crossling.recipes.sampling_preview import SamplingPreview
from crossling.sampling import Pair, m2m, temperature_sampling, xy_lent

from .fake_shards import STAR, TEXT, WORKED, recipe, shards_of


def preview(planned: PretrainingPlan, rule: str) -> SamplingPreview[Pair]:
    found = planned.rules[rule]
    assert isinstance(found, SamplingPreview)
    return found


def test_description_names_the_most_paired_language() -> None:
    descriptions = {"most": "with the language with the most pairs, de,", "en": "with en", None: "translation pairs"}
    for pivot, description in descriptions.items():
        counts = {**WORKED, ("de", "ta"): 2000}
        planned = plan(recipe(*([f"sampling.pivot={pivot}"] if pivot else [])), shards_of(counts))
        assert planned.pair_description.endswith(description)


# ---- probabilities and epochs -------------------------------------------------------------------------------


def test_every_rule_is_previewed() -> None:
    planned = plan(recipe(), shards_of(WORKED))
    assert [*planned.rules] == ["alpha", "m2m", "xy_lent"]
    assert preview(planned, "alpha").probabilities == temperature_sampling(WORKED, 0.2)
    assert preview(planned, "m2m").probabilities == m2m(WORKED, 5)
    assert preview(planned, "xy_lent").probabilities == xy_lent(WORKED, 5)
    assert planned.pairs == preview(planned, "alpha")
    assert plan(recipe("sampling.pair_rule=m2m"), shards_of(WORKED)).pairs == preview(planned, "m2m")


def test_epochs_of_pairs_are_samples_divided_by_counts() -> None:
    planned = plan(recipe(), shards_of(WORKED))
    assert planned.pairs is not None
    # <s> and two sentences of ten tokens are 21 tokens; a step has 4,096.
    assert planned.loads["trtd"].length == pytest.approx(21, rel=1e-3)
    assert planned.loads["trtd"].examples == round(4096 / 21)
    samples = 100 * planned.loads["trtd"].examples
    for pair, n in WORKED.items():
        assert planned.pairs.epochs[pair] == pytest.approx(samples * planned.pairs.probabilities[pair] / n)
    assert planned.pairs.most_repeated == ("sw", "ta")


def test_objectives_on_the_same_pairs_add_up() -> None:
    one, two = (
        plan(recipe(*more), shards_of(WORKED)) for more in ([], ["xlco=on", "xlco.pairs=95", "xlco.mixup=false"])
    )
    assert one.pairs is not None
    assert two.pairs is not None
    assert two.pairs.epochs["de", "en"] / one.pairs.epochs["de", "en"] == pytest.approx((195 + 95) / 195)
    assert two.tokens_per_step == pytest.approx(one.tokens_per_step + 95 * 21, rel=1e-3)


def test_long_sides_are_truncated() -> None:
    shards = shards_of({("de", "en"): 10})
    shards.manifest["pairs"]["opus.de-en"]["tokens"] = [50000, 40]
    planned = plan(recipe("trtd.length=64"), shards)
    assert planned.loads["trtd"].length == pytest.approx(1 + 31 + 4, rel=1e-3)


def test_multi_way_corpus_counts_its_filled_rows() -> None:
    shards = shards_of({})
    sides = {"de": {"rows": 100, "filled": 50, "tokens": 500}, "en": {"rows": 100, "filled": 20, "tokens": 600}}
    shards.manifest["multi"] = {"bible": {"languages": sides}}
    shards.bitexts.append(SimpleNamespace(corpus="bible", languages=("de", "en"), pairs=15))
    assert plan(recipe(), shards).loads["trtd"].length == pytest.approx(1 + 10 + 30, rel=0.05)


def test_epochs_of_text_add_up_to_the_tokens_of_the_run() -> None:
    planned = plan(recipe("trtd=off"), shards_of({}))
    assert planned.text is not None
    assert planned.rules == {}
    assert planned.pairs is None
    assert planned.text.probabilities == temperature_sampling(TEXT, 0.7)
    tokens = sum(planned.text.epochs[language] * n for language, n in TEXT.items())
    length = planned.loads["mrtd"].length
    assert tokens == pytest.approx(100 * 4096 * (length - 1) / length, rel=0.01)  # all but the <s> of every block
    assert planned.text.epochs["sw"] > planned.text.epochs["en"]


def test_recipe_without_text_has_no_text_preview() -> None:
    planned = plan(recipe("mrtd=off"), shards_of(WORKED))
    assert planned.text is None
    assert {*planned.dump()["rates"]} == {"pairs"}


@pytest.mark.parametrize("length", [24, 32, 64])
def test_loads_are_close_to_the_sampled_batches(shards: Shards, full_recipe: Recipe, length: int) -> None:
    lengths = [f"mrtd.length={length}", "trtd.length=64", "xlco.length=64"]
    chosen = full_recipe.set(["mrtd.tokens=20000", "trtd.tokens=20000", *lengths])
    planned = plan(chosen, shards)
    batches = Batches(shards, chosen.objectives, chosen.sampling, seed=chosen.seed, micro_tokens=chosen.micro_tokens)
    for name, load in planned.loads.items():
        assert load.examples == pytest.approx(batches.samplers[name].examples_per_step, rel=0.1)
    assert planned.tokens_per_step == pytest.approx(batches[0].tokens, rel=0.1)


def test_never_sampled_and_effective_number() -> None:
    probabilities = {("a", "b"): 0.5, ("a", "c"): 0.5, ("b", "c"): 0.0, ("c", "d"): 1e-13}
    found = SamplingPreview(
        dict.fromkeys(probabilities, 10), probabilities, {pair: p / 10 for pair, p in probabilities.items()}, {}
    )
    assert found.never_sampled == 0.5
    assert found.effective_number == pytest.approx(2)


# ---- infeasible rules ---------------------------------------------------------------------------------------


def test_infeasible_rule_has_its_error_and_a_relaxed_preview() -> None:
    planned = plan(recipe("sampling.pair_rule=xy_lent"), shards_of(STAR))
    assert [*planned.rules] == ["alpha", "m2m", "m2m relaxed", "xy_lent", "xy_lent relaxed"]
    assert "de, sw, ta should be 67.69% of all sampled sentences" in str(planned.rules["xy_lent"])
    assert preview(planned, "xy_lent relaxed").probabilities == pytest.approx(temperature_sampling(STAR, 0.2))
    assert planned.pairs is None
    assert {*planned.loads} == {"mrtd", "trtd"}
    found = planned.dump()
    assert found["rules"]["xy_lent"] == {"cannot": planned.rules["xy_lent"]}
    assert "pairs" not in found["rates"]


def test_relaxed_rule_of_the_recipe_is_used() -> None:
    planned = plan(recipe("sampling.pair_rule=xy_lent", "sampling.relax=true"), shards_of(STAR))
    assert planned.pairs == preview(planned, "xy_lent relaxed")


def test_pairs_that_are_never_sampled_are_noted() -> None:
    counts = {**STAR, ("de", "fr"): 900}
    planned = plan(recipe("sampling.pair_alpha=0"), shards_of(counts))
    relaxed = preview(planned, "xy_lent relaxed")
    assert relaxed.probabilities["de", "en"] == 0
    assert "1 of 4 pairs are never sampled" in relaxed.note


def test_pivot_selects_pairs_with_one_language() -> None:
    planned = plan(recipe("sampling.pivot=en"), shards_of(WORKED))
    assert {*preview(planned, "alpha").probabilities} == {*STAR}
    assert isinstance(planned.rules["xy_lent"], str)


def test_languages_select_text_and_pairs() -> None:
    planned = plan(recipe("sampling.languages=en,sw,ta"), shards_of(WORKED))
    assert planned.text is not None
    assert {*planned.text.probabilities} == {*TEXT} & {"en", "sw", "ta"}
    assert {*preview(planned, "alpha").probabilities} == {("en", "sw"), ("en", "ta"), ("sw", "ta")}


@pytest.mark.parametrize(
    ("counts", "text", "assignments", "message"),
    [
        (WORKED, {}, [], "shards: no text in these shards, which the recipe needs"),
        ({}, TEXT, [], "shards: no translation pairs in these shards"),
        (WORKED, TEXT, ["sampling.pivot=yo"], "no translation pairs with yo in these shards"),
        (WORKED, TEXT, ["sampling.languages=en,yo"], "shards: sampling.languages=yo is not in these shards"),
        (WORKED, TEXT, ["steps=0"], "steps must be at least 1"),
    ],
)
def test_plan_refuses_what_pretrain_refuses(
    counts: dict[Pair, int], text: dict[str, int], assignments: list[str], message: str
) -> None:
    with pytest.raises(BadInput, match=message):
        plan(recipe(*assignments), shards_of(counts, text))


# ---- focus --------------------------------------------------------------------------------------------------


def test_focus_gets_1_minus_replay_under_every_rule(shards: Shards, full_recipe: Recipe) -> None:
    chosen = full_recipe.set(["sampling.focus=qac", "sampling.replay=0.3"])
    planned = plan(chosen, shards)
    assert planned.text is not None
    assert planned.text.probabilities["qac"] == pytest.approx(0.7)
    assert planned.text.probabilities == sampling_probabilities(shards, "text", chosen.sampling)
    found = {rule: each for rule, each in planned.rules.items() if isinstance(each, SamplingPreview)}
    assert {"alpha", "m2m", "xy_lent"} <= {rule.split()[0] for rule in found}
    for each in found.values():
        assert sum(p for pair, p in each.probabilities.items() if "qac" in pair) == pytest.approx(0.7)


def test_table_names_the_focus(shards: Shards, full_recipe: Recipe) -> None:
    def rendered(*assignments: str) -> str:
        out = StringIO()
        Console(file=out, width=200).print(*plan_tables(plan(full_recipe.set(assignments), shards)))
        return out.getvalue()

    assert "; 70% for qab, qac, 30% for all others" in rendered("sampling.focus=qac,qab", "sampling.replay=0.3")
    assert "for all others" not in rendered()


def test_focus_without_data_is_refused(shards: Shards, full_recipe: Recipe) -> None:
    for off in (["trtd=off", "xlco=off"], ["mrtd=off"]):
        with pytest.raises(BadInput, match=r"sampling\.focus=qad is not in these shards; did you mean 'qa.'"):
            plan(full_recipe.set([*off, "sampling.focus=qad"]), shards)


# ---- hardware, and a model to start from ---------------------------------------------------------------------


def test_an_assumed_gpu_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_plan, "local_accelerator", lambda: None)
    with pytest.warns(UserWarning, match="no known GPU here, so memory and time are predicted for an H200"):
        plan(recipe("trtd=off"), shards_of({}), gpus=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plan(recipe("trtd=off"), shards_of({}), device="a100")


def test_plan_of_an_adaptation_has_the_architecture_of_the_model() -> None:
    with pytest.warns(UserWarning, match="Other settings are those of small"):
        planned = plan("rosetta", shards_of(WORKED), init="bundled", set=["steps=100"])
    assert (planned.recipe.model.layers, planned.recipe.model.width) == (5, 384)
    own = plan(recipe("trtd=off"), shards_of({}), init="bundled")
    assert own.recipe.model.width == 384
    with pytest.raises(BadInput, match="init=bundled: a budget in hours chooses the size itself"):
        plan("rosetta", shards_of(WORKED), init="bundled", hours=1)


def test_only_the_rule_of_the_recipe_has_its_pairs_and_its_problem_printed() -> None:
    def rendered(*assignments: str) -> str:
        out = StringIO()
        Console(file=out, width=160).print(*plan_tables(plan(recipe(*assignments), shards_of(STAR))))
        return out.getvalue()

    used = rendered()
    assert "rules for pairs (the recipe uses alpha)" in used
    assert "should be 67.69%" not in used
    assert "m2m relaxed %" not in used
    assert "should be 67.69%" in " ".join(rendered("sampling.pair_rule=xy_lent").split())


# ---- number of GPUs -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gpus", "message"),
    [
        (0, r"^gpus=0: expected a whole number above 0\.$"),
        (-1, r"^gpus=-1: expected"),
        (2.5, r"^gpus=2\.5: expected"),
        ("8", r"^gpus='8': expected"),
        (True, r"^gpus=True: expected"),
        (63, r"^gpus=63: more than 8 GPUs are machines of 8\. Give a multiple, such as 56 or 64\.$"),
        (1000, r"^gpus=1000: a step of xlm_e has \d+ examples of an objective\. Give at most \d+ GPUs\.$"),
    ],
)
def test_an_impossible_number_of_gpus_is_refused(gpus: int, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        plan(recipe("trtd=off"), shards_of({}), gpus=gpus, device="h100")


def test_64_gpus_are_predicted_with_the_time_they_wait() -> None:
    alone, many = (plan("xlm_e", shards_of(WORKED), size="base", gpus=gpus, device="h100").estimate for gpus in (1, 64))
    assert many.hardware == "64 x H100-80GB"
    assert 0 < many.waiting < 0.5
    assert many.tokens_per_second == pytest.approx(64 * alone.tokens_per_second * (1 - many.waiting), rel=0.02)
