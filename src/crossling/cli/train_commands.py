"""Commands that plan, train and export: plan, pretrain, finetune, export, merge."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Annotated

from rich.console import Console

import crossling as xl
from crossling.cli.closing import Command, finish, python_command, repeated_option, unused
from crossling.cli.options import (
    Checkpoints,
    Json,
    Out,
    Recipe,
    Set,
    ShardsFolder,
    Size,
    argument,
    check_data_folder,
    check_folder,
    check_model,
    check_recipe,
    flag,
    option,
)
from crossling.cli.score_tables import print_by_direction, print_by_language
from crossling.core.errors import BadInput
from crossling.core.files import read_json
from crossling.core.progress import print_status


def plan(
    recipe: Recipe,
    shards: ShardsFolder,
    out: Annotated[Path | None, option("FILE", "Write an HTML page with all figures.", "-o", "--out")] = None,
    size: Size = None,
    set_: Set = None,
    init: Annotated[str | None, option("MODEL", "Model that the run will be initialized from.")] = None,
    hours: Annotated[float | None, option("H", "Choose the size and steps that fit this budget.")] = None,
    gpus: Annotated[int | None, option("N", "Number of GPUs; above 8 a multiple of 8. [default: 1]", min=1)] = None,
    device: Annotated[
        str | None,
        option("NAME", "cpu, or v100, a100-40, a100, h100, h200, b200, l40s, 4090. [default: here]"),
    ] = None,
    json_: Json = False,
) -> None:
    """Show sampling, epochs, parameters, FLOPs, memory and time of a recipe. Trains nothing.

    Without a GPU, the time is that of this CPU, whose speed is measured once in a few seconds.

    Example: crossling plan xlm_e --shards shards --set sampling.pair_rule=xy_lent -o plan.html

    The epochs of an adaptation: crossling plan rosetta --shards shards --init bundled --set steps=150
    --set optimizer.warmup=0.1 --set sampling.focus=is

    The size and steps for a day on two GPUs: crossling plan xlm_e --shards shards --hours 24 --gpus 2 --device a100
    """
    check_recipe(recipe, shards, size=size, assignments=set_ or [], is_final=init is None and hours is None)
    if init is not None:
        check_model(init)
    from crossling.planning.plan_page import budget_table, plan_tables

    planned = xl.plan(recipe, shards, out, size=size, set=set_ or [], init=init, hours=hours, gpus=gpus, device=device)
    if json_:
        print(json.dumps(planned.dump()))
        return
    for table in plan_tables(planned):
        Console().print(table)
    if planned.budget:
        Console().print(budget_table(planned.budget))
        print(planned.budget.command)
    if out is not None:
        print(f"Open {out}")
    written = f"Wrote the plan to {out}." if out else "Planned; trained and wrote nothing."
    if planned.budget:
        finish(written, planned.budget.command)
    else:
        given = [*(["--size", size] if size else []), *(["--init", init] if init else [])]
        given += repeated_option("--set", set_)
        finish(written, ["pretrain", recipe, "--shards", shards, *given, "-o", unused(Path("run"))])


def pretrain(
    recipe: Recipe,
    shards: ShardsFolder,
    out: Out,
    size: Size = None,
    set_: Set = None,
    init: Annotated[
        str | None, option("MODEL", "Initialize from a run, an exported folder or a Hugging Face encoder.")
    ] = None,
    init_generator: Annotated[
        str | None, option("MODEL", "Initialize the generator. [default: that of --init, or its first layers]")
    ] = None,
    resume_from: Annotated[
        Path | None, option("CHECKPOINT", "Continue RUN/checkpoints/STEP of another run in --out.")
    ] = None,
    workers: Annotated[int | None, option("N", "Data loader processes. [default: by the machine]", min=0)] = None,
    probe: Annotated[Path | None, option("DATA", "Measure retrieval per language on this data while training.")] = None,
    validate: Annotated[
        Path | None, option("SHARDS", "Measure losses per language on these shards while training.")
    ] = None,
    probe_every: Annotated[
        int | None, option("N", "Steps between two measurements. [default: steps / 10]", min=1)
    ] = None,
    share_device: Annotated[
        bool, flag("--share-device", "For tests: let several processes use one GPU, over gloo.")
    ] = False,
) -> None:
    """Pre-train a model. Resumes from the latest checkpoint in --out.

    Example: crossling pretrain xlm_e --shards shards -o run --size tiny --set steps=500 --set trtd=off

    On 8 GPUs: torchrun --nproc-per-node 8 -m crossling pretrain xlm_e --shards shards -o run

    Adapt a model: crossling pretrain rosetta --shards shards -o run --init bundled --set sampling.focus=is
    --set steps=150 --set optimizer.warmup=0.1 --set xlco.pairs=64 --set mlm.tokens=256 --set tlm.tokens=256

    Decay from a checkpoint: crossling pretrain run/recipe.json --shards shards -o decayed
    --resume-from run/checkpoints/0000400 --set steps=500 --set optimizer.schedule=wsd --set optimizer.cooldown=100
    """
    from crossling.data.shards import Shards

    check_recipe(recipe, shards, size=size, assignments=set_ or [], is_final=init is None)
    for model in filter(None, (init, init_generator)):
        check_model(model)
    if probe is not None:
        check_data_folder(probe)
    if validate is not None:
        Shards.open(validate)
    from crossling.core.distributed import is_main_process, process_group

    with process_group(share_device):
        xl.pretrain(
            recipe,
            shards,
            out,
            size=size,
            set=set_ or [],
            init=init,
            init_generator=init_generator,
            resume_from=resume_from,
            workers=workers,
            probe=probe,
            validate=validate,
            probe_every=probe_every,
            share_device=share_device,
        )
        if not is_main_process():
            return
        if probe or validate or init:
            from crossling.evaluate.probes import make_probe_tables

            for table in make_probe_tables(out / "metrics.jsonl"):
                Console().print(table)
        print(out)
        finish(f"Wrote checkpoints, metrics.jsonl and the vocabulary to {out}.", *_after_pretraining(out, probe))


def _after_pretraining(run: Path, data: Path | None) -> list[Command]:
    score: Command = ["evaluate", run, "--task", "tatoeba", "--data", data, "-o", run]
    share: Command = ["export", run, "-o", unused(run.with_name(f"{run.name}-exported"))]
    return [score, share] if data else [share, ["report", run, "-o", unused(run.with_name(f"{run.name}.html"))]]


def finetune(
    model: Annotated[
        str, argument("MODEL", "Run, exported folder, Hugging Face encoder, or translator to train further.")
    ],
    out: Annotated[Path, option("TUNED", "Write to this folder.", "-o", "--out")],
    task: Annotated[
        str | None,
        option("TASK", "xnli, pawsx, udpos, panx, xquad, mlqa, tydiqa, sst2, ... or translation.", "--task"),
    ] = None,
    data: Annotated[Path | None, option("FOLDER", "Folder of benchmark data, or of parallel text.")] = None,
    type_: Annotated[
        str | None,
        option("TYPE", "Own data: tagging, classification, pair-classification, qa or embedding.", "--type"),
    ] = None,
    train: Annotated[
        Path | None, option("FILE", "Own data: examples to train on (CoNLL, TSV, CSV, SQuAD, JSON Lines).")
    ] = None,
    dev: Annotated[Path | None, option("FILE", "Own data: dev examples. [default: a tenth of --train]")] = None,
    columns: Annotated[
        str | None, option("A,B", "Own data: columns of the texts, then of label, score or negatives.")
    ] = None,
    language: Annotated[
        str | None, option("LL", "Own data: language of the examples. [default: by the file name]")
    ] = None,
    setting: Annotated[
        str, option("SETTING", "zero-shot (one language) or translate-train (and its translations).", "--setting")
    ] = "zero-shot",
    seeds: Annotated[int, option("N", "Train this many models, one per seed.", min=1)] = 1,
    selection: Annotated[
        str, option("RULE", "Select checkpoints by english-dev, all-dev, each-dev or last.")
    ] = "english-dev",
    grid: Annotated[str | None, option("PAPER", "Search the grid of xlm-e, infoxlm, veco or xy-lent first.")] = None,
    plug_in: Annotated[
        bool, flag("--plug-in", "Read each example with its translation, as VECO's plug-in module.")
    ] = False,
    checkpoints: Checkpoints = None,
    directions: Annotated[str | None, option("LIST", "Translation directions, as en-de,de-en.")] = None,
    from_scratch: Annotated[
        bool, flag("--from-scratch", "Translation: keep the model's shape, not its weights.")
    ] = False,
    preset: Annotated[
        str | None, option("NAME", "Translation: a paper's settings, veco-wmt14-en-de or veco-wmt14-en-fr.")
    ] = None,
    shards: Annotated[
        Path | None, option("SHARDS", "Translation: train on pairs of these shards, not on --data.")
    ] = None,
    set_: Annotated[
        list[str] | None,
        option("KEY=VALUE", "lr, epochs, steps, batch, length, warmup, seed, checkpoint_every, ...", "--set"),
    ] = None,
    json_: Json = False,
) -> None:
    """Fine-tune a model for a task and score it in every language. Resumes where it was stopped.

    Example: crossling finetune run --task xnli --data synth/data -o tuned --seeds 5 --set lr=2e-5

    On own labels: crossling finetune run --type classification --train reviews.tsv -o tuned

    Sentence vectors: crossling finetune run --type embedding --train questions.tsv -o embedding

    Example: crossling finetune run --task translation --directions en-de,de-en --data multi30k -o mt
    """
    from crossling.finetune.finetune_settings import check_overrides
    from crossling.tasks.benchmark_files import check_finetuning_task

    overrides = dict(_key_and_value(assignment) for assignment in set_ or [])
    if type_ is None:
        for name, value, text in (("--task", task, "Name of a task."), ("--data", data, "Folder of benchmark data.")):
            if value is None:
                raise BadInput(f"finetune: {name} is missing. {text} Or give --type and --train for own labels.")
    if task is not None and data is not None:
        check_finetuning_task(task)  # before the slow import of torch
        check_overrides(task, grid, preset, overrides)
        check_data_folder(data)
    check_model(model)
    if shards is not None:
        from crossling.data.shards import Shards

        Shards.open(shards)
    from crossling.core.distributed import is_main_process, process_group

    with process_group():
        rows = xl.finetune(
            model,
            task,
            data,
            out,
            type=type_,
            train=train,
            dev=dev,
            columns=columns.split(",") if columns else (),
            language=language,
            setting=setting,  # type: ignore[arg-type]
            seeds=seeds,
            selection=selection,  # type: ignore[arg-type]
            grid=grid,
            plug_in=plug_in,
            directions=directions,
            from_scratch=from_scratch,
            checkpoints=checkpoints,
            preset=preset,
            shards=shards,
            **overrides,
        )
        if not is_main_process():
            return
        if json_:
            for row in rows:
                print(json.dumps(row))
        elif type_ == "embedding":
            print_by_direction(rows)
            print(out)
        else:
            for name in dict.fromkeys(row["model"] for row in rows):
                if checkpoints:
                    print(name)
                print_by_language([row for row in rows if row["model"] == name])
            print(out)
        finish(f"Wrote the model and its scores to {out}.", *_after_finetuning(out, task, directions), json=json_)


def _after_finetuning(out: Path, task: str | None, directions: str | None) -> list[Command | str]:
    commands: list[Command | str] = [["report", out, "-o", unused(out.with_name(f"{out.name}.html"))]]
    if task == "translation" and directions:
        target = directions.split(",")[0].partition("-")[2]
        translate = shlex.join(["crossling", "translate", str(out), "-", "--to", target])
        commands.insert(0, f"echo 'A dog runs.' | {translate}")
    return commands


def _key_and_value(assignment: str) -> tuple[str, str]:
    key, equals, value = assignment.partition("=")
    if not equals or not key:
        raise BadInput(f"--set {assignment}: expected KEY=VALUE, for example --set lr=2e-5.")
    return key, value


def export(
    run: Annotated[str, argument("RUN", "Run of crossling pretrain; with --trim, --onnx or --push any encoder.")],
    out: Out,
    standalone: Annotated[bool, flag("--standalone", "Add the model code, to load without crossling.")] = False,
    as_: Annotated[str, option("FAMILY", "crossling, or xlm-roberta for a model of its shape.", "--as")] = "crossling",
    precision: Annotated[
        str | None, option("DTYPE", "Weights in the file: single, half or int8. [default: single]")
    ] = None,
    layers: Annotated[int | None, option("N", "Keep the encoder up to layer N: no head, no generator.")] = None,
    trim: Annotated[str | None, option("CORPORA", "Keep only the vocabulary entries that these corpora use.")] = None,
    onnx: Annotated[str | None, option("KIND", "Add ONNX files: fp32, int8 or both.")] = None,
    push: Annotated[str | None, option("USER/NAME", "Upload the folder to the Hugging Face hub.", "--push")] = None,
    private: Annotated[bool, flag("--private", "Create a private repository.")] = False,
    license_: Annotated[
        str | None, option("LICENSE", "Licence on the card, as apache-2.0. Needed for --push.", "--license")
    ] = None,
) -> None:
    """Write a run as a Hugging Face folder with a model card. The generator goes to generator/.

    Example: crossling export run -o exported --standalone

    A small file: crossling export run -o exported --precision int8 --layers 6

    An encoder for two languages: crossling export xlm-roberta-base --trim corpora --precision half -o small
    """
    if private and push is None:
        raise BadInput("--private: there is no repository. Add --push USER/NAME.")
    if (onnx, push, trim) == (None, None, None):
        check_folder(Path(run), "Give a folder that crossling pretrain wrote.")
    else:
        check_model(run)
    written = xl.export(
        run,
        out,
        standalone=standalone,
        as_=as_,
        precision=precision,
        layers=layers,
        trim=trim,
        onnx=onnx,
        push=push,
        private=private,
        license=license_,
    )
    print(written)
    if trim is not None:
        before, after = (read_json(written / "export.json")["trimmed"][when] for when in ("before", "after"))
        print_status(
            f"Kept {after['entries']:,} of {before['entries']:,} vocabulary entries,"
            f" {after['parameters']:,} of {before['parameters']:,} parameters."
        )
    if push is not None:
        print_status(f"Uploaded the folder to {push} on the Hugging Face hub.")
    for check in read_json(written / "export.json")["onnx"]:
        print_status(
            f"onnx/{check['file']}: largest cosine distance to torch {check['cosine_distance']:.1e},"
            f" same nearest sentence for {check['same_nearest']:.0f}% of the samples"
        )
    _finish_export(written)


def merge(
    checkpoints: Annotated[list[Path], argument("CHECKPOINT", "RUN/checkpoints/STEP, or a run. Two or more.")],
    out: Out,
    weights: Annotated[str | None, option("LIST", "Weights of the checkpoints, as 1,1,2. [default: equal]")] = None,
) -> None:
    """Average the weights of checkpoints, and write a Hugging Face folder.

    Example: crossling merge run/checkpoints/0000800 run/checkpoints/0000900 run/checkpoints/0001000 -o merged
    """
    for checkpoint in checkpoints:
        check_folder(checkpoint, "Give RUN/checkpoints/STEP of a run that crossling pretrain wrote.")
    written = xl.merge(checkpoints, out, weights=_numbers(weights))
    print(written)
    _finish_export(written)


def _numbers(text: str | None) -> list[float] | None:
    try:
        return [float(number) for number in text.split(",")] if text is not None else None
    except ValueError:
        raise BadInput(f"--weights {text}: expected numbers separated by commas, for example --weights 1,2.") from None


def _finish_export(written: Path) -> None:
    program = f"import crossling as xl; print(xl.load({str(written)!r}).encode(['a sentence', 'ein Satz']).shape)"
    finish(f"Wrote a Hugging Face folder with a model card to {written}.", python_command(program))
