"""Any model by its name: a run of ours, an exported folder, or any Hugging Face encoder."""

from __future__ import annotations

from pathlib import Path

import torch

from crossling.evaluate import encode
from crossling.evaluate.encode import Encoder
from crossling.objectives import Network
from crossling.recipe import Recipe, load_run
from crossling.vocabulary.vocabulary import Vocabulary


def load(model: Path | str) -> Encoder:
    """A run folder (its newest checkpoint), or anything `transformers` can load as an encoder."""
    path = Path(model)
    if (path / "recipe.json").is_file():
        seed = Recipe.load(path / "recipe.json").seed
        encoder = encoder_of(load_run(path), Vocabulary.load(path / "vocab"), str(model), seed)
    else:
        encoder = encode.load(model)
    encoder.model.to("cuda" if torch.cuda.is_available() else "cpu")  # type: ignore[arg-type]
    return encoder


def encoder_of(net: Network, vocabulary: Vocabulary, name: str, seed: int | None = None) -> Encoder:
    """The encoder of a network, ready to be measured; also while it is in training."""
    return Encoder(net.encoder, vocabulary.tokenizer(), name, net.encoder.config.universal_layer, seed)
