"""Initialize the network of a recipe from a run, an exported folder or a Hugging Face encoder.

The architecture is that of the model. Modules that the recipe needs and the model lacks are new. A new relative
position bias starts at zero, so that the network computes at first what the model computes. New cross-attention starts
at random, as in VECO. If the shards have another vocabulary, each token embedding is the mean of the embeddings of its
old tokens.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from crossling.bundled import resolve_model
from crossling.core.errors import BadInput
from crossling.core.hub import TOKENIZER_FILES, WEIGHT_FILES, get_model_folder
from crossling.model.config import CrosslingConfig
from crossling.model.convert import ConvertedModel, find_differences, from_huggingface
from crossling.model.embedding import DisentangledEmbedding, remap_rows
from crossling.model.encoder_model import CrosslingModel
from crossling.model.model_shape import CONFIG_NAMES, LATER_SETTINGS
from crossling.model.native_encoder import NativeEncoder
from crossling.model.pretrained import LOCAL
from crossling.objectives import Network
from crossling.recipes.network import load_run
from crossling.recipes.recipe import Recipe
from crossling.recipes.run_checkpoints import run_of
from crossling.vocabulary.fast_vocabulary import FastVocabulary
from crossling.vocabulary.reuse_vocabulary import check_tokenizer, load_vocabulary, map_tokens
from crossling.vocabulary.vocabulary import Vocabulary

CROSS_ATTENTION = "cross-attention"
# Settings that a generator has in common with its discriminator: otherwise its weights would be meaningless there.
COMMON = (
    *("vocab_size", "hidden_size", "num_attention_heads", "intermediate_size", "max_position_embeddings"),
    *("norm", "absolute_positions", "layer_norm_eps"),
    *("hidden_act", "biases", "first_norm", "position_embedding_type", "rope_theta"),
)
ARCHITECTURE = ("layers", "width", "heads", "feed_forward", "max_length", "norm", "absolute", "norm_epsilon")
FIXED = ("relative_buckets", "relative_max_distance")  # no setting of a recipe
# These apply only with a relative position bias.
RELATIVE_BIAS = ("relative_positions", "gated", "gate_input", "plain_gate", *FIXED)


@dataclass(frozen=True, eq=False, kw_only=True)
class InitialModel:
    """A model to initialize a run from, with its generator if it has one.

    Args:
        name: Name or path of the model, as given.
        encoder: The encoder and its heads.
        generator: The generator of a discriminator, or None.
        decoder: The decoder of an encoder-decoder run, or None.
        vocabulary: The vocabulary of the model.
        generator_name: Name or path of the generator, if it is another model.

    Example:
        >>> model = crossling.InitialModel.load("xlm-roberta-base")
        >>> crossling.pretrain(crossling.recipes.infoxlm("base"), shards, "runs/infoxlm", init=model)
    """

    name: str
    encoder: ConvertedModel
    generator: ConvertedModel | None
    vocabulary: Vocabulary | PreTrainedTokenizerFast
    generator_name: str | None = None
    decoder: CrosslingModel | None = None

    @property
    def names(self) -> dict[str, str]:
        """Names of the model and of a separate generator, as stored in the run folder."""
        return {"model": self.name} | ({"generator": self.generator_name} if self.generator_name else {})

    @classmethod
    def load(cls, model: str | os.PathLike[str], generator: str | os.PathLike[str] | None = None) -> InitialModel:
        """Load a model to initialize from.

        Args:
            model: Run folder (its latest checkpoint), `RUN/checkpoints/STEP`, exported folder, or Hugging Face encoder.
            generator: Another model with the same vocabulary and hidden size. If it has as many layers as the model or
                more, only its first layers are used [default: the generator of the model, or its first layers].

        Returns:
            The loaded model.

        Raises:
            BadInput: There is no such model, or the generator does not match it.

        Example:
            >>> crossling.InitialModel.load("runs/xlm_e").encoder.config.hidden_size
            768
        """
        path = Path(model)
        if (run := run_of(path)) is not None:
            net = load_run(path)
            if isinstance(net.encoder, NativeEncoder):
                raise BadInput(
                    f"{model}: a run in the architecture of a Hugging Face model. Export it, and give the exported"
                    " folder; or use NativeInitialModel."
                )
            parts = dict(net.parts.items())
            encoder = ConvertedModel(net.encoder.config, net.encoder, parts.get("lm_head"), parts.get("rtd_head"))
            own = parts.get("generator")
            own = ConvertedModel(own.config, own, parts["generator_head"]) if own is not None else None
            loaded = cls(
                name=str(model),
                encoder=encoder,
                generator=own,
                vocabulary=_load_tokenizer(run / "vocab", run),
                decoder=parts.get("decoder"),
            )
        else:
            files = [*TOKENIZER_FILES, *WEIGHT_FILES, *(f"generator/{file}" for file in WEIGHT_FILES)]
            folder = get_model_folder(resolve_model(model), files)
            own = from_huggingface(folder / "generator") if (folder / "generator").is_dir() else None
            encoder, tokenizer = from_huggingface(folder), _load_tokenizer(folder, str(model))
            loaded = cls(name=str(model), encoder=encoder, generator=own, vocabulary=tokenizer)
        loaded._check()
        if generator is None:
            return loaded
        other = cls.load(generator)
        if _tokens(other.vocabulary) != _tokens(loaded.vocabulary):
            raise BadInput(
                f"{generator}: its vocabulary is not that of {model}. Give a generator with the same vocabulary."
            )
        config = other.encoder.config
        names = (*COMMON, *RELATIVE_BIAS) if config.relative_positions else COMMON  # a missing bias is new
        expected = {name: getattr(loaded.encoder.config, name) for name in names}
        for name, found in find_differences(config, expected):
            raise BadInput(
                f"{generator}: its {name} is {found}, expected {expected[name]} as of {model}. Give another generator."
            )
        return replace(loaded, generator=other.encoder, generator_name=str(generator))

    def _check(self) -> None:
        """Refuse a model that would fail, or be another network, only later."""
        rows, tokens = self.encoder.config.vocab_size, self.vocabulary
        largest = tokens.mask_id if isinstance(tokens, Vocabulary) else max(tokens.get_vocab().values())
        if largest >= rows:
            raise BadInput(
                f"{self.name}: its tokenizer has the id {largest}, but its embedding table only {rows} rows."
                " Fix the folder."
            )
        if self.encoder.config.relative_positions:
            expected = {name: getattr(CrosslingConfig(), name) for name in FIXED}
            for name, found in find_differences(self.encoder.config, expected):
                raise BadInput(f"{self.name}: its {name} is {found}, but recipes support {expected[name]} only.")

    def adapt(self, recipe: Recipe) -> Recipe:
        """Return the recipe with the architecture of the model.

        If generator and model have different token tables, a recipe with a shared table uses `gdes` instead.

        Args:
            recipe: Recipe to adapt.

        Returns:
            The recipe whose network `initialize` accepts.

        Example:
            >>> model.adapt(crossling.recipes.xlm_e("base")).model.layers
            12
        """
        config, shape = self.encoder.config, recipe.model
        source = self.generator or self.encoder
        generator_layers = source.config.num_hidden_layers
        if generator_layers >= config.num_hidden_layers:  # not trained as a generator
            generator_layers = min(shape.generator_layers, generator_layers)
        same_table = torch.equal(*(each.encoder.embeddings.tokens.weight for each in (source, self.encoder)))
        token_table = "gdes" if shape.token_table == "shared" and not same_table else shape.token_table
        layer = shape.universal_layer
        if layer is None or layer > config.num_hidden_layers:
            layer = config.universal_layer
        names = [*ARCHITECTURE]
        # A position bias or cross-attention that the model lacks is new, as the recipe has it.
        names += ["relative", "gate", "gate_input", "plain_gate"] if config.relative_positions else []
        names += ["cross_attention", "cross_query"] if config.cross_attention and not recipe.has_decoder else []
        own: dict[str, Any] = {name: getattr(config, CONFIG_NAMES.get(name, name)) for name in names}
        own |= {"generator_layers": generator_layers, "token_table": token_table, "universal_layer": layer}
        defaults = CrosslingConfig()
        for name in LATER_SETTINGS:
            value, default = (getattr(each, CONFIG_NAMES.get(name, name)) for each in (config, defaults))
            own[name] = None if value == default else value
        return recipe.replace(model=replace(shape, **own))

    @torch.no_grad()
    def initialize(self, net: Network, vocabulary: Vocabulary | FastVocabulary, seed: int) -> str:
        """Copy the weights of the model into the network of an adapted recipe.

        Args:
            net: Network of a recipe that `adapt` returned.
            vocabulary: Vocabulary of the shards.
            seed: Seed of embeddings for tokens that the model has nothing similar for.

        Returns:
            A summary of the source of the token embeddings.

        Example:
            >>> model.initialize(net, Vocabulary.load("vocab"), seed=0)
            'same vocabulary'
        """
        old_ids = self._old_ids(vocabulary)

        def remap(table: Tensor) -> Tensor:
            """Map equal tables to equal tables, so that a shared table stays shared."""
            return table if old_ids is None else remap_rows(table, old_ids, torch.Generator().manual_seed(seed))

        parts = net.parts
        if "generator" in parts:  # before the encoder, whose table may be a difference from this one
            source = self.generator or self.encoder
            _copy_encoder(parts["generator"], source.encoder, remap)
            _copy_head(parts["generator_head"], source.lm_head or self.encoder.lm_head, remap)
        _copy_encoder(net.encoder, self.encoder.encoder, remap)
        if "decoder" in parts:  # layers of an encoder are those of a decoder, but for its cross-attention
            _copy_encoder(parts["decoder"], self.decoder or self.encoder.encoder, remap)
        for name, head in (("lm_head", self.encoder.lm_head), ("rtd_head", self.encoder.rtd_head)):
            if name in parts:
                _copy_head(parts[name], head, remap)
        return _summarize(old_ids)

    def new_modules(self, recipe: Recipe) -> list[str]:
        """Return the names of modules that the recipe needs and the model lacks: heads and cross-attention.

        Args:
            recipe: Recipe that `adapt` returned.

        Returns:
            Names such as `lm_head` and `cross-attention`.

        Example:
            >>> model.new_modules(crossling.recipes.xlm_e("base"))
            ['rtd_head']
        """
        has_lm = bool(recipe.mlm or recipe.tlm or recipe.ca_mlm or recipe.ca_tlm or recipe.has_decoder)
        is_encoder = self.decoder is None and not self.encoder.config.cross_attention
        generator_head = (self.generator or self.encoder).lm_head or self.encoder.lm_head
        missing = {
            "lm_head": has_lm and self.encoder.lm_head is None,
            "rtd_head": recipe.has_rtd and self.encoder.rtd_head is None,
            "generator_head": recipe.has_rtd and generator_head is None,
            CROSS_ATTENTION: (recipe.model.cross_attention and not self.encoder.config.cross_attention)
            or (recipe.has_decoder and is_encoder),
        }
        return [name for name, is_missing in missing.items() if is_missing]

    def _old_ids(self, vocabulary: Vocabulary | FastVocabulary) -> list[list[int]] | None:
        """Return the old tokens of each token of `vocabulary`, or None if it is the vocabulary of the model."""
        if _tokens(self.vocabulary) == _tokens(vocabulary):
            has_spare_rows = self.encoder.config.vocab_size > vocabulary.size
            return [[number] for number in range(vocabulary.size)] if has_spare_rows else None
        if not isinstance(vocabulary, Vocabulary):
            raise BadInput(
                f"{self.name}: the shards have the tokenizer of another model. Tokenize with that of the model:"
                f" crossling tokenize CORPORA --vocab {self.name}."
            )
        return map_tokens(self.vocabulary, vocabulary)


def _summarize(old_ids: Sequence[Sequence[int]] | None) -> str:
    if old_ids is None:
        return "same vocabulary"
    one, several = sum(len(ids) == 1 for ids in old_ids), sum(len(ids) > 1 for ids in old_ids)
    none = len(old_ids) - one - several
    return f"token embeddings from one old token {one:,}, from the mean of several {several:,}, new {none:,}"


def _load_tokenizer(folder: Path, name: str | Path) -> Vocabulary | PreTrainedTokenizerFast:
    """Return a unigram tokenizer as our vocabulary, any other as `transformers` loads it."""
    check_tokenizer(folder, name)
    try:
        return load_vocabulary(folder)
    except BadInput:
        with suppress(Exception):  # each kind of tokenizer raises its own errors
            tokenizer = AutoTokenizer.from_pretrained(folder, **LOCAL)
            if isinstance(tokenizer, PreTrainedTokenizerFast):
                return tokenizer
        raise


def _tokens(vocabulary: Vocabulary | FastVocabulary | PreTrainedTokenizerFast) -> list[str]:
    if isinstance(vocabulary, Vocabulary):
        return list(vocabulary.scores)
    vocabulary = vocabulary.tokenizer() if isinstance(vocabulary, FastVocabulary) else vocabulary
    return sorted(vocabulary.get_vocab(), key=vocabulary.get_vocab().__getitem__)


def _copy_encoder(network: CrosslingModel, source: CrosslingModel, remap: Callable[[Tensor], Tensor]) -> None:
    """Copy all parameters of the same name. A network with fewer layers gets the first ones."""
    weights = dict(source.named_parameters())
    for name, parameter in network.named_parameters():
        if name.startswith("embeddings.tokens."):
            continue
        if name in weights:
            parameter.copy_(weights[name])
        elif name == "relative.weight_NH":
            parameter.zero_()
    tokens, table_VD = network.embeddings.tokens, remap(source.embeddings.tokens.weight)
    if isinstance(tokens, DisentangledEmbedding):
        tokens.set_weight(table_VD)
    else:
        tokens.weight.copy_(table_VD)


def _copy_head(head: nn.Module, source: nn.Module | None, remap: Callable[[Tensor], Tensor]) -> None:
    if source is not None:
        weights = dict(source.named_parameters())
        for name, parameter in head.named_parameters():
            parameter.copy_(remap(weights[name]) if name == "bias_V" else weights[name])
