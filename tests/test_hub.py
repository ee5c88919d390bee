"""A model is a folder here, a folder of the hub's cache, or one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from crossling import hub
from crossling.errors import BadInput
from crossling.hub import TOKENIZER, WEIGHTS, model_folder

COMMIT = "0" * 40


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache that holds owner/model, and no network."""

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


def test_a_folder_is_itself(tmp_path: Path) -> None:
    assert model_folder(tmp_path, WEIGHTS) == model_folder(str(tmp_path), TOKENIZER) == tmp_path


def test_a_name_fetched_before_needs_no_network(cache: Path) -> None:
    assert model_folder("owner/model", WEIGHTS).resolve() == cache.resolve()


def test_only_what_is_asked_for_is_fetched(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, object] = {}

    def download(name: str, **options: object) -> str:
        asked.update(options, name=name)
        return str(cache)

    monkeypatch.setattr(hub, "model_info", lambda *_, **__: None)
    monkeypatch.setattr(hub, "snapshot_download", download)
    assert model_folder("owner/model", TOKENIZER) == cache
    assert asked == {"name": "owner/model", "allow_patterns": list(TOKENIZER), "local_files_only": False}


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize("name", ["nobody/no-such-model", "no such name", "nothing"])
def test_a_name_that_is_nowhere(name: str) -> None:
    with pytest.raises(BadInput, match="no such folder, and the hub did not offer a model of this name"):
        model_folder(name, WEIGHTS)


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize("name", ["./no/such/folder", "cache/absent", "file"])
def test_what_can_only_be_a_folder_is_not_asked_for(name: str) -> None:
    Path("file").touch()
    with pytest.raises(BadInput, match="no such folder; give a folder with a model"):
        model_folder(name, WEIGHTS)
