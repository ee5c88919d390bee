"""The model card: Hugging Face's header and what a reader should know, all of it from the run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from transformers import PreTrainedModel

from crossling.evaluate.charts import compact
from crossling.export.facts import Facts
from crossling.model.config import CrosslingConfig
from crossling.model.transformer import CrosslingModel
from crossling.progress import duration
from crossling.recipe.recipe import OBJECTIVES
from crossling.recipes import RECIPES
from crossling.templates import templates


def card(
    name: str,
    facts: Facts,
    encoder: CrosslingModel,
    config: CrosslingConfig,
    models: Mapping[str, PreTrainedModel],
    standalone: bool,
    family: str,
    precision: str,
) -> str:
    """The text of README.md for the folder `name`: `encoder` was trained, `config` and `models` are what is in the
    folder, the models by the folder inside it."""
    environment = templates(Path(__file__).parent, markup=False)  # Markdown, from numbers and codes
    environment.filters |= {"compact": compact, "duration": duration, "quoted": json.dumps}
    recipe = facts.recipe
    return environment.get_template("model_card.md.jinja").render(
        name=name,
        facts=facts,
        recipe=recipe,
        paper=_paper(recipe["name"]),
        objectives=[objective for objective in OBJECTIVES if recipe[objective]],
        languages=_languages(facts),
        config=config,
        trained_layers=encoder.config.num_hidden_layers,
        architecture=type(models["."]).__name__,
        masked_lm=next((path for path, model in models.items() if hasattr(model, "lm_head")), None),
        parameters={path: model.num_parameters() for path, model in models.items()},
        flops=6 * facts.tokens * sum(weight.numel() for weight in encoder.get_submodule("blocks").parameters()),
        standalone=standalone,
        family=family,
        precision=precision,
    )


def _paper(recipe: str) -> str:
    """The first line of what a recipe says of itself."""
    described = RECIPES[recipe].__doc__ if recipe in RECIPES else None
    return described.splitlines()[0] if described else ""


def _languages(facts: Facts) -> dict[str, tuple[int, int]]:
    """Tokens of text, and pairs in which the language stands; the largest first."""
    pairs = dict.fromkeys(facts.text, 0)
    for first, second, count in facts.pairs:
        for language in (first, second):
            pairs[language] = pairs.get(language, 0) + count
    found = {language: (facts.text.get(language, 0), count) for language, count in pairs.items()}
    return dict(sorted(found.items(), key=lambda item: (-item[1][0], -item[1][1], item[0])))
