"""Small models of other families with weights as after training, and networks initialized from them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor, nn

from crossling.objectives import Network
from crossling.recipes import get_recipe
from crossling.recipes.initial_model import InitialModel
from crossling.recipes.network import build_network
from crossling.recipes.recipe import Recipe
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


def perturb(network: nn.Module, seed: int = 1) -> Any:
    """Perturb weights as training does: no bias is zero, no norm the identity, no two are equal."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.empty_like(parameter).uniform_(-0.3, 0.3))
            elif "embeddings" in name:
                parameter.normal_(std=0.5)
    return network.eval()


def build_model(family: str, kind: str, rows: int, seed: int = 0, **changes: Any) -> Any:
    """Return a model of a family with weights by the seed, for a vocabulary of `rows` entries."""
    torch.manual_seed(seed)
    own = {"embedding_size": SHAPE["hidden_size"]} if family == "electra" else {}
    ids = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}
    positions = LENGTH if family in ("bert", "electra") else LENGTH + 2
    settings = {"vocab_size": rows, "max_position_embeddings": positions, "layer_norm_eps": 1e-4}
    config = getattr(transformers, f"{NAMES[family]}Config")(**(SHAPE | own | ids | settings | changes))
    return perturb(getattr(transformers, NAMES[family] + kind)(config), seed)


def save_model(network: Any, tokenizer: Any, folder: Path) -> Path:
    network.save_pretrained(folder)
    if tokenizer is not None:
        tokenizer.save_pretrained(folder)
    return folder


def small_recipe(name: str, *assignments: str) -> Recipe:
    """Return a recipe with a small batch; its architecture comes from a model."""
    recipe = get_recipe(name, "tiny")
    scaled = [f"{each}.length=32" for each in recipe.objectives]
    scaled += [f"{each}.tokens=128" for each, objective in recipe.objectives.items() if objective.tokens]
    scaled += ["xlco.pairs=4", "xlco.queue=8"] if recipe.xlco else []
    run = ["steps=2", "log_every=2", "checkpoint_every=2", "optimizer.warmup=0", "model.generator_layers=2"]
    # Such a high learning rate gives weights that differ clearly from the initial ones.
    freeze = ["freeze_steps=1"] if recipe.freeze_steps else []
    return recipe.set([*scaled, *run, *freeze, "lr=0.05", *assignments])


def initialized_network(initial: InitialModel, recipe: Recipe, vocabulary: Vocabulary) -> Network:
    """Return the network of a recipe right after initialization."""
    recipe = initial.adapt(recipe)
    recipe.check()
    net = build_network(recipe, vocabulary.size)
    initial.initialize(net, vocabulary, recipe.seed)
    return net.eval()


def padded_ids(vocabulary: Vocabulary, lines: list[str]) -> tuple[Tensor, Tensor]:
    """Return lines as padded rows of ids, and the mask of real tokens."""
    rows = [[0, *ids, 2][: LENGTH // 2] for ids in vocabulary.encode(lines)]
    ids_BL = torch.full((len(rows), max(map(len, rows))), PAD)
    for row, ids in zip(ids_BL, rows, strict=True):
        row[: len(ids)] = torch.tensor(ids)
    return ids_BL, ids_BL != PAD


def max_difference(one: Tensor, other: Tensor) -> float:
    assert one.shape == other.shape
    assert one.std() > 0.1, "nearly constant values: the comparison would show nothing"
    return float((one - other).abs().max())


def assert_same_weights(one: nn.Module, other: nn.Module, except_for: str = "no such name") -> None:
    left, right = (dict(each.named_parameters(remove_duplicate=False)) for each in (one, other))
    assert left.keys() == right.keys()
    assert [name for name in left if except_for not in name and not torch.equal(left[name], right[name])] == []
