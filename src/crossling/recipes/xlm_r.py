from __future__ import annotations

from dataclasses import replace

from crossling.model.shape import SIZES
from crossling.objectives import MLM
from crossling.recipe import Recipe
from crossling.recipes.sizes import Budget, budget
from crossling.sampling import Sampling
from crossling.train.optimizer import Adam

PAPER = {
    "base": Budget(tokens=4_194_304, length=512, steps=1_500_000, warmup=10_000, lr=5e-4),
    "large": Budget(tokens=4_194_304, length=512, steps=1_500_000, warmup=10_000, lr=2e-4),
}


def xlm_r(size: str = "base") -> Recipe:
    """XLM-R: Unsupervised Cross-lingual Representation Learning at Scale (Conneau et al., 2020).

    Masked language modelling on multilingual text, absolute positions only.
    Run:    crossling pretrain xlm_r --shards SHARDS -o RUN
    Paper:  1.5M steps of 8,192 sequences on 500 V100; sampling exponent 0.3.
    Where the paper is silent (peak rate, warm-up) the values are those of XLM-E, so that the two can be compared.
    """
    plan = budget(size, PAPER)
    return Recipe(
        name="xlm_r",
        model=replace(SIZES[size], relative=False, gate=False),
        mlm=MLM(rate=0.15, keep=0.1, random=0.1, tokens=plan.tokens, length=plan.length),
        sampling=Sampling(text_alpha=0.3, pair_alpha=0.3),
        optimizer=Adam(warmup=plan.warmup, beta1=0.9, beta2=0.98, epsilon=1e-6, decay=0.01, clip=plan.clip),
        lr=plan.lr,
        steps=plan.steps,
        checkpoint_every=min(1000, plan.steps // 20),
    )
