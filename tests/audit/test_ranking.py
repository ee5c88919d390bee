"""Ranking of a run's corpora, statistics of their rows, and messages for runs without losses."""

from __future__ import annotations

import json
import shutil
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import crossling as xl
from crossling import cli
from crossling.audit import audit
from crossling.audit.ranking import row_statistics
from crossling.core.errors import BadInput
from crossling.corpora.corpus import Corpora
from crossling.data.shards import Shards, TokenizedBitext, TokenizedSentences
from crossling.data.tokenize import tokenize
from crossling.recipes.recipe import Recipe
from crossling.train.resampling import RESAMPLING_FILE
from crossling.vocabulary.vocabulary import Vocabulary

NAMES = [f"opus en-{language}" for language in ("de", "fr", "sw", "ta", "zu")]
LOSSES = dict(zip(NAMES, (2.0, 2.1, 9.0, 0.5, 2.2), strict=True))


def write(
    run: Path, recipe: Recipe, losses: dict[str, float], baseline: dict[str, float] | None = None, **more: Any
) -> Path:
    """Write a run that was resampled once."""
    run.mkdir(parents=True, exist_ok=True)
    (run / "recipe.json").write_text(json.dumps({"format": 2, "recipe": recipe.dump(), "shards": "", "init": None}))
    first = dict.fromkeys(losses, 1 / len(losses))
    changed = {name: p * (2 if name == "opus en-sw" else 0.75) for name, p in first.items()}
    rows = [
        {
            "format": 2,
            "step": 0,
            "probabilities": first,
            "pairs": dict.fromkeys(losses, 40),
            **({"baseline": baseline} if baseline else {}),
        },
        {"step": 3, "losses": losses, "terms": {}, "means": losses, "probabilities": changed, **more},
    ]
    (run / RESAMPLING_FILE).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return run


@pytest.fixture
def recipe(full_recipe: Recipe) -> Recipe:
    return full_recipe.set(["dro=on"])


def test_corpora_are_ranked_from_hard_to_easy(recipe: Recipe, tmp_path: Path) -> None:
    groups = audit(write(tmp_path / "run", recipe, LOSSES))
    assert [group.name for group in groups] == [NAMES[number] for number in (2, 4, 1, 0, 3)]
    assert [group.loss for group in groups] == [9.0, 2.2, 2.1, 2.0, 0.5]
    assert groups[0].ratios == [pytest.approx(2.0)]
    assert groups[-1].ratios == [pytest.approx(0.75)]
    assert all(group.pairs == 40 and group.statistics is None for group in groups)


def test_deviations_are_robust_to_outliers(recipe: Recipe, tmp_path: Path) -> None:
    """The median is 2.1, and the median distance from it 0.1."""
    found = {group.name: group.deviation for group in audit(write(tmp_path / "run", recipe, LOSSES))}
    assert found == pytest.approx({name: (loss - 2.1) / 0.14826 for name, loss in LOSSES.items()}, rel=1e-3)
    worse = audit(write(tmp_path / "worse", recipe, LOSSES | {"opus en-sw": 900.0}))
    assert {group.name: group.deviation for group in worse[1:]} == pytest.approx(
        {name: value for name, value in found.items() if name != "opus en-sw"}
    )


def test_equal_losses_do_not_deviate(recipe: Recipe, tmp_path: Path) -> None:
    groups = audit(write(tmp_path / "run", recipe, dict.fromkeys(NAMES, 3.0)))
    assert [group.deviation for group in groups] == [0.0] * 5


def test_a_loss_of_nan_is_not_ranked(recipe: Recipe, tmp_path: Path) -> None:
    groups = audit(write(tmp_path / "run", recipe, LOSSES | {NAMES[0]: float("nan")}))
    assert [group.name for group in groups] == [NAMES[number] for number in (2, 4, 1, 3)]


def test_corpora_without_a_loss_are_named(recipe: Recipe, tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="not evaluated, with fewer than 20 pairs or without a baseline: opus en-zu"):
        audit(write(tmp_path / "run", recipe, LOSSES | {NAMES[4]: float("nan")}))


def test_the_baseline_is_subtracted(recipe: Recipe, tmp_path: Path) -> None:
    """The run stores the baseline, since the other run may be gone."""
    recipe = recipe.set(["dro.baseline=runs/plain"])
    groups = audit(write(tmp_path / "run", recipe, LOSSES, LOSSES | {"opus en-sw": 8.9, "opus en-ta": 0.1}))
    assert [group.name for group in groups][:2] == ["opus en-ta", "opus en-sw"]
    assert groups[0].loss == pytest.approx(0.4)


# ---- statistics of rows -----------------------------------------------------------------------------------------


ROWS = [
    ("eins zwei", "one two"),
    ("drei", "drei"),
    ("vier", "one two"),
    ("acht", "eight"),
    ("neun", "nine"),
    ("zehn", "zehn"),
]


@pytest.fixture
def bitext(vocabulary_folder: Path, tmp_path: Path) -> Shards:
    (tmp_path / "corpora" / "pairs").mkdir(parents=True)
    lines = "".join(f"{source}\t{target}\n" for source, target in ROWS)
    (tmp_path / "corpora" / "pairs" / "opus.de-en.tsv").write_text(lines, encoding="utf-8")
    return tokenize(Corpora(tmp_path / "corpora"), vocabulary_folder, tmp_path / "shards")


def test_copies_and_repeats_are_counted_by_row(bitext: Shards) -> None:
    found = row_statistics(bitext.bitexts[0], Vocabulary.load(bitext.vocabulary_path))
    assert (found.copies, found.repeats) == pytest.approx((2 / 6, 2 / 6))
    assert len(found.lines) == 3
    assert all(source and target and "</s>" not in source for source, target in found.lines)


def create_bitext(*sides: list[list[int]]) -> TokenizedBitext:
    """Create a bitext with these token IDs."""
    source, target = (
        TokenizedSentences(np.array([*chain.from_iterable(side)], np.uint16), np.cumsum([0, *map(len, side)]))
        for side in sides
    )
    both = sum(bool(a and b) for a, b in zip(*sides, strict=True))
    return TokenizedBitext(corpus="opus", languages=("de", "en"), sides=(source, target), pairs=both, corpus_id=0)


@pytest.mark.parametrize(("number", "chunk"), [(50, 3), (50, 7), (30_000, 1 << 16)])
def test_repeated_rows_are_found_at_any_distance(
    number: int, chunk: int, bitext: Shards, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each row occurs twice, side by side or far from each other."""
    monkeypatch.setattr(import_module("crossling.audit.ranking"), "ROWS_PER_CHUNK", chunk)
    vocabulary = Vocabulary.load(bitext.vocabulary_path)
    rows = [[10 + row % 200, 10 + row // 200, 2] for row in range(number)]
    other = [[9, *ids] for ids in rows]
    twice = [ids for ids in rows for _ in range(2)], [ids for ids in other for _ in range(2)]
    for sides in (twice, (rows + rows, other + other)):
        found = row_statistics(create_bitext(*sides), vocabulary)
        assert (found.copies, found.repeats) == (0.0, 1.0)
    found = row_statistics(create_bitext(rows, [*rows[:10], *other[10:]]), vocabulary)
    assert (found.copies, found.repeats) == (10 / number, 0.0)
    assert len(found.lines) == 3


def test_rows_with_an_empty_side_do_not_count(bitext: Shards) -> None:
    """Two empty sides are no copy."""
    empty: list[int] = []
    source = [[5, 2], empty, [5, 2], empty, [6, 2], [7, 2], empty]
    target = [[8, 2], [8, 2], empty, empty, [6, 2], [9, 2], empty]
    found = row_statistics(create_bitext(source, target), Vocabulary.load(bitext.vocabulary_path))
    assert (found.copies, found.repeats) == (1 / 3, 0.0)
    assert len(found.lines) == 3


def test_shards_add_statistics(recipe: Recipe, bitext: Shards, tmp_path: Path) -> None:
    [group] = audit(write(tmp_path / "run", recipe, {"opus.de-en de-en": 2.0}), bitext)
    assert group.statistics is not None
    assert group.dump()["statistics"]["copies"] == pytest.approx(1 / 3)


def test_other_shards_are_refused(recipe: Recipe, bitext: Shards, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="the run was trained on other corpora"):
        audit(write(tmp_path / "run", recipe, LOSSES), bitext)


# ---- runs without losses ------------------------------------------------------------------------------------------


def test_a_run_without_dro_gets_a_command_to_run(full_recipe: Recipe, tmp_path: Path) -> None:
    run = write(tmp_path / "run", full_recipe, LOSSES)
    (run / RESAMPLING_FILE).unlink()
    with pytest.raises(BadInput, match=r"crossling pretrain xlm_e --shards SHARDS -o RUN --set dro=on"):
        audit(run)


def test_the_command_adds_bitext_if_the_run_has_none(tmp_path: Path) -> None:
    recipe = xl.recipes.xlm_r("tiny")
    run = write(tmp_path / "run", recipe, LOSSES)
    (run / RESAMPLING_FILE).unlink()
    with pytest.raises(BadInput, match=r"xlm_r --shards SHARDS -o RUN --set tlm=on --set dro=on"):
        audit(run)
    assert recipe.set(["tlm=on", "dro=on"]).dro  # a valid recipe


def test_a_run_before_its_first_resampling_is_refused(recipe: Recipe, tmp_path: Path) -> None:
    run = write(tmp_path / "run", recipe, LOSSES)
    (run / RESAMPLING_FILE).write_text((run / RESAMPLING_FILE).read_text().splitlines()[0] + "\n")
    with pytest.raises(BadInput, match="no corpus has been evaluated yet"):
        audit(run)


def test_a_run_of_small_corpora_is_refused(recipe: Recipe, tmp_path: Path) -> None:
    run = write(tmp_path / "run", recipe, LOSSES, means={})
    with pytest.raises(BadInput, match="Only corpora of at least 20 pairs are evaluated"):
        audit(run)


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no run found"):
        audit(tmp_path / "nothing")


# ---- the command --------------------------------------------------------------------------------------------------


def test_the_command_prints_both_ends_and_writes_all(recipe: Recipe, tmp_path: Path) -> None:
    run = write(tmp_path / "run", recipe, LOSSES)
    ended = CliRunner().invoke(cli.app, ["audit", str(run), "--ends", "2", "-o", str(tmp_path / "all.json")])
    assert ended.exit_code == 0, ended.output
    printed = [line.split()[2] for line in ended.output.splitlines() if "opus" in line]
    assert printed == ["en-sw", "en-zu", "en-de", "en-ta"]
    kept = json.loads((tmp_path / "all.json").read_text())
    assert [group["name"] for group in kept] == [group.name for group in audit(run)]


def test_overlapping_ends_are_printed_once(recipe: Recipe, tmp_path: Path) -> None:
    run = write(tmp_path / "run", recipe, LOSSES)
    ended = CliRunner().invoke(cli.app, ["audit", str(run), "--ends", "4"])
    assert sum("opus" in line for line in ended.output.splitlines()) == 5


def test_the_command_prints_lines_and_statistics_of_shards(recipe: Recipe, bitext: Shards, tmp_path: Path) -> None:
    run = write(tmp_path / "run", recipe, {"opus.de-en de-en": 2.0})
    ended = CliRunner().invoke(cli.app, ["audit", str(run), "--shards", str(bitext.path)])
    assert ended.exit_code == 0, ended.output
    assert "33%" in ended.output
    assert "opus.de-en: " in ended.output
    assert " ||| " in ended.output
    ended = CliRunner().invoke(cli.app, ["audit", str(run), "--shards", str(bitext.path), "--json"])
    [row] = map(json.loads, ended.stdout.splitlines())
    assert row["name"] == "opus.de-en de-en"
    assert len(row["statistics"]["lines"]) == 3


def test_copied_bitext_is_the_easiest(
    full_recipe: Recipe, corpora_folder: Path, vocabulary_folder: Path, tmp_path: Path
) -> None:
    """Even an untrained network finds the same sentence among others."""
    corpora = shutil.copytree(corpora_folder, tmp_path / "corpora")
    lines = (corpora / "pairs" / "synthetic.qaa-qab.tsv").read_text(encoding="utf-8").splitlines()
    copied = "".join(f"{line.split(chr(9))[0]}\t{line.split(chr(9))[0]}\n" for line in lines)
    (corpora / "pairs" / "copied.qaa-qab.tsv").write_text(copied, encoding="utf-8")
    shards = xl.tokenize(Corpora(corpora), vocabulary_folder, tmp_path / "shards")
    changes = ["mrtd=off", "trtd=off", "xlco.queue=0", "xlco.mixup=false", "xlco.pooling=mean", "xlco.normalize=true"]
    recipe = full_recipe.set([*changes, "xlco.temperature=0.05", "steps=2", "optimizer.warmup=1", "dro.times=1"])
    xl.pretrain(recipe, shards, tmp_path / "run")
    groups = xl.audit(tmp_path / "run", shards)
    assert len(groups) > 3
    assert groups[-1].name == "copied.qaa-qab qaa-qab"
    assert groups[-1].statistics is not None
    assert groups[-1].statistics.copies == 1.0
    assert groups[-1].deviation < -1 < groups[-2].deviation
    assert groups[-1].ratios[-1] < min(group.ratios[-1] for group in groups[:-1])
