"""Bundled model: a small encoder for 32 languages, used if no model is named. A script in experiments/ builds it."""

from __future__ import annotations

import os
from pathlib import Path

from crossling.core.errors import BadInput

NAME = "bundled"  # name of the model in scores, and wherever a model is expected
FOLDER = Path(__file__).parent / "model"


def folder() -> Path:
    """Return the folder of the bundled model.

    Returns:
        A Hugging Face folder with weights, tokenizer and model card.

    Raises:
        BadInput: This installation has no bundled model.

    Example:
        >>> import crossling.bundled
        >>> from transformers import AutoModel
        >>> model = AutoModel.from_pretrained(crossling.bundled.folder())
    """
    if not (FOLDER / "config.json").is_file():
        raise BadInput(
            "model: this installation has no bundled model. Name a run, an exported folder or a Hugging Face encoder."
        )
    return FOLDER


def resolve_model(model: str | os.PathLike[str]) -> str | Path:
    """Return the folder of the bundled model for its name, and any other model as it is."""
    name = os.fspath(model)
    return folder() if name == NAME else name
