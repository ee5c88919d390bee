"""Model card of an exported run: recipe, data, training cost and scores."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel

from crossling.core.errors import BadInput
from crossling.core.files import template_environment
from crossling.core.progress import format_count, format_duration
from crossling.evaluate.retrieval import group_by_paper_list
from crossling.export.publish import model_index
from crossling.model.config import CrosslingConfig
from crossling.model.encoder_model import CrosslingModel
from crossling.model.model_shape import SIZES
from crossling.model.native_encoder import NativeEncoder, find_decoder
from crossling.recipes import RECIPES, get_recipe
from crossling.recipes.recipe import OBJECTIVES, Recipe
from crossling.recipes.run_checkpoints import find_checkpoint, run_of
from crossling.tasks import scores
from crossling.train import checkpoint


@dataclass(frozen=True)
class BestScore:
    """Mean score of a task over languages and directions, at its best layer."""

    task: str
    protocol: str
    metric: str
    split: str
    layer: int
    value: float


@dataclass(frozen=True)
class RunSummary:
    """Description of a run for the model card and export.json."""

    recipe: dict[str, Any]
    size: str | None  # of the named recipe; None if no recipe has this name
    differences: list[str]  # from the named recipe, as KEY=VALUE
    step: int
    tokens: int
    seconds: float
    shards: str  # fingerprint
    text: dict[str, int]  # tokens of each language
    pairs: list[tuple[str, str, int]]  # number of translation pairs of two languages
    started_from: str | None  # model that the run was initialized from
    scores: list[BestScore]
    merged: list[str] = field(default_factory=list)  # checkpoints whose mean this is, each with its weight


def summarize_run(run: Path) -> RunSummary:
    """Describe a run at its latest complete checkpoint, or at RUN/checkpoints/STEP."""
    files = (run_of(run) or run) / "recipe.json", find_checkpoint(run) / checkpoint.STATE
    recipe = Recipe.load(files[0])
    size, differences = nearest_recipe(recipe)
    stored, state = (json.loads(file.read_text(encoding="utf-8")) for file in files)
    data, init = stored.get("data") or {}, stored.get("init") or {}
    source = init.get("model")
    return RunSummary(
        recipe=recipe.dump(),
        size=size,
        differences=differences,
        step=state["step"],
        tokens=state.get("tokens", 0),
        seconds=state.get("seconds", 0.0),
        shards=stored.get("shards", ""),
        text=data.get("text", {}),
        pairs=[(first, second, count) for first, second, count in data.get("pairs", [])],
        # Only the name of a local folder means something to others.
        started_from=Path(source).name if source and Path(source).is_absolute() else source,
        scores=_read_scores(run),
    )


def nearest_recipe(recipe: Recipe) -> tuple[str | None, list[str]]:
    """Return the size of the recipe of this name with the fewest differences, and the differences."""
    differences = {}
    for size in (*SIZES, "ablation") if recipe.name in RECIPES else ():
        try:
            differences[size] = list(_list_differences(get_recipe(recipe.name, size), recipe))
        except BadInput:  # the recipe has no such size
            continue
    if not differences:
        return None, []
    nearest = min(differences, key=lambda size: len(differences[size]))
    return nearest, differences[nearest]


def _list_differences(start: Recipe, end: Recipe) -> Iterator[str]:
    """Yield the assignments that change `start` to `end`."""
    switches = [
        f"{name}={'off' if getattr(end, name) is None else 'on'}"
        for name in OBJECTIVES
        if (getattr(start, name) is None) != (getattr(end, name) is None)
    ]
    yield from switches
    settings = dict(start.set(switches).settings())
    for key, value in end.settings():
        if settings[key] != value and key != "model.native":  # a whole configuration
            text = value if isinstance(value, str) else "none" if value is None else json.dumps(value)
            yield f"{key}={text}"


def _read_scores(run: Path) -> list[BestScore]:
    """Return the best score of every task in the run's scores.jsonl."""
    file = run / "scores.jsonl"
    name = run.resolve().name
    rows = [row for row in scores.read_scores(file) if Path(row["model"]).name == name] if file.is_file() else []
    return [
        BestScore(best.task, best.protocol, best.metric, best.split, layer=best.best_layer, value=best.best)
        for best in scores.summarize_layers([*rows, *group_by_paper_list(rows)])
    ]


def render_model_card(
    name: str,
    summary: RunSummary,
    *,
    encoder: CrosslingModel | NativeEncoder,
    config: CrosslingConfig,
    models: Mapping[str, PreTrainedModel],
    standalone: bool,
    family: str,
    precision: str,
    onnx: str | None = None,
    license: str | None = None,
) -> str:
    """Return the text of README.md.

    Args:
        name: Name of the exported folder.
        summary: Description of the run.
        encoder: Trained encoder.
        config: Exported configuration, which may have fewer layers.
        models: Exported models by subfolder. `.` is the root.
        standalone: The folder has the model code.
        family: Architecture of the exported models.
        precision: Precision of the weights in the file.
        onnx: Kind of the ONNX files, if the folder has any.
        license: Licence, if it is known.
    """
    environment = template_environment(Path(__file__).parent, escape=False)
    environment.filters |= {"compact": format_count, "duration": format_duration, "quoted": json.dumps}
    recipe = summary.recipe
    return environment.get_template("model_card.md.jinja").render(
        name=name,
        run=summary,
        recipe=recipe,
        description=_describe_recipe(recipe["name"]),
        objectives=[objective for objective in OBJECTIVES if recipe[objective]],
        languages=_count_by_language(summary),
        config=config,
        trained_layers=encoder.config.num_hidden_layers,
        architecture=type(models["."]).__name__,
        masked_lm=next((path for path, model in models.items() if _has_lm_head(model)), None),
        parameters={path: model.num_parameters() for path, model in models.items()},
        flops=6 * summary.tokens * sum(weight.numel() for block in encoder.blocks for weight in block.parameters()),
        standalone=standalone,
        family=family,
        precision=precision,
        onnx=onnx,
        license=license,
        index=model_index(name, summary.scores),
    )


def _has_lm_head(model: PreTrainedModel) -> bool:
    return hasattr(model, "lm_head") or find_decoder(model) is not None


def _describe_recipe(recipe: str) -> str:
    """Return the first line of the recipe's docstring."""
    docstring = RECIPES[recipe].__doc__ if recipe in RECIPES else None
    return docstring.splitlines()[0] if docstring else ""


def _count_by_language(summary: RunSummary) -> dict[str, tuple[int, int]]:
    """Return the tokens and the translation pairs of each language, the largest first."""
    pairs = dict.fromkeys(summary.text, 0)
    for first, second, count in summary.pairs:
        for language in (first, second):
            pairs[language] = pairs.get(language, 0) + count
    counts = {language: (summary.text.get(language, 0), count) for language, count in pairs.items()}
    return dict(sorted(counts.items(), key=lambda item: (-item[1][0], -item[1][1], item[0])))
