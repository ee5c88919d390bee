from __future__ import annotations

from dataclasses import replace

from crossling.model.shape import SIZES, Shape
from crossling.objectives import CAMLM, CATLM, TLM
from crossling.recipe import Recipe
from crossling.recipes.sizes import Budget, budget
from crossling.sampling import Sampling

PAPER = {
    "ablation": Budget(tokens=524_288, length=512, steps=240_000, warmup=12_000, lr=3e-4, clip=1.0),
    "base": Budget(tokens=524_288, length=512, steps=240_000, warmup=12_000, lr=2e-4, clip=1.0),
    "large": Budget(tokens=524_288, length=512, steps=240_000, warmup=12_000, lr=2e-4, clip=1.0),
}
ABLATION = Shape(layers=6, width=768, heads=12, feed_forward=3072, generator_layers=2)


def veco(size: str = "large") -> Recipe:
    """VECO: Variable and Flexible Cross-lingual Pre-training for Understanding and Generation (Luo et al., 2021).

    An encoder with a cross-attention module in every layer that can be plugged in and out: CA-MLM on adjacent segments
    of text and on translation pairs, in turn, with TLM on the pairs.
    Run:    crossling pretrain veco --size large --shards SHARDS -o RUN --init xlm-roberta-large
    Paper:  Large (662M), 240k steps, batches of 1,024 (text) and 4,096 (pairs), on 64 V100-32GB, started from XLM-R;
            XTREME 73.1 (transfer) and 81.0 (translate-train-all, plugged in), WMT14 En-De 30.6 sacreBLEU as published.
            `ablation` is its small model of Table 5 (247M: 6 layers of 768, 33 languages, started from nothing).
    Started from a model, only cross-attention learns at first, as in the paper, which does not say how long: here
    through the warm-up (`freeze_steps`). Started from nothing, everything learns from the first step.
    Deviations: each of the four terms is a mean; the query of cross-attention is what self-attention gave (see
    objectives/ca_mlm.py); lengths of 512 and 128 are read as those of a pair's two sequences together. `base` is ours,
    with the hyperparameters of Large. The paper gives no clipping: 1.0. Of a model without a language model head that
    head is new, and learns from the first step too.
    """
    plan = budget(size, PAPER)
    shape = ABLATION if size == "ablation" else SIZES[size]
    paper = size in PAPER
    pair_length = 128 if paper else plan.length
    pairs = 4096 if paper else None
    return Recipe(
        name="veco",
        model=replace(shape, relative=False, gate=False, cross_attention=True, dropout=0.1, attention_dropout=0.1),
        ca_mlm=CAMLM(rate=0.15, tokens=plan.tokens, sequences=1024 if paper else None, length=plan.length),
        ca_tlm=CATLM(rate=0.25, tokens=plan.tokens, sequences=pairs, length=pair_length),
        tlm=TLM(rate=0.25, keep=0.1, random=0.1, tokens=plan.tokens, sequences=pairs, length=pair_length),
        alternate=True,
        freeze_steps=12_000 if paper else round(plan.warmup * plan.steps),
        sampling=Sampling(text_alpha=0.5, pair_alpha=0.5),
        **plan.training(beta2=0.999 if size == "ablation" else 0.98),
    )
