"""Small models of other families, as if they were trained, and what a recipe makes of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor, nn

from crossling.objectives import Network
from crossling.recipe import Recipe, Start, build
from crossling.recipes import named
from crossling.vocabulary.vocabulary import PAD, Vocabulary

SHAPE: dict[str, Any] = {
    "hidden_size": 16,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "initializer_range": 0.2,
}
LENGTH = 64
NAMES = {
    "xlm-roberta": "XLMRoberta",
    "roberta": "Roberta",
    "camembert": "Camembert",
    "bert": "Bert",
    "electra": "Electra",
}
# Every kind of folder, by family and head.
KINDS = [
    *(("xlm-roberta", kind) for kind in ("ForMaskedLM", "Model")),
    *((family, "ForMaskedLM") for family in ("roberta", "camembert", "bert", "electra")),
    ("bert", "ForPreTraining"),
    ("electra", "ForPreTraining"),
]


def unlike_new(network: nn.Module, seed: int = 1) -> Any:
    """As after training: no bias is zero and no norm the identity, nor any two alike."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.empty_like(parameter).uniform_(-0.3, 0.3))
            elif "embeddings" in name:
                parameter.normal_(std=0.5)
    return network.eval()


def model(family: str, kind: str, rows: int, seed: int = 0, **changes: Any) -> Any:
    """A network of a family, with weights of its seed, for a vocabulary of `rows`."""
    torch.manual_seed(seed)
    own = {"embedding_size": SHAPE["hidden_size"]} if family == "electra" else {}
    ids = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}
    longest = LENGTH if family in ("bert", "electra") else LENGTH + 2
    settings = {"vocab_size": rows, "max_position_embeddings": longest, "layer_norm_eps": 1e-4}
    config = getattr(transformers, f"{NAMES[family]}Config")(**(SHAPE | own | ids | settings | changes))
    return unlike_new(getattr(transformers, NAMES[family] + kind)(config), seed)


def saved(network: Any, tokenizer: Any, folder: Path) -> Path:
    network.save_pretrained(folder)
    if tokenizer is not None:
        tokenizer.save_pretrained(folder)
    return folder


def small(name: str, *differences: str) -> Recipe:
    """A recipe of short steps; the shape is to come from a model."""
    recipe = named(name, "tiny")
    scaled = [f"{each}.length=32" for each in recipe.objectives]
    scaled += [f"{each}.tokens=128" for each, objective in recipe.objectives.items() if hasattr(objective, "tokens")]
    scaled += ["xlco.pairs=4", "xlco.queue=8"] if recipe.xlco else []
    run = ["steps=2", "log_every=2", "checkpoint_every=2", "optimizer.warmup=0", "model.generator_layers=2"]
    # Rates as high as this make weights that differ from those a network begins with.
    freeze = ["freeze_steps=1"] if recipe.freeze_steps else []
    return recipe.set([*scaled, *run, *freeze, "lr=0.05", *differences])


def started(start: Start, recipe: Recipe, vocabulary: Vocabulary) -> Network:
    """The network as it begins."""
    recipe = start.shape(recipe)
    recipe.check()
    net = build(recipe, vocabulary.size)
    start.fill(net, vocabulary, recipe.seed)
    return net.eval()


def rows_of(vocabulary: Vocabulary, lines: list[str]) -> tuple[Tensor, Tensor]:
    """Lines as padded rows of ids, and where there is one."""
    found = [[0, *ids, 2][: LENGTH // 2] for ids in vocabulary.encode(lines)]
    ids_BL = torch.full((len(found), max(map(len, found))), PAD)
    for row, ids in zip(ids_BL, found, strict=True):
        row[: len(ids)] = torch.tensor(ids)
    return ids_BL, ids_BL != PAD


def far(one: Tensor, other: Tensor) -> float:
    assert one.shape == other.shape
    assert one.std() > 0.1, "everything alike: nothing would be seen"
    return float((one - other).abs().max())


def same_weights(one: nn.Module, other: nn.Module, but: str = "no such name") -> None:
    left, right = (dict(each.named_parameters(remove_duplicate=False)) for each in (one, other))
    assert left.keys() == right.keys()
    assert [name for name in left if but not in name and not torch.equal(left[name], right[name])] == []
