"""One line for each family of comparisons, with the languages in which a run is better or worse."""

from __future__ import annotations

from crossling.evaluate.significance import ModelComparison
from crossling.report.comparison_summary import group_comparisons
from crossling.tasks.bootstrap import PairedDifference


def difference(value: float, p: float = 1 / 1001) -> PairedDifference:
    return PairedDifference(value, value - 1, value + 1, p)


def comparison(
    mean: PairedDifference, languages: dict[str, PairedDifference], variant: str = "", metric: str = "xtreme/accuracy"
) -> ModelComparison:
    return ModelComparison(
        task="xnli",
        metric=metric,
        variant=variant,
        split="test",
        languages=len(languages),
        examples=100,
        first="A",
        second="B",
        difference=mean,
        by_language=languages,
    )


LANGUAGES = {"de": difference(2.0), "fr": difference(6.5), "sw": difference(-3.0, 0.01), "th": difference(0.5, 0.6)}


def test_a_family_is_one_line() -> None:
    [family] = group_comparisons([comparison(difference(1.5), LANGUAGES)])
    assert family.is_significant
    assert family.title == "XNLI accuracy (xtreme)"
    assert family.summary == (
        "B is better than A in 2 of 4 languages, worse in 1; mean difference 1.5 points, p < 0.001; "
        "largest difference 6.5 points (fr, p < 0.001)"
    )


def test_a_lower_error_rate_is_better() -> None:
    [family] = group_comparisons([comparison(difference(1.5), LANGUAGES, metric="xlm-align-ot/aer")])
    assert family.title == "XNLI AER (xlm-align-ot)"
    assert family.summary.startswith("A is better than B in 2 of 4 languages, worse in 1;")


def test_the_largest_difference_may_favour_the_worse_run() -> None:
    [family] = group_comparisons([comparison(difference(-1.0, 0.2), {"de": difference(-1.0), "fr": difference(4.0)})])
    assert not family.is_significant
    assert family.summary.startswith("A is better than B in 1 of 2 languages, worse in 1; mean difference 1.0 points")
    assert family.summary.endswith("largest difference 4.0 points for B (fr, p < 0.001)")


def test_directions_are_one_family_and_metrics_are_not() -> None:
    ways = [comparison(difference(2.0), {"de": difference(2.0)}, variant=way) for way in ("en-xx", "xx-en")]
    other = comparison(difference(2.0), {"de": difference(2.0)}, metric="xtreme/f1")
    both, single = group_comparisons([*ways, other])
    assert "in 2 of 2 comparisons, worse in 0; mean difference 2.0 points, largest p < 0.001;" in both.summary
    assert both.summary.endswith("(de en-xx, p < 0.001)")
    assert single.title == "XNLI F1 (xtreme)"
    assert single.summary.endswith("(de, p < 0.001)")
    directed = [
        comparison(difference(2.0), {"qaa-qab": difference(2.0)}, variant=way) for way in ("qaa-qab", "qab-qaa")
    ]
    assert group_comparisons(directed)[0].summary.endswith("(qaa-qab, p < 0.001)")
