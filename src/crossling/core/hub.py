"""Models of the Hugging Face hub, by name or local folder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path

from huggingface_hub import model_info, snapshot_download
from huggingface_hub.errors import GatedRepoError, HFValidationError, OfflineModeIsEnabled, RepositoryNotFoundError

from crossling.core.errors import BadInput, first_line

# Python code and pickles are never downloaded.
TOKENIZER_FILES = ("*.json", "*.model", "vocab.txt", "merges.txt")
WELL_KNOWN = (
    *("xlm-roberta-base", "xlm-roberta-large", "FacebookAI/xlm-roberta-base", "microsoft/infoxlm-base"),
    *("bert-base-multilingual-cased", "sentence-transformers/LaBSE", "intfloat/multilingual-e5-base"),
)
WEIGHT_FILES = ("*.json", "model*.safetensors")


def get_model_folder(model: str | Path, files: Sequence[str]) -> Path:
    """Return the folder of a model; download it first if the model is a name on the hub.

    Uses the local cache if the hub cannot be reached.

    Args:
        model: Folder, or name on the hub.
        files: Patterns of the files to download.

    Raises:
        BadInput: If there is neither a folder nor a model of this name.
    """
    folder = find_local_folder(model)
    if folder is not None:
        return folder
    name = str(model)
    problem = _hub_problem(name)
    try:
        return Path(snapshot_download(name, allow_patterns=list(files), local_files_only=problem is not None))
    except Exception as error:  # the client's error types change between versions
        problem = problem or f"the download from the Hugging Face hub failed ({first_line(error)}). Try again."
        close = get_close_matches(name, _known_names(), n=1, cutoff=0.7)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise BadInput(f"{model}: no such folder, and {problem}{hint}") from None


def _known_names() -> list[str]:
    """Return names that a user may have meant: the bundled model, well-known encoders, and folders here."""
    return ["bundled", *WELL_KNOWN, *(entry.name for entry in Path().iterdir() if entry.is_dir())]


def find_local_folder(model: str | Path) -> Path | None:
    """Return the folder of a model, or None for a name on the hub.

    A name on the hub is `model` or `owner/model`. Anything else, such as `./model` or a path in an existing folder,
    must be a folder.
    """
    folder = Path(model)
    is_path = len(folder.parts) > 2 or (len(folder.parts) == 2 and folder.parent.exists()) or str(model).startswith(".")
    if folder.exists() or is_path:
        if not folder.is_dir():
            raise BadInput(f"{model}: no such folder. Give a folder with a model, or a name on the Hugging Face hub.")
        return folder
    return None


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Silence progress bars and warnings of transformers, such as those about weights, which are checked here."""
    from transformers.utils import logging  # the command line imports this module before any slow one

    verbosity = logging.get_verbosity()
    has_bars = logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if has_bars:
            logging.enable_progress_bar()


def _hub_problem(name: str) -> str | None:
    """Return why the hub does not provide a model of this name, or None if it does."""
    try:
        model_info(name, timeout=10)  # one short request: downloads retry for a long time
    except GatedRepoError:
        return "access to this model on the Hugging Face hub is restricted. Request it there, then run `hf auth login`."
    except (RepositoryNotFoundError, HFValidationError):
        return "the Hugging Face hub has no public model of this name. Check the spelling."
    except OfflineModeIsEnabled:
        return "HF_HUB_OFFLINE is set, so the Hugging Face hub is not searched. Unset it, or give a local folder."
    except Exception as error:  # no network, a proxy
        return f"the Hugging Face hub cannot be reached ({first_line(error)}). Connect, or give a local folder."
    return None
