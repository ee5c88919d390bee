"""Compare two models as a report does: the tutorial "Read a report" in Python.

    python examples/tutorial_report.py --data data -o compared bundled run

The script scores both models on retrieval, prints each language with its 95% interval and the paired test of the
difference, and writes the report page.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

import crossling as xl
from crossling.evaluate.significance import ModelPredictions, compare_models
from crossling.report.analysis import TaskScore, task_scores

TASK = "tatoeba"
METRIC = "sweep/accuracy"


def best_scores(model: str, data: Path, out: Path) -> TaskScore:
    """Score a model into a folder and return its retrieval at the best layer, both directions averaged."""
    rows = xl.evaluate(model, TASK, data, out)
    scores = task_scores(rows, both_directions=True)
    return next(score for score in scores if score.measure.protocol == "sweep")


def print_scores(scores: Mapping[str, TaskScore]) -> None:
    """Print the mean and every language with its interval."""
    for model, score in scores.items():
        print(f"{model}: {score.mean:.1f}% at layer {score.layer}, mean of {len(score.mean_languages)} languages")
        for language, value in score.language_means.items():
            low, high = score.intervals[language]
            print(f"  {language}: {value:.1f}% [{low:.1f}, {high:.1f}]")


def print_tests(scores: Mapping[str, TaskScore], folders: Sequence[Path]) -> None:
    """Print the paired tests of every two models: one for each direction of retrieval."""
    models = [
        ModelPredictions(name, [folder], {(TASK, METRIC): score.layer or 0})
        for (name, score), folder in zip(scores.items(), folders, strict=True)
    ]
    for test in compare_models(models):
        if test.metric == METRIC:
            gap = test.difference
            print(
                f"{test.second} - {test.first}, {test.variant}: {gap.value:+.1f} points"
                f" [{gap.low:+.1f}, {gap.high:+.1f}], p = {gap.p:.3f}"
            )


def main() -> None:
    """Score the models, compare them and write the report."""
    parser = argparse.ArgumentParser(description="Compare encoders on retrieval.")
    parser.add_argument("models", nargs="+", help="Runs, exported folders, Hugging Face encoders, or bundled.")
    parser.add_argument("--data", type=Path, required=True, help="Benchmark data with tatoeba/.")
    parser.add_argument("-o", "--out", type=Path, required=True, help="Folder for scores and report.")
    arguments = parser.parse_args()
    names: list[str] = arguments.models
    folders = [arguments.out / f"{number}-{Path(name).name}" for number, name in enumerate(names, start=1)]
    scores = {name: best_scores(name, arguments.data, folder) for name, folder in zip(names, folders, strict=True)}
    print_scores(scores)
    print_tests(scores, folders)
    print(f"report in {xl.report(folders, arguments.out / 'report.html')}")


if __name__ == "__main__":
    main()
