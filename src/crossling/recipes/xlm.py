"""The recipes of XLM-R (MLM) and XLM (MLM and TLM)."""

from __future__ import annotations

from dataclasses import replace

from crossling.model.model_shape import SIZES
from crossling.objectives import MLM, TLM
from crossling.recipes.recipe import Recipe
from crossling.recipes.training_defaults import TrainingDefaults, defaults_for_size
from crossling.sampling import Sampling

PAPER = {
    "base": TrainingDefaults(tokens=4_194_304, length=512, steps=1_500_000, warmup=10_000, lr=5e-4),
    "large": TrainingDefaults(tokens=4_194_304, length=512, steps=1_500_000, warmup=10_000, lr=2e-4),
}


def xlm_r(size: str = "base") -> Recipe:
    """XLM-R: Unsupervised Cross-lingual Representation Learning at Scale (Conneau et al., 2020).

    Masked language modelling on multilingual text, with absolute positions only.

    - Command: `crossling pretrain xlm_r --shards SHARDS -o RUN`
    - Cost (paper): 1.5M steps of 8,192 sequences on 500 V100.
    - Scores (paper): XNLI 76.2 / 80.9 (Base / Large, zero-shot transfer; InfoXLM Table 1).

    Not given in the paper: peak learning rate and warm-up are those of XLM-E (Base) and XY-LENT (Large), for
    comparison. Gradients are clipped at 1.0. Dropout is 0.1, of attention weights too, as in the released models.

    Args:
        size: tiny, small, base or large.

    Returns:
        The recipe.

    Example:
        >>> crossling.recipes.xlm_r("base").sampling.text_alpha
        0.3
    """
    defaults = defaults_for_size(size, PAPER)
    return Recipe(
        name="xlm_r",
        model=replace(SIZES[size], relative=False, gate=False, attention_dropout=0.1),
        mlm=MLM(rate=0.15, keep=0.1, random=0.1, tokens=defaults.tokens, length=defaults.length),
        sampling=Sampling(text_alpha=0.3, pair_alpha=0.3),
        **defaults.recipe_fields(),
    )


def xlm(size: str = "base") -> Recipe:
    """XLM: Cross-lingual Language Model Pretraining (Conneau and Lample, 2019), on XLM-R's architecture.

    Masked language modelling on text (MLM) and on joined translation pairs (TLM).

    - Command: `crossling pretrain xlm --shards SHARDS -o RUN`
    - Cost: twice that of a step of `xlm_r`.
    - Scores (paper): XNLI 75.1 (15 languages; InfoXLM Table 1), 73.4 in XLM-E's setup (its Table 2).

    Deviations: no language embeddings and no reset of positions, as in all later models. All else is that of `xlm_r`,
    with the paper's sampling exponent 0.7.

    Args:
        size: tiny, small, base or large.

    Returns:
        The recipe.

    Example:
        >>> list(crossling.recipes.xlm("base").objectives)
        ['mlm', 'tlm']
    """
    base = xlm_r(size)
    assert base.mlm is not None
    return base.replace(
        name="xlm",
        tlm=TLM(rate=0.15, keep=0.1, random=0.1, tokens=base.mlm.tokens, length=base.mlm.length),
        sampling=replace(base.sampling, text_alpha=0.7, pair_alpha=0.7),
    )
