"""Initialize a run from a Hugging Face encoder that keeps its own architecture.

The network has the class, the configuration and the weights of the model. New are only heads that it lacks. With
replaced token detection the generator is a model of the same family: the first layers of the model, or another one.
"""
# V vocabulary, D width

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors import safe_open
from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedModel

from crossling.bundled import resolve_model
from crossling.core.errors import BadInput
from crossling.core.hub import TOKENIZER_FILES, WEIGHT_FILES, get_model_folder
from crossling.model.convert import find_differences, find_head
from crossling.model.embedding import DisentangledEmbedding, remap_rows
from crossling.model.model_shape import LATER_SETTINGS, ModelShape
from crossling.model.native_encoder import (
    NativeEncoder,
    copy_weights,
    dump_config,
    find_decoder,
    has_lm_head,
    masked_lm_class,
)
from crossling.model.native_packing import first_position
from crossling.model.pretrained import load_pretrained, load_pretrained_config
from crossling.objectives import Network
from crossling.recipes.network import load_run
from crossling.recipes.recipe import Recipe
from crossling.recipes.run_checkpoints import run_of
from crossling.vocabulary.fast_vocabulary import FastVocabulary
from crossling.vocabulary.open_vocabulary import open_vocabulary
from crossling.vocabulary.reuse_vocabulary import map_tokens
from crossling.vocabulary.vocabulary import Vocabulary

ELECTRA = "ElectraForPreTraining"
# Our names of settings that the model determines, by the names of Hugging Face.
SIZES = {
    "layers": "num_hidden_layers",
    "width": "hidden_size",
    "heads": "num_attention_heads",
    "feed_forward": "intermediate_size",
    "init": "initializer_range",
    "norm_epsilon": "layer_norm_eps",
}
DEPENDENCE = 1e-5  # relative difference of states above which one token depends on another
ROLES = ("bos", "pad", "eos")  # special tokens whose ids the configuration of a model has


@dataclass(frozen=True, eq=False, kw_only=True)
class NativeInitialModel:
    """A Hugging Face encoder to initialize a run from, which keeps its architecture.

    Args:
        name: Name or path of the model, as given.
        encoder: The encoder with its model.
        vocabulary: The tokenizer of the model.
        generator: Another model of the same family as generator of replaced token detection, or None.
        generator_name: Name or path of the generator.

    Example:
        >>> model = crossling.NativeInitialModel.load("mmBERT-base")
        >>> crossling.pretrain(crossling.recipes.xlm_r("base"), shards, "runs/adapted", init=model)
    """

    name: str
    encoder: NativeEncoder
    vocabulary: Vocabulary | FastVocabulary
    generator: NativeEncoder | None = None
    generator_name: str | None = None

    @property
    def names(self) -> dict[str, str]:
        """Names of the model and of a separate generator, as stored in the run folder."""
        return {"model": self.name} | ({"generator": self.generator_name} if self.generator_name else {})

    @classmethod
    def load(cls, model: str | os.PathLike[str], generator: str | os.PathLike[str] | None = None) -> NativeInitialModel:
        """Load a model to initialize from.

        Args:
            model: Hugging Face encoder by folder or hub name, or a native run.
            generator: Another model of the same family, with the same tokenizer and hidden size [default: the generator
                of the model, or its first layers].

        Returns:
            The loaded model.

        Raises:
            BadInput: There is no such model, it is no encoder, or the generator does not match it.

        Example:
            >>> crossling.NativeInitialModel.load("mmBERT-base").encoder.config.num_hidden_layers
            22
        """
        name, run = os.fspath(model), run_of(Path(model))
        if run is not None:
            net = load_run(Path(model))
            if not isinstance(net.encoder, NativeEncoder):
                raise BadInput(f"{name}: trained in crossling's architecture. Omit model.architecture=native.")
            own = dict(net.parts.items()).get("generator")
            loaded = cls(name=name, encoder=net.encoder, vocabulary=open_vocabulary(run / "vocab"), generator=own)
        else:
            files = [*TOKENIZER_FILES, *WEIGHT_FILES, *(f"generator/{file}" for file in WEIGHT_FILES)]
            folder = get_model_folder(resolve_model(model), files)
            encoder = _load_encoder(folder, name)
            own = _load_encoder(folder / "generator", name) if (folder / "generator").is_dir() else None
            loaded = cls(name=name, encoder=encoder, vocabulary=open_vocabulary(folder), generator=own)
        rows = loaded.encoder.model.config.vocab_size
        if loaded.vocabulary.size > rows:
            raise BadInput(
                f"{name}: its tokenizer has {loaded.vocabulary.size} entries, but its embedding table only {rows} rows."
                " Fix the folder."
            )
        if generator is None:
            return loaded
        other = cls.load(generator)
        _check_generator(loaded, other)
        return replace(loaded, generator=other.encoder, generator_name=os.fspath(generator))

    def adapt(self, recipe: Recipe) -> Recipe:
        """Return the recipe with the architecture of the model.

        Args:
            recipe: Recipe to adapt.

        Returns:
            The recipe whose network `initialize` accepts.

        Raises:
            BadInput: The recipe needs cross-attention.

        Example:
            >>> model.adapt(crossling.recipes.xlm_r("base")).model.architecture
            'native'
        """
        if recipe.model.cross_attention or recipe.has_decoder:
            raise BadInput(
                f"recipe {recipe.name}: needs cross-attention, which {self.name} lacks. Use another recipe, or a model"
                " that crossling can convert."
            )
        model, shape = self.encoder.model, recipe.model
        config = type(model.config).from_dict(model.config.to_dict())
        config.architectures = [self._architecture(recipe)]
        names = (*SIZES, "max_length", "dropout", "attention_dropout")
        own: dict[str, Any] = {name: getattr(_shape_of(model), name) for name in names}
        layer = shape.universal_layer
        if layer is None or layer > own["layers"]:
            layer = self.encoder.config.universal_layer
        generator_layers = (self.generator or self.encoder).config.num_hidden_layers
        if generator_layers >= own["layers"]:  # not trained as a generator
            generator_layers = min(shape.generator_layers, generator_layers)
        tables = [each.embeddings.tokens.weight for each in (self.generator or self.encoder, self.encoder)]
        table = "gdes" if shape.token_table == "shared" and not torch.equal(*tables) else shape.token_table
        own |= {"norm": "post", "absolute": True, "relative": False, "gate": False, "universal_layer": layer}
        own |= dict.fromkeys(LATER_SETTINGS)
        own |= {"generator_layers": generator_layers, "token_table": table, "architecture": "native"}
        own["native"] = dump_config(config, self.vocabulary.size)
        return recipe.replace(model=replace(shape, **own))

    def _architecture(self, recipe: Recipe) -> str:
        """Return the name of the class whose heads the recipe needs. Other heads of the model are kept."""
        own = type(self.encoder.model).__name__
        config = self.encoder.model.config
        if recipe.mlm or recipe.tlm:
            return masked_lm_class(config, self.name)
        if recipe.has_rtd:
            return ELECTRA if config.model_type == "electra" else type(self.encoder.base).__name__
        return own

    @torch.no_grad()
    def initialize(self, net: Network, vocabulary: Vocabulary | FastVocabulary, seed: int) -> str:
        """Copy the weights of the model into the network of an adapted recipe.

        Args:
            net: Network of a recipe that `adapt` returned.
            vocabulary: Vocabulary of the shards.
            seed: Seed of embeddings for tokens that the model has nothing similar for.

        Returns:
            A summary of the source of the token embeddings.

        Raises:
            BadInput: The vocabulary has other ids for the special tokens than the model.

        Example:
            >>> model.initialize(net, open_vocabulary("vocab"), seed=0)
            'same vocabulary'
        """
        old_ids = self._old_ids(vocabulary)

        def remap(table: Tensor) -> Tensor:
            """Map equal tables to equal tables, so that a shared table stays shared."""
            return table if old_ids is None else remap_rows(table, old_ids, torch.Generator().manual_seed(seed))

        if "generator" in net.parts:  # before the encoder, whose table may be a difference from this one
            _copy_model(net.parts["generator"], self.generator or self.encoder, remap)
        _copy_model(net.encoder, self.encoder, remap)
        return "same vocabulary" if old_ids is None else f"token embeddings mapped to {vocabulary.size:,} entries"

    def new_modules(self, recipe: Recipe) -> list[str]:
        """Return the names of heads that the recipe needs and the model lacks.

        Args:
            recipe: Recipe that `adapt` returned.

        Returns:
            Names such as `lm_head`.

        Example:
            >>> model.new_modules(crossling.recipes.xlm_e("base"))
            ['rtd_head']
        """
        generator = self.generator or self.encoder
        missing = {
            "lm_head": bool(recipe.mlm or recipe.tlm) and not has_lm_head(self.encoder.model),
            "rtd_head": recipe.has_rtd and type(self.encoder.model).__name__ != ELECTRA,
            "generator_head": recipe.has_rtd and not has_lm_head(generator.model),
        }
        return [name for name, is_missing in missing.items() if is_missing]

    def _old_ids(self, vocabulary: Vocabulary | FastVocabulary) -> list[list[int]] | None:
        """Return the old tokens of each token of `vocabulary`, or None if it is the vocabulary of the model."""
        if _tokens(vocabulary) == _tokens(self.vocabulary):
            return None
        own, other = self.vocabulary.special, vocabulary.special
        if not isinstance(vocabulary, Vocabulary) or any(getattr(own, role) != getattr(other, role) for role in ROLES):
            raise BadInput(
                f"{self.name}: the shards have another vocabulary, with other ids of special tokens. Tokenize with that"
                f" of the model: crossling tokenize CORPORA --vocab {self.name}."
            )
        return map_tokens(
            self.vocabulary if isinstance(self.vocabulary, Vocabulary) else self.vocabulary.tokenizer(), vocabulary
        )


# ---- loading ----------------------------------------------------------------------------------------------------


def is_native(model: str | os.PathLike[str], architecture: str | None) -> bool:
    """Return whether a run that is initialized from a model keeps the architecture of the model.

    Args:
        model: Run, folder or hub name.
        architecture: The recipe's `model.architecture`.
    """
    if (run := run_of(Path(model))) is not None:
        return Recipe.load(run / "recipe.json").model.native is not None
    if architecture is not None:
        return architecture == "native"
    folder = get_model_folder(resolve_model(model), [*TOKENIZER_FILES, *WEIGHT_FILES])
    config = load_pretrained_config(folder, os.fspath(model))
    return not is_convertible(config, model) and type(config) in transformers.MODEL_FOR_MASKED_LM_MAPPING


def is_convertible(config: PreTrainedConfig, name: str | os.PathLike[str]) -> bool:
    """Return whether crossling's architecture is the same network."""
    try:
        find_head(config, os.fspath(name))
    except BadInput:
        return False
    return True


def _load_encoder(folder: Path, name: str) -> NativeEncoder:
    network = _load_model(folder, name)
    encoder = NativeEncoder(network, _shape_of(network).to_config(network.config.vocab_size))
    _check_bidirectional(encoder, name)
    return encoder


def _load_model(folder: Path, name: str) -> PreTrainedModel:
    """Return the model with the head that its folder has."""
    config = load_pretrained_config(folder, name)
    if config.is_encoder_decoder:
        raise BadInput(f"{name}: an encoder-decoder. Give an encoder.")
    architecture = str((config.architectures or [""])[0])
    if architecture == ELECTRA:
        return load_pretrained(folder, name, transformers.ElectraForPreTraining)
    if config.model_type == "deberta-v2" and _has_weights(folder, "lm_predictions."):
        config.legacy = False  # the head of DeBERTa-v3, which its configuration does not mention
    is_mlm = "MaskedLM" in architecture or architecture in ("", "BertForPreTraining", "XLMWithLMHeadModel")
    if is_mlm and type(config) in transformers.MODEL_FOR_MASKED_LM_MAPPING:
        try:
            return load_pretrained(folder, name, transformers.AutoModelForMaskedLM, config)
        except BadInput:
            if architecture:
                raise
    return load_pretrained(folder, name)


def _has_weights(folder: Path, prefix: str) -> bool:
    for file in folder.glob("*.safetensors"):
        with safe_open(file, framework="pt") as weights:
            if any(key.startswith(prefix) for key in weights.keys()):  # noqa: SIM118 - no mapping
                return True
    return False


def _shape_of(model: PreTrainedModel) -> ModelShape:
    """Return the sizes of a model in the words of a recipe."""
    config = model.config
    own: dict[str, Any] = {name: getattr(config, t) for name, t in SIZES.items() if hasattr(config, t)}
    own.setdefault("feed_forward", 4 * own["width"])
    positions = getattr(config, "max_position_embeddings", None) or 1 << 19
    dropouts = {"dropout": "hidden_dropout_prob", "attention_dropout": "attention_probs_dropout_prob"}
    own |= {name: float(getattr(config, theirs, 0.0) or 0.0) for name, theirs in dropouts.items()}
    return ModelShape(
        **own,
        generator_layers=1,
        max_length=positions - first_position(model.base_model),
        relative=False,
        universal_layer=getattr(config, "universal_layer", None) or config.num_hidden_layers,
    )


def _check_bidirectional(encoder: NativeEncoder, name: str) -> None:
    """Refuse a decoder: its first token depends on no later one, and its last token on earlier ones."""
    special = {value for key, value in encoder.model.config.to_dict().items() if key.endswith("token_id")}
    one, other = [token for token in range(encoder.model.config.vocab_size) if token not in special][:2]
    ids = torch.tensor([[one, one, one], [one, one, other], [other, one, one]])
    with torch.no_grad():
        same_LD, end_LD, start_LD = encoder.eval()(ids).last_hidden_state
    of_end, of_start = ((same_LD[at] - changed_LD[at]).abs().max() for at, changed_LD in ((0, end_LD), (-1, start_LD)))
    if of_end <= DEPENDENCE * same_LD.abs().max() and of_start > 100 * of_end:
        raise BadInput(f"{name}: a decoder, whose tokens do not attend to later ones. Give an encoder.")


def _check_generator(loaded: NativeInitialModel, other: NativeInitialModel) -> None:
    name = other.name
    if _tokens(other.vocabulary) != _tokens(loaded.vocabulary):
        raise BadInput(f"{name}: its vocabulary is not that of {loaded.name}. Give a generator with the same one.")
    names = ("model_type", "vocab_size", "hidden_size", "num_attention_heads", "intermediate_size")
    expected = {key: getattr(loaded.encoder.model.config, key) for key in names}
    for key, found in find_differences(other.encoder.model.config, expected):
        raise BadInput(f"{name}: its {key} is {found}, expected {expected[key]} as of {loaded.name}. Give another.")


def _tokens(vocabulary: Vocabulary | FastVocabulary) -> list[str]:
    if isinstance(vocabulary, Vocabulary):
        return list(vocabulary.scores)
    ids = vocabulary.tokenizer().get_vocab()
    return sorted(ids, key=ids.__getitem__)


# ---- copying ----------------------------------------------------------------------------------------------------


def _copy_model(target: NativeEncoder, source: NativeEncoder, remap: Callable[[Tensor], Tensor]) -> None:
    """Copy the weights of the encoder, and of the head if both have it. A shorter network gets the first layers."""
    tables: list[tuple[Any, Tensor]] = []  # parameters with a row for each token, and their values
    decoder, old = find_decoder(target.model), find_decoder(source.model)
    if decoder is not None and old is not None:
        tables += [(decoder.weight, old.weight)]
        if decoder.bias is not None and old.bias is not None:
            tables += [(decoder.bias, old.bias)]
    tokens = target.embeddings.tokens
    weight_VD = remap(source.embeddings.tokens.weight)
    skipped = [values for values, _ in tables] + [*tokens.parameters()]
    base, prefix = (
        dict(source.base.named_parameters()) | dict(source.base.named_buffers()),
        source.model.base_model_prefix,
    )
    copy_weights(target.base, base, skipped)
    if type(target.model) is type(source.model) and target.model is not target.base:
        outside = {
            name: values for name, values in source.model.state_dict().items() if not name.startswith(f"{prefix}.")
        }
        copy_weights(target.model, outside, skipped)
    for values, old_values in tables:
        _copy_rows(values, remap(old_values))
    if isinstance(tokens, DisentangledEmbedding):
        tokens.set_weight(weight_VD)
    else:
        _copy_rows(tokens.weight, weight_VD)


def _copy_rows(target: Tensor, values: Tensor) -> None:
    """Copy rows. A target with spare rows keeps its own there."""
    target[: len(values)].copy_(values)
