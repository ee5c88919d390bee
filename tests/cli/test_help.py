"""Help, suggestions and exit codes of the command line."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from crossling import cli
from crossling.cli.app import GROUPS

from .conftest import Command, Completed, error_line

COMMANDS = [command.__name__ for commands in GROUPS.values() for command in commands]


def test_commands_are_grouped() -> None:
    assert [*GROUPS] == ["Data", "Train", "Use", "Evaluate", "Research"]
    expected = [
        *("synth", "ingest", "check", "clean", "vocab", "tokenize"),
        *("adapt", "plan", "pretrain", "finetune", "distill", "export", "merge"),
        *("align", "embed", "mine", "predict", "translate"),
        *("evaluate", "report"),
        *("demo", "lab", "audit", "bench"),
    ]
    assert expected == COMMANDS
    registered = [command.callback.__name__ for command in cli.app.registered_commands if command.callback]
    assert registered == COMMANDS


def test_help_lists_every_summary_in_full(crossling: Command) -> None:
    text = crossling("--help").out
    for title, commands in GROUPS.items():
        assert f"\n{title}:\n" in text
        for command, summary in commands.items():
            assert len(summary) <= 60
            assert re.search(rf"^  {command.__name__} +{re.escape(summary)}$", text, re.MULTILINE)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_an_example_and_readable_metavariables(command: str, crossling: Command) -> None:
    completed = crossling(command, "--help")
    assert completed.code == 0
    assert f"Example: crossling {command} " in completed.out
    assert not re.search(r"<\w+|\b(TEXT|INTEGER|FLOAT|PATH)\b", completed.out)
    # Some versions of typer turn a metavariable with the name of its parameter into the option: --DOMAIN.
    assert not re.search(r"--[A-Z]", completed.out)


@pytest.mark.parametrize(
    ("arguments", "suggestion"),
    [
        (["pretrian"], "Did you mean 'pretrain'?"),
        (["pretrain", "xlm_e", "--shrads", "x"], "--shards"),
        (["synth", "--sentence", "5"], "--sentences"),
    ],
)
def test_a_misspelt_command_or_option_gets_a_suggestion(
    arguments: list[str], suggestion: str, crossling: Command
) -> None:
    completed = crossling(*arguments)
    assert completed.code == 2
    assert "No such" in completed.err
    assert suggestion in completed.err.splitlines()[-1]


@pytest.mark.parametrize(
    ("arguments", "missing"),
    [(["pretrain"], "RECIPE"), (["tokenize", "x", "-o", "y"], "--vocab"), (["evaluate", "x", "--task", "y"], "--data")],
)
def test_a_missing_argument_is_named(arguments: list[str], missing: str, crossling: Command) -> None:
    completed = crossling(*arguments)
    assert completed.code == 2
    assert missing in error_line(completed, 2)


def test_help_does_not_import_torch() -> None:
    program = (
        "import runpy, sys; sys.argv = ['crossling', '--help']\n"
        "try: runpy.run_module('crossling', run_name='__main__', alter_sys=True)\n"
        "except SystemExit as end: assert not end.code\n"
        "heavy = {'torch', 'numpy', 'transformers'} & set(sys.modules); assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "pretrain" in done.stdout


def test_a_process_ends_with_the_exit_code() -> None:
    command = [sys.executable, "-m", "crossling", "vocab", "absent", "--size", "9", "-o", "x"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    line = error_line(Completed(done.returncode, done.stdout, done.stderr), 2)
    assert line.startswith("crossling: absent")
