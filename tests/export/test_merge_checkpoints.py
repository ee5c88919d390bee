"""The mean of the weights of checkpoints."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch

from crossling import cli
from crossling.core.errors import BadInput
from crossling.corpora.corpus import Corpora
from crossling.export import export
from crossling.export.merge_checkpoints import merge
from crossling.inference.load import load
from crossling.model.convert import from_huggingface
from crossling.recipes.network import load_run
from crossling.vocabulary.build_vocabulary import vocab

from .conftest import Train


@pytest.fixture(scope="module")
def run(train: Train) -> Path:
    return train("rosetta", "steps=4", "keep_every=2", "checkpoint_every=1")


@pytest.fixture(scope="module")
def checkpoints(run: Path) -> list[Path]:
    return [run / "checkpoints" / f"000000{step}" for step in (2, 3, 4)]


def weights(folder: Path) -> dict[str, torch.Tensor]:
    converted = from_huggingface(folder)
    assert converted.lm_head is not None
    return {**dict(converted.encoder.named_parameters()), **dict(converted.lm_head.named_parameters())}


@pytest.mark.parametrize(("given", "fractions"), [(None, [1 / 3] * 3), ([1.0, 1.0, 2.0], [0.25, 0.25, 0.5])])
def test_weights_are_the_mean(
    checkpoints: list[Path], given: list[float] | None, fractions: list[float], tmp_path: Path
) -> None:
    merge(checkpoints, tmp_path / "merged", weights=given)
    singles = [weights(export(path, tmp_path / path.name)) for path in checkpoints]
    found = weights(tmp_path / "merged")
    assert found.keys() == singles[0].keys()
    for name, value in found.items():
        mean = sum(fraction * single[name] for fraction, single in zip(fractions, singles, strict=True))
        torch.testing.assert_close(value, mean, rtol=1e-5, atol=1e-7, msg=name)
    assert any(not torch.equal(value, singles[-1][name]) for name, value in found.items())


def test_the_folder_loads_and_its_card_names_the_checkpoints(checkpoints: list[Path], tmp_path: Path) -> None:
    merge(checkpoints[1:], tmp_path / "merged", weights=[1, 3])
    merge(checkpoints[1:], tmp_path / "merged")  # over an earlier one
    assert load(tmp_path / "merged").encode(["a sentence"]).shape == (1, 16)
    assert (
        "| mean of the weights of | run step 3 (0.5), run step 4 (0.5) |"
        in (tmp_path / "merged" / "README.md").read_text()
    )
    facts = json.loads((tmp_path / "merged" / "export.json").read_text())
    assert (facts["step"], facts["scores"], len(facts["merged"])) == (4, [], 2)


def test_equal_checkpoints_have_their_own_weights_as_mean(checkpoints: list[Path], tmp_path: Path) -> None:
    merge([checkpoints[0]] * 3, tmp_path / "merged")
    encoder = from_huggingface(tmp_path / "merged").encoder
    for (name, one), (_, other) in zip(
        encoder.named_parameters(), load_run(checkpoints[0]).encoder.named_parameters(), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=0, msg=name)


def test_other_networks_are_refused(checkpoints: list[Path], train: Train, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"has another model than .* Give checkpoints of one network."):
        merge([checkpoints[0], train("rosetta", "model.layers=2")], tmp_path / "merged")
    with pytest.raises(BadInput, match=r"merge: \S+ is missing in .* Give checkpoints of one network."):
        merge([checkpoints[0], train("rosetta", "mlm=off", "tlm=off")], tmp_path / "merged")
    assert not (tmp_path / "merged").exists()


def test_another_vocabulary_is_refused(
    checkpoints: list[Path], run: Path, corpora_folder: Path, tmp_path: Path
) -> None:
    other = Path(shutil.copytree(run, tmp_path / "other"))
    shutil.rmtree(other / "vocab")
    vocab(Corpora(corpora_folder), other / "vocab", size=300)
    with pytest.raises(BadInput, match="other has another vocabulary than"):
        merge([checkpoints[0], other], tmp_path / "merged")


@pytest.mark.parametrize(
    ("number", "given", "expected"),
    [
        (1, None, "found 1 checkpoint. Give two or more"),
        (2, [1.0], "weights are 1, expected 2 positive numbers"),
        (2, [1.0, 0.0], "weights are 1, 0, expected 2 positive numbers"),
    ],
)
def test_weights_that_do_not_fit(
    checkpoints: list[Path], number: int, given: list[float] | None, expected: str, tmp_path: Path
) -> None:
    with pytest.raises(BadInput, match=expected):
        merge(checkpoints[:number], tmp_path / "merged", weights=given)


def test_the_command(checkpoints: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [str(path) for path in checkpoints[:2]]
    with pytest.raises(SystemExit) as done:
        cli.app(["merge", *paths, "--weights", "1,2", "-o", str(tmp_path / "merged")])
    assert done.value.code == 0
    assert capsys.readouterr().out == f"{tmp_path / 'merged'}\n"
    with pytest.raises(BadInput, match="--weights a: expected numbers separated by commas"):
        cli.app(["merge", *paths, "--weights", "a", "-o", str(tmp_path / "merged")])
