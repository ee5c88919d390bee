from __future__ import annotations

import shutil
from pathlib import Path

from crossling.finetune.training_data import load_training_data
from crossling.tasks.registry import DATASETS

from .tiny_tasks import no_teacher, write_xnli


def test_the_source_language_is_excluded_from_the_translations(tmp_path: Path) -> None:
    """XTREME has the English training data among the translations too. It must not count twice."""
    write_xnli(tmp_path, {"train": 12, "dev": 3}, {"train": ["en", "fr", "de"], "dev": ["en"]})
    folder = tmp_path / "xnli"
    for language in ("en", "fr", "de"):
        (folder / "translated" / language).mkdir(parents=True)
        shutil.copy(folder / f"train-{language}.tsv", folder / "translated" / language / "train.tsv")
    read = {language: DATASETS["xnli"].read(tmp_path, "train", language) for language in ("de", "en", "fr")}
    found = load_training_data(DATASETS["xnli"], tmp_path, "translate-train", teacher=no_teacher, needs_dev=True)
    assert found.train == [*read["en"], *read["de"], *read["fr"]]
    assert (
        load_training_data(DATASETS["xnli"], tmp_path, "zero-shot", teacher=no_teacher, needs_dev=True).train
        == read["en"]
    )
