from __future__ import annotations

from dataclasses import replace

from crossling.model.shape import SIZES
from crossling.objectives import MLM, TLM, XLCo
from crossling.recipe import Recipe
from crossling.recipes.sizes import Budget, budget
from crossling.sampling import Sampling

PAPER = {
    "base": Budget(tokens=1_048_576, length=512, steps=150_000, warmup=10_000, lr=2e-4, clip=1.0),
    "large": Budget(tokens=1_048_576, length=512, steps=200_000, warmup=10_000, lr=1e-4, clip=1.0),
}
UNIVERSAL_LAYER = {"base": 8, "large": 12}


def infoxlm(size: str = "base") -> Recipe:
    """InfoXLM: An Information-Theoretic Framework for Cross-Lingual Language Model Pre-Training (Chi et al., 2021).

    MLM + TLM + cross-lingual contrast: momentum encoder, queue of 131,072 keys, mixup, universal layer (8 / 12).
    Run:    crossling pretrain infoxlm --shards SHARDS -o RUN --init xlm-roberta-base
    Paper:  Base 150k steps, Large 200k, of 2,048 sequences a task, on 64 V100-32GB, started from XLM-R;
            XNLI 76.2 / 81.4 (Base / Large, cross-lingual transfer), MLQA 67.9 / 49.7 (Base, F1 / EM),
            Tatoeba-14 76.0 / 80.7 (Base, xx-en / en-xx), as published.
    From the authors' code where the paper is silent: temperature 0.25, no normalisation, a projection without bias,
    15% masked on both sides of contrast, no dropout. Momentum is the paper's 0.999, their script has 0.9999.
    Deviations: mates of mixup are drawn anew each time and also cross (their code pairs neighbours on disk and never
    crosses); each loss is a mean of its own, where theirs divides the sum of all by all tokens and sentences
    (`--set reduction=token_sum`); every pair of the shards is used, theirs contain English (`--set sampling.pivot=en`).
    Tiny and small, which begin at random and at a high rate, contrast means of all states by cosine / 0.05, at
    momentum 0.99: see XLCo.beside.
    """
    plan = budget(size, PAPER)
    paper = size in PAPER
    return Recipe(
        name="infoxlm",
        model=replace(SIZES[size], relative=False, gate=False, dropout=0.0, universal_layer=UNIVERSAL_LAYER.get(size)),
        mlm=MLM(rate=0.15, keep=0.1, random=0.1, tokens=plan.tokens, length=plan.length),
        tlm=TLM(
            rate=0.15,
            keep=0.1,
            random=0.1,
            tokens=plan.tokens,
            sequences=2048 if paper else None,
            length=plan.length,
        ),
        xlco=XLCo(pairs=2048, queue=131_072, momentum=0.999, temperature=0.25, length=plan.length)
        if paper
        else XLCo.beside(plan.tokens, plan.length),
        sampling=Sampling(text_alpha=0.7, pair_alpha=0.7),
        **plan.training(),
    )
