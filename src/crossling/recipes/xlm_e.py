"""The XLM-E recipe."""

from __future__ import annotations

from crossling.model.model_shape import SIZES
from crossling.objectives import MRTD, TRTD
from crossling.recipes.recipe import Recipe
from crossling.recipes.training_defaults import TrainingDefaults, defaults_for_size
from crossling.recipes.xy_lent import PAPER as XY_LENT
from crossling.sampling import Sampling

PAPER = {
    **XY_LENT,
    "base": TrainingDefaults(tokens=1_048_576, length=512, steps=125_000, warmup=10_000, lr=5e-4, clip=2.0),
}


def xlm_e(size: str = "base") -> Recipe:
    """XLM-E: Cross-lingual Language Model Pre-training via ELECTRA (Chi et al., ACL 2022).

    Multilingual and translation replaced token detection with a small generator, and a gated relative position bias.

    - Command: `crossling pretrain xlm_e --shards SHARDS -o RUN`
    - Cost (paper): Base, 125k steps of 1M tokens for each of the two objectives, 1.7 days on 64 A100.
    - Scores (paper): XTREME average 69.3, Tatoeba-36 65.0 / 62.3 (en-xx / xx-en), word alignment AER 19.32.

    Not given in the paper:

    - Masking rate 15%, and every chosen token becomes the mask token.
    - Relative positions in 32 buckets up to distance 128, with absolute positions beside them.
    - The gate has the form of the authors' released speech models: u and v are sums of four vectors each, with biases,
      and w is one number for each head. Section 3.3 has neither sums nor biases: `--set model.plain_gate=true`.
    - Dropout 0.1 in the discriminator, except for attention weights, and none in the generator.
    - One token table for both.
    - Blocks of text are full and cross documents. Only the </s> of each sentence separates two documents.
    - Large and XL: appendix A has their layers, widths and vocabulary of 500k entries, but the paper has no schedule.
      Learning rate, steps, batch size and clipping are those of XY-LENT, which has the same architectures.

    Base has the 250k entries of XLM-R. Large and XL have 500k, allocated by VoCap: `crossling vocab --size 500000
    --allocate vocap`. The vocabulary comes from the shards, so a run takes the size that they have.

    The paper's pairs have English on one side. Here every pair of the shards is used; `--set sampling.pivot=en` selects
    those with English.

    Args:
        size: tiny, small, base, large or xl.

    Returns:
        The recipe.

    Example:
        >>> crossling.recipes.xlm_e("base").steps
        125000
    """
    defaults = defaults_for_size(size, PAPER)
    return Recipe(
        name="xlm_e",
        model=SIZES[size],
        mrtd=MRTD(rate=0.15, lambda_=50.0, tokens=defaults.tokens, length=defaults.length),
        trtd=TRTD(rate=0.15, lambda_=50.0, tokens=defaults.tokens, length=defaults.length),
        sampling=Sampling(text_alpha=0.7, pair_alpha=0.7, full_blocks=True),
        **defaults.recipe_fields(),
    )
