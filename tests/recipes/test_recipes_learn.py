"""Every recipe learns on three synthetic languages: its loss falls and its representations become cross-lingual.

In a few minutes on a CPU word alignment improves before sentence retrieval, for which only contrastive learning has
enough time. Figures of longer runs are in docs/concepts/recipes.md.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from crossling.corpora.corpus import Corpora
from crossling.data.shards import Shards
from crossling.data.tokenize import tokenize
from crossling.evaluate.evaluate import evaluate
from crossling.inference.load import load
from crossling.recipes import RECIPES, get_recipe
from crossling.recipes.pretrain import pretrain
from crossling.recipes.recipe import Recipe
from crossling.synthetic import synth
from crossling.tasks.scores import summarize_layers
from crossling.vocabulary.build_vocabulary import vocab

STEPS, TOKENS = 400, 2048
pytestmark = pytest.mark.soak


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("world")
    synth(out / "synth", languages=3, sentences=6000, lemmas=300, test_sentences=200)
    vocab(Corpora(out / "synth" / "corpora"), out / "vocab", size=1200)
    tokenize(Corpora(out / "synth" / "corpora"), out / "vocab", out / "shards")
    return out


def train_and_score(recipe: Recipe, world: Path, run: Path) -> dict[str, float]:
    """Return the first and last mean loss, and retrieval accuracy and AER at their best layers."""
    pretrain(recipe, Shards.open(world / "shards"), run)
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    best = {each.task: each.best for each in summarize_layers(evaluate(load(run), [*TASKS], world / "synth" / "data"))}
    return {"first": rows[0]["loss"], "last": rows[-1]["loss"], **best}


TASKS = ("tatoeba", "word-alignment")


@pytest.mark.parametrize("name", RECIPES)
def test_recipe_learns(name: str, world: Path, tmp_path: Path) -> None:
    recipe = get_recipe(name, "tiny")
    tasks = [f"{each}.tokens={TOKENS}" for each, task in recipe.objectives.items() if task.tokens]
    recipe = recipe.set([*tasks, f"steps={STEPS}", "log_every=20", "model.dropout=0"])
    after = train_and_score(recipe, world, tmp_path / "after")
    before = train_and_score(recipe.set(["steps=1", "optimizer.warmup=0", "lr=1e-30"]), world, tmp_path / "before")
    print(f"{name}: before {before}, after {after}")
    assert after["last"] < 0.8 * after["first"]
    if any(objective.stream == "pairs" for objective in recipe.objectives.values()):  # text alone takes longer
        assert after["word-alignment"] < before["word-alignment"] - 2
    if recipe.xlco:
        assert after["tatoeba"] > before["tatoeba"] + 20
