"""Summary of significance tests: one line for each task, metric and pair of runs with a significant difference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from crossling.evaluate.significance import ModelComparison
from crossling.report.analysis import TITLES, metric_title
from crossling.tasks.bootstrap import PairedDifference
from crossling.tasks.scores import LOWER_IS_BETTER

SIGNIFICANT = 0.05


@dataclass(frozen=True)
class ComparisonFamily:
    """All comparisons of two runs on one metric of a task: directions of retrieval, and every language."""

    comparisons: list[ModelComparison]

    @property
    def title(self) -> str:
        """Task, metric and protocol."""
        first = self.comparisons[0]
        protocol, _, metric = first.metric.rpartition("/")
        facts = ", ".join(filter(None, [protocol, first.split if first.split != "test" else ""]))
        return f"{TITLES.get(first.task, first.task)} {metric_title(metric)}" + (f" ({facts})" if facts else "")

    @property
    def gain(self) -> float:
        """Mean over the comparisons of the difference in favour of the second run."""
        return fmean(self._gain(each.difference) for each in self.comparisons)

    @property
    def is_significant(self) -> bool:
        """True if a difference of the means is significant."""
        return any(each.difference.p < SIGNIFICANT for each in self.comparisons)

    @property
    def better(self) -> str:
        """The run with the better mean."""
        return self.comparisons[0].second if self.gain > 0 else self.comparisons[0].first

    @property
    def worse(self) -> str:
        """The run with the worse mean."""
        return self.comparisons[0].first if self.gain > 0 else self.comparisons[0].second

    @property
    def summary(self) -> str:
        """Languages in which a run is significantly better or worse than the other, and the differences."""
        sign, several = (1 if self.gain > 0 else -1), len(self.comparisons) > 1
        gains = [
            (sign * self._gain(each), _name(code, comparison.variant if several else ""), each)
            for comparison in self.comparisons
            for code, each in comparison.by_language.items()
        ]
        clear = [gain for gain, _, each in gains if each.p < SIGNIFICANT]
        is_paired = all("-" in name for _, name, _ in gains)
        noun = "comparisons" if several else "pairs" if is_paired else "languages"
        wins, losses = sum(gain > 0 for gain in clear), sum(gain < 0 for gain in clear)
        text = f"{self.better} is better than {self.worse} in {wins} of {len(gains)} {noun}, worse in {losses}"
        least_sure = max((each.difference for each in self.comparisons), key=lambda each: each.p)
        mean = f"mean difference {abs(self.gain):.1f} points, {'largest ' * several}{least_sure.p_text}"
        largest, where, each = max(gains, key=lambda found: abs(found[0]))
        favours = "" if largest > 0 else f" for {self.worse}"
        return f"{text}; {mean}; largest difference {abs(largest):.1f} points{favours} ({where}, {each.p_text})"

    def _gain(self, difference: PairedDifference) -> float:
        """Return the difference in favour of the second run."""
        metric = self.comparisons[0].metric.rpartition("/")[2]
        return -difference.value if metric in LOWER_IS_BETTER else difference.value


def group_comparisons(comparisons: Sequence[ModelComparison]) -> list[ComparisonFamily]:
    """Group comparisons by task, metric, split and pair of runs, in the order of the page."""
    families: dict[tuple[str, ...], list[ModelComparison]] = {}
    for each in comparisons:
        families.setdefault((each.task, each.metric, each.split, each.first, each.second), []).append(each)
    return [ComparisonFamily(members) for members in families.values()]


def _name(code: str, variant: str) -> str:
    """Return a language or pair with its direction or method. The direction of a pair names its languages as well."""
    return variant if {*variant.split("-")} == {*code.split("-")} else f"{code} {variant}".strip()
