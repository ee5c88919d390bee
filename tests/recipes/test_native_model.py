"""Runs that are initialized from a Hugging Face encoder and keep its architecture."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

import crossling
from crossling.core.errors import BadInput
from crossling.corpora.corpus import Corpora
from crossling.data.shards import Shards
from crossling.data.tokenize import tokenize
from crossling.export import export
from crossling.model.native_encoder import NativeEncoder
from crossling.objectives import Network
from crossling.recipes import get_recipe
from crossling.recipes.initial_model import InitialModel
from crossling.recipes.initialization import load_initial_model
from crossling.recipes.native_model import NativeInitialModel
from crossling.recipes.network import build_network, load_run, make_batches
from crossling.recipes.pretrain import configure_network
from crossling.recipes.recipe import Recipe
from crossling.train.muon import count_stacked_matrices
from crossling.train.parallel import compile_modules
from crossling.vocabulary.vocabulary import Vocabulary
from tests.conftest import SMALL_RUN
from tests.recipes.native_models import FAMILIES, save_native, special_of
from tests.tiny_tokenizers import GEMMA, WORDPIECE, train_tokenizer

RECIPES = {
    "xlm": ["mlm.tokens=512", "mlm.length=48", "tlm.tokens=512", "tlm.length=48"],
    "infoxlm": [
        *("mlm.tokens=512", "mlm.length=48", "tlm=off", "model.universal_layer=2"),
        *("xlco.pairs=16", "xlco.queue=0", "xlco.length=48", "xlco.momentum=0", "xlco.mixup=false"),
        *("xlco.pooling=mean", "xlco.normalize=true"),
    ],
    "xlm_e": [
        *("mrtd.tokens=512", "mrtd.length=48", "trtd.tokens=512", "trtd.length=48", "mrtd.lambda=1", "trtd.lambda=1"),
        "model.generator_layers=1",
    ],
}
MOMENTUM = ["xlco.queue=32", "xlco.momentum=0.9", "xlco.mixup=true", "xlco.pooling=cls"]
IDS = torch.tensor([[6, 9, 12, 15, 9], [7, 7, 8, 30, 31]])
NATIVE = "model.architecture=native"

Saved = Callable[..., Path]


@pytest.fixture(scope="module")
def tokenizers(corpora_folder: Path) -> dict[tuple[str, ...], Any]:
    found = Corpora(corpora_folder)
    lines = [line for language in found.languages for line in found.lines(language)][:300]
    return {special: train_tokenizer(lines, special, 120) for special in (GEMMA, WORDPIECE)}


@pytest.fixture(scope="module")
def saved(tokenizers: dict[tuple[str, ...], Any], tmp_path_factory: pytest.TempPathFactory) -> Saved:
    """The folder of a family, with the head of an Auto class."""

    @cache
    def save(family: str, auto_class: Any = transformers.AutoModelForMaskedLM) -> Path:
        folder = tmp_path_factory.mktemp(family.replace(":", "-"))
        return save_native(family, tokenizers[special_of(family)], folder, auto_class)

    return save


@pytest.fixture(scope="module")
def own_shards(saved: Saved, corpora_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Shards]:
    """Shards in the vocabulary of a family."""

    @cache
    def make(special: tuple[str, ...]) -> Shards:
        family = "modernbert" if special == GEMMA else "bert"
        return tokenize(corpora_folder, saved(family), tmp_path_factory.mktemp("shards") / "shards")

    return lambda family: make(special_of(family))


def adapted(model: NativeInitialModel, name: str) -> Recipe:
    return model.adapt(get_recipe(name, "tiny").set([*SMALL_RUN, *RECIPES[name]]))


def initialized(model: NativeInitialModel, recipe: Recipe, shards: Shards) -> Network:
    net = build_network(recipe, shards.vocabulary_size)
    assert model.initialize(net, model.vocabulary, 0) == "same vocabulary"
    return net


def train(recipe: str, shards: Shards, out: Path, model: Path, *settings: str) -> Network:
    return crossling.pretrain(
        recipe, shards, out, set=[*RECIPES[recipe], *SMALL_RUN, *settings], init=model, size="tiny"
    )


# ---- the network is the model -----------------------------------------------------------------------------------


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_an_untouched_model_is_saved_as_it_was(
    family: str, saved: Saved, own_shards: Callable[[str], Shards], tmp_path: Path
) -> None:
    folder = saved(family)
    net = initialized(model := NativeInitialModel.load(folder), adapted(model, "xlm"), own_shards(family))
    net.encoder.model.save_pretrained(tmp_path)
    before, after = (transformers.AutoModelForMaskedLM.from_pretrained(each) for each in (folder, tmp_path))
    assert type(after) is type(before)
    assert after.config.to_dict() | {"_name_or_path": ""} == before.config.to_dict() | {"_name_or_path": ""}
    assert torch.equal(before(IDS).logits, after(IDS).logits)
    old, new = (load_file(each / "model.safetensors") for each in (folder, tmp_path))
    assert old.keys() == new.keys()
    assert all(torch.equal(old[name], new[name]) for name in old)


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_every_objective_learns(family: str, name: str, saved: Saved, own_shards: Callable[[str], Shards]) -> None:
    auto_class = transformers.AutoModelForPreTraining if (family, name) == ("electra", "xlm_e") else None
    model = NativeInitialModel.load(saved(family, auto_class) if auto_class else saved(family))
    recipe, shards = adapted(model, name), own_shards(family)
    net = initialized(model, recipe, shards)
    work = make_batches(recipe, shards)[0]
    weights = {term: w for each in recipe.objectives.values() for term, w in each.loss_weights.items()}
    optimizer = torch.optim.AdamW([p for p in net.parameters() if p.requires_grad], lr=0.005)
    losses = []
    for _ in range(4):
        sums: dict[str, Any] = {}
        for objective, batch in work.micro_batches:
            sums |= recipe.objectives[objective].loss(net, batch)
        losses.append({term: sums[term].item() for term in weights})
        optimizer.zero_grad()
        torch.stack([weight * sums[term] / work.counts[term] for term, weight in weights.items()]).sum().backward()
        optimizer.step()
    assert all(losses[-1][term] < losses[0][term] for term in weights), losses


# ---- runs -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("family", "name"), [("modernbert", "xlm"), ("xlm", "infoxlm"), ("electra", "xlm_e")])
def test_a_resumed_run_equals_an_uninterrupted_one(
    family: str, name: str, saved: Saved, own_shards: Callable[[str], Shards], tmp_path: Path
) -> None:
    model = saved(family, transformers.AutoModelForPreTraining) if family == "electra" else saved(family)
    settings = [NATIVE, *(MOMENTUM if name == "infoxlm" else [])]
    whole = train(name, own_shards(family), tmp_path / "whole", model, *settings)
    run = tmp_path / "parts"
    stopped = _train_until(3, name, own_shards(family), run, model, settings)
    assert stopped == 3
    resumed = train(name, own_shards(family), run, model, *settings)
    assert [(n, p) for n, p in whole.state_dict().items() if not torch.equal(p, resumed.state_dict()[n])] == []


class _Stop(Exception):
    pass


def _train_until(step: int, name: str, shards: Shards, out: Path, model: Path, settings: list[str]) -> int:
    """Train, and fail in the probe of a step, after its checkpoint."""
    seen: list[int] = []

    def probe(net: Network) -> dict[str, float]:  # noqa: ARG001
        seen.append(1)
        if len(seen) == 2 + step // 3:
            raise _Stop
        return {}

    with pytest.raises(_Stop):
        crossling.pretrain(
            name,
            shards,
            out,
            init=model,
            size="tiny",
            probe=probe,
            probe_every=3,
            set=[*RECIPES[name], *SMALL_RUN, *settings],
        )
    return max(int(path.name) for path in (out / "checkpoints").iterdir() if path.name.isdecimal())


CHILD = """
import sys
sys.modules["crossling"] = None  # as if it were not installed
import torch, transformers
model = transformers.AutoModelForMaskedLM.from_pretrained(sys.argv[1]).eval()
tokenizer = transformers.AutoTokenizer.from_pretrained(sys.argv[1])
torch.save([model(**tokenizer("a b c", return_tensors="pt")).logits, tokenizer("a b c")["input_ids"]], sys.argv[2])
assert type(transformers.AutoModel.from_pretrained(sys.argv[1])).__name__ == sys.argv[3]
"""


def test_a_native_run_continues_a_checkpoint_of_another_one(
    saved: Saved, own_shards: Callable[[str], Shards], tmp_path: Path
) -> None:
    """Its vocabulary is a fast tokenizer without a SentencePiece model."""
    shards = own_shards("modernbert")
    wsd = ["optimizer.schedule=wsd", "optimizer.cooldown=1", "optimizer.warmup=1", "keep_every=2"]
    train("xlm", shards, tmp_path / "trunk", saved("modernbert"), *wsd, "steps=4")
    recipe, checkpoint = tmp_path / "trunk" / "recipe.json", tmp_path / "trunk" / "checkpoints" / "0000002"
    crossling.pretrain(recipe, shards, tmp_path / "run", resume_from=checkpoint)
    states = [load_run(tmp_path / name).state_dict() for name in ("trunk", "run")]
    torch.testing.assert_close(*states, rtol=0, atol=0)
    with pytest.raises(BadInput, match="has another vocabulary"):
        crossling.pretrain(recipe, own_shards("bert"), tmp_path / "other", resume_from=checkpoint)


def test_an_export_loads_without_crossling(saved: Saved, own_shards: Callable[[str], Shards], tmp_path: Path) -> None:
    folder, shards = saved("modernbert"), own_shards("modernbert")
    net = train("xlm", shards, tmp_path / "run", folder, "steps=3")
    out = export(tmp_path / "run", tmp_path / "exported")
    result = tmp_path / "logits.pt"
    subprocess.run([sys.executable, "-c", CHILD, str(out), str(result), "ModernBertModel"], check=True)
    logits, ids = torch.load(result, weights_only=True)
    assert ids == transformers.AutoTokenizer.from_pretrained(folder)("a b c")["input_ids"]
    with torch.no_grad():
        assert torch.equal(net.encoder.model.eval()(torch.tensor([ids])).logits, logits)
    card = (out / "README.md").read_text()
    assert "ModernBertForMaskedLM" in card
    assert "model.native" not in card
    assert crossling.load(tmp_path / "run").encode(["a b"]).shape == crossling.load(out).encode(["a b"]).shape


def test_generators_are_exported_in_the_family_of_the_model(
    saved: Saved, own_shards: Callable[[str], Shards], tmp_path: Path
) -> None:
    folder = saved("electra", transformers.AutoModelForPreTraining)
    net = train("xlm_e", own_shards("electra"), tmp_path / "run", folder, NATIVE, "steps=3", "model.token_table=gdes")
    out = export(tmp_path / "run", tmp_path / "exported")
    generator = transformers.AutoModelForMaskedLM.from_pretrained(out / "generator").eval()
    discriminator = transformers.AutoModelForPreTraining.from_pretrained(out).eval()
    assert generator.config.num_hidden_layers == 1
    states = net.encoder.eval()(IDS).last_hidden_state
    torch.testing.assert_close(discriminator(IDS).logits, net.parts["rtd_head"](states), rtol=1e-5, atol=1e-6)
    for source in (out, tmp_path / "run"):  # both continue with the trained generator
        model = NativeInitialModel.load(source)
        recipe = adapted(model, "xlm_e")
        assert (recipe.model.generator_layers, recipe.model.token_table) == (1, "gdes")
        again = initialized(model, recipe, own_shards("electra"))
        torch.testing.assert_close(again.parts["generator"].model.eval()(IDS).logits, generator(IDS).logits)
        torch.testing.assert_close(again.encoder.eval()(IDS).last_hidden_state, states, rtol=1e-5, atol=1e-6)
    with pytest.raises(BadInput, match="a run in the architecture of a Hugging Face model"):
        InitialModel.load(tmp_path / "run")
    for option in ({"precision": "int8"}, {"layers": 1}, {"as_": "xlm-roberta"}, {"standalone": True}):
        with pytest.raises(BadInput, match="keeps the architecture of the model"):
            export(tmp_path / "run", tmp_path / "other", **option)


def test_gradient_checkpointing_changes_no_gradient(saved: Saved, own_shards: Callable[[str], Shards]) -> None:
    model, shards = NativeInitialModel.load(saved("modernbert")), own_shards("modernbert")
    recipe = adapted(model, "xlm")
    net = initialized(model, recipe, shards)
    [(_, batch), *_] = make_batches(recipe, shards)[0].micro_batches
    assert recipe.mlm
    gradients = []
    for _ in range(2):
        net.zero_grad()
        recipe.mlm.loss(net.train(), batch)["mlm"].backward()
        gradients.append([parameter.grad for parameter in net.parameters() if parameter.grad is not None])
        configure_network(net, recipe.replace(gradient_checkpointing=True))
    assert net.encoder.blocks[0].gradient_checkpointing
    torch.testing.assert_close(*gradients)


def test_layers_of_packed_families_are_compiled(saved: Saved) -> None:
    for family, is_compiled in (("modernbert", True), ("mobilebert", False)):
        encoder = NativeInitialModel.load(saved(family)).encoder
        compile_modules(encoder)
        assert (encoder.blocks[0]._compiled_call_impl is not None) == is_compiled


def test_muon_trains_the_matrices_of_the_layers(saved: Saved) -> None:
    encoder = NativeInitialModel.load(saved("modernbert")).encoder
    counts = count_stacked_matrices(encoder)
    matrices = [p for p in encoder.blocks.parameters() if p.ndim == 2]
    assert set(counts) == set(matrices)
    assert sorted(counts[p] for p in matrices) == [1] * 9 + [3] * 3  # Wo, Wi, mlp.Wo, and Wqkv of each layer


# ---- choice of the architecture ---------------------------------------------------------------------------------


def test_models_that_crossling_can_convert_are_converted_by_default(saved: Saved) -> None:
    assert isinstance(load_initial_model(saved("bert")), InitialModel)
    assert isinstance(load_initial_model(saved("bert"), architecture="native"), NativeInitialModel)
    for family in ("modernbert", "deberta-v2", "mobilebert"):
        assert isinstance(load_initial_model(saved(family)), NativeInitialModel)
    with pytest.raises(BadInput, match="modernbert is not supported"):
        load_initial_model(saved("modernbert"), architecture="crossling")


def test_a_converted_model_keeps_its_tokenizer(
    saved: Saved, own_shards: Callable[[str], Shards], tmp_path: Path
) -> None:
    """WordPiece, whose special tokens have other ids than ours."""
    net = train("xlm", own_shards("bert"), tmp_path / "run", saved("bert"), "steps=3")
    assert not isinstance(net.encoder, NativeEncoder)
    loaded = transformers.AutoModel.from_pretrained(export(tmp_path / "run", tmp_path / "out", as_="xlm-roberta"))
    assert loaded.config.pad_token_id == own_shards("bert").special.pad


def test_the_head_of_deberta_v3_is_found(saved: Saved, tmp_path: Path) -> None:
    """Its published configuration does not say that the head is not the older one."""
    folder = saved("deberta-v2:v3")
    config = json.loads((folder / "config.json").read_text())
    del config["legacy"], config["architectures"]
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "config.json").write_text(json.dumps(config))
    loaded = NativeInitialModel.load(tmp_path)
    assert loaded.new_modules(adapted(loaded, "xlm")) == []
    model = loaded.encoder.model
    expected = transformers.AutoModelForMaskedLM.from_pretrained(folder)(IDS).logits
    assert torch.equal(model.eval()(IDS).logits, expected)


def test_a_model_without_head_gets_a_new_one(saved: Saved, own_shards: Callable[[str], Shards]) -> None:
    model = NativeInitialModel.load(saved("modernbert", transformers.AutoModel))
    recipe = adapted(model, "xlm")
    assert model.new_modules(recipe) == ["lm_head"]
    net = initialized(model, recipe, own_shards("modernbert"))
    assert torch.equal(net.encoder(IDS).last_hidden_state, model.encoder(IDS).last_hidden_state)


def test_a_trimmed_vocabulary_keeps_the_embeddings_of_its_tokens(vocabulary_folder: Path, tmp_path: Path) -> None:
    """The model has the special tokens of XLM-R. The new table has no spare rows."""
    whole = Vocabulary.load(vocabulary_folder)
    folder = save_native("xlm-roberta", whole.tokenizer(), tmp_path, pad_token_id=1, bos_token_id=0, eos_token_id=2)
    kept = dict(list(whole.scores.items())[:150])
    trimmed = Vocabulary.from_scores(kept, whole.charsmap, whole.normalizer_name)
    model = NativeInitialModel.load(folder)
    net = build_network(adapted(model, "xlm"), trimmed.size)
    assert model.initialize(net, trimmed, 0) == "token embeddings mapped to 155 entries"
    old, new = model.encoder.model, net.encoder.model
    assert new.config.vocab_size == len(new.get_input_embeddings().weight) == 155
    rows = [*range(154), whole.mask_id]
    assert torch.equal(new.get_input_embeddings().weight, old.get_input_embeddings().weight[rows])
    assert torch.equal(new.lm_head.decoder.bias, old.lm_head.decoder.bias[rows])
    assert new.lm_head.decoder.weight is new.get_input_embeddings().weight
    torch.testing.assert_close(new.eval()(IDS).logits, old.eval()(IDS).logits[..., rows])


def test_another_vocabulary_is_refused(saved: Saved, shards: Shards, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="crossling tokenize CORPORA --vocab"):
        train("xlm", shards, tmp_path / "run", saved("modernbert"))


def test_decoders_and_cross_attention_are_refused(saved: Saved, tokenizers: Any, tmp_path: Path) -> None:
    config = transformers.GPT2Config(vocab_size=130, n_embd=16, n_layer=1, n_head=2, bos_token_id=2, eos_token_id=1)
    transformers.GPT2Model(config).save_pretrained(tmp_path)
    tokenizers[GEMMA].save_pretrained(tmp_path)
    with pytest.raises(BadInput, match="a decoder"):
        load_initial_model(tmp_path, architecture="native")
    with pytest.raises(BadInput, match="gpt2 is not supported"):
        load_initial_model(tmp_path)
    with pytest.raises(BadInput, match="needs cross-attention"):
        load_initial_model(saved("modernbert")).adapt(get_recipe("veco", "tiny"))


def test_native_needs_a_model() -> None:
    with pytest.raises(BadInput, match="Give one as init"):
        get_recipe("xlm", "tiny").set([NATIVE]).check()


def test_a_damaged_folder_is_refused(saved: Saved, tmp_path: Path) -> None:
    folder = saved("modernbert")
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    weights = load_file(tmp_path / "model.safetensors")
    weights.pop("head.dense.weight")
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(BadInput, match=r"1 weights are missing, the first is head\.dense\.weight"):
        NativeInitialModel.load(tmp_path)
