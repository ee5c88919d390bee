"""The command that adapts an encoder to new languages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

from rich.console import Console

import crossling as xl
from crossling.cli.closing import finish
from crossling.cli.options import Json, Seed, argument, check_model, flag, option
from crossling.core.progress import print_status

Files = Annotated[list[str] | None, option("FILES", "Files of text, or folders with them.", "--text")]
PairFiles = Annotated[list[str] | None, option("FILES", "Files of translations, or folders with them.", "--pairs")]


def adapt(
    model: Annotated[str, argument("MODEL", "bundled, a run, an exported folder, or a Hugging Face encoder.")],
    out: Annotated[Path, option("OUT", "Write the adapted model to this folder.", "-o", "--out")],
    text: Files = None,
    pairs: PairFiles = None,
    language: Annotated[str | None, option("LL", "Language of the text. [default: by names and headers]")] = None,
    pair: Annotated[str | None, option("LL-LL", "Languages of the pairs. [default: by names and headers]")] = None,
    replay: Annotated[
        list[str] | None, option("FILES", "Text and pairs of languages to keep. [default: a shipped sample]")
    ] = None,
    minutes: Annotated[float | None, option("M", "Aim at this training time.")] = None,
    lora: Annotated[int | None, option("RANK", "Train LoRA matrices of this rank only. Needs peft.", min=1)] = None,
    set_: Annotated[
        list[str] | None, option("KEY=VALUE", "Change a printed choice, or a recipe setting. Repeatable.", "--set")
    ] = None,
    seed: Seed = 0,
    dry_run: Annotated[bool, flag("--dry-run", "Print the choices and the time. Write nothing.")] = False,
    json_: Json = False,
) -> None:
    """Adapt an encoder to new languages: clean, extend the vocabulary, train with replay, score before and after.

    Example: crossling adapt bundled --pairs bitext.csv memory.tmx --pair en-is --text news.docx --language is -o out

    The plan only: crossling adapt bundled --pairs bitext.csv --pair en-is -o out --dry-run
    """
    check_model(None if model == "bundled" else model)
    result = xl.adapt(
        model,
        out,
        text=text or (),
        pairs=pairs or (),
        language=language,
        pair=pair,
        replay=replay or (),
        minutes=minutes,
        lora=lora,
        set=set_ or (),
        seed=seed,
        dry_run=dry_run,
    )
    if json_:
        print(json.dumps(result.to_json()))
        return
    if result.folder is None:
        finish("Planned; wrote nothing.", "the same command without --dry-run")
        return
    from crossling.adapt.held_out_scores import change_table, describe_forgetting

    Console().print(change_table(result.changes))
    print(describe_forgetting(result.changes))
    print_status(f"Open {out / 'report.html'}")
    finish(f"Wrote the adapted model to {out}.", ["embed", "FILE", "--model", out, "-o", "vectors.npy"])
