"""The InfoXLM recipe."""

from __future__ import annotations

from dataclasses import replace

from crossling.model.model_shape import SIZES
from crossling.objectives import MLM, TLM, XLCo
from crossling.recipes.recipe import Recipe
from crossling.recipes.training_defaults import TrainingDefaults, defaults_for_size
from crossling.sampling import Sampling

PAPER = {
    "base": TrainingDefaults(tokens=1_048_576, length=512, steps=150_000, warmup=10_000, lr=2e-4, clip=1.0),
    "large": TrainingDefaults(tokens=1_048_576, length=512, steps=200_000, warmup=10_000, lr=1e-4, clip=1.0),
}
UNIVERSAL_LAYER = {"base": 8, "large": 12}


def infoxlm(size: str = "base") -> Recipe:
    """InfoXLM: An Information-Theoretic Framework for Cross-Lingual Language Model Pre-Training (Chi et al., 2021).

    MLM, TLM and cross-lingual contrastive learning (XLCo) with a momentum encoder, a queue of 131,072 keys, mixup and
    sentence vectors from the universal layer (8 / 12).

    - Command: `crossling pretrain infoxlm --shards SHARDS -o RUN --init xlm-roberta-base`
    - Cost (paper): Base 150k steps, Large 200k, of 2,048 sequences per objective on 64 V100-32GB, initialized from
      XLM-R.
    - Scores (paper): XNLI 76.2 / 81.4 (Base / Large, zero-shot transfer), MLQA 67.9 / 49.7 (Base, F1 / EM), Tatoeba-14
      76.0 / 80.7 (Base, xx-en / en-xx).

    From the authors' code, not in the paper: temperature 0.25, dot products, a projection without bias, 15% of the
    tokens masked on both sides of XLCo, no dropout. Momentum is the paper's 0.999; the script has 0.9999.

    Deviations:

    - Mixup partners are resampled at each step and may be crossed. Their code joins neighbours on disk, uncrossed.
    - Each loss is a mean. Theirs divides the sum of all by all tokens and sentences (`--set reduction=token_sum`).
    - Every pair of the shards is used. Theirs contain English (`--set sampling.pivot=en`).
    - Tiny and small start from random weights at a high learning rate. They use mean pooling, cosine / 0.05 and
      momentum 0.99: see `XLCo.sized_like`.

    Args:
        size: tiny, small, base or large.

    Returns:
        The recipe.

    Example:
        >>> crossling.recipes.infoxlm("base").xlco.queue
        131072
    """
    defaults = defaults_for_size(size, PAPER)
    sequences, xlco = None, XLCo.sized_like(defaults.tokens, defaults.length)
    if size in PAPER:
        sequences = 2048
        xlco = XLCo(pairs=2048, queue=131_072, momentum=0.999, temperature=0.25, length=defaults.length)
    return Recipe(
        name="infoxlm",
        model=replace(SIZES[size], relative=False, gate=False, dropout=0.0, universal_layer=UNIVERSAL_LAYER.get(size)),
        mlm=MLM(rate=0.15, keep=0.1, random=0.1, tokens=defaults.tokens, length=defaults.length),
        tlm=TLM(rate=0.15, keep=0.1, random=0.1, tokens=defaults.tokens, sequences=sequences, length=defaults.length),
        xlco=xlco,
        sampling=Sampling(text_alpha=0.7, pair_alpha=0.7),
        **defaults.recipe_fields(),
    )
