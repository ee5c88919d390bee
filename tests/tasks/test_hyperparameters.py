from __future__ import annotations

import pytest

from crossling.tasks.hyperparameters import FinetuneHyperparameters, HyperparameterGrid
from crossling.tasks.registry import DATASETS

BASE = FinetuneHyperparameters(lr=1.0, epochs=2, batch=4, length=8, warmup=500, weight_decay=0.5)


def test_a_grid_has_every_combination() -> None:
    points = HyperparameterGrid("paper", lr=(1e-5, 2e-5), batch=(16, 32), warmup=(0.1,)).points(BASE)
    assert [(point.lr, point.batch) for point in points] == [(1e-5, 16), (1e-5, 32), (2e-5, 16), (2e-5, 32)]
    assert {(point.epochs, point.length, point.warmup, point.weight_decay) for point in points} == {(2, 8, 0.1, 0.5)}


# Facts of the papers: XLM-E Table 11, XY-LENT Table 15, InfoXLM Tables 11 and 12, VECO Appendix C.
@pytest.mark.parametrize(
    ("task", "paper", "size", "first", "last"),
    [
        ("xnli", "xlm-e", 4, (5e-6, 10, 32, 12_500, 0), (8e-6, 10, 32, 12_500, 0)),
        ("xnli", "xy-lent", 4, (5e-6, 10, 32, 12_500, 0), (8e-6, 10, 32, 12_500, 0)),
        ("xnli", "infoxlm", 3, (5e-6, 10, 32, 12_500, 0), (1e-5, 10, 32, 12_500, 0)),
        ("xnli", "infoxlm-large", 6, (4e-6, 10, 32, 5_000, 0), (6e-6, 10, 32, 5_000, 0.01)),
        ("xnli", "veco", 45, (5e-6, 3, 16, 0, 0), (3e-5, 10, 64, 0, 0)),
        ("xnli", "veco-translate-train", 45, (5e-6, 3, 16, 0, 0), (9e-6, 10, 64, 0, 0)),
        ("pawsx", "xlm-e", 4, (8e-6, 10, 32, 0.1, 0), (2e-5, 10, 32, 0.1, 0)),
        ("udpos", "xlm-e", 9, (1e-5, 10, 8, 0.1, 0), (3e-5, 10, 32, 0.1, 0)),
        ("panx", "xlm-e", 5, (5e-6, 10, 8, 0.1, 0), (9e-6, 10, 8, 0.1, 0)),
        ("xquad", "xlm-e", 3, (2e-5, 4, 32, 0.1, 0), (4e-5, 4, 32, 0.1, 0)),
        ("mlqa", "xlm-e", 9, (2e-5, 2, 32, 0.1, 0), (4e-5, 4, 32, 0.1, 0)),
        ("mlqa", "infoxlm", 18, (2e-5, 2, 16, 0.1, 0), (5e-5, 4, 32, 0.1, 0)),
        ("mlqa", "infoxlm-large", 9, (2e-5, 2, 32, 0.1, 0), (5e-5, 4, 32, 0.1, 0)),
        ("tydiqa", "xlm-e", 9, (2e-5, 10, 32, 0.1, 0), (4e-5, 40, 32, 0.1, 0)),
    ],
)
def test_grids_are_those_of_the_papers(
    task: str, paper: str, size: int, first: tuple[float, ...], last: tuple[float, ...]
) -> None:
    points = DATASETS[task].grids[paper].points(DATASETS[task].hyperparameters)
    values = [(point.lr, point.epochs, point.batch, point.warmup, point.weight_decay) for point in points]
    assert (len(set(values)), values[0], values[-1]) == (size, first, last)


def test_defaults_are_those_of_xtreme() -> None:
    defaults = {
        name: DATASETS[name].hyperparameters for name in ("xnli", "pawsx", "udpos", "panx", "xquad", "mlqa", "tydiqa")
    }
    for name in ("xnli", "pawsx"):
        assert defaults[name] == FinetuneHyperparameters(lr=2e-5, epochs=5, batch=32, length=128)
    for name in ("udpos", "panx"):
        assert defaults[name] == FinetuneHyperparameters(lr=2e-5, epochs=10, batch=32, length=128)
    for name in ("xquad", "mlqa", "tydiqa"):
        qa = defaults[name]
        assert (qa.lr, qa.epochs, qa.batch, qa.length) == (3e-5, 3, 32, 384)
        assert (qa.warmup, qa.weight_decay) == (500, 1e-4)
        assert (qa.stride, qa.query, qa.answer, qa.n_best) == (128, 64, 30, 20)
