"""Training of translators: it learns, selects and averages checkpoints, and refuses bad input."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from crossling.core.errors import BadInput
from crossling.evaluate.evaluate import evaluate
from crossling.finetune.finetune import finetune
from crossling.finetune.translation.translation_training import TranslationRun
from crossling.finetune.translation.translator import TRANSLATOR_INFO, Translator
from crossling.tasks import scores
from crossling.train import checkpoint
from crossling.train import checkpoint_storage as stored

from .tiny_parallel import train_short, write_parallel


def test_it_learns_and_stored_translations_give_its_scores(mt: Path, data: Path) -> None:
    rows = scores.read_scores(mt / "scores.jsonl")
    losses = [json.loads(line)["translation"] for line in (mt / "metrics.jsonl").read_text().splitlines()[1:]]
    assert losses[-1] < 0.85 * losses[0]
    assert {(row["language"], row["metric"]) for row in rows} == {
        (direction, metric)
        for direction in ("en-de", "de-en")
        for metric in ("sacrebleu", "chrf", "bleu-lowercased-tokenised")
    }
    assert all(row["examples"] == 40 and row["split"] == "test" and "signature" in row for row in rows)
    chrf = {row["language"]: row["value"] for row in rows if row["metric"] == "chrf"}
    assert min(chrf.values()) > 10
    assert evaluate(mt, ["translation"], data, recompute=True) == rows


def test_scoring_again_gives_the_same_scores_and_translations(mt: Path, data: Path, tmp_path: Path) -> None:
    again = evaluate(mt, ["translation"], data, tmp_path, languages=["en-de"])
    assert again == [row for row in scores.read_scores(mt / "scores.jsonl") if row["language"] == "en-de"]
    assert scores.read_scores(tmp_path / "scores.jsonl") == again
    written = (tmp_path / "seed-0" / "predictions" / "translation" / "test-en-de.jsonl").read_text()
    assert written == (mt / "seed-0" / "predictions" / "translation" / "test-en-de.jsonl").read_text()
    with pytest.raises(BadInput, match="no test set of 'en-fr'"):
        evaluate(mt, ["translation"], data, languages=["en-fr"])


def _never(*_: object, **__: object) -> None:
    raise AssertionError("trained again")


def test_scores_are_of_the_requested_text_and_beam_search(
    encoder: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = shutil.copytree(data, tmp_path / "data")
    out = tmp_path / "mt"
    calls: list[tuple[int, float]] = []
    translate = Translator.translate

    def record(self: Any, sentences: Any, to: Any, **options: Any) -> list[str]:
        calls.append((options["beam"], options["length_penalty"]))
        return translate(self, sentences, to, **options)

    first = train_short(encoder, own, out, directions="en-de", length_penalty=0.5)
    monkeypatch.setattr(TranslationRun, "fit", _never)
    monkeypatch.setattr(Translator, "translate", record)
    assert train_short(encoder, own, out, directions="en-de", length_penalty=0.5) == first
    assert not calls
    other = train_short(encoder, own, out, directions="en-de", beam=3, length_penalty=0.7)
    assert calls == [(3, 0.7)]
    assert not {json.dumps(row) for row in other} & {json.dumps(row) for row in first}
    train_short(encoder, own, out, directions="en-de", beam=3, length_penalty=0.6)
    assert calls == [(3, 0.7), (3, 0.6)]
    assert len(scores.read_scores(out / "scores.jsonl")) == 3 * len(first)
    lines = (own / "test.de").read_text().splitlines()
    (own / "test.de").write_text("".join(f"{line}\n" for line in lines[::-1]))  # the same number of other rows
    new = train_short(encoder, own, out, directions="en-de", beam=3, length_penalty=0.6)
    assert [row["value"] for row in new] == [
        row["value"] for row in evaluate(out, ["translation"], own, recompute=True)
    ]
    assert len(calls) == 3


# ---- selection ----------------------------------------------------------------------------------------------


def test_the_model_is_the_mean_of_the_last_checkpoints(
    encoder: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    states: list[dict[str, torch.Tensor]] = []
    save_model = TranslationRun.save_model

    def record(self: Any, out: Path, work: Path, steps: int) -> Any:
        for state in checkpoint.list_checkpoints(work / "checkpoints"):
            states.append(stored.read_tensors(state))
        return save_model(self, out, work, steps)

    def score_dev(self: Any, translator: Any) -> dict[str, float]:
        """Return the scores at the end in this order: the mean, then the best checkpoint."""
        score = 1.0 if translator is self.translator else float(next(choices))
        return {"dev": score, "dev/en-de": score}

    choices = iter([5, 4])
    monkeypatch.setattr(TranslationRun, "save_model", record)
    monkeypatch.setattr(TranslationRun, "_score_dev", score_dev)
    train_short(encoder, data, tmp_path / "mt", average=3)
    assert TRANSLATOR_INFO.read(tmp_path / "mt").averaged_steps == [2, 4, 6]
    found = load_file(tmp_path / "mt" / "model.safetensors")
    assert len(states) == 3
    names = [name for name in states[0] if name.startswith("encoder.") and "/" not in name]
    assert any("cross" in name for name in names)
    for name in names:
        mean = torch.stack([state[name] for state in states]).mean(0)
        torch.testing.assert_close(found[name.removeprefix("encoder.")], mean)


def test_patience_ends_the_training_and_the_best_checkpoint_is_used(
    encoder: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores_by_step = {0: 0.0, 2: 5.0, 4: 7.0}  # later ones are worse

    def score_dev(self: Any, translator: Any) -> dict[str, float]:
        in_training = translator is self.translator
        score = scores_by_step.get(next(steps), 1.0) if in_training else float(next(choices))
        return {"dev": score, "dev/en-de": score}

    steps, choices = iter(range(0, 100, 2)), iter([3, 7])  # at the end: the mean, then the best checkpoint
    monkeypatch.setattr(TranslationRun, "_score_dev", score_dev)
    train_short(encoder, data, tmp_path / "mt", steps=40, patience=3)
    info = TRANSLATOR_INFO.read(tmp_path / "mt")
    assert info.steps == 4 + 3 * 2
    assert info.averaged_steps == [4]
    assert [point["bleu"] for point in info.curve] == [0, 5, 7, 1, 1, 1]


def test_seeds_differ_and_the_best_is_at_the_root(encoder: Path, data: Path, tmp_path: Path) -> None:
    rows = train_short(encoder, data, tmp_path / "mt", seeds=2, seed=3, steps=2)
    assert {row["seed"] for row in rows} == {3, 4}
    one, other = (load_file(tmp_path / "mt" / f"seed-{n}" / "model.safetensors") for n in (3, 4))
    assert any(not torch.equal(one[name], other[name]) for name in one)
    best = max(
        (TRANSLATOR_INFO.read(tmp_path / "mt" / f"seed-{n}") for n in (3, 4)), key=lambda info: sum(info.dev.values())
    )
    assert TRANSLATOR_INFO.read(tmp_path / "mt") == best


# ---- bad input ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"directions": None}, "it needs directions"),
        ({"directions": "en-fr"}, "no training text for en-fr"),
        ({"lern": 1}, "there is no 'lern'"),
        ({"label_smoothing": 1}, "label_smoothing must be .*less than 1"),
        ({"lr": 0}, "lr must be more than 0"),
        ({"average": 0}, "average must be at least 1"),
        ({"take": "middle"}, "expected one of first, last"),
        ({"decoder_layers": 3}, "decoder of 3 layers"),
        ({"setting": "translate-train"}, "translation: it has no setting"),
        ({"seeds": 0}, "seeds=0"),
    ],
)
def test_bad_input_is_refused_before_anything_is_written(
    encoder: Path, data: Path, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(BadInput, match=message):
        train_short(encoder, data, tmp_path / "mt", **changes)
    assert not (tmp_path / "mt").exists()


def test_options_of_translation_are_refused_elsewhere(encoder: Path, data: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="task=xnli: directions, from_scratch, preset and shards belong to translation"):
        finetune(encoder, "xnli", data, tmp_path / "mt", directions="en-de")
    with pytest.raises(BadInput, match=r"needs a translator. Train and score one"):
        evaluate(encoder, ["translation"], data)
    with pytest.raises(BadInput, match="Request it alone"):
        evaluate(encoder, ["translation", "xnli"], data)


def test_patience_needs_a_dev_set_and_training_does_not(encoder: Path, tmp_path: Path) -> None:
    data = write_parallel(tmp_path / "data", {"train": 30, "test": 3})
    with pytest.raises(BadInput, match="needs a dev set"):
        train_short(encoder, data, tmp_path / "mt", patience=2)
    rows = train_short(encoder, data, tmp_path / "mt", steps=2)
    assert rows
    assert TRANSLATOR_INFO.read(tmp_path / "mt").dev == {}


def test_pairs_that_are_too_long_are_excluded_with_a_warning(encoder: Path, tmp_path: Path) -> None:
    data = write_parallel(tmp_path / "data", {"train": 30, "dev": 3, "test": 3})
    for language in ("en", "de"):
        with (data / f"train.{language}").open("a") as file:
            file.write("dog " * 40 + "\n")
    with pytest.warns(UserWarning, match=r"skips 3.2% of the sentence pairs: longer than 16 tokens"):
        train_short(encoder, data, tmp_path / "mt", steps=1, length=16)
    with pytest.raises(BadInput, match="all sentence pairs are longer"):
        train_short(encoder, write_long(tmp_path / "long"), tmp_path / "no", steps=1, length=8)


def write_long(folder: Path) -> Path:
    folder.mkdir()
    for language in ("en", "de"):
        (folder / f"train.{language}").write_text("dog " * 40 + "\n")
        (folder / f"test.{language}").write_text("dog\n")
    return folder
