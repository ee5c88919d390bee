"""Models of others by folder or by name: whatever they are called, what comes out is a folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from huggingface_hub import model_info, snapshot_download

from crossling.errors import BadInput

# Code and pickles are not even fetched.
TOKENIZER = ("*.json", "*.model", "vocab.txt", "merges.txt")
WEIGHTS = ("*.json", "model*.safetensors")


def model_folder(model: str | Path, files: Sequence[str]) -> Path:
    """The folder of a model; one that the hub knows by this name is fetched first, those of its files that are needed
    and not here yet. Without a network the cache has to do."""
    folder = local_folder(model)
    if folder is not None:
        return folder
    name = str(model)
    try:
        return Path(snapshot_download(name, allow_patterns=list(files), local_files_only=not _offered(name)))
    except Exception:  # neither there nor here: each version of the client has its own errors
        raise BadInput(f"{model}: no such folder, and the hub did not offer a model of this name") from None


def local_folder(model: str | Path) -> Path | None:
    """The folder, if it is one: a name on the hub is `model` or `owner/model`; anything else, as `./model`, or inside
    a folder that is here, means a folder, and is refused if there is none."""
    folder = Path(model)
    meant = len(folder.parts) > 2 or (len(folder.parts) == 2 and folder.parent.exists()) or str(model).startswith(".")
    if folder.exists() or meant:
        if not folder.is_dir():
            raise BadInput(f"{model}: no such folder; give a folder with a model, or a name on the Hugging Face hub")
        return folder
    return None


def _offered(name: str) -> bool:
    """Asked once and briefly, since downloads retry long."""
    try:
        model_info(name, timeout=10)
    except Exception:  # unknown there, no network, no permission
        return False
    return True
