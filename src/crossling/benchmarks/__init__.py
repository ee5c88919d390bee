"""The labelled data sets of the field: what an example is, how each layout is read, and what each set is scored by."""

from __future__ import annotations

from crossling.benchmarks.dataset import DataSet
from crossling.benchmarks.examples import Answer, Classified, Example, Question, Tagged
from crossling.benchmarks.hyper import Grid, Hyper
from crossling.benchmarks.sets import SETS, find

__all__ = ["SETS", "Answer", "Classified", "DataSet", "Example", "Grid", "Hyper", "Question", "Tagged", "find"]
