"""What a translator begins as: a pre-trained model, one of its shape with new weights, or another translator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn
from transformers import PreTrainedTokenizerFast

from crossling.errors import BadInput
from crossling.finetune.translation.plan import Plan
from crossling.load import language_model
from crossling.model.transformer import CrosslingModel
from crossling.model.translator import CrosslingForConditionalGeneration, translator
from crossling.translation.directions import Direction, targets
from crossling.translation.pieces import tagged
from crossling.translation.translator import Translator, facts, is_translator


@dataclass(frozen=True)
class Start:
    name: str
    kind: str  # "pre-trained", "random" or "translator"
    tokenizer: PreTrainedTokenizerFast  # that knows the tags
    with_tags: bool
    settled: Callable[[Plan], Plan]  # with the decoder said that is meant where none is
    make: Callable[[Plan], CrosslingForConditionalGeneration]  # of a settled plan; for the same one the same, anew


def begin(model: Path | str, directions: Sequence[Direction], random: bool) -> Start:
    """`random` takes shape and tokenizer of the model, not its weights."""
    if is_translator(Path(model)):
        if random:
            raise BadInput(f"{model}: a translator that is to go on has its weights; give an encoder with --random")
        return _gone_on(Path(model), directions)
    encoder, lm_head, tokenizer, name = language_model(model)
    with_tags = len(directions) > 1
    tokenizer = tagged(tokenizer, targets(directions)) if with_tags else tokenizer
    tokens = max(len(tokenizer), encoder.config.vocab_size)

    def settled(plan: Plan) -> Plan:
        return replace(plan, take=plan.take or "last", tied=plan.tied is not False)

    def make(plan: Plan) -> CrosslingForConditionalGeneration:
        assert plan.take is not None  # settled
        assert plan.tied is not None
        torch.manual_seed(plan.seed)
        made = translator(
            CrosslingModel(encoder.config) if random else encoder,
            None if random else lm_head,
            layers=plan.decoder_layers,
            take=plan.take,
            tied=plan.tied,
            fresh_cross_seed=plan.seed,
            tokens=tokens,
        )
        return _dropping(made, plan.dropout)

    return Start(name, "random" if random else "pre-trained", tokenizer, with_tags, settled, make)


def _gone_on(folder: Path, directions: Sequence[Direction]) -> Start:
    """A translator keeps its tags, so it must have those it needs."""
    known = facts(folder)
    with_tags = bool(known.tags)
    strange = [code for code in targets(directions) if with_tags and code not in known.tags]
    if strange or (not with_tags and len(directions) > 1):
        told = f"has no tag for {strange[0]!r}" if strange else "was trained for one direction, without tags"
        raise BadInput(f"{folder}: this translator {told}, so it cannot go on with these pairs; begin with an encoder")
    loaded = Translator.load(folder)
    config = loaded.model.config
    blocks, layers = [*(config.decoder_blocks or ())], config.num_hidden_layers
    ends: dict[Literal["first", "last"], list[int]] = {
        "first": [*range(len(blocks))],
        "last": [*range(layers - len(blocks), layers)],
    }
    taken = [end for end, theirs in ends.items() if theirs == blocks]  # both, where it has all layers
    has: dict[str, list[Any]] = {"decoder_layers": [len(blocks)], "take": taken, "tied": [config.tied]}

    def settled(plan: Plan) -> Plan:
        for name, values in has.items():
            if getattr(plan, name) not in (None, *values):
                raise BadInput(f"{folder}: a translator that goes on keeps its decoder; leave {name} out")
        shallow = len(blocks) if len(blocks) < layers else None
        return replace(plan, decoder_layers=shallow, take=taken[-1] if taken else None, tied=config.tied)

    def make(plan: Plan) -> CrosslingForConditionalGeneration:
        return _dropping(Translator.load(folder).model, plan.dropout)

    return Start(str(folder), "translator", loaded.tokenizer, with_tags, settled, make)


def _dropping(model: CrosslingForConditionalGeneration, dropout: float | None) -> CrosslingForConditionalGeneration:
    if dropout is not None:
        model.config.dropout = dropout
        for module in model.modules():
            if isinstance(module, nn.Dropout):
                module.p = dropout
    return model
