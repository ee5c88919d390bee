"""Copy of a Hugging Face folder without pickles and caches."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from crossling.core.errors import BadInput
from crossling.core.files import read_json

# Weights as pickles or of other frameworks. Safetensors have the same weights and run no code.
NOT_COPIED = {".bin", ".pt", ".pth", ".pkl", ".ckpt", ".h5", ".msgpack", ".onnx", ".ot"}
EXPORT_INFO = "export.json"
REPLACED_FOLDER = "onnx"  # files of an earlier export


def copy_model_folder(source: Path, folder: Path) -> dict[str, Any]:
    """Copy the files of a model.

    Args:
        source: Folder of a Hugging Face or Sentence Transformers model.
        folder: Folder to write. It exists.

    Returns:
        Content of the source's export.json, empty if crossling did not export it.

    Raises:
        BadInput: If the source has no config.json or modules.json.
    """
    if not any((source / name).is_file() for name in ("config.json", "modules.json")):
        raise BadInput(f"{source}: no config.json, so not a Hugging Face folder. Give a run or a Hugging Face encoder.")
    for file in sorted(source.rglob("*")):
        parts = file.relative_to(source).parts
        is_hidden = any(part.startswith(".") for part in parts)
        if file.is_file() and not is_hidden and file.suffix not in NOT_COPIED and parts[0] != REPLACED_FOLDER:
            target = folder.joinpath(*parts)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target)
    info = source / EXPORT_INFO
    return dict(read_json(info)) if info.is_file() else {}
