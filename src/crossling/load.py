"""Any model by its name: a run of ours, an exported folder, or any Hugging Face encoder."""

from __future__ import annotations

from pathlib import Path

import torch

from crossling.data.vocabulary import Vocabulary
from crossling.evaluate import encode
from crossling.evaluate.encode import Encoder
from crossling.objectives import Network
from crossling.recipe import load_run


def load(model: Path | str) -> Encoder:
    """A run folder (its newest checkpoint), or anything `transformers` can load as an encoder."""
    path = Path(model)
    if not (path / "recipe.json").is_file():
        return encode.load(model)
    net = load_run(path)
    if torch.cuda.is_available():
        net = net.cuda()
    return encoder_of(net, Vocabulary.load(path / "vocab"), str(model))


def encoder_of(net: Network, vocabulary: Vocabulary, name: str) -> Encoder:
    """The encoder of a network, ready to be measured; also while it is in training."""
    return Encoder(net.encoder, vocabulary.tokenizer(), name, net.encoder.config.universal_layer)
