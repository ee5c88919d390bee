from __future__ import annotations

import shutil
from pathlib import Path

from transfer.toys import write_xnli

from crossling.benchmarks.sets import SETS
from crossling.finetune.material import Teacher, gather


def no_teacher() -> Teacher:
    raise AssertionError("all of it has labels")


def test_of_translations_the_language_trained_on_is_left_out(tmp_path: Path) -> None:
    """XTREME has the English training data among the translations too: it must not count twice."""
    write_xnli(tmp_path, {"train": 12, "dev": 3}, {"train": ["en", "fr", "de"], "dev": ["en"]})
    folder = tmp_path / "xnli"
    for language in ("en", "fr", "de"):
        (folder / "translated" / language).mkdir(parents=True)
        shutil.copy(folder / f"train-{language}.tsv", folder / "translated" / language / "train.tsv")
    read = {language: SETS["xnli"].read(tmp_path, "train", language) for language in ("de", "en", "fr")}
    found = gather(SETS["xnli"], tmp_path, "translate-train", no_teacher, chosen=True)
    assert found.train == [*read["en"], *read["de"], *read["fr"]]
    assert gather(SETS["xnli"], tmp_path, "zero-shot", no_teacher, chosen=True).train == read["en"]
