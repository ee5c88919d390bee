"""Plans are read strictly, and errors suggest the nearest valid name."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from crossling.core.errors import BadInput
from crossling.evaluate.retrieval_pairs import read_tatoeba
from crossling.evaluate.word_alignment import read_gold
from crossling.lab.lab_plan import PLANS, LabPlan, read_plan
from crossling.lab.shared_inputs import check_data
from crossling.recipes import RECIPES

from .tiny_plan import ALIGNMENT, RETRIEVAL, tiny_plan, write_plan

CLAIM = {"claim": "c", "better": "pairs", "worse": "text", **RETRIEVAL}
PLAN_NAMES = sorted(file.stem for file in PLANS.glob("*.json"))


@pytest.mark.parametrize("name", PLAN_NAMES)
def test_shipped_plans_are_valid(name: str) -> None:
    plan = read_plan(name)
    assert plan.about
    assert plan.claims
    used = {run for claim in plan.claims for run in (claim.better, claim.worse)}
    assert used == set(plan.runs), "every run is needed by a claim"


@pytest.mark.parametrize("name", PLAN_NAMES)
def test_shipped_claims_name_all_differing_settings(name: str) -> None:
    plan = read_plan(name)
    for claim in plan.claims:
        assert claim.differs, f"{claim.claim}: without 'differs'"
        one, other = (_settings(plan, run) for run in (claim.better, claim.worse))
        for key in {*one, *other} - {"name"}:
            named = any(key == each or key.startswith(f"{each}.") for each in claim.differs)
            assert named or one.get(key) == other.get(key), f"{claim.claim}: {key}"


@pytest.mark.parametrize("name", PLAN_NAMES)
def test_runs_of_shipped_claims_have_equal_batches(name: str) -> None:
    """An objective that replaces another has the same batch; XLCo takes part of a step, so the others may have less."""
    plan = read_plan(name)
    for claim in plan.claims:
        tasks = [plan.recipe(run).objectives for run in (claim.better, claim.worse)]
        if len({"xlco" in each for each in tasks}) == 1:
            sized = [task for each in tasks for task in each.values() if task.tokens]
            batches = {(task.stream, task.tokens, task.length) for task in sized}
            assert len(batches) == len({task.stream for task in sized}), claim.claim


def _settings(plan: LabPlan, run: str) -> dict[str, Any]:
    return {**dict(plan.recipe(run).settings()), "vocab": plan.runs[run].vocab}


def test_differences_are_settings_and_objectives(tmp_path: Path) -> None:
    runs = {
        "text": {"recipe": "xlm_r", "set": ["micro_tokens=64"]},
        "pairs": {"recipe": "xlm_r", "set": ["tlm=on", "mlm.rate=0.2"]},
        "vocap": {"recipe": "xlm_r", "vocab": "vocap"},
    }
    claims = [{**CLAIM, "differs": ["tlm", "mlm"]}, {**CLAIM, "better": "vocap", "differs": ["vocab"]}]
    plan = read_plan(write_plan(tmp_path, runs=runs, claims=claims, synthetic={}))
    assert [plan.differences(claim) for claim in plan.claims] == [["mlm.rate", "tlm"], ["vocab"]]


def test_shipped_plans() -> None:
    assert PLAN_NAMES == ["architecture", "papers", "rosetta", "synthetic", "synthetic-all"]
    papers = read_plan("papers")
    assert len(papers.measure["tatoeba"]) == 28
    assert papers.synthetic is None
    # The scores of an encoder say little about a recipe for translators.
    assert {run_plan.recipe for run_plan in papers.runs.values()} == set(RECIPES) - {"mbart"}
    assert "vocap" in {run_plan.vocab for run_plan in read_plan("synthetic-all").runs.values()}


def test_settings_of_an_objective_apply_to_runs_that_have_it(tmp_path: Path) -> None:
    runs = {"text": {"recipe": "xlm_r"}, "pairs": {"recipe": "xlm_r", "set": ["tlm=on", "lr=0.5", "tlm.rate=0.4"]}}
    plan = read_plan(write_plan(tmp_path, runs=runs, set=["tlm.tokens=256", "tlm.rate=0.2", "lr=0.25"], claims=[]))
    text, pairs = (plan.recipe(run, seed=3) for run in plan.runs)
    assert text.tlm is None
    assert pairs.tlm is not None
    assert (pairs.tlm.tokens, pairs.tlm.rate) == (256, 0.4)  # settings of the run take precedence
    assert (text.lr, pairs.lr) == (0.25, 0.5)
    assert {(recipe.steps, recipe.seed) for recipe in (text, pairs)} == {(4, 3)}


def test_defaults(tmp_path: Path) -> None:
    plan = read_plan(
        write_plan(
            tmp_path, seeds=[2, 5], runs={"a": {"recipe": "xlm"}, "b": {"recipe": "xlm", "seeds": [7]}}, claims=[]
        )
    )
    assert [plan.seeds_of(run) for run in plan.runs] == [(2, 5), (7,)]
    assert {run_plan.vocab for run_plan in plan.runs.values()} == {"joint"}
    assert dict(plan.measure) == {"tatoeba": (), "word-alignment": ()}
    assert plan.tasks_of("a") == ["tatoeba", "word-alignment"]


def test_fine_tuned_runs_have_more_tasks(tmp_path: Path) -> None:
    finetune = {"runs": ["pairs"], "tasks": {"udpos": ["steps=3"]}}
    plan: LabPlan = read_plan(write_plan(tmp_path, finetune=finetune))
    assert plan.tasks_of("pairs") == ["tatoeba", "word-alignment", "udpos"]
    assert plan.tasks_of("text") == ["tatoeba", "word-alignment"]
    assert plan.tasks["udpos"] == ["f1", "accuracy"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"stesp": 3}, "there is no 'stesp'; did you mean 'steps'"),
        ({"steps": None}, "either 'steps' or 'flops'"),
        ({"flops": 1e9}, "either 'steps' or 'flops'"),
        ({"steps": 0}, "steps must be at least 1, found 0"),
        ({"steps": True}, "steps=true: expected a whole number"),
        ({"steps": None, "flops": -1}, "flops must be more than 0, found -1"),
        ({"size": "tinny"}, "there is no such size; did you mean 'tiny'"),
        ({"seeds": []}, "seeds: expected different whole numbers"),
        ({"seeds": [1, 1]}, "seeds: expected different whole numbers"),
        ({"runs": {}}, "runs: expected at least one"),
        ({"runs": {"a/b": {"recipe": "xlm"}}}, "runs: a/b: expected a name of letters"),
        ({"runs": {"a": {}}}, "runs: a: 'recipe' is missing"),
        ({"runs": {"a": {"recipe": "xlm_x"}}}, "run a: xlm_x: there is no such recipe; did you mean 'xlm"),
        ({"runs": {"a": {"recipe": "xlm", "set": ["trld=off"]}}}, "there is no 'trld'; did you mean 'trtd'"),
        ({"runs": {"a": {"recipe": "xlm", "set": ["steps=9"]}}}, "steps=9: set by the plan for all runs"),
        ({"set": ["seed=9"]}, "seed=9: set by the plan for all runs"),
        ({"runs": {"a": {"recipe": "xlm", "vocab": "vocab"}}}, "there is no vocabulary 'vocab'; did you mean 'vocap'"),
        ({"runs": {"a": {"recipe": "xlm", "vocab": "vocap"}}}, "only plans with 'synthetic' languages"),
        ({"synthetic": {"langauges": 3}}, "there is no 'langauges'; did you mean 'languages'"),
        ({"measure": {"tatoba": []}}, "there is no training-free task 'tatoba'; did you mean 'tatoeba'"),
        ({"measure": {"tatoeba": "de"}}, "measure: tatoeba: expected a list"),
        ({"claims": [{**CLAIM, "better": "pears"}]}, "there is no run 'pears'; did you mean 'pairs'"),
        ({"claims": [{**CLAIM, "task": "tatooba"}]}, "there is no task 'tatooba'; did you mean 'tatoeba'"),
        ({"claims": [{**CLAIM, "metric": "acuracy"}]}, "there is no metric 'acuracy'; did you mean 'accuracy'"),
        ({"claims": [{"claim": "c"}]}, "'better' is missing"),
        ({"claims": [{**CLAIM, "difers": []}]}, "claims: there is no 'difers'; did you mean 'differs'"),
        ({"claims": [{**CLAIM, "differs": "tlm"}]}, "claims: differs: expected a list"),
        (
            {"claims": [{**CLAIM, "differs": ["tlm"]}]},
            "claim 'c': pairs and text also differ in sampling.pair_alpha, sampling.text_alpha. Set it alike,",
        ),
        (
            {"claims": [{**CLAIM, "differs": ["sampling", "tlm", "mlm"]}]},
            "claim 'c': 'differs': pairs and text do not differ in 'mlm'",
        ),
        ({"finetune": {"runs": ["texts"]}}, "finetune: there is no run 'texts'; did you mean 'text'"),
        ({"finetune": {"tasks": {"xnil": []}}}, "finetune: there is no task 'xnil'; did you mean 'xnli'"),
        ({"finetune": {"tasks": {"xnli": ["stepps=3"]}}}, "finetune: xnli: stepps: there is no 'stepps'"),
        (
            {"finetune": {"runs": ["pairs"], "tasks": {"xnli": []}}, "claims": [{**CLAIM, "task": "xnli"}]},
            "xnli needs fine-tuning and text is not fine-tuned",
        ),
    ],
)  # fmt: skip
def test_errors_suggest_the_nearest_name(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    given = {"claims": [], **changes}
    with pytest.raises(BadInput) as refused:
        read_plan(write_plan(tmp_path, **given))
    assert message in str(refused.value)
    assert str(refused.value).startswith(str(tmp_path / "mine.json"))


def test_plan_in_the_documentation_is_valid(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "compare-recipes.md").read_text(encoding="utf-8")
    plan = page.partition("cat > plan.json <<'EOF'\n")[2].partition("EOF\n")[0]
    (tmp_path / "page.json").write_text(plan, encoding="utf-8")
    [claim] = read_plan(tmp_path / "page.json").claims
    assert claim.differs == ("xlco",)


def test_name_of_a_plan(tmp_path: Path) -> None:
    assert read_plan(write_plan(tmp_path)).name == "mine.json"
    assert read_plan("papers").name == "papers"


def test_missing_or_damaged_plan(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="did you mean 'papers'"):
        read_plan("paperrs")
    with pytest.raises(BadInput, match=r"none\.json: there is no such file"):
        read_plan(tmp_path / "none.json")
    (tmp_path / "cut.json").write_text('{"size": "tiny"', encoding="utf-8")
    with pytest.raises(BadInput, match="not a readable plan"):
        read_plan(tmp_path / "cut.json")
    (tmp_path / "list.json").write_text("[]", encoding="utf-8")
    with pytest.raises(BadInput, match=r"list\.json: expected an object"):
        read_plan(tmp_path / "list.json")


def test_fine_tuning_without_a_dev_set_is_refused(tmp_path: Path) -> None:
    plan = read_plan(write_plan(tmp_path, finetune={"runs": ["pairs"], "tasks": {"udpos": []}}, measure={}, claims=[]))
    (tmp_path / "udpos").mkdir()
    for split in ("train", "test", "dev"):
        if split == "dev":
            with pytest.raises(BadInput, match="udpos has no dev split for language 'en'"):
                check_data(plan, tmp_path)
        (tmp_path / "udpos" / f"{split}-en.tsv").write_text("a\tNOUN\n\n", encoding="utf-8")
    check_data(plan, tmp_path)


@pytest.mark.parametrize("name", ["papers", "rosetta"])
def test_plans_on_real_text_fit_the_public_benchmarks(name: str) -> None:
    root = os.environ.get("CROSSLING_DATA")
    if not root or not (Path(root) / "eval" / "tatoeba").is_dir():
        pytest.skip("CROSSLING_DATA names no folder with the real benchmarks")
    plan, data = read_plan(name), Path(root) / "eval"
    check_data(plan, data)
    assert len(read_tatoeba(data, plan.measure["tatoeba"])) == 28
    assert len(read_gold(data, plan.measure["word-alignment"])) >= 5


def test_word_alignment_is_measured_by_aer(tmp_path: Path) -> None:
    plan = read_plan(write_plan(tmp_path))
    assert [(claim.task, claim.metric) for claim in plan.claims] == [(ALIGNMENT["task"], ALIGNMENT["metric"])]


def test_claim_about_one_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"pairs is compared with itself\. Name two runs"):
        read_plan(write_plan(tmp_path, claims=[{"claim": "c", "better": "pairs", "worse": "pairs", **ALIGNMENT}]))


@pytest.mark.parametrize("version", [None, 1, 3])
def test_plan_of_another_version_is_refused(version: int | None, tmp_path: Path) -> None:
    plan = {key: value for key, value in tiny_plan(version=version).items() if value is not None or key != "version"}
    (tmp_path / "old.json").write_text(json.dumps(plan), encoding="utf-8")
    with pytest.raises(BadInput, match=r"old\.json: plan: format version .*, expected 2\. Rewrite it as docs"):
        read_plan(tmp_path / "old.json")
