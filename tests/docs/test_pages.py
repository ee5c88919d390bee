"""Every code block of the README and of the documentation runs. Contract of the comments: page_blocks.py."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from .command_server import PythonSession, write_client
from .page_blocks import REASONS, Block, Page, output_matches, read_page, split_console
from .prepared_files import prepare

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
RUNNABLE = [path for path in PAGES if any(not block.reason for block in read_page(path).blocks)]
SECONDS = 300  # of one command

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the command server needs fork and sockets of packets")


@pytest.fixture(scope="session")
def server() -> Iterator[Path]:
    """The address of the command server of this test process."""
    with tempfile.TemporaryDirectory() as folder:  # a socket's address has at most 107 bytes
        address = Path(folder) / "server"
        write_client(Path(folder) / "bin" / "crossling", address)
        script = Path(__file__).with_name("command_server.py")
        environment = {**os.environ, "TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
        process = subprocess.Popen([sys.executable, str(script), str(address)], env=environment)
        try:
            while not address.exists():
                with pytest.raises(subprocess.TimeoutExpired):
                    process.wait(0.1)
            yield address
        finally:
            process.kill()
            process.wait()


@pytest.mark.parametrize("path", RUNNABLE, ids=lambda path: str(path.relative_to(ROOT)))
def test_code_blocks_run(path: Path, server: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    page = read_page(path)
    root = tmp_path_factory.getbasetemp()
    shared = root.parent if "PYTEST_XDIST_WORKER" in os.environ else root
    prepare(page.files, tmp_path, shared / "prepared-files")
    run_page(page, tmp_path, server)


def run_page(page: Page, folder: Path, server: Path) -> None:
    """Run the blocks of a page from top to bottom in one folder."""
    search = os.pathsep.join([str(server.parent / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": search, "HF_HUB_OFFLINE": "1", "NO_COLOR": "1", "COLUMNS": "120"}
    environment |= {"TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"}
    session = PythonSession(server, folder, environment)
    try:
        for block in page.blocks:
            if block.reason:
                continue
            place = f"{page.path.relative_to(ROOT)}:{block.line}"
            if block.language == "python":
                ended, printed = session.run(block.code)
                assert ended, f"{place}:\n{block.code}\n\n{printed}"
            else:
                run_shell(block, place, folder, environment)
    finally:
        session.close()


def run_shell(block: Block, place: str, folder: Path, environment: dict[str, str]) -> None:
    commands = split_console(block.code) if block.language == "console" else [(block.code, [])]
    for command, expected in commands:
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        shell = ["bash", "-euo", "pipefail", "-c", command]
        done = subprocess.run(
            shell, cwd=folder, env=environment, text=True, timeout=SECONDS, encoding="utf-8", check=False, **streams
        )
        report = f"{place}: exit code {done.returncode}\n{command}\n\n{done.stdout}\n{done.stderr}"
        if expected:
            outputs = (done.stdout, done.stderr, done.stdout + done.stderr, done.stderr + done.stdout)
            assert any(output_matches(expected, output) for output in outputs), report
        assert done.returncode == 0 or (done.returncode == 2 and expected), report


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_blocks_that_are_not_run_have_an_accepted_reason(path: Path) -> None:
    for block in read_page(path).blocks:
        assert block.reason in ("", *REASONS), f"line {block.line}"
