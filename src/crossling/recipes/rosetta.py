"""The Rosetta recipe."""

from __future__ import annotations

from dataclasses import replace

from crossling.model.model_shape import SIZES
from crossling.objectives import MLM, TLM, XLCo
from crossling.recipes.infoxlm import PAPER
from crossling.recipes.recipe import Recipe
from crossling.recipes.training_defaults import defaults_for_size
from crossling.sampling import MOST_PAIRED, Sampling

MAX_PAIRS = 2048  # per step; in-batch negatives are computed at once and must fit into memory


def rosetta(size: str = "base") -> Recipe:
    """Rosetta, our own: InfoXLM's three objectives with one encoder, and most of a step spent on contrastive learning.

    MLM, TLM, and contrastive learning with in-batch negatives in both directions, by the cosine of mean-pooled states.
    Pairs are those with one pivot language, the one with the most pairs. Gated relative position bias, no dropout.

    - Command: `crossling pretrain rosetta --shards SHARDS -o RUN --size small`
    - Cost: small, 1,353 steps, 7e15 FLOPs; like every recipe of that size it is pre-norm and uses Muon.

    Scores on 32 languages (two seeds, XQuAD one seed; docs/research/results.md):

    - rosetta: Tatoeba-28 45.5, AER 54.7, XNLI 49.3, POS 51.2, NER 46.6, XQuAD 11.4.
    - infoxlm: Tatoeba-28 28.6, AER 58.9, XNLI 46.8, POS 48.4, NER 45.8, XQuAD 10.5.
    - On XQuAD, xlm (15.7) and xlm_e (17.0, one seed) are ahead of both.
    - With xlco.length=48 and xlco.pairs=2048 (one seed): 49.1, 51.3, 46.4, 50.6, 46.1, 9.6.
    - The bundled model has 3,600 steps of 2,048 pairs (docs/reference/bundled-model.md): 56.9, AER de-en 36.9, en-fr
      18.3.

    Settings were selected by Tatoeba-28 itself. `crossling lab rosetta` measures the effect of each part.
    Base and large were never trained. They have InfoXLM's steps, learning rates and normalization, and fewer tokens for
    MLM and TLM.

    Args:
        size: tiny, small, base or large.

    Returns:
        The recipe.

    Example:
        >>> crossling.recipes.rosetta("small").xlco.queue
        0
    """
    defaults = defaults_for_size(size, PAPER)
    length, norm = (defaults.length, SIZES[size].norm) if size in PAPER else (128, "pre")
    tokens = defaults.tokens // 4  # for MLM and for TLM
    return Recipe(
        name="rosetta",
        model=replace(SIZES[size], dropout=0.0, norm=norm),
        mlm=MLM(rate=0.15, keep=0.1, random=0.1, tokens=tokens, length=length),
        tlm=TLM(rate=0.15, keep=0.1, random=0.1, tokens=tokens, length=length),
        xlco=XLCo(
            pairs=min(defaults.tokens // 64, MAX_PAIRS),
            queue=0,
            momentum=0.0,
            mixup=False,
            symmetric=True,
            normalize=True,
            pooling="mean",
            temperature=0.03,
            rate=0.05,
            length=length,
            weight=3.0,
        ),
        sampling=Sampling(text_alpha=0.7, pair_alpha=0.7, pivot=MOST_PAIRED),
        **defaults.recipe_fields(),
    )
