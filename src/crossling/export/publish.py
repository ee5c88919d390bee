"""Upload of an exported folder to the Hugging Face hub."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from huggingface_hub import EvalResult, HfApi, ModelCard, get_token
from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled
from huggingface_hub.repocard_data import eval_results_to_model_index

from crossling.core.errors import BadInput, Failed, first_line

if TYPE_CHECKING:
    from crossling.export.model_card import BestScore

CARD = "README.md"
REFUSED = (401, 403)  # HTTP status: the token is not valid, or may not write there
TASK_NAMES = {
    "tatoeba": "Sentence retrieval (Tatoeba)",
    "bucc2018": "Bitext mining (BUCC 2018)",
    "word-alignment": "Word alignment",
}


def check_login(name: str) -> None:
    """Check before the slow work that the hub accepts the token.

    Args:
        name: Repository, `USER/NAME`.

    Raises:
        BadInput: The name is not valid, there is no token, or the hub refuses it.
        Failed: The hub cannot be reached.
    """
    if name.count("/") != 1 or not all(name.split("/")):
        raise BadInput(f"push={name}: expected a repository as USER/NAME.")
    if get_token() is None:
        raise BadInput(f"push={name}: no token for the Hugging Face hub. Run `hf auth login`, or set HF_TOKEN.")
    with _hub_errors(name, "Connect, or omit push."):
        HfApi().whoami()


def upload(folder: Path, name: str, private: bool) -> str:
    """Create a repository if there is none, and upload all files of a folder in one commit.

    Returns:
        Address of the repository.

    Raises:
        BadInput: The hub refuses the token.
        Failed: The hub cannot be reached, or refuses the files.
    """
    api = HfApi()
    with _hub_errors(name, f"{folder} is complete: run `hf upload {name} {folder}`."):
        address = api.create_repo(name, private=private, exist_ok=True)
        api.upload_folder(repo_id=name, folder_path=folder, commit_message="Upload model", ignore_patterns=[".*"])
    return str(address)


@contextmanager
def _hub_errors(name: str, fix: str) -> Iterator[None]:
    """Raise the errors of the hub as one line each."""
    try:
        yield
    except OfflineModeIsEnabled:
        raise BadInput(f"push={name}: HF_HUB_OFFLINE is set, so nothing is uploaded. Unset it.") from None
    except HfHubHTTPError as error:
        status = error.response.status_code
        if status in REFUSED:
            raise BadInput(
                f"push={name}: the Hugging Face hub refuses the token (status {status}). Log in with `hf auth login`"
                f" and a token that may write to {name.partition('/')[0]}."
            ) from None
        raise Failed(f"push={name}: the Hugging Face hub answers with status {status}. {fix}") from None
    except ValueError as error:  # of the name, or of the metadata
        raise BadInput(f"push={name}: {first_line(error)} Correct it.") from None
    except Exception as error:  # of the network; the types of the client change between versions
        raise Failed(f"push={name}: the Hugging Face hub cannot be reached ({first_line(error)}). {fix}") from None


def set_license(folder: Path, license: str | None, push: str | None) -> None:
    """Write the licence into the metadata of a folder's card, or check that the card has one.

    Raises:
        BadInput: The folder is to be uploaded, and there is no licence.
    """
    file = folder / CARD
    if license is None and push is None:
        return
    card: Any = ModelCard.load(file) if file.is_file() else ModelCard(f"---\nlicense:\n---\n\n# {folder.name}\n")
    if license is None:
        check_license(card.data.license, push)
        return
    card.data.license = license
    card.save(file)


def check_license(license: str | None, push: str | None) -> None:
    """Raise BadInput if a folder is to be uploaded and has no licence."""
    if push is not None and not license:
        raise BadInput(
            f"push={push}: the model card has no licence. Give license with one that the training data allows, as"
            " apache-2.0 or cc-by-nc-4.0."
        )


def model_index(name: str, scores: Sequence[BestScore]) -> list[dict[str, Any]]:
    """Return the scores of a run as the `model-index` of a card's metadata."""
    results = [
        EvalResult(
            task_type="feature-extraction",
            task_name=TASK_NAMES.get(score.task, score.task),
            dataset_type=score.task.partition(" ")[0],  # `tatoeba-36 (28 of 36)` is a part of tatoeba-36
            dataset_name=score.task,
            dataset_split=score.split,
            metric_type=score.metric,
            metric_name=f"{score.metric}, %, mean over languages (protocol {score.protocol}, layer {score.layer})",
            metric_value=round(score.value, 2),
        )
        for score in scores
    ]
    return eval_results_to_model_index(name, results) if results else []
