"""Upload to a local server that answers as the Hugging Face hub does. Nothing else is reached."""

from __future__ import annotations

import base64
import json
import shutil
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from crossling import cli
from crossling.core.errors import BadInput, Failed
from crossling.export import export, publish
from crossling.tasks import scores
from crossling.tasks.scores import Score
from tests.tiny_encoder import make_model, make_tokenizer

from .conftest import Train


class FakeHub(ThreadingHTTPServer):
    """The requests of an upload, and what they contain."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.endpoint = f"http://127.0.0.1:{self.server_port}"
        self.tokens: set[str | None] = set()
        self.created: dict[str, Any] = {}
        self.files: dict[str, bytes] = {}
        self.status: dict[str, int] = {}  # of paths that fail


class _Handler(BaseHTTPRequestHandler):
    server: FakeHub

    def log_message(self, *_: Any) -> None:
        """Print nothing."""

    def answer(self, value: Any, status: int = 200) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        status = self.server.status.get(self.path, 200)
        if self.path.startswith("/api/whoami"):  # other requests of the library's own need no token
            self.server.tokens.add(self.headers.get("Authorization"))
            self.answer({"name": "user", "type": "user"}, status)
        else:
            self.answer({"id": "user/model", "sha": "0" * 40, "siblings": []}, 200 if self.server.created else 404)

    def do_POST(self) -> None:
        self.server.tokens.add(self.headers.get("Authorization"))
        body = self.rfile.read(int(self.headers["Content-Length"]))
        status = self.server.status.get(self.path, 200)
        if status != 200:
            self.answer({"error": "Forbidden"}, status)
        elif self.path == "/api/repos/create":
            self.server.created = json.loads(body)
            self.answer({"url": f"{self.server.endpoint}/user/model", "id": "user/model"})
        elif "/preupload/" in self.path:
            files = [{"path": each["path"], "uploadMode": "regular"} for each in json.loads(body)["files"]]
            self.answer({"files": [{**each, "shouldIgnore": False} for each in files]})
        elif "/commit/" in self.path:
            for line in body.splitlines():
                entry = json.loads(line)
                if entry["key"] == "file":
                    self.server.files[entry["value"]["path"]] = base64.b64decode(entry["value"]["content"])
            self.answer(
                {"commitUrl": f"{self.server.endpoint}/user/model/commit/1", "commitOid": "1" * 40, "success": True}
            )
        else:  # the check of the card's metadata
            self.answer({"errors": [], "warnings": []})


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    server = FakeHub()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", server.endpoint)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def run(train: Train, tmp_path: Path) -> Path:
    """Return a run with a score that is initialized from a model of the hub."""
    run = Path(shutil.copytree(train("xlm_e"), tmp_path / "run"))
    file = run / "recipe.json"
    values = {"data": {"text": {"sw": 3, "no": 2}, "pairs": []}, "init": {"model": "FacebookAI/xlm-roberta-base"}}
    file.write_text(json.dumps(json.loads(file.read_text()) | values))
    common = {"model": str(run), "task": "tatoeba", "protocol": "sweep", "metric": "accuracy", "language": "sw"}
    row = Score(**common, examples=10, value=41.256, direction="en-xx", layer=2, pooling="mean").row()
    scores.add_scores(run / "scores.jsonl", [row])
    return run


def metadata(card: str) -> dict[str, Any]:
    return dict(pytest.importorskip("yaml").safe_load(card.split("---\n")[1]))


def crossling(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    monkeypatch.setattr(sys, "argv", ["crossling", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return int(ended.value.code or 0)


def test_all_files_are_uploaded_with_licence_and_scores_in_the_metadata(
    run: Path, hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    given = ("export", run, "-o", tmp_path / "out", "--push", "user/model", "--private", "--license", "apache-2.0")
    assert crossling(monkeypatch, *given) == 0
    assert "Uploaded the folder to user/model on the Hugging Face hub." in capfd.readouterr().err
    out = {str(file.relative_to(tmp_path / "out")): file for file in (tmp_path / "out").rglob("*") if file.is_file()}
    assert hub.files == {name: file.read_bytes() for name, file in out.items()}
    assert {"model.safetensors", "1_Pooling/config.json", "README.md"} <= hub.files.keys()
    assert (hub.created["name"], hub.created["organization"]) == ("model", "user")
    assert hub.created.get("private") is True or hub.created.get("visibility") == "private"
    assert hub.tokens == {"Bearer hf_secret"}
    card = metadata(hub.files["README.md"].decode())
    assert card["license"] == "apache-2.0"
    assert card["language"] == ["no", "sw"]
    assert card["base_model"] == "FacebookAI/xlm-roberta-base"
    assert (card["pipeline_tag"], card["library_name"]) == ("feature-extraction", "transformers")
    [index] = card["model-index"]
    datasets = {each["dataset"]["name"]: each for each in index["results"]}
    assert [*datasets] == ["tatoeba", "tatoeba-14 (1 of 14)", "tatoeba-36 (1 of 36)"]
    result = datasets["tatoeba"]
    assert result["dataset"] == {"name": "tatoeba", "type": "tatoeba", "split": "test"}
    [metric] = result["metrics"]
    assert (metric["type"], metric["value"]) == ("accuracy", 41.26)
    assert "protocol sweep, layer 2" in metric["name"]


def test_other_encoders_are_uploaded_with_their_card(hub: FakeHub, tmp_path: Path) -> None:
    folder = tmp_path / "bert"
    make_model("bert").save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)
    with pytest.raises(BadInput, match=r"push=user/model: the model card has no licence\. Give license"):
        export(folder, tmp_path / "out", push="user/model")
    assert not (tmp_path / "out").exists()
    export(folder, tmp_path / "out", push="user/model", license="mit")
    assert metadata(hub.files["README.md"].decode())["license"] == "mit"
    (folder / "README.md").write_text("---\nlicense: cc0-1.0\ntags:\n- mine\n---\n\n# Mine\n")
    export(folder, tmp_path / "out", push="user/model")
    assert hub.files["README.md"].decode() == (folder / "README.md").read_text()


@pytest.mark.parametrize(
    ("path", "status", "code", "message"),
    [
        ("/api/whoami-v2", 401, 2, "the Hugging Face hub refuses the token (status 401). Log in with `hf auth login`"),
        (
            "/api/repos/create",
            403,
            2,
            "refuses the token (status 403). Log in with `hf auth login` and a token that may",
        ),
        (
            "/api/models/user/model/commit/main",
            418,
            1,
            "hub answers with status 418. {out} is complete: run `hf upload",
        ),
    ],
)
def test_errors_of_the_hub_are_one_line(
    path: str, status: int, code: int, message: str, run: Path, hub: FakeHub, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    hub.status[path] = status
    out = tmp_path / "out"
    assert crossling(monkeypatch, "export", run, "-o", out, "--push", "user/model", "--license", "mit") == code
    [line] = [line for line in capfd.readouterr().err.splitlines() if line.startswith("crossling: ")]
    assert message.format(out=out) in line
    assert out.exists() == (path != "/api/whoami-v2")


def test_an_upload_is_refused_before_the_work(
    run: Path, hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    with pytest.raises(BadInput, match="has no licence"):
        export(run, out, push="user/model")
    with pytest.raises(BadInput, match=r"push=model: expected a repository as USER/NAME"):
        export(run, out, push="model", license="mit")
    assert not hub.tokens
    with monkeypatch.context() as patch:
        patch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:1")
        with pytest.raises(Failed, match=r"the Hugging Face hub cannot be reached \(.*\)\. Connect, or omit push\."):
            export(run, out, push="user/model", license="mit")
    monkeypatch.delenv("HF_TOKEN")
    monkeypatch.setattr(publish, "get_token", lambda: None)
    with pytest.raises(BadInput, match=r"no token for the Hugging Face hub\. Run `hf auth login`, or set HF_TOKEN\."):
        export(run, out, push="user/model", license="mit")
    assert not out.exists()
    assert crossling(monkeypatch, "export", run, "-o", out, "--private") == 2
