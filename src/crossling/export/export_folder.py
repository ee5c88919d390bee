"""Export of a run as a Hugging Face folder.

    DIR/config.json  model.safetensors     encoder with its head; with `layers`, its first layers without a head
        tokenizer.json  sentencepiece.model
        generator/                         folder of the same form, if the run trained a generator
        modules.json  sentence_bert_config.json  1_Pooling/     for Sentence Transformers
        onnx/                              ONNX files, if requested
        README.md  export.json             model card, and its content for programs

The folder can be loaded by transformers, Sentence Transformers and crossling.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import PreTrainedModel
from transformers.utils import SAFE_WEIGHTS_NAME

from crossling import bundled
from crossling.core.errors import BadInput, suggestion
from crossling.core.files import atomic_folder, read_json, write_json
from crossling.core.folder_kinds import kind_note
from crossling.core.hub import TOKENIZER_FILES, WEIGHT_FILES, get_model_folder, quiet_transformers
from crossling.core.locks import output_lock
from crossling.core.resumable import check_output_folder
from crossling.export.model_card import RunSummary, render_model_card, summarize_run
from crossling.export.model_copy import EXPORT_INFO, copy_model_folder
from crossling.export.onnx_files import add_onnx, check_onnx
from crossling.export.publish import check_license, check_login, set_license, upload
from crossling.export.standalone import AUTO_MAP, collect_sources
from crossling.export.trim_folder import trim_folder
from crossling.inference.sentence_head import HEAD_FILES
from crossling.model.config import CrosslingConfig
from crossling.model.convert import to_huggingface
from crossling.model.embedding import DisentangledEmbedding
from crossling.model.encoder_model import CrosslingModel
from crossling.model.heads import CrosslingForMaskedLM, CrosslingForPreTraining
from crossling.model.int8 import quantize
from crossling.model.native_encoder import NativeEncoder
from crossling.objectives import Network
from crossling.recipes.network import load_run
from crossling.recipes.run_checkpoints import run_of
from crossling.vocabulary.open_vocabulary import AnyVocabulary, open_vocabulary
from crossling.vocabulary.vocabulary import Vocabulary

FAMILIES = ("crossling", "xlm-roberta")
NATIVE = "native"  # a Hugging Face encoder in its own architecture
PRECISIONS = ("single", "half", "int8")
PRECISION_ALIASES = {"fp32": "single", "float32": "single", "fp16": "half", "float16": "half"}
HEAD_CLASSES = {"rtd_head": CrosslingForPreTraining, "lm_head": CrosslingForMaskedLM}  # in order of preference


def export(
    run: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    standalone: bool = False,
    as_: str = "crossling",
    precision: str | None = None,
    layers: int | None = None,
    trim: str | os.PathLike[str] | None = None,
    onnx: str | None = None,
    push: str | None = None,
    private: bool = False,
    license: str | None = None,
) -> Path:
    """Export a run at its latest checkpoint as a Hugging Face folder with a model card, or trim any encoder.

    The root is the encoder with its replaced token detection head, or else with its masked language modelling head, or
    without a head. Momentum encoder, queue and projection of the contrastive loss are not exported.

    Args:
        run: Run folder of `pretrain`, or one of its checkpoints, `RUN/checkpoints/STEP`. With `trim`, `onnx` or `push`
            also any Hugging Face encoder by folder or Hub name, or `bundled`: its files are copied.
        out: Folder to write. It may contain an earlier export.
        standalone: Add the model code, so that transformers can load the folder without crossling.
        as_: Our own architecture (`crossling`), or `xlm-roberta` for a model that transformers knows without
            crossling. With a replaced token detection head it becomes ELECTRA's discriminator.
        precision: Precision of the weights in the file: `single` (fp32), `half` (fp16), or `int8` with about a quarter
            of the size [default: `single` for a run, as they are for another encoder].
        layers: Export the encoder up to this layer only, without head and generator [default: all layers].
        trim: Keep only the vocabulary entries that these corpora use, or those of a vocabulary that
            `vocab(..., trim=True)` made from this model.
        onnx: Add ONNX files to the folder: `fp32`, `int8` or `both`. Needs the extra `onnx`. Each file is run, and its
            sentence vectors are compared with those of torch.
        push: Upload the folder to this repository of the Hugging Face hub, `USER/NAME`. Create it if there is none.
        private: Create a private repository.
        license: Licence in the card's metadata, such as `apache-2.0`. Needed to upload, unless the card has one.

    Returns:
        The folder.

    Raises:
        BadInput: An option is not valid, `run` is not a run folder, `out` has other content, or the hub refuses.
        Failed: An ONNX file computes other vectors than torch, or the hub cannot be reached.

    Example:
        >>> import crossling as xl
        >>> xl.export("run", "exported", precision="half")
    """
    out, stored = Path(out), PRECISION_ALIASES.get(precision or "", precision)
    precision = stored or PRECISIONS[0]
    _check_options(standalone, as_, precision, onnx)
    check_export_folder(out, "crossling export")
    is_run = run_of(run) is not None
    if not is_run and (onnx, push, trim) == (None, None, None):
        raise BadInput(
            f"{run}: no recipe.json, so not a run folder{kind_note(Path(run))}. Give a folder that crossling pretrain"
            " wrote. Other encoders are exported with trim, onnx or push only."
        )
    allowed = (False, "crossling", None, stored if trim is not None else None)
    if not is_run and (standalone, as_, layers, stored) != allowed:
        others = "trim, precision, onnx and push" if trim is not None else "trim, onnx and push"
        raise BadInput(f"{run}: not a run, so its files are copied. Omit options other than {others}.")
    if is_run:
        check_license(license, push)
    if push is not None:
        check_login(push)
    with output_lock(out):
        if is_run:
            options: dict[str, Any] = {"standalone": standalone, "family": as_, "precision": precision}
            options |= {"onnx": onnx, "license": license}
            if trim is None:
                _export_run(Path(run), out, layers, options)
            else:
                _trim_run(Path(run), out, layers, options, trim)
        else:
            _copy_encoder(run, out, onnx, push, license, trim=trim, precision=stored)
        if push is not None:
            upload(out, push, private)
    return out


def _copy_encoder(
    model: str | os.PathLike[str],
    out: Path,
    onnx: str | None,
    push: str | None,
    license: str | None,
    *,
    trim: str | os.PathLike[str] | None = None,
    precision: str | None = None,
) -> None:
    """Write a copy of an encoder's folder, trimmed, with ONNX files and licence if requested."""
    source = get_model_folder(bundled.resolve_model(model), TOKENIZER_FILES + WEIGHT_FILES + HEAD_FILES)
    with atomic_folder(out) as folder:
        info = copy_model_folder(source, folder)
        if trim is not None:
            info = {**info, "trimmed": trim_folder(folder, model, trim, precision)}
            info |= {"precision": precision} if precision else {}
        set_license(folder, license, push)
        _finish(folder, {"source": Path(model).name, **info}, onnx)


def _trim_run(run: Path, out: Path, layers: int | None, options: dict[str, Any], trim: str | os.PathLike[str]) -> None:
    """Write a run as a folder with fewer vocabulary entries."""
    with atomic_folder(out) as folder:
        _export_run(run, folder, layers, {**options, "onnx": None})
        info = {**read_json(folder / EXPORT_INFO), "trimmed": trim_folder(folder, run, trim, options["precision"])}
        _finish(folder, info, options["onnx"])


def _export_run(run: Path, out: Path, layers: int | None, options: dict[str, Any]) -> None:
    """Write a run as a folder. `options` are those of the model card."""
    family, precision = options["family"], options["precision"]
    net, vocabulary, summary = load_run(run), open_vocabulary((run_of(run) or run) / "vocab"), summarize_run(run)
    if isinstance(net.encoder, NativeEncoder):
        _check_native(run, options["standalone"], family, precision, layers)
        family = options["family"] = NATIVE
    if "decoder" in net.parts and layers is None:
        raise BadInput(
            f"{run}: an encoder-decoder is exported as a translator. Train one with crossling finetune {run} --task"
            f" translation, or give layers={net.encoder.config.num_hidden_layers} for the encoder alone."
        )
    truncated = None if layers is None else _truncated_config(net.encoder.config, layers, run)
    if precision == "int8":
        _check_finite(net, run)
    write_export(out, net, vocabulary, summary, truncated=truncated, **options)


def write_export(
    out: Path,
    net: Network,
    vocabulary: AnyVocabulary,
    summary: RunSummary,
    *,
    truncated: CrosslingConfig | None = None,
    family: str = "crossling",
    precision: str = "single",
    **options: Any,
) -> None:
    """Write a network as a Hugging Face folder with a model card.

    Args:
        out: Folder to write.
        net: Network of a run.
        vocabulary: Its vocabulary.
        summary: Description of the run for the model card.
        truncated: Configuration of the first layers, to export only these.
        family: Architecture of the exported model.
        precision: Precision of the weights in the file.
        options: Other options of `export` that the model card describes.
    """
    options = {"standalone": False, "onnx": None, "license": None, **options}
    models, config = build_models(net, family, truncated), truncated or net.encoder.config
    with atomic_folder(out) as folder:
        for name, model in models.items():
            _write_model(folder / name, model, options["standalone"], precision)
            _write_tokenizer(folder / name, vocabulary, config.max_position_embeddings)
        _write_sentence_transformer(folder, config, family)
        text = render_model_card(
            *(out.resolve().name, summary),
            encoder=net.encoder,
            config=config,
            models=models,
            family=family,
            precision=precision,
            **options,
        )
        (folder / "README.md").write_text(text, encoding="utf-8")
        layers = truncated.num_hidden_layers if truncated else None
        _finish(folder, {"precision": precision, "layers": layers, **asdict(summary)}, options["onnx"])


def _finish(folder: Path, info: dict[str, Any], onnx: str | None) -> None:
    """Add ONNX files if requested, and write export.json."""
    checks = [] if onnx is None else add_onnx(folder, onnx)
    files = sorted({EXPORT_INFO, *(path.name for path in folder.iterdir())})
    write_json(folder / EXPORT_INFO, {**info, "files": files, "onnx": [asdict(check) for check in checks]})


def _check_options(standalone: bool, family: str, precision: str, onnx: str | None) -> None:
    if family not in FAMILIES:
        raise BadInput(f"export as {family}: unknown model family{suggestion(family, FAMILIES)}")
    if precision not in PRECISIONS:
        raise BadInput(f"precision {precision}: not supported{suggestion(precision, PRECISIONS)}")
    if precision == "int8" and family != "crossling":
        raise BadInput(f"precision int8: transformers cannot load it as {family}. Use half, or export as crossling.")
    if standalone and family != "crossling":
        raise BadInput(f"standalone: transformers has the code of {family}. Omit standalone.")
    if onnx is not None:
        check_onnx(onnx)


def check_export_folder(out: Path, command: str) -> None:
    """Raise BadInput if a folder has other content than an earlier export."""
    check_output_folder(out, holds=_exported_files(out), command=command, exclusive=True)


def _check_native(run: Path, standalone: bool, family: str, precision: str, layers: int | None) -> None:
    """Refuse what only crossling's architecture has. A Hugging Face encoder is exported in its own."""
    requested = {
        f"export as {family}": family != FAMILIES[0],
        "standalone": standalone,
        f"precision {precision}": precision == "int8",
        f"layers {layers}": layers is not None,
    }
    for option, is_requested in requested.items():
        if is_requested:
            raise BadInput(f"{option}: {run} keeps the architecture of the model it was initialized from. Omit it.")


def _exported_files(out: Path) -> set[str]:
    """Return the files that an earlier export to this folder wrote."""
    try:
        return {EXPORT_INFO, *json.loads((out / EXPORT_INFO).read_text(encoding="utf-8"))["files"]}
    except (OSError, ValueError, KeyError, TypeError):
        return set()


def _truncated_config(config: CrosslingConfig, layers: int, run: Path) -> CrosslingConfig:
    """Return the configuration of the encoder up to a layer."""
    depth = config.num_hidden_layers
    if not 1 <= layers <= depth:
        raise BadInput(f"layers {layers}: {run} has {depth} layers. Give a number from 1 to {depth}.")
    if layers < config.universal_layer:
        warnings.warn(
            f"layers {layers}: the universal layer {config.universal_layer} is not exported."
            f" Sentence vectors are those of layer {layers}.",
            stacklevel=3,
        )
    return config.replace(
        num_hidden_layers=layers,
        universal_layer=min(layers, config.universal_layer),
        final_norm=config.final_norm and layers == depth,  # only the last layer has a final norm
    )


def _check_finite(net: Network, run: Path) -> None:
    for name, values in net.named_parameters():
        if not values.isfinite().all():
            raise BadInput(f"{run}: weight {name} has non-finite values. Export an earlier checkpoint.")


def build_models(
    net: Network, family: str = "crossling", truncated: CrosslingConfig | None = None
) -> dict[str, PreTrainedModel]:
    """Return the models to export by subfolder, `.` for the root. With `truncated`, only the first layers."""
    if isinstance(net.encoder, NativeEncoder):
        return _native_models(net)
    parts, encoder = net.parts, _with_plain_table(net.encoder)
    build: Callable[..., PreTrainedModel] = to_huggingface if family == "xlm-roberta" else _with_head
    if truncated is not None:
        return {".": build(_first_layers(encoder, truncated))}
    head = [name for name in HEAD_CLASSES if name in parts][:1]
    models = {".": build(encoder, **{name: parts[name] for name in head})}
    if "generator" in parts:
        models["generator"] = build(parts["generator"], lm_head=parts["generator_head"])
    return models


def _native_models(net: Network) -> dict[str, PreTrainedModel]:
    """Return the models of `transformers` as they are. A new head of replaced token detection is not part of them."""
    tokens = net.encoder.embeddings.tokens
    if isinstance(tokens, DisentangledEmbedding):
        net.encoder.embeddings.tokens = tokens.to_embedding()
    encoders = {".": net.encoder} | ({"generator": net.parts["generator"]} if "generator" in net.parts else {})
    return {name: encoder.model.eval() for name, encoder in encoders.items()}


def _with_plain_table(encoder: CrosslingModel) -> CrosslingModel:
    tokens = encoder.embeddings.tokens
    if isinstance(tokens, DisentangledEmbedding):
        encoder.set_input_embeddings(tokens.to_embedding())
    return encoder


def _first_layers(encoder: CrosslingModel, config: CrosslingConfig) -> CrosslingModel:
    with torch.device("meta"):
        shorter = CrosslingModel(config)
    shorter.embeddings, shorter.relative = encoder.embeddings, encoder.relative
    shorter.final_norm = encoder.final_norm if config.final_norm else None
    shorter.blocks = encoder.blocks[: config.num_hidden_layers]
    return shorter


def _with_head(encoder: CrosslingModel, **head: nn.Module) -> PreTrainedModel:
    """Return the Hugging Face model of an encoder and at most one head, with the same weights."""
    model: PreTrainedModel = encoder
    for name, module in head.items():
        with torch.device("meta"):  # no memory for weights that are replaced
            model = HEAD_CLASSES[name](encoder.config)
        model.encoder = encoder
        setattr(model, name, module)
    model.train(False)
    return model


def _write_model(folder: Path, model: PreTrainedModel, standalone: bool, precision: str) -> None:
    folder.mkdir(exist_ok=True)
    if standalone:
        model.config.auto_map = dict(AUTO_MAP)
        for name, text in collect_sources().items():
            (folder / name).write_text(text, encoding="utf-8")
    with quiet_transformers():
        (model.half() if precision == "half" else model).save_pretrained(folder)
    weights = folder / SAFE_WEIGHTS_NAME
    if precision == "int8":
        save_file(quantize(load_file(weights)), weights, metadata={"format": "pt"})
    weights.chmod(0o644)  # safetensors writes files that only the owner can read


def _write_tokenizer(folder: Path, vocabulary: AnyVocabulary, max_length: int) -> None:
    if not isinstance(vocabulary, Vocabulary):
        vocabulary.write_tokenizer(folder)
        return
    tokenizer = vocabulary.tokenizer()
    tokenizer.model_max_length = max_length
    tokenizer.save_pretrained(folder)
    # Without indentation, which is half of the file.
    (folder / "tokenizer.json").write_text(tokenizer.backend_tokenizer.to_str(), encoding="utf-8")
    (folder / "sentencepiece.model").write_bytes(vocabulary.model)  # for crossling vocab --from


def _write_sentence_transformer(folder: Path, config: CrosslingConfig, family: str) -> None:
    """Write the files of Sentence Transformers: the mean of the universal layer, without the layers above it."""
    names = {"": "Transformer", "1_Pooling": "Pooling"}
    modules = [
        {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{name}"}
        for number, (path, name) in enumerate(names.items())
    ]
    write_json(folder / "modules.json", modules)
    last = "output_layer" if family == "crossling" else "num_hidden_layers"
    transformer: dict[str, Any] = {"max_seq_length": config.max_position_embeddings}
    if family != NATIVE or config.universal_layer != config.num_hidden_layers:
        transformer["config_args"] = {last: config.universal_layer}
    write_json(folder / "sentence_bert_config.json", transformer)
    pooling = {"word_embedding_dimension": config.hidden_size, "pooling_mode_mean_tokens": True}
    write_json(folder / "1_Pooling" / "config.json", pooling)
