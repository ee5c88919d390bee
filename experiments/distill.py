"""Distil the bundled model into students for German and English, from real text.

    python experiments/distill.py [--pairs 20000] [--text 1000] [--steps 600] [--batch 256] [--results FOLDER]

CROSSLING_DATA names the folder with `pretrain/`. Pairs are those of Tatoeba, text that of Common Voice in both
languages. Three students are compared: layers 1, 3 and 5 of the teacher with its vocabulary trimmed, tiny with random
weights, and the same with the squared error in place of the cosine. All are scored on pairs that no training read.
Writes DATE-distill.json into experiments/results.
"""

from __future__ import annotations

import argparse
import lzma
import os
import random
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import crossling as xl
from crossling.core.files import write_json
from crossling.core.hardware import cpu_name
from crossling.distill.distill import comparison_table

LANGUAGES = ("de", "en")
STUDENTS: dict[str, dict[str, Any]] = {
    "layers 1,3,5": {"layers": "1,3,5", "set": []},
    "tiny": {"size": "tiny", "set": []},
    "tiny, mse": {"size": "tiny", "set": ["distillation.distance=mse"]},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pairs", type=int, default=20_000)
    parser.add_argument("--text", type=int, default=1000, help="sentences of each language")
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--batch", type=int, default=256, help="sentences of a step")
    parser.add_argument("--students", nargs="*", default=[*STUDENTS])
    parser.add_argument("--results", type=Path, default=Path("experiments/results"))
    options = parser.parse_args()
    root = Path(os.environ["CROSSLING_DATA"]) / "pretrain"
    rows = []
    with TemporaryDirectory() as folder:
        files = write_files(root, Path(folder), options.pairs, options.text)
        for name in options.students:
            own = STUDENTS[name]
            settings = [f"steps={options.steps}", f"distillation.sentences={options.batch}", *own["set"]]
            out = Path(folder) / name.replace(" ", "-").replace(",", "")
            result = xl.distill("bundled", out, text=files[:2], pairs=files[2:], **own | {"set": settings})
            print("\n".join(comparison_table(result)), flush=True)
            result["models"][1]["model"] = out.name  # not its temporary folder
            rows.append({"student": name, "settings": settings, **{key: result[key] for key in ("models", "held out")}})
    counts = {"pairs": options.pairs, "text": options.text, "steps": options.steps, "batch": options.batch}
    command = "python experiments/distill.py " + " ".join(f"--{key} {value}" for key, value in counts.items())
    command += " --students " + " ".join(f"{name!r}" for name in options.students)
    file = options.results / f"{date.today()}-distill.json"
    write_json(file, {"device": cpu_name(), "command": command, "teacher": "bundled", "rows": rows})
    print(file)


def write_files(root: Path, folder: Path, pairs: int, text: int) -> list[Path]:
    """Write text of both languages and a table of pairs, sampled at random."""
    generator = random.Random(0)
    files = []
    for language in LANGUAGES:
        lines = [line.strip() for line in _read(root / "text" / f"{language}.txt.xz") if line.strip()]
        files.append(folder / f"{language}.txt")
        files[-1].write_text("\n".join(generator.sample(lines, min(text, len(lines)))) + "\n", encoding="utf-8")
    sides = [_read(root / "multi" / "tatoeba" / f"{language}.txt.xz") for language in LANGUAGES]
    rows = [row for row in zip(*sides, strict=True) if all(side.strip() for side in row)]
    files.append(folder / "de-en.tsv")
    sampled = generator.sample(rows, min(pairs, len(rows)))
    files[-1].write_text("".join("\t".join(row) + "\n" for row in sampled), encoding="utf-8")
    return files


def _read(file: Path) -> list[str]:
    return lzma.decompress(file.read_bytes()).decode().split("\n")


if __name__ == "__main__":
    main()
