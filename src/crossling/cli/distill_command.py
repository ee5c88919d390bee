"""The command that distils a student from a teacher."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import crossling as xl
from crossling.cli.closing import finish
from crossling.cli.options import Json, Out, argument, check_model, flag, option


def distill(
    teacher: Annotated[str, argument("TEACHER", "Any encoder: run, exported folder, Hugging Face, bundled.")],
    out: Out,
    pairs: Annotated[
        list[Path], option("FILE", "Translations (de-en.tsv, TMX, xlsx) or CORPORA. Repeatable.", "--pairs")
    ],
    text: Annotated[
        list[Path] | None, option("FILE", "Text (de.txt, docx, jsonl) or a folder of CORPORA. Repeatable.", "--text")
    ] = None,
    size: Annotated[str, option("SIZE", "Size of the student: tiny, small, base or large.", "--size")] = "small",
    layers: Annotated[str | None, option("LIST", "Start from these layers of the teacher, as 1,3,5.")] = None,
    vocabulary: Annotated[
        str | None, option("KIND", "new, or trim that of the teacher. [default: new; with --layers trim]")
    ] = None,
    vocabulary_size: Annotated[int | None, option("N", "Entries of the vocabulary. [default: up to 16,000]")] = None,
    source: Annotated[str, option("LL", "Language that gives the vectors of both sides of a pair.")] = "en",
    set_: Annotated[
        list[str] | None, option("KEY=VALUE", "steps, lr, distillation.distance, ... Repeatable.", "--set")
    ] = None,
    dry_run: Annotated[bool, flag("--dry-run", "Print the plan and the time. Write nothing.")] = False,
    json_: Json = False,
) -> None:
    """Distil a sentence encoder into a small student for some languages. Resumes where it was stopped.

    Example: crossling distill bundled --size tiny --text de.txt --text en.txt --pairs de-en.tsv -o student

    Layers of the teacher: crossling distill bundled --layers 1,3,5 --pairs de-en.tsv -o student
    """
    check_model(teacher)
    from crossling.distill.distill import comparison_table, plan_lines

    result = xl.distill(
        teacher,
        out,
        text=text or (),
        pairs=pairs,
        size=size,
        layers=layers,
        vocabulary=vocabulary,
        vocabulary_size=vocabulary_size,
        source=source,
        set=set_ or (),
        dry_run=dry_run,
    )
    if json_:
        print(json.dumps(result))
    else:
        print("\n".join(plan_lines(result) if dry_run else comparison_table(result)))
    if not dry_run:
        finish(
            f"Wrote the student to {out}.", ["embed", "sentences.txt", "--model", out, "-o", "vectors.npy"], json=json_
        )
