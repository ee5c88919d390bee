from __future__ import annotations

from dataclasses import replace

from crossling.model.shape import SIZES
from crossling.objectives import MLM
from crossling.recipe import Recipe
from crossling.recipes.sizes import Budget, budget
from crossling.sampling import Sampling

PAPER = {
    "base": Budget(tokens=4_194_304, length=512, steps=1_500_000, warmup=10_000, lr=5e-4),
    "large": Budget(tokens=4_194_304, length=512, steps=1_500_000, warmup=10_000, lr=2e-4),
}


def xlm_r(size: str = "base") -> Recipe:
    """XLM-R: Unsupervised Cross-lingual Representation Learning at Scale (Conneau et al., 2020).

    Masked language modelling on multilingual text, absolute positions only.
    Run:    crossling pretrain xlm_r --shards SHARDS -o RUN
    Paper:  1.5M steps of 8,192 sequences on 500 V100; sampling exponent 0.3;
            XNLI 76.2 / 80.9 (Base / Large, cross-lingual transfer; InfoXLM Table 1), as published.
    Where the paper is silent, peak rate and warm-up are those of XLM-E (Base) and XY-LENT (Large), so that they can be
    compared; clipping 1.0; dropout 0.1, of attention weights too, as in the released models.
    """
    plan = budget(size, PAPER)
    return Recipe(
        name="xlm_r",
        model=replace(SIZES[size], relative=False, gate=False, attention_dropout=0.1),
        mlm=MLM(rate=0.15, keep=0.1, random=0.1, tokens=plan.tokens, length=plan.length),
        sampling=Sampling(text_alpha=0.3, pair_alpha=0.3),
        **plan.training(),
    )
