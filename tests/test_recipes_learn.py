"""Every recipe learns: on three embedded languages its loss falls and its states begin to mean the same across them.

In these few minutes of a CPU words are found across languages (alignment) before sentences are (retrieval), for which
contrast alone has the time; figures of longer runs are in docs/recipes.md.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from crossling.babel import babel
from crossling.corpora.corpus import Corpora
from crossling.data.encode import encode
from crossling.data.shards import Shards
from crossling.evaluate.evaluate import evaluate
from crossling.evaluate.scores import summary
from crossling.load import load
from crossling.recipe import Recipe, pretrain
from crossling.recipes import RECIPES, named
from crossling.vocabulary.vocab import vocab

STEPS, TOKENS = 400, 2048
pytestmark = pytest.mark.soak


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("world")
    babel(out / "babel", languages=3, sentences=6000, lemmas=300, test_sentences=200)
    vocab(Corpora(out / "babel" / "corpora"), 1200, out / "vocab")
    encode(Corpora(out / "babel" / "corpora"), out / "vocab", out / "shards")
    return out


def measured(recipe: Recipe, world: Path, run: Path) -> dict[str, float]:
    """The first and the last mean loss, retrieval and alignment errors at their best layers."""
    pretrain(recipe, Shards.open(world / "shards"), run)
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    best = {each.task: each.best for each in summary(evaluate(load(run), [*TASKS], world / "babel" / "data"))}
    return {"first": rows[0]["loss"], "last": rows[-1]["loss"], **best}


TASKS = ("tatoeba", "word-alignment")


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_learns(name: str, world: Path, tmp_path: Path) -> None:
    recipe = named(name, "tiny")
    tasks = [f"{each}.tokens={TOKENS}" for each, task in recipe.objectives.items() if hasattr(task, "tokens")]
    recipe = recipe.set([*tasks, f"steps={STEPS}", "log_every=20", "model.dropout=0"])
    after = measured(recipe, world, tmp_path / "after")
    before = measured(recipe.set(["steps=1", "optimizer.warmup=0", "lr=1e-30"]), world, tmp_path / "before")
    print(f"{name}: before {before}, after {after}")
    assert after["last"] < 0.8 * after["first"]
    if any(objective.stream == "pairs" for objective in recipe.objectives.values()):  # text alone takes longer
        assert after["word-alignment"] < before["word-alignment"] - 2
    if recipe.xlco:
        assert after["tatoeba"] > before["tatoeba"] + 20
