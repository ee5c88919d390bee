"""Fine-tuning hyperparameters: XTREME's defaults, and the grids that the papers searched."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, fields, replace
from functools import partial
from itertools import product


@dataclass(frozen=True, kw_only=True)
class FinetuneHyperparameters:
    """Hyperparameters of one fine-tuning run."""

    lr: float
    epochs: float
    batch: int
    length: int  # largest number of tokens per input
    warmup: float = 0.0  # a proportion of the steps if below 1, else a number of steps
    weight_decay: float = 0.0
    # Question answering:
    stride: int = 128  # tokens between the starts of two windows of a long context
    query: int = 64  # largest number of tokens per question
    answer: int = 30  # largest number of tokens per answer
    n_best: int = 20  # candidate answers per window


@dataclass(frozen=True)
class HyperparameterGrid:
    """Values that a paper searched. Hyperparameters with an empty tuple are not searched."""

    source: str  # paper and table
    _: KW_ONLY
    lr: tuple[float, ...]
    epochs: tuple[float, ...] = ()
    batch: tuple[int, ...] = ()
    length: tuple[int, ...] = ()
    warmup: tuple[float, ...] = ()
    weight_decay: tuple[float, ...] = ()

    def points(self, base: FinetuneHyperparameters) -> list[FinetuneHyperparameters]:
        """Return all combinations. Hyperparameters that are not searched are those of `base`."""
        axes = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "source"}
        searched = {name: values for name, values in axes.items() if values}
        return [replace(base, **dict(zip(searched, point, strict=True))) for point in product(*searched.values())]


# XTREME's scripts for Base models.
CLASSIFICATION_DEFAULTS = FinetuneHyperparameters(lr=2e-5, epochs=5, batch=32, length=128)
TAGGING_DEFAULTS = FinetuneHyperparameters(lr=2e-5, epochs=10, batch=32, length=128)
# Those of SIB-200's own script, and the length that passages with a question and an answer need.
SIB200_DEFAULTS = FinetuneHyperparameters(lr=1e-5, epochs=20, batch=32, length=164)
READING_DEFAULTS = FinetuneHyperparameters(lr=1e-5, epochs=3, batch=16, length=512, warmup=0.1)
QA_DEFAULTS = FinetuneHyperparameters(lr=3e-5, epochs=3, batch=32, length=384, warmup=500, weight_decay=1e-4)

_XLM_E, _INFOXLM, _INFOXLM_LARGE = "XLM-E, Table 11", "InfoXLM, Table 11", "InfoXLM, Table 12"


def _grid(
    source: str, lr: tuple[float, ...], epochs: tuple[float, ...] = (10,), batch: tuple[int, ...] = (32,),
    warmup: float = 0.1, weight_decay: tuple[float, ...] = (0.0,)
) -> HyperparameterGrid:  # fmt: skip
    return HyperparameterGrid(source, lr=lr, epochs=epochs, batch=batch, warmup=(warmup,), weight_decay=weight_decay)


def _electra_grids(
    lr: tuple[float, ...], epochs: tuple[float, ...] = (10,), warmup: float = 0.1
) -> dict[str, HyperparameterGrid]:
    """Return the grids of XLM-E and XY-LENT, where these are equal."""
    sources = {"xlm-e": _XLM_E, "xy-lent": "XY-LENT, Table 15"}
    return {name: _grid(source, lr, epochs, warmup=warmup) for name, source in sources.items()}


# VECO searched the same values for every task, more without translations. Warm-up and weight decay are not stated.
_veco_grid = partial(HyperparameterGrid, "VECO, Appendix C", epochs=(3, 5, 10), batch=(16, 32, 64))
_VECO_GRIDS = {
    "veco": _veco_grid(lr=(5e-6, 8e-6, 1e-5, 2e-5, 3e-5)),
    "veco-translate-train": _veco_grid(lr=(5e-6, 6e-6, 7e-6, 8e-6, 9e-6)),
}
_NLI, _PARAPHRASE, _SPANS = (5e-6, 6e-6, 7e-6, 8e-6), (8e-6, 9e-6, 1e-5, 2e-5), (2e-5, 3e-5, 4e-5)

XNLI = {
    **_electra_grids(_NLI, warmup=12_500),
    "infoxlm": _grid(_INFOXLM, (5e-6, 7e-6, 1e-5), warmup=12_500),
    "infoxlm-large": _grid(_INFOXLM_LARGE, (4e-6, 5e-6, 6e-6), warmup=5_000, weight_decay=(0.0, 0.01)),
    **_VECO_GRIDS,
}
PAWSX = _electra_grids(_PARAPHRASE) | _VECO_GRIDS
POS = {"xlm-e": _grid(_XLM_E, (1e-5, 2e-5, 3e-5), batch=(8, 16, 32)), **_VECO_GRIDS}
NER = {"xlm-e": _grid(_XLM_E, (5e-6, 6e-6, 7e-6, 8e-6, 9e-6), batch=(8,)), **_VECO_GRIDS}
XQUAD = _electra_grids(_SPANS, (4,)) | _VECO_GRIDS
MLQA = {
    **_electra_grids(_SPANS, (2, 3, 4)),
    "infoxlm": _grid(_INFOXLM, (2e-5, 3e-5, 5e-5), (2, 3, 4), batch=(16, 32)),
    "infoxlm-large": _grid(_INFOXLM_LARGE, (2e-5, 3e-5, 5e-5), (2, 3, 4)),
    **_VECO_GRIDS,
}
TYDIQA = _electra_grids(_SPANS, (10, 20, 40)) | _VECO_GRIDS
