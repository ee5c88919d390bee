"""Wrong settings, recipes and folders are refused before torch and transformers are imported, which takes seconds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from crossling.data.shards import Shards

PROGRAM = """
import sys
from crossling import cli
for line in sys.stdin.read().splitlines():
    sys.argv = ["crossling", *line.split()]
    try:
        cli.main()
    except SystemExit as end:
        print(end.code, *{"torch", "transformers"} & {*sys.modules}, file=sys.stderr)
"""
CASES = [
    ("pretrain xlm_e --shards SHARDS -o out --set lrr=1", "lrr: there is no 'lrr'; did you mean 'lr'?"),
    ("pretrain xlm_e --shards SHARDS -o out --set lr=-1", "recipe xlm_e: lr must be more than 0"),
    ("pretrain xlm_e --shards SHARDS -o out --set mlm=on", "recipe xlm_e: mrtd already trains a generator"),
    ("pretrain xlm_f --shards SHARDS -o out", "xlm_f: there is no such recipe"),
    ("pretrain absent.json --shards SHARDS -o out", "absent.json: not a readable recipe.json"),
    ("pretrain rosetta --shards SHARDS -o out --init bundled --set lrr=1", "lrr: there is no 'lrr'"),
    ("pretrain rosetta --shards SHARDS -o out --init ./absent", "./absent: no such folder"),
    ("pretrain xlm_e --shards absent -o out", "absent: no shards found"),
    ("pretrain xlm_e --shards SHARDS -o out --probe absent", "absent: no such folder"),
    ("pretrain xlm_e --shards SHARDS -o out --validate absent", "absent: no shards found"),
    ("plan xlm_e --shards SHARDS --set stepps=1", "stepps: there is no 'stepps'"),
    ("plan xlm_e --shards absent --hours 2", "absent: no shards found"),
    ("finetune . --task xnli --data . -o out --set lrr=1", "lrr: there is no 'lrr'"),
    ("finetune . --task translation --directions a-b --data . -o out --set lrr=1", "lrr: there is no 'lrr'"),
    ("lab synthetik -o out", "synthetik: neither a plan that ships nor a .json file; did you mean 'synthetic'?"),
    ("lab synthetic -o out --only xml", "only=xml: there is no such run in plan synthetic"),
    ("lab papers -o out --shards absent --data .", "absent: no shards found"),
    ("lab papers -o out --shards SHARDS --data absent", "absent: no such folder"),
    ("bench stepp", "stepp: no such benchmark; did you mean 'step'?"),
    ("bench step --size bas", "size=bas: no such size; did you mean 'base'?"),
    ("evaluate --task tatoba --data .", "task=tatoba: no such task; did you mean 'tatoeba'?"),
    ("audit absent", "absent: no such folder"),
    ("export absent -o out", "absent: no such folder"),
    ("merge absent absent -o out", "absent: no such folder"),
    ("translate absent text", "absent: no such folder"),
    ("align absent", "absent: no such file"),
    ("align absent --model ./absent", "./absent: no such folder"),
    ("embed absent -o out", "absent: no such file"),
    ("mine absent absent", "absent: no such file"),
]


@pytest.fixture(scope="module")
def messages(shards: Shards, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Run every command in one process."""
    given = "\n".join(command.replace("SHARDS", str(shards.path)) for command, _ in CASES)
    folder = tmp_path_factory.mktemp("early")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], input=given, cwd=folder, capture_output=True, text=True, check=True
    )
    assert list(folder.iterdir()) == []
    return done.stderr.splitlines()


@pytest.mark.parametrize("number", range(len(CASES)), ids=lambda number: CASES[number][0].replace("/", ""))
def test_bad_input_is_refused_without_torch(number: int, messages: list[str]) -> None:
    message, code = messages[2 * number : 2 * number + 2]
    assert message.startswith(f"crossling: {CASES[number][1]}")
    assert code == "2"


def test_another_process_of_the_run_leaves_the_message_to_the_main_process(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from crossling.cli.options import check_recipe

    monkeypatch.setenv("RANK", "1")
    check_recipe("absent", tmp_path, size=None, assignments=[])
