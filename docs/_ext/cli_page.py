"""Reference of the command line, from the program itself: usage, arguments and options of every command."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import typer.main
from markdown_tables import code, escape, table

from crossling.cli.app import GROUPS, app

# "[required]", "[default: 0; x>=0]" or "[x>=1]" at the end of a help text, or the default that a text states itself.
_NOTE = re.compile(r"\s+\[((?:required|default|x[<>]|\d+<=).*?)\]")
_EXAMPLE = re.compile(r"(?P<label>[^:]+): (?P<command>(?:crossling|torchrun|srun) .+)", re.DOTALL)


def commands() -> str:
    """Return every command by group, as Markdown."""
    program = typer.main.get_command(app)
    parts = []
    for group, members in GROUPS.items():
        parts += [f"## {group}\n"]
        parts += [_describe(program, function.__name__, summary) for function, summary in members.items()]
    return "\n".join(parts)


def _describe(program: Any, name: str, summary: str) -> str:
    command = program.commands[name]
    context = command.context_class(
        command, info_name=name, parent=program.context_class(program, info_name="crossling")
    )
    usage = context.get_usage().removeprefix("Usage: ")
    paragraphs = [" ".join(each.split()) for each in (command.help or summary).split("\n\n")]
    prose = [each for each in paragraphs if not _EXAMPLE.fullmatch(each)]
    parts = [f"### crossling {name}\n", *(f"{escape(each)}\n" for each in prose)]
    parts += [f"```text\n{' '.join(usage.split())}\n```\n", *_examples(paragraphs)]
    for kind in ("argument", "option"):
        parameters = [each for each in command.get_params(context) if each.param_type_name == kind]
        records = [record for each in parameters if (record := each.get_help_record(context))]
        if records:
            parts.append(table([kind, "description", "default"], [_row(*record) for record in records]))
    return "\n".join(parts)


def _examples(paragraphs: list[str]) -> Iterator[str]:
    for paragraph in paragraphs:
        if example := _EXAMPLE.fullmatch(paragraph):
            yield f"{example['label']}:\n\n```bash\n{example['command']}\n```\n"


def _row(name: str, text: str) -> tuple[str, str, str]:
    notes = "; ".join(note.removeprefix("default: ") for note in _NOTE.findall(text))
    notes = re.sub(r"x>=", "≥ ", notes)
    return code(re.sub(r" <.*>", "", name)), escape(_NOTE.sub("", text)), escape(notes)
