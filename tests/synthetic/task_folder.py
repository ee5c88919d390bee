"""Folder of synthetic task data, and readers of its files."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crossling.synthetic.task_folders import ExampleCounts

SEED = 11
CODES = ["qaa", "qab", "qac", "qad", "qae"]  # all word orders and morphologies
EXAMPLES = ExampleCounts(train=600, dev=48, test=360)
TABLES = ("xnli", "pawsx", "udpos", "panx")
LABELS = {"xnli": ("entailment", "neutral", "contradiction"), "pawsx": ("0", "1")}
Row = tuple[str, str, str]


@dataclass(frozen=True)
class TaskFolder:
    """A generated folder, with readers of its task data."""

    folder: Path
    domain: str

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def table(self, name: str, split: str, code: str, ending: str = "tsv") -> str:
        translated = f"translated/{code}/{split}.{ending}"
        path = translated if split == "train" and code != "qaa" else f"{split}-{code}.{ending}"
        return (self.data / name / path).read_text(encoding="utf-8")

    def rows(self, name: str, split: str, code: str) -> list[Row]:
        rows = [line.split("\t") for line in self.table(name, split, code).splitlines()]
        assert all(len(row) == 3 and all(row) for row in rows)
        return [(first, second, label) for first, second, label in rows]

    def tagged(self, name: str, split: str, code: str) -> list[list[tuple[str, str]]]:
        blocks = self.table(name, split, code).removesuffix("\n\n").split("\n\n")
        lines = [[line.split("\t") for line in block.split("\n")] for block in blocks]
        return [[(word, tag) for word, tag in block] for block in lines]

    def squad(self, split: str, code: str) -> list[dict[str, Any]]:
        """Return the paragraphs of a SQuAD file."""
        if split == "test":
            content = (self.data / "xquad" / f"xquad.{code}.json").read_text(encoding="utf-8")
        else:
            content = self.table("xquad", split, code, "json")
        return [paragraph for article in json.loads(content)["data"] for paragraph in article["paragraphs"]]

    def side(self, pair: str, split: str, code: str) -> dict[str, str]:
        lines = (self.data / "bucc2018" / f"{pair}.{split}.{code}").read_text(encoding="utf-8").splitlines()
        return dict(line.split("\t") for line in lines)

    def gold(self, pair: str, split: str) -> list[list[str]]:
        lines = (self.data / "bucc2018" / f"{pair}.{split}.gold").read_text(encoding="utf-8").splitlines()
        return [line.split("\t") for line in lines]

    def sentences(self, part: str, code: str) -> set[str]:
        """Return all sentences of a part of the task data in a language, without questions."""
        name, split = part.split("/")
        if name in LABELS:
            return {sentence for row in self.rows(name, split, code) for sentence in row[:2]}
        if name in TABLES:
            return {" ".join(word for word, _ in sentence) for sentence in self.tagged(name, split, code)}
        if name == "xquad":
            return {line for paragraph in self.squad(split, code) for line in paragraph["context"].split("\n")}
        if name == "translation":
            return {*self.lines(split, code)}
        pair = f"{code}-qaa" if code != "qaa" else "qab-qaa"
        return {*self.side(pair, split, code).values()}

    def lines(self, split: str, code: str) -> list[str]:
        """Return the lines of the parallel text."""
        return (self.data / "translation" / f"{split}.{code}").read_text(encoding="utf-8").splitlines()
