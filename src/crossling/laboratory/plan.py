"""A plan: which recipes are put to the test, under which budget, what is measured, and what the papers claim.

It is a JSON file, read strictly; docs/lab.md explains every key. Some ship with the package, and are known by name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any

from crossling import settings
from crossling.benchmarks.sets import SETS
from crossling.errors import BadInput, nearest
from crossling.evaluate.asked import TASKS
from crossling.finetune.plan import plans as tunings
from crossling.metrics import METRICS
from crossling.recipe import Recipe
from crossling.recipe.recipe import OBJECTIVES
from crossling.recipes import named
from crossling.train.run import MAY_CHANGE
from crossling.vocabulary.vocab import ALLOCATIONS

SHIPPED = Path(__file__).parent / "plans"
RETRIEVAL = "tatoeba"  # what the curves are of
FREE_METRICS = {"tatoeba": ["accuracy"], "bucc2018": ["f1"], "word-alignment": ["aer"]}
OURS = ("name", "seed", "steps")  # keys of a recipe that the plan decides by itself
_NAME = re.compile(r"\w[\w.+-]*")


@dataclass(frozen=True)
class Trial:
    """One recipe put to the test."""

    name: str
    recipe: str
    set: tuple[str, ...]  # differences
    seeds: tuple[int, ...]
    vocab: str  # of embedded languages: how its vocabulary is shared out
    tuned: str  # how its settings were found


@dataclass(frozen=True)
class Claim:
    """An ordering that a paper claims."""

    claim: str
    better: str  # a run
    worse: str
    task: str
    metric: str
    differs: tuple[str, ...] | None = None  # all that its runs may differ in; none: whatever it is


@dataclass(frozen=True)
class Finalists:
    """Runs that are fine-tuned, and for what: task -> differences from its usual setting."""

    runs: tuple[str, ...] = ()
    tasks: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Embedded:
    """The constructed languages that a plan makes for itself."""

    languages: int = 6
    sentences: int = 20_000
    lemmas: int = 400
    pieces: int = 4000  # of the vocabulary
    test_sentences: int = 400
    alignment_sentences: int = 100
    seed: int = 0


@dataclass(frozen=True)
class Plan:
    name: str
    about: str
    size: str
    steps: int | None  # the budget of each run: so many steps,
    flops: float | None  # or the steps that so many operations allow
    set: tuple[str, ...]  # differences of all runs; those of an objective are for the runs that have it
    looks: int  # at the curve: how often retrieval is measured in a run
    sentences: int  # of a language, that are looked at
    measure: Mapping[
        str, tuple[str, ...]
    ]  # tasks without training for all runs -> their languages; none: all there are
    runs: Mapping[str, Trial]
    finalists: Finalists
    claims: tuple[Claim, ...]
    embedded: Embedded | None
    stored: Mapping[str, Any]  # as it was written

    @cached_property
    def tasks(self) -> dict[str, list[str]]:
        """What is measured, and by which metrics."""
        tuned = {
            task: list(dict.fromkeys(METRICS[name].name for name in SETS[task].metrics))
            for task in self.finalists.tasks
        }
        return {task: FREE_METRICS[task] for task in self.measure} | tuned

    def tasks_of(self, run: str) -> list[str]:
        return [*self.measure, *(self.finalists.tasks if run in self.finalists.runs else ())]

    def recipe(self, trial: Trial, seed: int = 0) -> Recipe:
        """Without its steps, where these follow from the operations of the budget."""
        switches = [each for each in trial.set if each.partition("=")[0] in OBJECTIVES]
        recipe = named(trial.recipe, self.size).set(switches)
        common = [each for each in self.set if _part(each) not in OBJECTIVES or _part(each) in recipe.objectives]
        recipe = recipe.set(common).set(each for each in trial.set if each not in switches)
        return recipe.but(seed=seed, **({"steps": self.steps} if self.steps else {}))

    def differences(self, claim: Claim) -> list[str]:
        """Of its two runs: settings by their keys, and objectives that only one of them has."""
        one, other = (
            dict(self.recipe(trial).settings(), vocab=trial.vocab)
            for trial in (self.runs[claim.better], self.runs[claim.worse])
        )
        keys = {*one, *other} - {"name", *MAY_CHANGE}
        apart = {key for key in keys if (key in one, one.get(key)) != (key in other, other.get(key))}
        return sorted(key for key in apart if key.rpartition(".")[0] not in apart)  # `tlm` says all of `tlm.rate`


def read(plan: Path | str) -> Plan:
    """A plan by its name, or from its file."""
    if str(plan).endswith(".json"):
        file = Path(plan)
        name = file.name
    else:
        file, name = SHIPPED / f"{plan}.json", str(plan)
        if not file.is_file():
            shipped = [each.stem for each in SHIPPED.glob("*.json")]
            raise BadInput(
                f"{plan}: there is no such plan{nearest(str(plan), shipped)}; or give a file that ends in .json"
            )
    if not file.is_file():
        raise BadInput(f"{file}: there is no such file; give a plan, or the name of one that ships")
    try:
        stored = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadInput(f"{file}: not a readable plan ({error}); expected JSON as docs/lab.md shows it") from None
    return parse(name, stored, str(file))


def parse(name: str, stored: Any, where: str) -> Plan:
    """A plan as its file has it, or a board; `where` is what an error begins with."""
    found = _Reader(where).plan(name, stored)
    _check(found, where)
    return found


def _check(plan: Plan, where: str) -> None:
    """What the form alone cannot say."""
    if (plan.steps is None) == (plan.flops is None):
        raise BadInput(f"{where}: expected a budget, either 'steps' or 'flops'")
    for task in plan.measure:
        if task not in TASKS:
            raise BadInput(f"{where}: measure: there is no task {task!r} without training{nearest(task, TASKS)}")
    for each in (*plan.set, *(each for trial in plan.runs.values() for each in trial.set)):
        if each.partition("=")[0] in OURS:
            raise BadInput(f"{where}: {each}: the plan decides it for all runs by 'steps' or 'flops', and 'seeds'")
    for trial in plan.runs.values():
        _check_trial(plan, trial, f"{where}: run {trial.name}")
    for run in plan.finalists.runs:
        _known("run", run, plan.runs, f"{where}: finalists")
    for task, differences in plan.finalists.tasks.items():
        _known("task", task, SETS, f"{where}: finalists")
        blamed(f"{where}: finalists: {task}", lambda: tunings(SETS[task], None, differences))  # noqa: B023 - at once
    for claim in plan.claims:
        _check_claim(plan, claim, f"{where}: claim {claim.claim!r}")


def _check_trial(plan: Plan, trial: Trial, where: str) -> None:
    if trial.vocab not in ALLOCATIONS:
        raise BadInput(f"{where}: there is no vocabulary {trial.vocab!r}{nearest(trial.vocab, ALLOCATIONS)}")
    if trial.vocab != ALLOCATIONS[0] and plan.embedded is None:
        raise BadInput(f"{where}: only plans with 'embedded' languages make vocabularies; leave 'vocab' out")
    blamed(where, lambda: plan.recipe(trial).check())


def _check_claim(plan: Plan, claim: Claim, where: str) -> None:
    for run in (claim.better, claim.worse):
        _known("run", run, plan.runs, where)
    if claim.better == claim.worse:
        raise BadInput(f"{where}: {claim.better} is compared with itself; name two runs")
    _known("task", claim.task, plan.tasks, where)
    _known("metric", claim.metric, plan.tasks[claim.task], f"{where}: {claim.task}")
    for run in (claim.better, claim.worse):
        if claim.task not in plan.tasks_of(run):
            raise BadInput(
                f"{where}: {claim.task} is for finalists and {run} is none; add it there, or take another task"
            )
    if claim.differs is not None:
        _check_differences(claim, plan.differences(claim), where)


def _check_differences(claim: Claim, found: Sequence[str], where: str) -> None:
    """A claim is of one thing, and of nothing that the runs differ in besides."""
    named = claim.differs or ()
    runs = f"{claim.better} and {claim.worse}"
    more = [key for key in found if not any(key == name or key.startswith(f"{name}.") for name in named)]
    if more:
        raise BadInput(
            f"{where}: {runs} differ in {', '.join(more)} too; make them alike there, or name it in 'differs'"
        )
    for name in named:
        if not any(key == name or key.startswith(f"{name}.") for key in found):
            raise BadInput(f"{where}: {runs} do not differ in {name!r}{nearest(name, found)}; take it out of 'differs'")


def _known(kind: str, name: str, valid: Iterable[str], where: str) -> None:
    if name not in valid:
        raise BadInput(f"{where}: there is no {kind} {name!r}{nearest(name, valid)}")


def blamed(where: str, work: Callable[[], object]) -> None:
    """What a recipe refuses, with the place in the plan it comes from."""
    try:
        work()
    except BadInput as error:
        raise BadInput(f"{where}: {error}") from None


def _part(assignment: str) -> str:
    return assignment.partition("=")[0].partition(".")[0]


@dataclass(frozen=True)
class _Reader:
    """From JSON to a plan, refusing what is not known."""

    file: str

    def plan(self, name: str, stored: Any) -> Plan:
        keys = {field.name for field in fields(Plan)} - {"name", "stored"} | {"seeds"}
        self.keys(stored, keys, ("size", "runs"), "")
        seeds = self.numbers(stored.get("seeds", [0]), "seeds")
        measure = stored.get("measure", {RETRIEVAL: [], "word-alignment": []})
        finalists = stored.get("finalists", {})
        self.keys(finalists, {"runs", "tasks"}, (), "finalists")
        embedded = stored.get("embedded")
        runs = self.objects(stored["runs"], "runs")
        if not runs:
            raise BadInput(f"{self.file}: runs: expected at least one")
        return Plan(
            name=name,
            about=self.text(stored.get("about", ""), "about"),
            size=self.text(stored["size"], "size"),
            steps=self.whole(stored.get("steps"), "steps"),
            flops=self.positive(stored.get("flops"), "flops"),
            set=self.texts(stored.get("set", []), "set"),
            looks=self.whole(stored.get("looks", 10), "looks") or 1,
            sentences=self.whole(stored.get("sentences", 200), "sentences") or 1,
            measure=self.lists(measure, "measure"),
            runs={run: self.trial(run, told, seeds) for run, told in runs.items()},
            finalists=Finalists(
                self.texts(finalists.get("runs", []), "finalists: runs"),
                self.lists(finalists.get("tasks", {}), "finalists: tasks"),
            ),
            claims=tuple(self.claim(told) for told in self.list(stored.get("claims", []), "claims")),
            embedded=None if embedded is None else settings.read(Embedded, embedded, f"{self.file}: embedded"),
            stored=stored,
        )

    def trial(self, name: str, told: Any, seeds: tuple[int, ...]) -> Trial:
        where = f"runs: {name}"
        if not _NAME.fullmatch(name):
            raise BadInput(f"{self.file}: {where}: expected a name of letters, digits, and _ . + - inside")
        self.keys(told, {field.name for field in fields(Trial)} - {"name"}, ("recipe",), where)
        return Trial(
            name,
            self.text(told["recipe"], f"{where}: recipe"),
            self.texts(told.get("set", []), f"{where}: set"),
            self.numbers(told["seeds"], f"{where}: seeds") if "seeds" in told else seeds,
            self.text(told.get("vocab", ALLOCATIONS[0]), f"{where}: vocab"),
            self.text(told.get("tuned", ""), f"{where}: tuned"),
        )

    def claim(self, told: Any) -> Claim:
        texts = ("claim", "better", "worse", "task", "metric")
        self.keys(told, (*texts, "differs"), texts, "claims")
        differs = self.texts(told["differs"], "claims: differs") if "differs" in told else None
        return Claim(**{key: self.text(told[key], f"claims: {key}") for key in texts}, differs=differs)

    def keys(self, value: Any, known: Iterable[str], needed: Iterable[str], where: str) -> None:
        place = f"{self.file}: {where}" if where else self.file
        for key in self.objects(value, where):
            if key not in known:
                raise BadInput(f"{place}: there is no {key!r}{nearest(key, known)}")
        for key in needed:
            if key not in value:
                raise BadInput(f"{place}: {key!r} is missing")

    def objects(self, value: Any, where: str) -> dict[str, Any]:
        return self._a(dict, value, where, "an object")

    def list(self, value: Any, where: str) -> list[Any]:
        return self._a(list, value, where, "a list")

    def text(self, value: Any, where: str) -> str:
        return self._a(str, value, where, "text")

    def texts(self, value: Any, where: str) -> tuple[str, ...]:
        return tuple(self.text(each, where) for each in self.list(value, where))

    def lists(self, value: Any, where: str) -> dict[str, tuple[str, ...]]:
        return {key: self.texts(each, f"{where}: {key}") for key, each in self.objects(value, where).items()}

    def numbers(self, value: Any, where: str) -> tuple[int, ...]:
        found = self.list(value, where)
        if (
            not found
            or len({*map(str, found)}) < len(found)
            or any(type(each) is not int or each < 0 for each in found)
        ):
            raise BadInput(f"{self.file}: {where}: expected different whole numbers from 0, found {value!r}")
        return tuple(found)

    def whole(self, value: Any, where: str) -> int | None:
        if value is not None and (type(value) is not int or value < 1):
            raise BadInput(f"{self.file}: {where}: expected a whole number from 1, found {value!r}")
        return value

    def positive(self, value: Any, where: str) -> float | None:
        if value is not None and (type(value) not in (int, float) or not 0 < value < float("inf")):
            raise BadInput(f"{self.file}: {where}: expected a number above 0, found {value!r}")
        return None if value is None else float(value)

    def _a(self, kind: type, value: Any, where: str, told: str) -> Any:
        if not isinstance(value, kind):
            raise BadInput(f"{self.file}: {where or 'the plan'}: expected {told}, found {value!r}")
        return value
