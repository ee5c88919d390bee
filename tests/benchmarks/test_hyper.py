from __future__ import annotations

import pytest

from crossling.benchmarks import SETS, Grid, Hyper

BASE = Hyper(lr=1.0, epochs=2, batch=4, length=8, warmup=500, weight_decay=0.5)


def test_a_grid_is_every_combination_and_the_rest_as_it_was() -> None:
    points = Grid("paper", lr=(1e-5, 2e-5), batch=(16, 32), warmup=(0.1,)).points(BASE)
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
def test_the_papers_grids(task: str, paper: str, size: int, first: tuple[float, ...], last: tuple[float, ...]) -> None:
    points = SETS[task].grids[paper].points(SETS[task].hyper)
    told = [(point.lr, point.epochs, point.batch, point.warmup, point.weight_decay) for point in points]
    assert (len(set(told)), told[0], told[-1]) == (size, first, last)


def test_xtremes_defaults() -> None:
    told = {name: SETS[name].hyper for name in ("xnli", "pawsx", "udpos", "panx", "xquad", "mlqa", "tydiqa")}
    for name in ("xnli", "pawsx"):
        assert told[name] == Hyper(lr=2e-5, epochs=5, batch=32, length=128)
    for name in ("udpos", "panx"):
        assert told[name] == Hyper(lr=2e-5, epochs=10, batch=32, length=128)
    for name in ("xquad", "mlqa", "tydiqa"):
        hyper = told[name]
        assert (hyper.lr, hyper.epochs, hyper.batch, hyper.length) == (3e-5, 3, 32, 384)
        assert (hyper.warmup, hyper.weight_decay) == (500, 1e-4)
        assert (hyper.stride, hyper.query, hyper.answer, hyper.n_best) == (128, 64, 30, 20)
