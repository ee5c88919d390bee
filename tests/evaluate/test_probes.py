"""Probes report gains and losses by language, reproducibly, and do not change the network."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console

from crossling.core.errors import BadInput
from crossling.data.batches import Batch
from crossling.data.shards import Shards
from crossling.evaluate import probes
from crossling.evaluate.probes import ProbeChange
from crossling.inference.load import make_encoder
from crossling.objectives import MLM, Network
from crossling.recipes import get_recipe
from crossling.recipes.network import build_network
from crossling.recipes.pretrain import pretrain
from crossling.recipes.recipe import Recipe
from crossling.report.report import report
from crossling.vocabulary.vocabulary import BOS, EOS, Vocabulary


@pytest.fixture(scope="module")
def vocabulary(shards: Shards) -> Vocabulary:
    return Vocabulary.load(shards.vocabulary_path)


@pytest.fixture(scope="module")
def mlm(full_recipe: Recipe) -> Recipe:
    return full_recipe.set(["mrtd=off", "trtd=off", "xlco=off", "mlm.tokens=512", "mlm.length=32"])


def benchmark(folder: Path, name: str, first: list[str], second: list[str]) -> None:
    """Read tatoeba/v1/tatoeba.NAME.{...} of a benchmark folder."""
    home = folder / "tatoeba" / "v1"
    home.mkdir(parents=True, exist_ok=True)
    for code, lines in zip(name.split("-"), (first, second), strict=True):
        (home / f"tatoeba.{name}.{code}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def sentences(synth_folder: Path, language: str) -> list[str]:
    file = next((synth_folder / "data" / "tatoeba" / "v1").glob(f"*.{language}"))
    return file.read_text(encoding="utf-8").splitlines()


# ---- retrieval ----------------------------------------------------------------------------------------------


def slow_accuracy(net: Network, vocabulary: Vocabulary, first: list[str], second: list[str]) -> float:
    """Encode each sentence alone and average the accuracy of both directions, in percent."""
    encoder = make_encoder(net, vocabulary, "slow")
    sides = [[encoder.encode([sentence])[0] for sentence in side] for side in (first, second)]
    correct = 0
    for queries, candidates in (sides, sides[::-1]):
        for line, query in enumerate(queries):
            cosines = [query @ each / np.linalg.norm(query) / np.linalg.norm(each) for each in candidates]
            correct += int(np.argmax(cosines)) == line
    return 100 * correct / (2 * len(first))


def test_retrieval_averages_both_directions_of_each_pair(
    full_recipe: Recipe, shards: Shards, vocabulary: Vocabulary, synth_folder: Path
) -> None:
    net = build_network(full_recipe, shards.vocabulary_size)
    found = probes.make_retrieval_probe(synth_folder / "data", vocabulary)(net)
    pairs = {"qaa-qab", "qaa-qac", "qab-qac"}
    assert found.keys() == {"retrieval", *(f"retrieval/{pair}" for pair in pairs)}
    for pair in pairs:
        first, second = (sentences(synth_folder, language) for language in pair.split("-"))
        assert found[f"retrieval/{pair}"] == pytest.approx(slow_accuracy(net, vocabulary, first, second))
    assert found["retrieval"] == pytest.approx(sum(found[f"retrieval/{pair}"] for pair in pairs) / 3)
    assert len({*found.values()}) > 1  # or keys mixed up would not be seen


def test_retrieval_with_english_is_named_by_the_other_language(
    full_recipe: Recipe, shards: Shards, vocabulary: Vocabulary, synth_folder: Path, tmp_path: Path
) -> None:
    first, second = (sentences(synth_folder, language) for language in ("qaa", "qac"))
    benchmark(tmp_path, "swh-eng", first[:5] + second[5:], first[:5] + second[:7])  # five are the same, the rest is not
    net = build_network(full_recipe, shards.vocabulary_size)
    assert probes.make_retrieval_probe(tmp_path, vocabulary, sentences=5)(net) == {
        "retrieval": 100.0,
        "retrieval/sw": 100.0,
    }
    assert probes.make_retrieval_probe(tmp_path, vocabulary, sentences=12)(net)["retrieval/sw"] < 100


def test_retrieval_without_a_benchmark_fails_before_training(vocabulary: Vocabulary, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"no such folder\. Put the files"):
        probes.make_retrieval_probe(tmp_path, vocabulary)


def test_a_collapsed_network_is_not_called_a_decoder(
    full_recipe: Recipe, shards: Shards, vocabulary: Vocabulary, synth_folder: Path
) -> None:
    """Most discriminators guess at first. A probe must not end their run."""
    probe = probes.make_retrieval_probe(synth_folder / "data", vocabulary)
    blind, alike = (build_network(full_recipe, shards.vocabulary_size) for _ in range(2))
    for block in blind.encoder.blocks:
        for parameter in block.attention.parameters():
            parameter.data.zero_()
    alike.encoder.blocks[-1].feed_forward_norm.weight.data.zero_()
    alike.encoder.blocks[-1].feed_forward_norm.bias.data.normal_()
    for collapsed in (blind, alike):
        with pytest.warns(
            UserWarning, match="^the model in training: .* has collapsed, or its training has just started"
        ):
            assert 0 <= probe(collapsed)["retrieval"] <= 100


@pytest.mark.filterwarnings("ignore:the model in training")
@pytest.mark.parametrize("seed", range(4))
def test_a_collapsing_network_is_not_called_a_decoder(
    seed: int, full_recipe: Recipe, shards: Shards, vocabulary: Vocabulary
) -> None:
    """The effect of later tokens may be below rounding while that of earlier ones is not."""
    net = build_network(full_recipe.replace(seed=seed), shards.vocabulary_size)
    norm = net.encoder.blocks[-1].feed_forward_norm
    norm.bias.data.fill_(1.0)
    for _ in range(120):
        norm.weight.data.mul_(0.9)
        make_encoder(net, vocabulary, "the model in training")
    assert norm.weight.max().item() < 1e-5


# ---- losses -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("recipe", "terms"),
    [
        ("xlm_r", {"mlm"}),
        ("xlm_e", {"mlm", "mrtd"}),
        ("veco", {"ca_mlm_x", "ca_mlm_y", "ca_mlm_x_cross", "ca_mlm_y_cross"}),
    ],
)
def test_every_text_objective_is_probed_in_every_language(
    recipe: str, terms: set[str], shards: Shards, small_model: list[str]
) -> None:
    objective = {"xlm_r": "mlm", "xlm_e": "mrtd", "veco": "ca_mlm"}[recipe]
    made = get_recipe(recipe, "tiny").set([*small_model, f"{objective}.length=32"])
    found = probes.make_loss_probe(shards, made)(build_network(made, shards.vocabulary_size))
    assert found.keys() == {f"loss/{language}/{term}" for language in ("qaa", "qab", "qac") for term in terms}
    for key, value in found.items():  # it knows nothing yet
        assert value == pytest.approx(math.log(2 if key.endswith("mrtd") else shards.vocabulary_size), abs=0.2), key


def test_a_loss_is_the_mean_over_the_text_of_its_language(
    mlm: Recipe, shards: Shards, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Batch] = []
    sums: list[float] = []
    original = MLM.loss

    def watched(self: MLM, net: Network, batch: Batch) -> dict[str, torch.Tensor]:
        found = original(self, net, batch)
        seen.append(batch)
        sums.append(float(found["mlm"]))
        return found

    monkeypatch.setattr(MLM, "loss", watched)
    found = probes.make_loss_probe(shards, mlm.replace(micro_tokens=1500))(build_network(mlm, shards.vocabulary_size))
    per_language = len(seen) // 3
    assert per_language > 1
    for place, language in enumerate(shards.text):
        mine = slice(place * per_language, (place + 1) * per_language)
        text = torch.cat([batch["targets"][batch["ids_segments"] > 0] for batch in seen[mine]])
        assert {*text.tolist()} <= {*shards.text[language].tokens.tolist(), BOS, EOS}
        assert len(text) == pytest.approx(probes.TOKENS, rel=0.2)
        masked = sum(int(batch["masked"].sum()) for batch in seen[mine])
        assert found[f"loss/{language}/mlm"] == pytest.approx(sum(sums[mine]) / masked)


def test_examples_do_not_depend_on_seed_sampling_or_micro_batches(mlm: Recipe, shards: Shards) -> None:
    net = build_network(mlm, shards.vocabulary_size)
    found = probes.make_loss_probe(shards, mlm)(net)
    others = (
        mlm.replace(seed=5),
        mlm.set(["sampling.text_alpha=0", "sampling.focus=qab"]),
        mlm.replace(micro_tokens=64),
    )
    for other in (mlm, *others, mlm.set(["mlm.tokens=64", "mlm.sequences=3"])):
        assert probes.make_loss_probe(shards, other)(net) == pytest.approx(found, rel=1e-5)


@pytest.mark.parametrize("training", [True, False])
def test_probes_do_not_change_training(
    training: bool, full_recipe: Recipe, shards: Shards, vocabulary: Vocabulary, synth_folder: Path
) -> None:
    net = build_network(full_recipe, shards.vocabulary_size).train(training)
    net.parts["generator"].train(not training)
    modes = {name: module.training for name, module in net.named_modules()}
    weights = {name: value.clone() for name, value in net.state_dict().items()}
    state = torch.get_rng_state()
    probe = probes.combine_probes(
        [probes.make_retrieval_probe(synth_folder / "data", vocabulary), probes.make_loss_probe(shards, full_recipe)]
    )
    found = probe(net)
    assert probe(net) == found
    assert isinstance(probe, probes.NamedProbe)
    assert {*probe.metrics} == found.keys()
    assert {name: module.training for name, module in net.named_modules()} == modes
    assert all(torch.equal(value, weights[name]) for name, value in net.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state)
    assert all(parameter.grad is None for parameter in net.parameters())
    assert torch.is_grad_enabled()


def test_combined_probes_have_all_metrics() -> None:
    both = probes.combine_probes([lambda _: {"a": 1.0}, lambda _: {"b": 2.0}])
    assert both(None) == {"a": 1.0, "b": 2.0}  # type: ignore[arg-type]


# ---- before and after ---------------------------------------------------------------------------------------


def written(folder: Path, *rows: dict[str, float]) -> Path:
    file = folder / "metrics.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return file


def rendered(metrics: Path) -> str:
    """Render the tables with colors, as on a terminal."""
    console = Console(width=100, force_terminal=True, color_system="standard", no_color=False)
    with console.capture() as captured:
        for table in probes.make_probe_tables(metrics):
            console.print(table)
    return captured.get()


def test_the_first_and_last_rows_with_probes_are_compared(tmp_path: Path) -> None:
    metrics = written(
        tmp_path,
        {"step": 0, "probe/retrieval": 10.0, "probe/retrieval/sw": 8.0, "probe/loss/sw/mlm": 5.0},
        {"step": 5, "loss": 7.0, "probe/retrieval/sw": 99.0, "probe/loss/sw/mlm": 9.0},
        {"step": 9, "loss": 6.0, "probe/retrieval": 30.0, "probe/retrieval/sw": 4.0, "probe/loss/sw/mlm": 4.0},
        {"step": 10, "loss": 6.0},
    )
    gain, loss, learned = probes.read_probe_changes(metrics)
    assert gain == ProbeChange(kind="retrieval", language="mean", term="", before=10.0, after=30.0)
    assert loss == ProbeChange(kind="retrieval", language="sw", term="", before=8.0, after=4.0)
    assert learned == ProbeChange(kind="loss", language="sw", term="mlm", before=5.0, after=4.0)
    assert [change.is_worse for change in (gain, loss, learned)] == [False, True, False]


def test_a_loss_that_is_not_finite_gives_no_change(tmp_path: Path) -> None:
    metrics = written(
        tmp_path,
        {"step": 0, "probe/loss/sw/mlm": 5.0, "probe/loss/de/mlm": None, "probe/loss/fr/mlm": 4.0},
        {"step": 9, "probe/loss/sw/mlm": None, "probe/loss/de/mlm": 5.0, "probe/loss/fr/mlm": 3.0},
    )
    assert [change.language for change in probes.read_probe_changes(metrics)] == ["fr"]


def test_one_row_gives_no_changes(tmp_path: Path) -> None:
    assert (
        probes.read_probe_changes(written(tmp_path, {"step": 0, "probe/retrieval": 1.0}, {"step": 2, "loss": 1.0}))
        == []
    )
    assert list(probes.make_probe_tables(tmp_path / "metrics.jsonl")) == []


def test_tables_have_a_row_per_language_and_mark_losses(tmp_path: Path) -> None:
    page = rendered(
        written(
            tmp_path,
            {"step": 0, "probe/retrieval/sw": 8.0, "probe/loss/sw/mlm": 5.0, "probe/loss/sw/mrtd": 0.25},
            {"step": 9, "probe/retrieval/sw": 4.0, "probe/loss/sw/mlm": 4.5, "probe/loss/sw/mrtd": 0.5},
        )
    )
    retrieval, loss = (line for line in page.splitlines() if " sw " in line)
    assert "\x1b[31m8.0 → 4.0 (-4.0)\x1b[0m" in retrieval
    assert "5.000 → 4.500 (-0.500)" in loss
    assert "\x1b[31m5.000" not in loss
    assert "\x1b[31m0.250 → 0.500 (+0.250)\x1b[0m" in loss


def test_a_run_on_one_language_reports_its_gains(mlm: Recipe, shards: Shards, tmp_path: Path) -> None:
    recipe = mlm.set(["sampling.focus=qaa", "sampling.replay=0", "steps=60", "log_every=20", "model.dropout=0"])
    pretrain(recipe, shards, tmp_path / "run", probe=probes.make_loss_probe(shards, recipe))
    gained = {
        change.language: change.before - change.after
        for change in probes.read_probe_changes(tmp_path / "run/metrics.jsonl")
    }
    assert gained.keys() == {"qaa", "qab", "qac"}
    assert gained["qaa"] > 0.5
    assert gained["qaa"] > max(gained["qab"], gained["qac"]) + 0.2
    page = report([tmp_path / "run"], tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Loss/qaa/mlm" not in page  # a curve for every language would bury the others
