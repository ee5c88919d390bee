"""Tasks are done once each, whoever does them, and their errors come out as they are."""

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

from crossling import tasks as module
from crossling.errors import BadInput
from crossling.tasks import Share, Task, run


def touching(folder: Path, number: int) -> list[Task]:
    return [Task(f"task {i}", partial(Path.touch, folder / str(i), exist_ok=False)) for i in range(number)]


def counting(number: int) -> list[Task]:
    """Some tens of milliseconds of work each."""
    return [Task(f"task {i}", partial(sum, range(2_000_000))) for i in range(number)]


def touched(folder: Path) -> list[int]:
    return sorted(int(file.name) for file in folder.iterdir())


# What raises BadInput in any process, without this module.
FAILING = Task("failing", partial(Share.parse, "never"))


def never(*_: Any, **__: Any) -> NoReturn:
    raise AssertionError("the other way of running processes")


@pytest.fixture(params=["datatrove", "standard library"])
def processes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two ways of running processes, each with the other one locked."""
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
def test_what_is_no_share_is_refused(text: str) -> None:
    with pytest.raises(BadInput) as refused:
        Share.parse(text)
    assert str(refused.value) == f"--task {text}: expected i/n with i from 1 to n, such as 3/16"


@given(number=st.integers(0, 40), of=st.integers(1, 50))
def test_shares_divide_the_tasks(number: int, of: int) -> None:
    tasks = [Task(str(i), int) for i in range(number)]
    parts = [Share(i, of).part(tasks) for i in range(1, of + 1)]
    assert sorted((task for part in parts for task in part), key=lambda task: int(task.name)) == tasks
    sizes = [*map(len, parts)]
    assert max(sizes) - min(sizes) <= 1


def test_a_share_does_its_part_alone(tmp_path: Path) -> None:
    tasks = touching(tmp_path, 7)
    run("touch", tasks, share=Share(2, 3))
    assert touched(tmp_path) == [1, 4]
    run("touch", tasks, share=Share(3, 3))
    run("touch", tasks, share=Share(1, 3))  # exist_ok=False: nothing is done twice
    assert touched(tmp_path) == [*range(7)]


def test_a_share_may_be_empty(tmp_path: Path) -> None:
    run("touch", touching(tmp_path, 2), workers=2, share=Share(3, 3))
    assert touched(tmp_path) == []


# ---- one after the other -----------------------------------------------------------------------------------


def test_one_worker_keeps_the_order_and_the_process() -> None:
    done: list[tuple[int, int]] = []

    def note(number: int) -> None:
        done.append((number, os.getpid()))

    tasks: list[Task] = [Task(str(i), partial(note, i)) for i in range(5)]
    run("note", tasks)
    assert done == [(i, os.getpid()) for i in range(5)]


@pytest.mark.parametrize("error", [BadInput("sw.txt, line 3: not one usable line"), KeyboardInterrupt(), KeyError("x")])
def test_the_first_error_ends_it(tmp_path: Path, error: BaseException) -> None:
    def fail() -> NoReturn:
        raise error

    first, second = touching(tmp_path, 2)
    with pytest.raises(type(error)) as raised:
        run("touch", [first, Task("failing", fail), second])
    assert raised.value is error
    assert touched(tmp_path) == [0]


def test_one_task_needs_no_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ProcessPoolExecutor", never)
    monkeypatch.setattr(module, "_run_on_datatrove", never)
    done: list[int] = []
    run("note", [Task("only", partial(done.append, 1))], workers=8)
    assert done == [1]


def test_progress_is_shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    shown: list[tuple[int, str]] = []
    monkeypatch.setattr(module.Progress, "update", lambda _, done, note: shown.append((done, note)))
    run("touch", touching(tmp_path, 3))
    assert shown == [(1, "task 0"), (2, "task 1"), (3, "task 2")]


# ---- several processes ---------------------------------------------------------------------------------------


def printed(capfd: pytest.CaptureFixture[str]) -> list[str]:
    """The lines of the bar, after which nothing is left."""
    output, errors = capfd.readouterr()
    assert output == ""
    lines = errors.splitlines()
    assert all(line.startswith("touch ") for line in lines), errors
    return lines


@pytest.mark.usefixtures("processes")
def test_processes_do_each_task_once_and_show_it_and_nothing_else(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run("touch", touching(tmp_path, 5), workers=2)
    assert touched(tmp_path) == [*range(5)]
    assert printed(capfd)[-1].startswith("touch 5/5  task ")


@pytest.mark.usefixtures("processes")
def test_errors_of_processes_come_out_as_they_are(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(BadInput) as raised:
        run("touch", [FAILING, *counting(30)], workers=2)
    assert type(raised.value) is BadInput
    assert str(raised.value) == "--task never: expected i/n with i from 1 to n, such as 3/16"
    # Little is begun after it: thirty such tasks take longer than it takes to hear of an error.
    assert not any("31/31" in line for line in printed(capfd))


class Strange(Exception):
    """Known to nobody else."""


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
def test_an_error_left_in_a_file_is_the_same_without_unpickling(
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
