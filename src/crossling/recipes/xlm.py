from __future__ import annotations

from dataclasses import replace

from crossling.objectives import TLM
from crossling.recipe import Recipe
from crossling.recipes.xlm_r import xlm_r


def xlm(size: str = "base") -> Recipe:
    """XLM: Cross-lingual Language Model Pretraining (Conneau and Lample, 2019), on XLM-R's architecture.

    Masked language modelling on text and on joined translation pairs (MLM + TLM).
    Run:    crossling pretrain xlm --shards SHARDS -o RUN
    Paper:  XNLI 75.1 (15 languages, one model for each; InfoXLM Table 1), 73.4 under XLM-E's setup (its Table 2), as
            published. A step costs twice that of `xlm_r`.
    Deviations: no language embeddings and no reset positions, as all later models; otherwise `xlm_r`, with the
    paper's sampling exponent 0.7.
    """
    base = xlm_r(size)
    assert base.mlm is not None
    return base.but(
        name="xlm",
        tlm=TLM(rate=0.15, keep=0.1, random=0.1, tokens=base.mlm.tokens, length=base.mlm.length),
        sampling=replace(base.sampling, text_alpha=0.7, pair_alpha=0.7),
    )
