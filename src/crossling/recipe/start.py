"""Where a network begins that does not begin at random: as a run, an exported folder, or a Hugging Face encoder.

The shape is the model's; what the recipe needs and the model has not is new. A relative position bias that is new
begins at zero, so that at first the network says what the model says; cross-attention is plugged in and begins at
random, as VECO's. Where shards have another vocabulary, each piece takes the mean of the embeddings of its old pieces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from crossling.errors import BadInput
from crossling.hub import TOKENIZER, WEIGHTS, model_folder
from crossling.model.config import CrosslingConfig
from crossling.model.convert import Imported, imported
from crossling.model.resize import moved
from crossling.model.tables import DisentangledEmbedding
from crossling.model.transformer import CrosslingModel
from crossling.objectives import Network
from crossling.recipe.network import load_run
from crossling.recipe.recipe import Recipe
from crossling.vocabulary.reuse import check_tokenizer, reuse
from crossling.vocabulary.transfer import origins
from crossling.vocabulary.vocabulary import Vocabulary

CROSS = "cross-attention"
LOWERED = 0.2  # of the peak rate, for replaced token detection that goes on
# What a generator has in common with its model: beyond that the weights of one mean nothing in the other, even where
# they fit. Then what only a network with a relative position bias knows, and what of it no recipe can change.
COMMON = (
    *("vocab_size", "hidden_size", "num_attention_heads", "intermediate_size", "max_position_embeddings"),
    *("norm", "absolute_positions", "layer_norm_eps"),
)
FIXED = ("relative_buckets", "relative_max_distance")
BIAS = ("relative_positions", "gated", "gate_input", *FIXED)


@dataclass(frozen=True, eq=False)
class Start:
    """A model to begin from, and the generator that belongs to it if it has one."""

    name: str
    encoder: Imported
    generator: Imported | None
    vocabulary: Vocabulary | PreTrainedTokenizerFast
    other: str | None = None  # where the generator is from, if not from the model itself

    @property
    def names(self) -> dict[str, str]:
        """What a run tells of where it began."""
        return {"model": self.name} | ({"generator": self.other} if self.other else {})

    @classmethod
    def load(cls, model: str | Path, generator: str | Path | None = None) -> Start:
        """`generator` is another model of the same vocabulary and width. With fewer layers than the model it is taken
        whole, else its first ones."""
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
            folder = model_folder(model, [*TOKENIZER, *WEIGHTS, *(f"generator/{file}" for file in WEIGHTS)])
            own = imported(folder / "generator") if (folder / "generator").is_dir() else None
            start = cls(str(model), imported(folder), own, _tokenizer(folder, model))
        start._check()
        if generator is None:
            return start
        other = cls.load(generator)
        if _pieces(other.vocabulary) != _pieces(start.vocabulary):
            raise BadInput(
                f"{generator}: its vocabulary is not that of {model}; give a generator that was trained with it"
            )
        theirs = other.encoder.config
        common = (*COMMON, *BIAS) if theirs.relative_positions else COMMON  # a bias that it has not is new
        for setting, here, there in _different(theirs, start.encoder.config, common):
            raise BadInput(f"{generator}: its {setting} is {here}, that of {model} {there}, and the two must be alike")
        return replace(start, generator=other.encoder, other=str(generator))

    def _check(self) -> None:
        """What would break, or be another network, only later."""
        rows = self.encoder.config.vocab_size
        beyond = _last_id(self.vocabulary)
        if beyond >= rows:
            raise BadInput(
                f"{self.name}: its tokenizer has the id {beyond}, its table only {rows} rows; mend the folder"
            )
        if self.encoder.config.relative_positions:
            for setting, here, there in _different(self.encoder.config, CrosslingConfig(), FIXED):
                raise BadInput(f"{self.name}: its {setting} is {here}, and a recipe can have {there} only")

    def shape(self, recipe: Recipe) -> Recipe:
        """The recipe with the shape of the model.

        Generator and model cannot share a token table if they come with two; the recipe then takes `gdes`.
        """
        theirs = self.encoder.config
        wanted = recipe.model
        source = self.generator or self.encoder
        generator_layers = source.config.num_hidden_layers
        if generator_layers >= theirs.num_hidden_layers:  # not made as a generator
            generator_layers = min(wanted.generator_layers, generator_layers)
        alike = torch.equal(*(each.encoder.embeddings.tokens.weight for each in (source, self.encoder)))
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
                gate_input=theirs.gate_input if theirs.relative_positions else wanted.gate_input,
                cross_attention=theirs.cross_attention or wanted.cross_attention,
                norm_epsilon=theirs.layer_norm_eps,
                generator_layers=generator_layers,
                token_table="gdes" if wanted.token_table == "shared" and not alike else wanted.token_table,
                universal_layer=theirs.universal_layer
                if universal is None or universal > theirs.num_hidden_layers
                else universal,
            )
        )

    @torch.no_grad()
    def fill(self, net: Network, vocabulary: Vocabulary, seed: int) -> str:
        """Puts the weights of the model into the network of a recipe of its shape; tells where the pieces come from."""
        come_from = self._origins(vocabulary)

        def rows(table: Tensor) -> Tensor:
            """Equal ones of equal tables: a generator that was one with its model begins so."""
            return table if come_from is None else moved(table, come_from, torch.Generator().manual_seed(seed))

        parts = net.parts
        if "generator" in parts:  # before the encoder, whose table may be a difference from this one
            source = self.generator or self.encoder
            _fill(parts["generator"], source.encoder, rows)
            _fill_head(parts["generator_head"], source.lm_head or self.encoder.lm_head, rows)
        _fill(net.encoder, self.encoder.encoder, rows)
        for name, head in (("lm_head", self.encoder.lm_head), ("rtd_head", self.encoder.rtd_head)):
            if name in parts:
                _fill_head(parts[name], head, rows)
        return _told(come_from)

    def new(self, recipe: Recipe) -> list[str]:
        """What of a recipe's network the model has nothing for: heads it comes without, and cross-attention."""
        masked, replaced = (recipe.mlm or recipe.tlm or recipe.ca_mlm or recipe.ca_tlm), (recipe.mrtd or recipe.trtd)
        own = (self.generator or self.encoder).lm_head or self.encoder.lm_head
        absent = {
            "lm_head": masked and self.encoder.lm_head is None,
            "rtd_head": replaced and self.encoder.rtd_head is None,
            "generator_head": replaced and own is None,
            CROSS: recipe.model.cross_attention and not self.encoder.config.cross_attention,
        }
        return [name for name, missing in absent.items() if missing]

    def _origins(self, vocabulary: Vocabulary) -> list[list[int]] | None:
        """Of the pieces of another vocabulary; none where it is the same."""
        if self.encoder.config.vocab_size == vocabulary.size and _pieces(self.vocabulary) == _pieces(vocabulary):
            return None
        return origins(self.vocabulary, vocabulary)


def _told(come_from: Sequence[Sequence[int]] | None) -> str:
    if come_from is None:
        return "the vocabulary is its own"
    one, several = (sum(len(ids) == 1 for ids in come_from), sum(len(ids) > 1 for ids in come_from))
    none = len(come_from) - one - several
    return f"{one:,} pieces come from one of its pieces, {several:,} from several, {none:,} from none"


def lowered(recipe: Recipe) -> Recipe:
    """At a lower peak rate where replaced token detection goes on: at the original one it was seen to diverge (XY-LENT,
    Limitations)."""
    return recipe.but(lr=LOWERED * recipe.lr) if recipe.mrtd or recipe.trtd else recipe


def _part(net: Network, name: str) -> Any:
    return dict(net.parts.items()).get(name)


def _different(one: CrosslingConfig, other: CrosslingConfig, settings: Sequence[str]) -> Iterator[tuple[str, Any, Any]]:
    for setting in settings:
        here, there = getattr(one, setting), getattr(other, setting)
        if here != there:
            yield setting, here, there


def _tokenizer(folder: Path, name: str | Path) -> Vocabulary | PreTrainedTokenizerFast:
    """A unigram vocabulary as ours; any other as `transformers` reads it."""
    check_tokenizer(folder, name)
    try:
        return reuse(folder)
    except BadInput as fault:
        try:
            tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        except Exception:  # each kind of tokenizer has its own errors
            raise fault from None
        if not isinstance(tokenizer, PreTrainedTokenizerFast):
            raise
        return tokenizer


def _last_id(vocabulary: Vocabulary | PreTrainedTokenizerFast) -> int:
    return vocabulary.mask if isinstance(vocabulary, Vocabulary) else max(vocabulary.get_vocab().values())


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
