"""`evaluate`: scores of an encoder on training-free tasks, and of a fine-tuned model on its own task."""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from crossling.core.errors import Interrupted
from crossling.core.files import read_json, write_json
from crossling.core.locks import output_lock
from crossling.core.resumable import file_state, fingerprint
from crossling.evaluate.bucc import evaluate_bucc
from crossling.evaluate.request import EvaluationRequest, Languages, tasks_and_data
from crossling.evaluate.retrieval import evaluate_flores, evaluate_own_pairs, evaluate_tatoeba
from crossling.evaluate.retrieval_pairs import find_translation_files
from crossling.evaluate.significance import TaskResult
from crossling.evaluate.word_alignment import evaluate_word_alignment, read_gold
from crossling.finetune.finetune_scoring import check_tuned, evaluate_tuned
from crossling.finetune.translation.translation_scoring import evaluate_translator
from crossling.inference.attention_map import attention_map
from crossling.inference.cpu_precision import in_float32
from crossling.inference.load_network import as_encoder
from crossling.inference.sentence_encoder import Encoder
from crossling.recipes.run_checkpoints import pretraining_cost, select_checkpoints
from crossling.tasks import predictions, scores
from crossling.tasks.benchmark_files import FLORES, TRAINING_FREE_TASKS, TRANSLATION, FilesByPair, find_task_files
from crossling.tasks.own_pairs import RETRIEVAL, read_own_pairs
from crossling.tasks.predictions import PartialResults
from crossling.tasks.scores import ScoreRow

Evaluate = Callable[[Languages], Iterator[TaskResult]]  # of one task, in some languages


def evaluate(
    model: Encoder | str | os.PathLike[str],
    task: str | Sequence[str] | None = None,
    data: str | os.PathLike[str] | None = None,
    out: str | os.PathLike[str] | None = None,
    *,
    pairs: str | os.PathLike[str] | None = None,
    languages: str | Sequence[str] | None = None,
    pooling: str = "auto",
    prompt: str | None = None,
    method: str | Sequence[str] = "ot",
    layers: Sequence[int] | None = None,
    recompute: bool = False,
    plug_in: bool = False,
    checkpoints: str | None = None,
    dimensions: Sequence[int] = (),
) -> list[ScoreRow]:
    """Score a model on one or more tasks. An interrupted evaluation with `out` resumes when it is repeated.

    Args:
        model: Encoder, or a name that `load` takes, for training-free tasks; else the folder of a fine-tuned model.
        task: "tatoeba", "flores", "bucc2018", "word-alignment", "translation", or a data set of a fine-tuned model.
        data: Folder of the benchmark data.
        pairs: File of sentence pairs to score retrieval on, in place of `task` and `data`: TSV, CSV, xlsx, TMX or
            another table that `ingest` reads. The rows have the task `retrieval`.
        out: Folder to which the rows (scores.jsonl) and the predictions are added. Predictions are stored only if
            the folder has scores of no other model.
        languages: Languages or pairs to score, such as "sw" or "de-en". [default: all in `data`] With `pairs`, the
            pair of the file. [default: by its name or header]
        pooling: "mean" or "cls", for sentence vectors. "auto" is "mean", and the folder of a Sentence Transformers
            model is scored as it declares too (protocol `declared`).
        prompt: Text before each sentence, such as "query: ". [default: the default prompt of the model, if it declares
            one]
        method: Word alignment by "ot", "argmax" or "itermax", or several of them.
        layers: Layers for bucc2018. The other tasks score every layer. [default: the universal layer]
        recompute: Score the stored predictions of a fine-tuned model again.
        plug_in: For tatoeba: let each sentence attend to its translation (VECO's cross-attention).
        checkpoints: Score these checkpoints of the run `model`: `all`, or steps such as `1000,2000`. Rows have `step`
            and `flops`, and a report shows them as a curve. [default: the latest checkpoint]
        dimensions: For retrieval: score the vectors truncated to each of these widths besides. Rows have `dimension`.

    Returns:
        Score rows, as in scores.jsonl.

    Raises:
        BadInput: If a task, a language, an option or a file is invalid.
        Interrupted: If the user stops it.

    Example:
        >>> rows = evaluate("runs/xlm_e", ["tatoeba", "word-alignment"], "data", languages=["sw", "de-en"])
        >>> rows[0]["metric"], rows[0]["value"]
        ('accuracy', 41.3)
    """
    tasks, source = tasks_and_data(task, data, pairs)
    request = EvaluationRequest(
        tasks=tasks,
        data=source,
        out=Path(out) if out is not None else None,
        languages=languages.split(",") if isinstance(languages, str) else languages,
        pooling=pooling,
        prompt=prompt,
        methods=[method] if isinstance(method, str) else method,
        layers=layers,
        recompute=recompute,
        plug_in=plug_in,
        checkpoints=checkpoints,
        dimensions=dimensions,
    )
    return evaluate_request(model, request)


def evaluate_request(model: Encoder | str | os.PathLike[str], request: EvaluationRequest) -> list[ScoreRow]:
    """Check a request and score the model, see `evaluate`."""
    languages_of, recompute = request.check(), request.recompute
    name = model.name if isinstance(model, Encoder) else os.fspath(model)
    if request.checkpoints is not None:
        saved = select_checkpoints(Path(name), request.checkpoints)
        each_alone = replace(request, checkpoints=None)
        return [row for path in saved for row in evaluate_request(path, each_alone)]
    if TRANSLATION not in request.tasks and request.tasks != [RETRIEVAL]:
        check_tuned(name, request.finetuned, request.data)
        for each in request.tasks:
            known = languages_of.get(each) or ()
            missing = [language for language in request.languages or () if language not in known]
            if missing:
                warnings.warn(f"{each}: no data for {', '.join(missing)}; skipped", stacklevel=3)
    try:
        with _lock_results(request, name):
            if TRANSLATION in request.tasks:
                return evaluate_translator(
                    name, request.data, request.out, recompute=recompute, languages=languages_of[TRANSLATION]
                )
            rows = _evaluate_training_free(model, request, languages_of)
            for each in request.finetuned:
                if each in languages_of:
                    rows += evaluate_tuned(
                        name, request.data, request.out, task=each, recompute=recompute, languages=languages_of[each]
                    )
    except KeyboardInterrupt:
        state = f"Finished scores are in {request.out}. Run the same command again to resume."
        raise Interrupted(f"interrupted. {state if request.out else 'Nothing was stored.'}") from None
    return rows


@contextmanager
def _lock_results(request: EvaluationRequest, model: str) -> Iterator[None]:
    """Lock the results of the model. Others may be evaluated into the same folder, or this one on other tasks."""
    with ExitStack() as locks:
        if request.out is not None:
            for task in request.tasks:
                locks.enter_context(output_lock(request.out, f"{task}-{fingerprint(model)[:16]}"))
        yield


def _evaluate_training_free(
    model: Encoder | str | os.PathLike[str], request: EvaluationRequest, languages_of: Mapping[str, Languages]
) -> list[ScoreRow]:
    tasks = [task for task in request.training_free if task in languages_of]
    if not tasks:
        return []
    encoder = in_float32(as_encoder(model))
    encoder.prompt = request.prompt or encoder.prompt
    data, pooling = request.data, request.pooling
    layers = [encoder.resolve_layer(layer) for layer in request.layers or [encoder.universal_layer]]
    evaluations: dict[str, Evaluate] = {
        "tatoeba": lambda languages: evaluate_tatoeba(
            encoder, data, languages, pooling, request.plug_in, request.dimensions
        ),
        FLORES: lambda languages: evaluate_flores(encoder, data, languages, pooling, request.dimensions),
        RETRIEVAL: lambda _: evaluate_own_pairs(
            encoder, [read_own_pairs(data, request.languages)], pooling, request.dimensions
        ),
        "bucc2018": lambda languages: evaluate_bucc(encoder, data, layers, languages, pooling),
        "word-alignment": lambda languages: evaluate_word_alignment(encoder, data, languages, request.methods),
    }
    cost = pretraining_cost(Path(encoder.name))
    if request.out is None:
        results = (result for task in tasks for result in evaluations[task](languages_of[task]))
        return [{**row, **cost} for result in results for row in result.rows]
    # A folder has the predictions of one model.
    has_own_folder = not cost and _has_own_folder(request.out, encoder.name)
    options = {
        "pooling": pooling,
        "prompt": encoder.prompt,
        "methods": [*request.methods],
        "layers": layers,
        "plug_in": request.plug_in,
        **({"dimensions": [*request.dimensions]} if request.dimensions else {}),
    }
    description = {"model": encoder.name, "weights": encoder.fingerprint(), **options}
    rows: list[ScoreRow] = []
    for task in tasks:
        if task == RETRIEVAL:
            files = {"-".join(read_own_pairs(data, request.languages).languages): [data]}
        else:
            files = find_task_files(task, data, languages_of[task])
        if request.plug_in:
            files = {name: [*paths, *find_translation_files(paths)] for name, paths in files.items()}
        partial = PartialResults(request.out, task, description)
        new = _evaluate_or_resume(partial, files, evaluations[task], store_predictions=has_own_folder)
        rows += [{**row, **cost} for row in new]
        scores.add_scores(request.out / "scores.jsonl", rows)
        partial.finish()
    if "word-alignment" in tasks and has_own_folder and getattr(encoder.model.config, "cross_attention", False):
        _store_attention(encoder, data, languages_of["word-alignment"], request.out)
    return rows


def _store_attention(encoder: Encoder, data: Path, languages: Languages, out: Path) -> None:
    """Store how the first sentence pair attends to each other, for the report (VECO, Figure 1)."""
    gold = read_gold(data, languages)[0]
    pair = gold.pairs[0]
    found = attention_map(encoder, " ".join(pair.source), " ".join(pair.target))
    example = {
        "queries": found.queries,
        "keys": found.keys,
        "weights": found.weights_LT.round(3).tolist(),
        "layer": found.layer,
        "languages": gold.languages.split("-"),
        "model": encoder.name,
    }
    file = out / "showcase.json"
    write_json(file, {**(read_json(file) if file.is_file() else {}), "attention": example})


def _evaluate_or_resume(
    partial: PartialResults, files: FilesByPair, evaluate_pairs: Evaluate, *, store_predictions: bool
) -> list[ScoreRow]:
    """Return the rows of all language pairs of a task. Evaluate those that `partial` does not have."""
    state = {name: file_state(paths) for name, paths in files.items()}
    rows = {name: before for name in files if (before := partial.done(name, state[name])) is not None}
    remaining = [name for name in files if name not in rows]
    finished_parts: Counter[str] = Counter()
    for result in evaluate_pairs(remaining) if remaining else ():
        name, first = result.name, result.rows[0]
        rows.setdefault(name, []).extend(result.rows)
        if store_predictions:
            names = {"task": first["task"], "split": first["split"], "language": first["language"]}
            predictions.write_predictions(partial.folder, **names, rows=result.examples, direction=result.variant)
        finished_parts[name] += 1
        if finished_parts[name] == result.parts:
            partial.record(name, rows[name], state[name])
    return [row for name in files for row in rows[name]]


def _has_own_folder(out: Path, model: str) -> bool:
    """Return False and warn if the folder has scores of other models. Predictions do not name their model."""
    file = out / "scores.jsonl"
    rows = scores.read_scores(file) if file.exists() else []
    others = {
        row["model"] for row in rows if row["task"] in (*TRAINING_FREE_TASKS, RETRIEVAL) and "step" not in row
    } - {model}
    if others:
        warnings.warn(
            f"{out}: contains scores of {min(others)}, so the predictions of {model} are not stored. Use one folder per"
            " model",
            stacklevel=4,
        )
    return not others
