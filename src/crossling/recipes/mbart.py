"""The mBART recipe."""

from __future__ import annotations

from dataclasses import replace

from crossling.model.model_shape import SIZES
from crossling.objectives import Denoising
from crossling.recipes.recipe import Recipe
from crossling.recipes.training_defaults import TrainingDefaults, defaults_for_size
from crossling.recipes.veco import ABLATION
from crossling.recipes.veco import PAPER as VECO
from crossling.sampling import Sampling

MBART25 = TrainingDefaults(tokens=4_194_304, length=512, steps=500_000, warmup=10_000, lr=3e-4)
PAPER = {"ablation": VECO["ablation"], "base": MBART25, "large": MBART25}


def mbart(size: str = "large") -> Recipe:
    """mBART: Multilingual Denoising Pre-training for Neural Machine Translation (Liu et al., 2020).

    An encoder reads text whose sentences are permuted and in which spans are replaced by one `<mask>` each. A decoder
    with its own layers predicts the original text. It is the baseline of VECO's Table 5.

    - Command: `crossling pretrain mbart --shards SHARDS -o RUN`, then
      `crossling finetune RUN --task translation --directions en-de --data wmt14 -o MT`
    - Cost (paper): mBART25 (680M), 12 + 12 layers of 1,024, 500k steps on 256 V100-32GB, 2.5 weeks.
    - Scores: VECO's Table 5 has its mBART below VECO, in XNLI and in translation.

    `large` is the shape of mBART25. `ablation` is the small model of VECO's Table 5, with 6 + 6 layers of 768. There
    the decoder of a text predicts the masked words only, and that of a pair the translation:
    `pair_denoising=on` adds the latter.

    Deviations:

    - No language id token. The decoder starts with `<s>`. Translators have tags of the target language.
    - The fraction of 35% and the lengths of spans count tokens. The paper counts words.
    - Encoder and decoder share position embeddings.
    - Not given in the paper: peak learning rate, warm-up and clipping. The batch is that of BART, 8,192 sequences.
    - Dropout stays at 0.1. The paper lowers it to 0.05 after 250k steps and to 0 after 400k.
    - `base` is ours, with the hyperparameters of `large`.

    Args:
        size: tiny, small, base, large or ablation.

    Returns:
        The recipe.

    Example:
        >>> crossling.recipes.mbart("large").denoising.span
        3.5
    """
    defaults = defaults_for_size(size, PAPER)
    shape = ABLATION if size == "ablation" else replace(SIZES[size], layers=min(12, SIZES[size].layers))
    return Recipe(
        name="mbart",
        model=replace(shape, relative=False, gate=False, dropout=0.1, attention_dropout=0.1),
        denoising=Denoising(rate=0.35, span=3.5, tokens=defaults.tokens, length=defaults.length),
        sampling=Sampling(text_alpha=0.7, pair_alpha=0.7),
        **defaults.recipe_fields(beta2=0.999 if size == "ablation" else 0.98),
    )
