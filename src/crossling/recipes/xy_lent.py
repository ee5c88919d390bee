from __future__ import annotations

from crossling.model.shape import SIZES
from crossling.objectives import MRTD, TRTD
from crossling.recipe import Recipe
from crossling.recipes.sizes import Budget, budget
from crossling.sampling import Sampling

PAPER = {
    "base": Budget(tokens=4_194_304, length=512, steps=125_000, warmup=10_000, lr=8e-4, clip=2.0),
    "large": Budget(tokens=1_048_576, length=512, steps=500_000, warmup=10_000, lr=2e-4, clip=1.0),
    "xl": Budget(tokens=4_194_304, length=512, steps=150_000, warmup=10_000, lr=1e-4, clip=1.0),
}


def xy_lent(size: str = "base") -> Recipe:
    """XY-LENT: Beyond English-Centric Bitexts for Better Multilingual Language Representation (Patra et al., 2023).

    XLM-E on translation pairs between any two languages, drawn so that each language has its smoothed share (§3.2),
    with a vocabulary of 500k pieces (`crossling vocab --size 500000 --allocate vocap`).
    Run:    crossling pretrain xy_lent --shards SHARDS -o RUN
    Paper:  Base and Large on 128 A100-40GB, XL on 512 A100-80GB; 477M / 814M / 2.1B parameters;
            XNLI 80.5 / 83.0 / 84.8, average of five tasks 3.1 / 1.8 / 0.9 points above XLM-E, as published.
    Where the paper is silent: the temperature of sampling is 1 / 0.7 as for text; everything XLM-E leaves open as in
    `xlm_e`. [CLS] is never masked and a pair is turned with probability 0.5 in every recipe here, not only in this one.
    Its lambda stands at the generator's loss in Eq. 3; here as in XLM-E and ELECTRA, at the discriminator's.
    Where the pairs cannot give each language its share (all of them with English, say), the languages are named;
    `--set sampling.relax=true` takes the closest shares.
    """
    plan = budget(size, PAPER)
    return Recipe(
        name="xy_lent",
        model=SIZES[size],
        mrtd=MRTD(rate=0.15, lambda_=50.0, tokens=plan.tokens, length=plan.length),
        trtd=TRTD(rate=0.15, lambda_=50.0, tokens=plan.tokens, length=plan.length),
        sampling=Sampling(text_alpha=0.7, pair_rule="xy_lent", pair_alpha=0.7),
        **plan.training(),
    )
