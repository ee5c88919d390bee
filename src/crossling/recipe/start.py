"""Where a network begins that does not begin at random: as a run, an exported folder, or a Hugging Face encoder.

The shape is the model's; what the recipe needs and the model has not is new. A relative position bias that is new
begins at zero, so that at first the network says what the model says; cross-attention is plugged in and begins at
random, as VECO's. Where shards have another vocabulary, each piece takes the mean of the embeddings of its old pieces.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from crossling.errors import BadInput
from crossling.hub import TOKENIZER, WEIGHTS, model_folder
from crossling.model.convert import Imported, imported
from crossling.model.resize import moved
from crossling.model.tables import DisentangledEmbedding
from crossling.model.transformer import CrosslingModel
from crossling.objectives import Network
from crossling.recipe.network import load_run
from crossling.recipe.recipe import Recipe
from crossling.vocabulary.reuse import reuse
from crossling.vocabulary.transfer import origins
from crossling.vocabulary.vocabulary import Vocabulary

LOWERED = 0.2  # of the peak rate, for replaced token detection that goes on


@dataclass(frozen=True)
class Start:
    """A model to begin from, and the generator that belongs to it if it has one."""

    name: str
    encoder: Imported
    generator: Imported | None
    vocabulary: Vocabulary | PreTrainedTokenizerFast

    @classmethod
    def load(cls, model: str | Path, generator: str | Path | None = None) -> Start:
        """`generator` is another model of the same vocabulary, whose first layers become the generator."""
        path = Path(model)
        if (path / "recipe.json").is_file():
            net = load_run(path)
            encoder = Imported(net.encoder.config, net.encoder, _part(net, "lm_head"), _part(net, "rtd_head"))
            own = _part(net, "generator")
            start = cls(
                str(model),
                encoder,
                Imported(own.config, own, _part(net, "generator_head")) if own is not None else None,
                Vocabulary.load(path / "vocab"),
            )
        else:
            folder = model_folder(model, [*TOKENIZER, *WEIGHTS, "generator/*"])
            own = imported(folder / "generator") if (folder / "generator").is_dir() else None
            start = cls(str(model), imported(folder), own, _tokenizer(folder))
        if generator is None:
            return start
        other = cls.load(generator)
        if _pieces(other.vocabulary) != _pieces(start.vocabulary):
            raise BadInput(
                f"{generator}: its vocabulary is not that of {model}; give a generator that was trained with it"
            )
        return replace(start, generator=other.encoder)

    def shape(self, recipe: Recipe) -> Recipe:
        """The recipe with the shape of the model."""
        theirs = self.encoder.config
        wanted = recipe.model
        generator_layers = min(wanted.generator_layers, theirs.num_hidden_layers)
        if self.generator is not None:
            generator_layers = min(wanted.generator_layers, self.generator.config.num_hidden_layers)
        universal = wanted.universal_layer
        return recipe.but(
            model=replace(
                wanted,
                layers=theirs.num_hidden_layers,
                width=theirs.hidden_size,
                heads=theirs.num_attention_heads,
                feed_forward=theirs.intermediate_size,
                max_length=theirs.max_position_embeddings,
                norm=theirs.norm,
                absolute=theirs.absolute_positions,
                relative=theirs.relative_positions or wanted.relative,
                gate=theirs.gated if theirs.relative_positions else wanted.gate,
                cross_attention=theirs.cross_attention or wanted.cross_attention,
                norm_epsilon=theirs.layer_norm_eps,
                generator_layers=generator_layers,
                universal_layer=universal if universal is None or universal <= theirs.num_hidden_layers else None,
            )
        )

    @torch.no_grad()
    def fill(self, net: Network, vocabulary: Vocabulary, seed: int) -> None:
        """Puts the weights of the model into the network of a recipe of its shape."""
        random = torch.Generator().manual_seed(seed)
        come_from = self._origins(vocabulary)

        def rows(table: Tensor) -> Tensor:
            return table if come_from is None else moved(table, come_from, random)

        parts = net.parts
        if "generator" in parts:  # before the encoder, whose table may be a difference from this one
            source = self.generator or self.encoder
            _fill(parts["generator"], source.encoder, rows)
            _fill_head(parts["generator_head"], source.lm_head or self.encoder.lm_head, rows)
        _fill(net.encoder, self.encoder.encoder, rows)
        for name, head in (("lm_head", self.encoder.lm_head), ("rtd_head", self.encoder.rtd_head)):
            if name in parts:
                _fill_head(parts[name], head, rows)

    def _origins(self, vocabulary: Vocabulary) -> list[list[int]] | None:
        """Of the pieces of another vocabulary; none where it is the same."""
        known = self.encoder.config.vocab_size
        if known == vocabulary.size and _pieces(self.vocabulary) == _pieces(vocabulary):
            return None
        found = origins(self.vocabulary, vocabulary)
        beyond = max((number for ids in found for number in ids), default=0)
        if beyond >= known:
            raise BadInput(
                f"{self.name}: its tokenizer has the id {beyond}, its table only {known} rows; mend the folder"
            )
        return found


def lowered(recipe: Recipe) -> Recipe:
    """At a lower peak rate where replaced token detection goes on: at the original one it was seen to diverge (XY-LENT,
    Limitations)."""
    return recipe.but(lr=LOWERED * recipe.lr) if recipe.mrtd or recipe.trtd else recipe


def _part(net: Network, name: str) -> Any:
    return dict(net.parts.items()).get(name)


def _tokenizer(folder: Path) -> Vocabulary | PreTrainedTokenizerFast:
    """A unigram vocabulary as ours; any other as `transformers` reads it."""
    try:
        return reuse(folder)
    except BadInput:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        if not isinstance(tokenizer, PreTrainedTokenizerFast):
            raise
        return tokenizer


def _pieces(vocabulary: Vocabulary | PreTrainedTokenizerFast) -> list[str]:
    if isinstance(vocabulary, Vocabulary):
        return list(vocabulary.scores)
    return sorted(vocabulary.get_vocab(), key=vocabulary.get_vocab().__getitem__)


def _fill(network: CrosslingModel, source: CrosslingModel, rows: Callable[[Tensor], Tensor]) -> None:
    """All that the two have in common; a network with fewer layers takes the first ones."""
    theirs = dict(source.named_parameters())
    for name, parameter in network.named_parameters():
        if name.startswith("embeddings.tokens."):
            continue
        if name in theirs:
            parameter.copy_(theirs[name])
        elif name == "relative.weight_NH":
            parameter.zero_()
    tokens, table_VD = network.embeddings.tokens, rows(source.embeddings.tokens.weight)
    if isinstance(tokens, DisentangledEmbedding):
        tokens.assign(table_VD)
    else:
        tokens.weight.copy_(table_VD)


def _fill_head(head: nn.Module, source: nn.Module | None, rows: Callable[[Tensor], Tensor]) -> None:
    if source is not None:
        theirs = dict(source.named_parameters())
        for name, parameter in head.named_parameters():
            parameter.copy_(rows(theirs[name]) if name == "bias_V" else theirs[name])
