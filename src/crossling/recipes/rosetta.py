from __future__ import annotations

from dataclasses import replace

from crossling.model.shape import SIZES
from crossling.objectives import MLM, TLM, XLCo
from crossling.recipe import Recipe
from crossling.recipes.sizes import Budget, budget
from crossling.sampling import MOST, Sampling

UNMEASURED = {
    "base": Budget(tokens=1_048_576, length=512, steps=50_000, warmup=0.05, lr=2e-3, matrices="muon"),
    "large": Budget(tokens=1_048_576, length=512, steps=100_000, warmup=0.05, lr=1e-3, matrices="muon"),
}


def rosetta(size: str = "base") -> Recipe:
    """Rosetta, our own: InfoXLM's three objectives with one encoder, and most of a step spent on contrast.

    MLM + TLM + contrast of all pairs of a step with each other, both ways, by the cosine of means; pairs with one
    language only, the one that has most of them; pre-normalised, gated relative bias, Muon, no dropout.
    Run:    crossling pretrain rosetta --shards SHARDS -o RUN --size small
    Found:  small, 7e15 FLOPs, 32 languages, one seed (docs/results.md, `crossling lab papers`): Tatoeba-28 45.1,
            AER 56.7, XNLI 48.4, POS 51.9, NER 46.3; the best paper's, InfoXLM tuned beside it, 28.3, 60.8, 44.8,
            48.0, 46.2. 2,000 steps of an earlier form (weight 1, temperature 0.05, 15% masked): 45.9, AER de-en 42.8,
            en-fr 20.5 (mutual argmax), docs/log.md.
    Parts:  of 500 steps each, Tatoeba-28 (docs/log.md): weight 3 instead of 1 +2.5, temperature 0.03 instead of 0.05
            +1.2, 5% of contrast masked instead of 15% (with both) +1.4 over none; 30% masked -4.5. No momentum
            encoder, queue and mixup: `infoxlm` is that. `crossling lab rosetta` takes the other parts away.
    Base and large were never run: their rates are guesses. Started from a model (`--init`) its shape is kept.
    """
    plan = budget(size, UNMEASURED)
    length = plan.length if size in UNMEASURED else 128
    share = plan.tokens // 4  # of a step for text, and for joined pairs; about 80 tokens a pair for contrast
    return Recipe(
        name="rosetta",
        model=replace(SIZES[size], norm="pre", dropout=0.0),
        mlm=MLM(rate=0.15, keep=0.1, random=0.1, tokens=share, length=length),
        tlm=TLM(rate=0.15, keep=0.1, random=0.1, tokens=share, length=length),
        xlco=XLCo(
            pairs=plan.tokens // 64,
            queue=0,
            momentum=0.0,
            mixup=False,
            symmetric=True,
            normalise=True,
            pooling="mean",
            temperature=0.03,
            rate=0.05,
            length=length,
            weight=3.0,
        ),
        sampling=Sampling(text_alpha=0.7, pair_alpha=0.7, pivot=MOST),
        **plan.training(),
    )
