"""The VECO recipe."""

from __future__ import annotations

from dataclasses import replace

from crossling.model.model_shape import SIZES, ModelShape
from crossling.objectives import CAMLM, CATLM, TLM
from crossling.recipes.recipe import Recipe
from crossling.recipes.training_defaults import TrainingDefaults, defaults_for_size
from crossling.sampling import Sampling

LARGE = TrainingDefaults(tokens=524_288, length=512, steps=240_000, warmup=12_000, lr=2e-4, clip=1.0)
PAPER = {"ablation": replace(LARGE, lr=3e-4), "base": LARGE, "large": LARGE}
ABLATION = ModelShape(layers=6, width=768, heads=12, feed_forward=3072, generator_layers=2)


def veco(size: str = "large") -> Recipe:
    """VECO: Variable and Flexible Cross-lingual Pre-training for Understanding and Generation (Luo et al., 2021).

    An encoder with a plug-in cross-attention module in every layer. CA-MLM on adjacent segments of text alternates with
    CA-MLM and TLM on translation pairs.

    - Command: `crossling pretrain veco --size large --shards SHARDS -o RUN --init xlm-roberta-large`
    - Cost (paper): Large (662M), 240k steps of 1,024 (text) and 4,096 (pairs) sequences on 64 V100-32GB, initialized
      from XLM-R.
    - Scores (paper): XTREME 73.1 (zero-shot transfer) and 81.0 (translate-train-all, plugged in), WMT14 En-De 30.6
      sacreBLEU.

    `ablation` is the small model of Table 5: 247M, 6 layers, hidden size 768, 33 languages, trained from scratch.

    Initialized from a model, only cross-attention is trained at first, as in the paper. The paper gives no number of
    steps; here it is the warm-up (`freeze_steps`). A new language model head is trained from the first step too. From
    scratch, everything is trained from the first step.

    Deviations:

    - Each of the four loss terms is a mean.
    - The query of cross-attention is the output of self-attention, as in the decoders that the authors released.
      `model.cross_query=hidden` is Eq. 6 as printed: the output of the layer below.
    - The lengths 512 and 128 are those of the two sequences of a pair together.
    - `base` is ours, with the hyperparameters of Large.
    - Gradients are clipped at 1.0; the paper gives no value.

    Args:
        size: tiny, small, base, large or ablation.

    Returns:
        The recipe.

    Example:
        >>> crossling.recipes.veco("large").model.cross_attention
        True
    """
    defaults = defaults_for_size(size, PAPER)
    shape = ABLATION if size == "ablation" else SIZES[size]
    paper = size in PAPER
    pair_length = 128 if paper else defaults.length
    pairs = 4096 if paper else None
    return Recipe(
        name="veco",
        model=replace(shape, relative=False, gate=False, cross_attention=True, dropout=0.1, attention_dropout=0.1),
        ca_mlm=CAMLM(rate=0.15, tokens=defaults.tokens, sequences=1024 if paper else None, length=defaults.length),
        ca_tlm=CATLM(rate=0.25, tokens=defaults.tokens, sequences=pairs, length=pair_length),
        tlm=TLM(rate=0.25, keep=0.1, random=0.1, tokens=defaults.tokens, sequences=pairs, length=pair_length),
        alternate=True,
        freeze_steps=12_000 if paper else round(defaults.warmup * defaults.steps),
        sampling=Sampling(text_alpha=0.5, pair_alpha=0.5),
        **defaults.recipe_fields(beta2=0.999 if size == "ablation" else 0.98),
    )
