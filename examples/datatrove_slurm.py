"""From text to shards with datatrove: a Slurm array for `vocab`, then one for `tokenize`.

    pip install crossling[data]
    python examples/datatrove_slurm.py corpora --size 250000 --tasks 64 --partition cpu -o work
    python examples/datatrove_slurm.py corpora --size 2000 --tasks 4 --local -o work

Each task does one part of a command. datatrove submits the jobs and keeps their logs. Repeat the line to run the tasks
that did not finish.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from datatrove.executor import LocalPipelineExecutor, SlurmPipelineExecutor

import crossling as xl


@dataclass
class VocabStep:
    """One share of `crossling vocab`."""

    corpora: str
    out: Path
    size: int

    def __call__(self, data: Any, rank: int, world_size: int) -> None:  # noqa: ARG002
        """Read one share of the text. The last task trains."""
        xl.vocab(self.corpora, self.out / "vocab", size=self.size, workers=1, share=xl.Share(rank + 1, world_size))


@dataclass
class TokenizeStep:
    """One share of `crossling tokenize`."""

    corpora: str
    out: Path

    def __call__(self, data: Any, rank: int, world_size: int) -> None:  # noqa: ARG002
        """Tokenize one share of the text. The last task writes the manifest."""
        xl.tokenize(self.corpora, self.out / "vocab", self.out / "shards", share=xl.Share(rank + 1, world_size))


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("corpora")
    parser.add_argument("-o", "--out", type=Path, required=True, help="folder for vocab/, shards/ and logs/")
    parser.add_argument("--size", type=int, required=True, help="number of vocabulary entries")
    parser.add_argument("--tasks", type=int, default=64, help="parts of each command")
    parser.add_argument("--partition", default="cpu", help="of the Slurm cluster")
    parser.add_argument("--time", default="12:00:00", help="limit of each task")
    parser.add_argument("--local", action="store_true", help="run all tasks here, one after the other")
    options = parser.parse_args(arguments)
    out = options.out.absolute()
    corpora = options.corpora if "://" in options.corpora else str(Path(options.corpora).absolute())
    before = None
    for name, step in (("vocab", VocabStep(corpora, out, options.size)), ("tokenize", TokenizeStep(corpora, out))):
        common = {"pipeline": [step], "tasks": options.tasks, "logging_dir": str(out / "logs" / name)}
        if options.local:
            LocalPipelineExecutor(**common, workers=1).run()
        else:
            slurm = {"job_name": name, "partition": options.partition, "time": options.time, "cpus_per_task": 2}
            before = SlurmPipelineExecutor(**common, **slurm, mem_per_cpu_gb=16, depends=before)
    if before is not None:
        before.run()  # submits the one it depends on, too


if __name__ == "__main__":
    main()
