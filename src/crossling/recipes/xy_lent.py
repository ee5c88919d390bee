"""The XY-LENT recipe."""

from __future__ import annotations

from crossling.model.model_shape import SIZES
from crossling.objectives import MRTD, TRTD
from crossling.recipes.recipe import Recipe
from crossling.recipes.training_defaults import TrainingDefaults, defaults_for_size
from crossling.sampling import Sampling

PAPER = {
    "base": TrainingDefaults(tokens=4_194_304, length=512, steps=125_000, warmup=10_000, lr=8e-4, clip=2.0),
    "large": TrainingDefaults(tokens=1_048_576, length=512, steps=500_000, warmup=10_000, lr=2e-4, clip=1.0),
    "xl": TrainingDefaults(tokens=4_194_304, length=512, steps=150_000, warmup=10_000, lr=1e-4, clip=1.0),
}
MIN_PAIRS = 50_000  # of a language (footnote 4)


def xy_lent(size: str = "base") -> Recipe:
    """XY-LENT: Beyond English-Centric Bitexts for Better Multilingual Language Representation (Patra et al., 2023).

    XLM-E on translation pairs between any two languages, sampled so that each language has its smoothed probability
    (section 3.2), with a vocabulary of 500k entries (`crossling vocab --size 500000 --allocate vocap`).

    Languages with fewer than 50k pairs are dropped (footnote 4), except in the sizes tiny and small.

    - Command: `crossling pretrain xy_lent --shards SHARDS -o RUN`
    - Cost (paper): Base and Large on 128 A100-40GB, XL on 512 A100-80GB; 477M / 814M / 2.1B parameters.
    - Scores (paper): XNLI 80.5 / 83.0 / 84.8; average of five tasks 3.1 / 1.8 / 0.9 points above XLM-E.

    Not given in the paper: the sampling temperature is 1 / 0.7, as for text. All else is that of `xlm_e`.
    In every recipe here, not only in this one, [CLS] is never masked and a pair is swapped with probability 0.5.
    Eq. 3 puts lambda on the generator's loss. Here it is on the discriminator's, as in XLM-E and ELECTRA.
    If the pairs cannot give each language its probability, for instance if all contain English, the error names the
    languages; `--set sampling.relax=true` then uses the closest feasible probabilities.

    Args:
        size: tiny, small, base, large or xl.

    Returns:
        The recipe.

    Example:
        >>> crossling.recipes.xy_lent("base").sampling.pair_rule
        'xy_lent'
    """
    defaults = defaults_for_size(size, PAPER)
    return Recipe(
        name="xy_lent",
        model=SIZES[size],
        mrtd=MRTD(rate=0.15, lambda_=50.0, tokens=defaults.tokens, length=defaults.length),
        trtd=TRTD(rate=0.15, lambda_=50.0, tokens=defaults.tokens, length=defaults.length),
        sampling=Sampling(
            text_alpha=0.7,
            pair_rule="xy_lent",
            pair_alpha=0.7,
            min_pairs=MIN_PAIRS if size in PAPER else None,
            full_blocks=True,
        ),
        **defaults.recipe_fields(),
    )
