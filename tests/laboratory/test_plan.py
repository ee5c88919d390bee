"""A plan is read strictly: what is wrong with it is told in one sentence, with the nearest name that is right."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from crossling.errors import BadInput
from crossling.evaluate.alignment import read_gold
from crossling.evaluate.retrieval import read_tatoeba
from crossling.laboratory.material import check_data
from crossling.laboratory.plan import SHIPPED, Plan, read
from crossling.recipes import RECIPES

from .made import RETRIEVAL, WORDS, written

CLAIM = {"claim": "c", "better": "pairs", "worse": "text", **RETRIEVAL}
SHIPPING = sorted(file.stem for file in SHIPPED.glob("*.json"))


@pytest.mark.parametrize("name", SHIPPING)
def test_plans_that_ship_are_sound(name: str) -> None:
    plan = read(name)
    assert plan.about
    assert plan.claims
    used = {run for claim in plan.claims for run in (claim.better, claim.worse)}
    assert used == set(plan.runs), "a run that no claim needs is a run too many"


@pytest.mark.parametrize("name", SHIPPING)
def test_claims_that_ship_are_of_what_their_runs_differ_in(name: str) -> None:
    plan = read(name)
    for claim in plan.claims:
        assert claim.differs, f"{claim.claim}: says not what it is about"
        one, other = (_settings(plan, run) for run in (claim.better, claim.worse))
        for key in {*one, *other} - {"name"}:
            named = any(key == each or key.startswith(f"{each}.") for each in claim.differs)
            assert named or one.get(key) == other.get(key), f"{claim.claim}: {key}"


@pytest.mark.parametrize("name", SHIPPING)
def test_runs_of_a_claim_that_ships_read_as_much_in_a_step(name: str) -> None:
    """What stands in the place of another objective has its batch: else steps would differ for no reason of its own.
    Contrast takes its share of a step, so that beside it there may be less of the others."""
    plan = read(name)
    for claim in plan.claims:
        tasks = [plan.recipe(plan.runs[run]).objectives for run in (claim.better, claim.worse)]
        if len({"xlco" in each for each in tasks}) == 1:
            sized = [task for each in tasks for task in each.values() if hasattr(task, "tokens")]
            read_in = {(task.stream, task.tokens, task.length) for task in sized}
            assert len(read_in) == len({task.stream for task in sized}), claim.claim


def _settings(plan: Plan, run: str) -> dict[str, Any]:
    trial = plan.runs[run]
    return {**dict(plan.recipe(trial).settings()), "vocab": trial.vocab}


def test_differences_are_settings_and_objectives_of_one_run_alone(tmp_path: Path) -> None:
    runs = {
        "text": {"recipe": "xlm_r", "set": ["micro_tokens=64"]},
        "pairs": {"recipe": "xlm_r", "set": ["tlm=on", "mlm.rate=0.2"]},
        "vocap": {"recipe": "xlm_r", "vocab": "vocap"},
    }
    claims = [{**CLAIM, "differs": ["tlm", "mlm"]}, {**CLAIM, "better": "vocap", "differs": ["vocab"]}]
    plan = read(written(tmp_path, runs=runs, claims=claims, embedded={}))
    assert [plan.differences(claim) for claim in plan.claims] == [["mlm.rate", "tlm"], ["vocab"]]


def test_these_ship() -> None:
    assert SHIPPING == ["embedded", "embedded-all", "papers", "rosetta"]
    papers = read("papers")
    assert len(papers.measure["tatoeba"]) == 28
    assert papers.embedded is None
    assert {trial.recipe for trial in papers.runs.values()} == set(RECIPES)
    assert "vocap" in {trial.vocab for trial in read("embedded-all").runs.values()}


def test_differences_of_an_objective_are_for_runs_that_have_it(tmp_path: Path) -> None:
    runs = {"text": {"recipe": "xlm_r"}, "pairs": {"recipe": "xlm_r", "set": ["tlm=on", "lr=0.5", "tlm.rate=0.4"]}}
    plan = read(written(tmp_path, runs=runs, set=["tlm.tokens=256", "tlm.rate=0.2", "lr=0.25"], claims=[]))
    text, pairs = (plan.recipe(trial, seed=3) for trial in plan.runs.values())
    assert text.tlm is None
    assert pairs.tlm is not None
    assert (pairs.tlm.tokens, pairs.tlm.rate) == (256, 0.4)  # the run has the last word
    assert (text.lr, pairs.lr) == (0.25, 0.5)
    assert {(recipe.steps, recipe.seed) for recipe in (text, pairs)} == {(4, 3)}


def test_what_is_left_out(tmp_path: Path) -> None:
    plan = read(
        written(tmp_path, seeds=[2, 5], runs={"a": {"recipe": "xlm"}, "b": {"recipe": "xlm", "seeds": [7]}}, claims=[])
    )
    assert [trial.seeds for trial in plan.runs.values()] == [(2, 5), (7,)]
    assert {trial.vocab for trial in plan.runs.values()} == {"joint"}
    assert dict(plan.measure) == {"tatoeba": (), "word-alignment": ()}
    assert plan.tasks_of("a") == ["tatoeba", "word-alignment"]


def test_finalists_are_measured_on_more(tmp_path: Path) -> None:
    finalists = {"runs": ["pairs"], "tasks": {"udpos": ["steps=3"]}}
    plan: Plan = read(written(tmp_path, finalists=finalists))
    assert plan.tasks_of("pairs") == ["tatoeba", "word-alignment", "udpos"]
    assert plan.tasks_of("text") == ["tatoeba", "word-alignment"]
    assert plan.tasks["udpos"] == ["f1", "accuracy"]


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"stesp": 3}, "there is no 'stesp'; did you mean 'steps'"),
        ({"steps": None}, "either 'steps' or 'flops'"),
        ({"flops": 1e9}, "either 'steps' or 'flops'"),
        ({"steps": 0}, "steps: expected a whole number from 1, found 0"),
        ({"steps": True}, "steps: expected a whole number from 1, found True"),
        ({"steps": None, "flops": -1}, "flops: expected a number above 0"),
        ({"size": "tinny"}, "there is no such size; did you mean 'tiny'"),
        ({"seeds": []}, "seeds: expected different whole numbers"),
        ({"seeds": [1, 1]}, "seeds: expected different whole numbers"),
        ({"runs": {}}, "runs: expected at least one"),
        ({"runs": {"a/b": {"recipe": "xlm"}}}, "runs: a/b: expected a name of letters"),
        ({"runs": {"a": {}}}, "runs: a: 'recipe' is missing"),
        ({"runs": {"a": {"recipe": "xlm_x"}}}, "run a: xlm_x: there is no such recipe; did you mean 'xlm"),
        ({"runs": {"a": {"recipe": "xlm", "set": ["trld=off"]}}}, "there is no 'trld'; did you mean 'trtd'"),
        ({"runs": {"a": {"recipe": "xlm", "set": ["steps=9"]}}}, "steps=9: the plan decides it"),
        ({"set": ["seed=9"]}, "seed=9: the plan decides it"),
        ({"runs": {"a": {"recipe": "xlm", "vocab": "vocab"}}}, "there is no vocabulary 'vocab'; did you mean 'vocap'"),
        ({"runs": {"a": {"recipe": "xlm", "vocab": "vocap"}}}, "only plans with 'embedded' languages"),
        ({"embedded": {"langauges": 3}}, "there is no 'langauges'; did you mean 'languages'"),
        ({"measure": {"tatoba": []}}, "there is no task 'tatoba' without training; did you mean 'tatoeba'"),
        ({"measure": {"tatoeba": "de"}}, "measure: tatoeba: expected a list"),
        ({"claims": [{**CLAIM, "better": "pears"}]}, "there is no run 'pears'; did you mean 'pairs'"),
        ({"claims": [{**CLAIM, "task": "tatooba"}]}, "there is no task 'tatooba'; did you mean 'tatoeba'"),
        ({"claims": [{**CLAIM, "metric": "acuracy"}]}, "there is no metric 'acuracy'; did you mean 'accuracy'"),
        ({"claims": [{"claim": "c"}]}, "'better' is missing"),
        ({"claims": [{**CLAIM, "difers": []}]}, "claims: there is no 'difers'; did you mean 'differs'"),
        ({"claims": [{**CLAIM, "differs": "tlm"}]}, "claims: differs: expected a list"),
        (
            {"claims": [{**CLAIM, "differs": ["tlm"]}]},
            "claim 'c': pairs and text differ in sampling.pair_alpha, sampling.text_alpha too; make them alike there,",
        ),
        (
            {"claims": [{**CLAIM, "differs": ["sampling", "tlm", "mlm"]}]},
            "claim 'c': pairs and text do not differ in 'mlm'",
        ),
        ({"finalists": {"runs": ["texts"]}}, "finalists: there is no run 'texts'; did you mean 'text'"),
        ({"finalists": {"tasks": {"xnil": []}}}, "finalists: there is no task 'xnil'; did you mean 'xnli'"),
        ({"finalists": {"tasks": {"xnli": ["stepps=3"]}}}, "finalists: xnli: --set stepps: there is no 'stepps'"),
        (
            {"finalists": {"runs": ["pairs"], "tasks": {"xnli": []}}, "claims": [{**CLAIM, "task": "xnli"}]},
            "xnli is for finalists and text is none",
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_with_the_nearest(changes: dict[str, Any], told: str, tmp_path: Path) -> None:
    given = {"claims": [], **changes}
    with pytest.raises(BadInput) as refused:
        read(written(tmp_path, **given))
    assert told in str(refused.value)
    assert str(refused.value).startswith(str(tmp_path / "mine.json"))


def test_the_plan_of_the_page_can_be_read(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "lab.md").read_text(encoding="utf-8")
    (tmp_path / "page.json").write_text(page.partition("```json")[2].partition("```")[0], encoding="utf-8")
    [claim] = read(tmp_path / "page.json").claims
    assert claim.differs == ("xlco",)


def test_a_plan_of_a_file_is_known_by_its_file(tmp_path: Path) -> None:
    assert read(written(tmp_path)).name == "mine.json"
    assert read("papers").name == "papers"


def test_a_plan_that_there_is_not(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="did you mean 'papers'"):
        read("paperrs")
    with pytest.raises(BadInput, match=r"none\.json: there is no such file"):
        read(tmp_path / "none.json")
    (tmp_path / "cut.json").write_text('{"size": "tiny"', encoding="utf-8")
    with pytest.raises(BadInput, match="not a readable plan"):
        read(tmp_path / "cut.json")
    (tmp_path / "list.json").write_text("[]", encoding="utf-8")
    with pytest.raises(BadInput, match="the plan: expected an object"):
        read(tmp_path / "list.json")


def test_finalists_without_a_dev_part_are_refused_before_anything_is_trained(tmp_path: Path) -> None:
    plan = read(written(tmp_path, finalists={"runs": ["pairs"], "tasks": {"udpos": []}}, measure={}, claims=[]))
    (tmp_path / "udpos").mkdir()
    for split in ("train", "test", "dev"):
        if split == "dev":
            with pytest.raises(BadInput, match="no dev part for udpos in 'en'"):
                check_data(plan, tmp_path)
        (tmp_path / "udpos" / f"{split}-en.tsv").write_text("a\tNOUN\n\n", encoding="utf-8")
    check_data(plan, tmp_path)


@pytest.mark.parametrize("name", ["papers", "rosetta"])
def test_the_plans_of_real_text_fit_the_public_benchmarks(name: str) -> None:
    root = os.environ.get("CROSSLING_DATA")
    if not root or not (Path(root) / "eval" / "tatoeba").is_dir():
        pytest.skip("CROSSLING_DATA names no folder with the real benchmarks")
    plan, data = read(name), Path(root) / "eval"
    check_data(plan, data)
    assert len(read_tatoeba(data, plan.measure["tatoeba"])) == 28
    assert len(read_gold(data, plan.measure["word-alignment"])) >= 5


def test_words_are_judged_by_errors(tmp_path: Path) -> None:
    plan = read(written(tmp_path))
    assert [(claim.task, claim.metric) for claim in plan.claims] == [(WORDS["task"], WORDS["metric"])]


def test_a_claim_of_one_run_about_itself_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="pairs is compared with itself; name two runs"):
        read(written(tmp_path, claims=[{"claim": "c", "better": "pairs", "worse": "pairs", **WORDS}]))
