"""Every job runs exactly once in any process, and errors are raised unchanged."""

from __future__ import annotations

import errno
import importlib.util
import os
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossling.core import jobs as module
from crossling.core.errors import BadInput
from crossling.core.jobs import Job, Share, run_jobs


def touch_jobs(folder: Path, number: int) -> list[Job]:
    return [Job(f"job {i}", partial(Path.touch, folder / str(i), exist_ok=False)) for i in range(number)]


def slow_jobs(number: int) -> list[Job]:
    """Jobs of some tens of milliseconds each."""
    return [Job(f"job {i}", partial(sum, range(2_000_000))) for i in range(number)]


def touched_files(folder: Path) -> list[int]:
    return sorted(int(file.name) for file in folder.iterdir())


# Raises BadInput in any process, without importing this module.
FAILING = Job("failing", partial(Share.parse, "never"))


def never(*_: Any, **__: Any) -> NoReturn:
    raise AssertionError("the other kind of process pool was used")


@pytest.fixture(params=["datatrove", "standard library"])
def processes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two kinds of process pool, each with the other one disabled."""
    if request.param == "datatrove":
        pytest.importorskip("datatrove")
        monkeypatch.setattr(module, "ProcessPoolExecutor", never)
    else:
        found = importlib.util.find_spec
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "datatrove" else found(name))
        monkeypatch.setattr(module, "_run_on_datatrove", never)


# ---- shares ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "share"), [("1/1", Share(1, 1)), ("3/16", Share(3, 16)), ("16/16", Share(16, 16))])
def test_shares_are_parsed(text: str, share: Share) -> None:
    assert Share.parse(text) == share


@pytest.mark.parametrize(
    "text", ["", "3", "0/3", "4/3", "1/0", "0/0", "-1/3", "1/3/5", "a/b", "1 / 3", "1/3\n", "1.0/3", "/3", "1/"]
)
def test_an_invalid_share_is_refused(text: str) -> None:
    with pytest.raises(BadInput) as refused:
        Share.parse(text)
    assert str(refused.value) == f"share={text}: expected I/N with I from 1 to N, such as 3/16."


@given(number=st.integers(0, 40), of=st.integers(1, 50))
def test_shares_partition_the_jobs(number: int, of: int) -> None:
    jobs = [Job(str(i), int) for i in range(number)]
    shares = [Share(i, of).select(jobs) for i in range(1, of + 1)]
    assert sorted((job for share in shares for job in share), key=lambda job: int(job.name)) == jobs
    sizes = [*map(len, shares)]
    assert max(sizes) - min(sizes) <= 1


def test_a_share_runs_only_its_own_jobs(tmp_path: Path) -> None:
    jobs = touch_jobs(tmp_path, 7)
    run_jobs("touch", jobs, share=Share(2, 3))
    assert touched_files(tmp_path) == [1, 4]
    run_jobs("touch", jobs, share=Share(3, 3))
    run_jobs("touch", jobs, share=Share(1, 3))  # exist_ok=False: no job runs twice
    assert touched_files(tmp_path) == [*range(7)]


def test_a_share_may_be_empty(tmp_path: Path) -> None:
    run_jobs("touch", touch_jobs(tmp_path, 2), workers=2, share=Share(3, 3))
    assert touched_files(tmp_path) == []


# ---- one process -----------------------------------------------------------------------------------


def test_one_worker_runs_the_jobs_in_order_in_this_process() -> None:
    done: list[tuple[int, int]] = []

    def note(number: int) -> None:
        done.append((number, os.getpid()))

    jobs: list[Job] = [Job(str(i), partial(note, i)) for i in range(5)]
    run_jobs("note", jobs)
    assert done == [(i, os.getpid()) for i in range(5)]


@pytest.mark.parametrize("error", [BadInput("sw.txt, line 3: not one usable line"), KeyboardInterrupt(), KeyError("x")])
def test_the_first_error_stops_the_jobs(tmp_path: Path, error: BaseException) -> None:
    def fail() -> NoReturn:
        raise error

    first, second = touch_jobs(tmp_path, 2)
    with pytest.raises(type(error)) as raised:
        run_jobs("touch", [first, Job("failing", fail), second])
    assert raised.value is error
    assert touched_files(tmp_path) == [0]


def test_one_job_needs_no_process_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ProcessPoolExecutor", never)
    monkeypatch.setattr(module, "_run_on_datatrove", never)
    done: list[int] = []
    run_jobs("note", [Job("only", partial(done.append, 1))], workers=8)
    assert done == [1]


def test_progress_is_shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    updates: list[tuple[int, str]] = []
    monkeypatch.setattr(module.Progress, "update", lambda _, done, note: updates.append((done, note)))
    run_jobs("touch", touch_jobs(tmp_path, 3))
    assert updates == [(1, "job 0"), (2, "job 1"), (3, "job 2")]


# ---- several processes ---------------------------------------------------------------------------------------


def printed(capfd: pytest.CaptureFixture[str]) -> list[str]:
    """Return the printed lines of the progress bar."""
    output, errors = capfd.readouterr()
    assert output == ""
    lines = errors.splitlines()
    assert all(line.startswith("touch ") for line in lines), errors
    return lines


@pytest.mark.usefixtures("processes")
def test_processes_run_each_job_once_and_print_only_progress(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run_jobs("touch", touch_jobs(tmp_path, 5), workers=2)
    assert touched_files(tmp_path) == [*range(5)]
    assert printed(capfd)[-1].startswith("touch 5/5  job ")


@pytest.mark.usefixtures("processes")
def test_errors_of_processes_are_raised_unchanged(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(BadInput) as raised:
        run_jobs("touch", [FAILING, *slow_jobs(30)], workers=2)
    assert type(raised.value) is BadInput
    assert str(raised.value) == "share=never: expected I/N with I from 1 to N, such as 3/16."
    # Few jobs start after it: thirty of them take longer than the error needs to arrive.
    assert not any("31/31" in line for line in printed(capfd))


class Strange(Exception):
    """Error class that other modules cannot import."""


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (BadInput("x: bad; do that"), BadInput),
        (OSError(errno.ENOSPC, "No space left on device", "out/x"), OSError),
        (KeyError("x"), KeyError),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "why"), RuntimeError),
        (Strange("odd"), RuntimeError),
    ],
)
def test_an_error_written_to_a_file_is_restored_without_unpickling(
    error: Exception, kind: type[Exception], tmp_path: Path
) -> None:
    try:
        raise error
    except Exception as caught:
        module._write_error(caught, tmp_path / "error")
    found = module._read_error(tmp_path / "error")
    assert type(found) is kind
    if isinstance(found, OSError):
        assert (found.errno, found.filename) == (errno.ENOSPC, "out/x")
    elif kind is type(error):
        assert str(found) == str(error)
    assert any(type(error).__name__ in note for note in found.__notes__)
