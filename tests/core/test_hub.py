"""Tests of model folders: local ones, the cache of the hub, and the reasons of failures."""

from __future__ import annotations

from pathlib import Path

import pytest
from huggingface_hub.errors import GatedRepoError, HFValidationError, RepositoryNotFoundError

from crossling.core import hub
from crossling.core.errors import BadInput
from crossling.core.hub import TOKENIZER_FILES, WEIGHT_FILES, get_model_folder

COMMIT = "0" * 40


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Cache with owner/model, and no network."""

    def offline(*_: object, **__: object) -> None:
        raise OSError("no network in tests")

    root = tmp_path / "cache"
    snapshot = root / "models--owner--model" / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text("{}")
    (root / "models--owner--model" / "refs").mkdir()
    (root / "models--owner--model" / "refs" / "main").write_text(COMMIT)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(root))
    monkeypatch.setattr(hub, "model_info", offline)
    monkeypatch.chdir(tmp_path)
    return snapshot


def test_a_local_folder_is_returned(tmp_path: Path) -> None:
    assert get_model_folder(tmp_path, WEIGHT_FILES) == get_model_folder(str(tmp_path), TOKENIZER_FILES) == tmp_path


def test_a_cached_model_needs_no_network(cache: Path) -> None:
    assert get_model_folder("owner/model", WEIGHT_FILES).resolve() == cache.resolve()


def test_only_requested_files_are_downloaded(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    request: dict[str, object] = {}

    def download(name: str, **options: object) -> str:
        request.update(options, name=name)
        return str(cache)

    monkeypatch.setattr(hub, "model_info", lambda *_, **__: None)
    monkeypatch.setattr(hub, "snapshot_download", download)
    assert get_model_folder("owner/model", TOKENIZER_FILES) == cache
    assert request == {"name": "owner/model", "allow_patterns": list(TOKENIZER_FILES), "local_files_only": False}


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize("name", ["nobody/no-such-model", "no such name", "nothing"])
def test_an_unreachable_hub_is_named(name: str) -> None:
    message = r"no such folder, and the Hugging Face hub cannot be reached \(no network in tests\)\. Connect, or give"
    with pytest.raises(BadInput, match=message):
        get_model_folder(name, WEIGHT_FILES)


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (RepositoryNotFoundError, "the Hugging Face hub has no public model of this name. Check the spelling."),
        (HFValidationError, "the Hugging Face hub has no public model of this name. Check the spelling."),
        (GatedRepoError, "access to this model on the Hugging Face hub is restricted. Request it there"),
    ],
)
def test_an_unknown_or_restricted_name_is_distinguished_from_being_offline(
    monkeypatch: pytest.MonkeyPatch, kind: type[Exception], reason: str
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise kind.__new__(kind)  # its constructor needs a response

    monkeypatch.setattr(hub, "model_info", refuse)
    with pytest.raises(BadInput, match=f"^xlm-robertta-base: no such folder, and {reason}"):
        get_model_folder("xlm-robertta-base", WEIGHT_FILES)


@pytest.mark.usefixtures("cache")
def test_a_failed_download_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def download(*_: object, **__: object) -> str:
        raise OSError("connection lost\nafter 3 retries")

    monkeypatch.setattr(hub, "model_info", lambda *_, **__: None)
    monkeypatch.setattr(hub, "snapshot_download", download)
    with pytest.raises(
        BadInput, match=r"the download from the Hugging Face hub failed \(connection lost\)\. Try again"
    ):
        get_model_folder("owner/model", WEIGHT_FILES)


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize("name", ["./no/such/folder", "cache/absent", "file"])
def test_a_path_is_never_requested_from_the_hub(name: str) -> None:
    Path("file").touch()
    with pytest.raises(BadInput, match=r"no such folder\. Give a folder with a model"):
        get_model_folder(name, WEIGHT_FILES)
