"""A run becomes a Hugging Face folder:

DIR/config.json  model.safetensors     the encoder with its head; with `layers`, its first layers alone
    tokenizer.json  sentencepiece.model
    generator/                         a folder of the same kind, where the run trained a generator
    modules.json  sentence_bert_config.json  1_Pooling/     for Sentence Transformers
    README.md  export.json             the model card, and the same facts for programs
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import PreTrainedModel
from transformers.utils import SAFE_WEIGHTS_NAME, logging

from crossling.disk import new_folder, write_json
from crossling.errors import BadInput, nearest
from crossling.export.card import card
from crossling.export.facts import facts
from crossling.export.standalone import AUTO_MAP, write_code
from crossling.model.config import CrosslingConfig
from crossling.model.convert import exported
from crossling.model.heads import CrosslingForMaskedLM, CrosslingForPreTraining
from crossling.model.int8 import quantised
from crossling.model.tables import DisentangledEmbedding
from crossling.model.transformer import CrosslingModel
from crossling.objectives import Network
from crossling.recipe import load_run
from crossling.vocabulary.vocabulary import Vocabulary

FACTS = "export.json"
FAMILIES = ("crossling", "xlm-roberta")
PRECISIONS = ("single", "half", "int8")
HEADED = {"rtd_head": CrosslingForPreTraining, "lm_head": CrosslingForMaskedLM}  # the first that a network has


def export(
    run: Path | str,
    out: Path | str,
    standalone: bool = False,
    family: str = "crossling",
    precision: str = "single",
    layers: int | None = None,
) -> Path:
    """Writes the network of a run, at its newest checkpoint, to the folder `out`; with `standalone`, its code too.

    The root is the encoder with the head that detects replaced tokens, or else with the one that fills in masked ones,
    or bare. What only training needs stays in the run: momentum encoder, queue, projection. A network of XLM-R's shape
    can be written as `family="xlm-roberta"`, which transformers knows by itself; if it detects replaced tokens, it
    becomes ELECTRA's discriminator. `precision` is that of the file: in `half` and `int8` it has a half and about a
    quarter of the size. With `layers`, the root is the bare encoder up to that layer, and there is no generator.
    """
    run, out = Path(run), Path(out)
    _check(run, out, standalone, family, precision)
    net, vocabulary, known = load_run(run), Vocabulary.load(run / "vocab"), facts(run)
    cut = None if layers is None else _cut(net.encoder.config, layers, run)
    models, config = networks(net, family, cut), cut or net.encoder.config
    if precision == "int8":
        _check_numbers(models, run)
    with new_folder(out) as new:
        for name, model in models.items():
            _write(new / name, model, vocabulary, config.max_position_embeddings, standalone, precision)
        _write_sentence_transformer(new, config, family)
        text = card(out.resolve().name, known, net.encoder, config, models, standalone, family, precision)
        (new / "README.md").write_text(text, encoding="utf-8")
        files = sorted(path.name for path in new.iterdir())
        write_json(new / FACTS, {"files": files, "precision": precision, "layers": layers, **asdict(known)})
    return out


def _check(run: Path, out: Path, standalone: bool, family: str, precision: str) -> None:
    if family not in FAMILIES:
        raise BadInput(f"--as {family}: there is no such family{nearest(family, FAMILIES)}")
    if precision not in PRECISIONS:
        raise BadInput(
            f"--precision {precision}: expected one of {', '.join(PRECISIONS)}{nearest(precision, PRECISIONS)}"
        )
    if precision == "int8" and family != "crossling":
        raise BadInput(f"--precision int8: {family} of transformers cannot read it; take half, or leave --as out")
    if standalone and family != "crossling":
        raise BadInput(f"--standalone: transformers has the code of {family} already; leave it out")
    if not (run / "recipe.json").is_file():
        raise BadInput(
            f"{run}: not a run (expected recipe.json); give a folder that crossling pretrain wrote, for what is in"
            " Hugging Face's form needs no export"
        )
    check_place(out)


def check_place(out: Path) -> None:
    """Refuses to write over anything but an earlier export as it was written."""
    if out.is_file():
        raise BadInput(f"{out}: this is a file; give a folder to write")
    there = {path.name for path in out.iterdir()} if out.is_dir() else set()
    if not there:
        return
    try:
        ours = {FACTS, *json.loads((out / FACTS).read_text(encoding="utf-8"))["files"]}
    except (OSError, ValueError, KeyError, TypeError):
        ours = set()
    if there - ours:
        raise BadInput(f"{out}: there is something else here already ({min(there - ours)}); give another -o folder")


def _cut(config: CrosslingConfig, layers: int, run: Path) -> CrosslingConfig:
    """That of the encoder up to a layer."""
    most = config.num_hidden_layers
    if not 1 <= layers <= most:
        raise BadInput(f"--layers {layers}: {run} has layers 1 to {most}; give one of them")
    if layers < config.universal_layer:
        warnings.warn(
            f"the universal layer, {config.universal_layer}, is left out: sentence vectors are those of layer {layers}",
            stacklevel=3,
        )
    return config.but(
        num_hidden_layers=layers,
        universal_layer=min(layers, config.universal_layer),
        final_norm=config.final_norm and layers == most,  # no other layer was normed once more
    )


def _check_numbers(models: dict[str, PreTrainedModel], run: Path) -> None:
    for model in models.values():
        for name, values in model.named_parameters():
            if not values.isfinite().all():
                raise BadInput(f"{run}: the weight {name} holds values that are no numbers; take an earlier checkpoint")


def networks(net: Network, family: str = "crossling", cut: CrosslingConfig | None = None) -> dict[str, PreTrainedModel]:
    """What is exported, by the folder it goes to: the root is `.`. With `cut`, the first layers of the encoder."""
    parts, encoder = net.parts, _plain(net.encoder)
    model: Callable[..., PreTrainedModel] = exported if family == "xlm-roberta" else _joined
    if cut is not None:
        return {".": model(_first_layers(encoder, cut))}
    heads = [name for name in HEADED if name in parts]
    found = {".": model(encoder, **{name: parts[name] for name in heads[:1]})}
    if "generator" in parts:
        found["generator"] = model(parts["generator"], lm_head=parts["generator_head"])
    return found


def _plain(encoder: CrosslingModel) -> CrosslingModel:
    """The encoder with an ordinary token table."""
    tokens = encoder.embeddings.tokens
    if isinstance(tokens, DisentangledEmbedding):
        encoder.set_input_embeddings(tokens.plain())
    return encoder


def _first_layers(encoder: CrosslingModel, config: CrosslingConfig) -> CrosslingModel:
    with torch.device("meta"):
        shorter = CrosslingModel(config)
    shorter.embeddings, shorter.relative = encoder.embeddings, encoder.relative
    shorter.final_norm = encoder.final_norm if config.final_norm else None
    shorter.blocks = encoder.blocks[: config.num_hidden_layers]
    return shorter


def _joined(encoder: CrosslingModel, **head: nn.Module) -> PreTrainedModel:
    """The model that Hugging Face knows, of parts that are there; it has one head at most."""
    model: PreTrainedModel = encoder
    for name, part in head.items():
        with torch.device("meta"):  # weights that would only be thrown away
            model = HEADED[name](encoder.config)
        model.encoder = encoder
        setattr(model, name, part)
    return model.eval()


def _write(
    folder: Path, model: PreTrainedModel, vocabulary: Vocabulary, longest: int, standalone: bool, precision: str
) -> None:
    folder.mkdir(exist_ok=True)
    if standalone:
        model.config.auto_map = dict(AUTO_MAP)
        write_code(folder)
    with _no_bars():
        (model.half() if precision == "half" else model).save_pretrained(folder)
    weights = folder / SAFE_WEIGHTS_NAME
    if precision == "int8":
        save_file(quantised(load_file(weights)), weights, metadata={"format": "pt"})
    weights.chmod(0o644)  # safetensors writes private files; ours are meant to be shared
    tokenizer = vocabulary.tokenizer()
    tokenizer.model_max_length = longest
    tokenizer.save_pretrained(folder)
    # Without the line breaks and spaces that make up half of the file.
    (folder / "tokenizer.json").write_text(tokenizer.backend_tokenizer.to_str(), encoding="utf-8")
    (folder / "sentencepiece.model").write_bytes(vocabulary.model)  # for crossling vocab --from


def _write_sentence_transformer(folder: Path, config: CrosslingConfig, family: str) -> None:
    """The mean of the universal layer as the vector of a sentence; what lies above it is not computed."""
    names = {"": "Transformer", "1_Pooling": "Pooling"}
    modules = [
        {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{name}"}
        for number, (path, name) in enumerate(names.items())
    ]
    write_json(folder / "modules.json", modules)
    last = "output_layer" if family == "crossling" else "num_hidden_layers"
    transformer = {"max_seq_length": config.max_position_embeddings, "config_args": {last: config.universal_layer}}
    write_json(folder / "sentence_bert_config.json", transformer)
    pooling = {"word_embedding_dimension": config.hidden_size, "pooling_mode_mean_tokens": True}
    write_json(folder / "1_Pooling" / "config.json", pooling)


@contextmanager
def _no_bars() -> Iterator[None]:
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()
