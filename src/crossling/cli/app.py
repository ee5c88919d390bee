"""The command line: its commands by group, and the exit codes."""

from __future__ import annotations

import errno
import os
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup

from crossling import __version__
from crossling.cli.adapt_command import adapt
from crossling.cli.data_commands import check, clean, ingest, synth, tokenize, vocab
from crossling.cli.distill_command import distill
from crossling.cli.evaluate_commands import evaluate, report
from crossling.cli.research_commands import audit, bench, demo, lab
from crossling.cli.train_commands import export, finetune, merge, plan, pretrain
from crossling.cli.use_commands import align, embed, mine, predict, translate
from crossling.core import progress
from crossling.core.errors import BadInput, Failed, Interrupted

GROUPS: dict[str, dict[Callable[..., None], str]] = {
    "Data": {
        synth: "Generate synthetic languages: corpora and benchmarks.",
        ingest: "Make corpora from documents, spreadsheets and text files.",
        check: "Report counts, bad lines and benchmark leakage of corpora.",
        clean: "Write corpora without the lines that the rules drop.",
        vocab: "Train a vocabulary, or reuse, extend or trim one.",
        tokenize: "Turn text into token shards. Resumable.",
    },
    "Train": {
        adapt: "Adapt an encoder to new languages, from your files.",
        plan: "Show sampling, epochs, memory, FLOPs and time. No training.",
        pretrain: "Pre-train a model, or adapt one with --init. Resumable.",
        finetune: "Fine-tune a model for a task or for translation.",
        distill: "Distil a sentence encoder into a small student.",
        export: "Write a run as a Hugging Face folder.",
        merge: "Average the weights of checkpoints.",
    },
    "Use": {
        align: "Align the words of sentence pairs.",
        embed: "Write sentence vectors of a text file.",
        mine: "Find translations in two text files.",
        predict: "Predict tags, classes or answers on a file.",
        translate: "Translate a text file with a fine-tuned translator.",
    },
    "Evaluate": {
        evaluate: "Score a model on benchmark tasks.",
        report: "Write one page that compares runs with the papers.",
    },
    "Research": {
        demo: "Run the pipeline on synthetic languages, then on Icelandic.",
        lab: "Train and compare recipes under one budget.",
        audit: "Rank bitext by training dynamics: noisy, or too easy.",
        bench: "Measure speed and memory beside other libraries.",
    },
}

# Settings that are often given as options of pretrain, plan and finetune.
SETTING_NAMES = {
    *("steps", "lr", "seed", "epochs", "batch", "length", "warmup", "checkpoint_every", "log_every", "micro_tokens"),
    *("learning_rate", "batch_size", "max_steps", "max_length", "warmup_steps", "weight_decay", "num_train_epochs"),
}
PRECISION_NAMES = {"precision", "fp16", "bf16", "dtype", "mixed_precision", "amp"}
_PRECISION = "GPUs train in bfloat16 with float32 weights, CPUs in float32."
# A full, read-only or otherwise unwritable disk.
UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EACCES, errno.EPERM, errno.EROFS)
# A path that cannot be an output: a file in place of a folder, for example.
WRONG_PATH = (errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ENOENT)


class PlainHelpCommand(TyperCommand):
    """Command whose help shows metavariables without Python types, and whose usage errors state the fix."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the command line. Add to an error what the missing option is, or the setting that was meant."""
        given = list(args)
        try:
            return super().parse_args(ctx, list(_repeat_options(self, args)))
        except Exception as error:  # of click, which typer may bundle under another name
            hint = _usage_hint(self, error, given)
            if hint:
                raise BadInput(f"{self.name}: {hint}") from None
            raise

    def format_usage(self, ctx: Any, formatter: Any) -> None:
        """Write the usage line."""
        arguments = [parameter.metavar for parameter in self.params if parameter.param_type_name == "argument"]
        formatter.write_usage(ctx.command_path, " ".join(["[OPTIONS]", *map(str, arguments)]))

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments, then the options."""
        for title, kind in (("Arguments", "argument"), ("Options", "option")):
            parameters = [parameter for parameter in self.get_params(ctx) if parameter.param_type_name == kind]
            records = [record for parameter in parameters if (record := parameter.get_help_record(ctx))]
            if records:
                with formatter.section(title):
                    formatter.write_dl([(re.sub(r" <.*>", "", name), text) for name, text in records])


def _repeat_options(command: TyperCommand, words: list[str]) -> Iterator[str]:
    """Yield the words with an option before each of its files: `--text a b` as `--text a --text b`."""
    options = {name for parameter in command.params if parameter.metavar == "FILES" for name in parameter.opts}
    option = ""
    for before, word in pairwise(["", *words]):
        if word.startswith("-"):
            option = word if word in options else ""
        elif option and before != option:
            yield option
        yield word


def _usage_hint(command: TyperCommand, error: Exception, given: list[str]) -> str:
    """Return the problem and the fix of a usage error, or nothing if the own message of the error is enough."""
    kind, has_set = type(error).__name__, any("--set" in parameter.opts for parameter in command.params)
    if kind == "NoSuchOption" and has_set:
        option = str(getattr(error, "option_name", ""))
        setting = option.lstrip("-").replace("-", "_")
        value = next((after for word, after in pairwise(given) if word == option), "VALUE")
        if setting in SETTING_NAMES:
            setting = "lr" if setting == "learning_rate" else setting
            return f"{option} is no option. Settings are given as --set {setting}={value}."
        if setting in PRECISION_NAMES:
            fix = "Omit it, or give --set precision=fp8." if command.name in ("pretrain", "plan") else "Omit it."
            return f"{option} is no option. {_PRECISION} {fix}"
    if kind == "MissingParameter" and (parameter := getattr(error, "param", None)) is not None:
        name = parameter.opts[0] if parameter.param_type_name == "option" else parameter.metavar
        return f"{name} is missing. {parameter.help} See crossling {command.name} --help."
    if kind == "UsageError" and "extra argument" in str(error) and has_set:
        extra = [word for before, word in pairwise(given) if "=" not in before and word.isalnum()]
        if "--set" in given and extra:
            return f"{extra[-1]}: unexpected. Settings have the form --set KEY=VALUE, for instance --set steps=1000."
    return ""


class CommandGroups(TyperGroup):
    """Lists the commands of `--help` by group."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        """Write one section for each group."""
        for title, commands in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(command.__name__, summary) for command, summary in commands.items()])


app = typer.Typer(
    cls=CommandGroups,
    help="Pre-train, adapt, fine-tune and evaluate cross-lingual language models.",
    epilog="Start with `crossling demo`. `crossling COMMAND --help` has an example for each command.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for _commands in GROUPS.values():
    for _command, _summary in _commands.items():
        app.command(cls=PlainHelpCommand, short_help=_summary)(_command)


def _print_version(requested: bool) -> None:
    if requested:
        print(f"crossling {__version__}")
        raise typer.Exit


@app.callback()
def options(
    _: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Pre-train, adapt, fine-tune and evaluate cross-lingual language models."""


def main() -> None:
    """Run the command line and turn every expected error into one line and an exit code."""
    # Threads that spin while waiting slow a busy machine down up to five times; few spins cost an idle one 7%.
    # Must be set before torch is imported.
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # performance hints, repeated in every process
    warnings.showwarning = _print_note
    progress.command_started = time.perf_counter()
    try:
        app()
    except BadInput as error:
        _exit(str(error), 2)
    except Failed as error:
        _exit(str(error), 1)
    except Interrupted as error:
        _exit(str(error), 130)
    except SystemExit as error:
        if error.code == 130:  # Ctrl-C, already handled by typer
            print("crossling: interrupted. Run the same command again to resume.", file=sys.stderr)
        raise
    except OSError as error:
        if error.errno in WRONG_PATH:
            _exit(f"{error.filename}: {error.strerror}. Give another path.", 2)
        # NumPy reports a full disk without an error number: "1000 requested and 12 written".
        if error.errno not in UNWRITABLE and not (error.errno is None and str(error).endswith(" written")):
            raise
        where, problem = error.filename or "the output folder", error.strerror or f"no space left ({error})"
        _exit(f"{where}: {problem}. Finished parts are kept.", 1)


def _print_note(message: Warning | str, *_: Any, **__: Any) -> None:
    print(f"crossling: note: {message}", file=sys.stderr)


def _exit(message: str, code: int) -> NoReturn:
    if message:
        print(f"crossling: {message}", file=sys.stderr)
    sys.exit(code)
