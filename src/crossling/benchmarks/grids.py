"""The settings XTREME uses and those the papers searched (implementation tables named in each grid)."""

from __future__ import annotations

from crossling.benchmarks.hyper import Grid, Hyper

# XTREME's scripts for models of Base size.
CLASSIFY = Hyper(lr=2e-5, epochs=5, batch=32, length=128)
TAG = Hyper(lr=2e-5, epochs=10, batch=32, length=128)
ANSWER = Hyper(lr=3e-5, epochs=3, batch=32, length=384, warmup=500, weight_decay=1e-4)

_XLM_E, _XY_LENT = "XLM-E, Table 11", "XY-LENT, Table 15"
_INFOXLM, _INFOXLM_LARGE, _VECO = "InfoXLM, Table 11", "InfoXLM, Table 12", "VECO, Appendix C"


def _grid(
    source: str, lr: tuple[float, ...], epochs: tuple[float, ...] = (10,), batch: tuple[int, ...] = (32,),
    warmup: float = 0.1, weight_decay: tuple[float, ...] = (0.0,)
) -> Grid:  # fmt: skip
    return Grid(source, lr=lr, epochs=epochs, batch=batch, warmup=(warmup,), weight_decay=weight_decay)


# VECO searched the same for every task, wider where nothing is translated; it says nothing of warm-up and decay.
_VECO_GRIDS = {
    "veco": Grid(_VECO, lr=(5e-6, 8e-6, 1e-5, 2e-5, 3e-5), epochs=(3, 5, 10), batch=(16, 32, 64)),
    "veco-translate-train": Grid(_VECO, lr=(5e-6, 6e-6, 7e-6, 8e-6, 9e-6), epochs=(3, 5, 10), batch=(16, 32, 64)),
}
_INFERENCE, _PARAPHRASE, _SPANS = (5e-6, 6e-6, 7e-6, 8e-6), (8e-6, 9e-6, 1e-5, 2e-5), (2e-5, 3e-5, 4e-5)

XNLI = {
    "xlm-e": _grid(_XLM_E, _INFERENCE, warmup=12_500),
    "xy-lent": _grid(_XY_LENT, _INFERENCE, warmup=12_500),
    "infoxlm": _grid(_INFOXLM, (5e-6, 7e-6, 1e-5), warmup=12_500),
    "infoxlm-large": _grid(_INFOXLM_LARGE, (4e-6, 5e-6, 6e-6), warmup=5_000, weight_decay=(0.0, 0.01)),
    **_VECO_GRIDS,
}
PAWSX = {"xlm-e": _grid(_XLM_E, _PARAPHRASE), "xy-lent": _grid(_XY_LENT, _PARAPHRASE), **_VECO_GRIDS}
POS = {"xlm-e": _grid(_XLM_E, (1e-5, 2e-5, 3e-5), batch=(8, 16, 32)), **_VECO_GRIDS}
NER = {"xlm-e": _grid(_XLM_E, (5e-6, 6e-6, 7e-6, 8e-6, 9e-6), batch=(8,)), **_VECO_GRIDS}
XQUAD = {"xlm-e": _grid(_XLM_E, _SPANS, (4,)), "xy-lent": _grid(_XY_LENT, _SPANS, (4,)), **_VECO_GRIDS}
MLQA = {
    "xlm-e": _grid(_XLM_E, _SPANS, (2, 3, 4)),
    "xy-lent": _grid(_XY_LENT, _SPANS, (2, 3, 4)),
    "infoxlm": _grid(_INFOXLM, (2e-5, 3e-5, 5e-5), (2, 3, 4), batch=(16, 32)),
    "infoxlm-large": _grid(_INFOXLM_LARGE, (2e-5, 3e-5, 5e-5), (2, 3, 4)),
    **_VECO_GRIDS,
}
TYDIQA = {
    "xlm-e": _grid(_XLM_E, _SPANS, (10, 20, 40)),
    "xy-lent": _grid(_XY_LENT, _SPANS, (10, 20, 40)),
    **_VECO_GRIDS,
}
