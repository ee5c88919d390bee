"""From a model and parallel text to an MT folder: it learns, goes on exactly, ends early, and refuses what is wrong."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transfer.toys import model_folder

from crossling.data.batches import Work
from crossling.errors import BadInput, Interrupted
from crossling.evaluate import scores
from crossling.evaluate.evaluate import evaluate
from crossling.finetune.finetune import finetune
from crossling.finetune.translation import training
from crossling.finetune.translation.feed import BitextFeed
from crossling.finetune.translation.plan import Plan
from crossling.train import checkpoint, stored
from crossling.train.trainer import Trainer
from crossling.translation.translator import Translator, facts
from translation.conftest import QUICK
from translation.toys import write_parallel

TIMES = {"seconds", "tokens_per_second", "loader_wait"}
SHORT: dict[str, Any] = {**QUICK, "steps": 6, "checkpoint_every": 2, "log_every": 1, "dev_rows": 4, "beam": 1}


def run(encoder: Path, data: Path, out: Path, **changes: Any) -> list[dict[str, Any]]:
    return finetune(encoder, "translation", data, out, **{"pairs": "en-de,de-en", **SHORT, **changes})


# ---- it learns ----------------------------------------------------------------------------------------------


def test_it_learns_and_what_it_said_gives_its_scores(mt: Path, data: Path) -> None:
    rows = scores.read(mt / "scores.jsonl")
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


def test_scores_again_are_the_same_and_are_kept_where_asked(mt: Path, data: Path, tmp_path: Path) -> None:
    again = evaluate(mt, ["translation"], data, tmp_path, languages=["en-de"])
    assert again == [row for row in scores.read(mt / "scores.jsonl") if row["language"] == "en-de"]
    assert scores.read(tmp_path / "scores.jsonl") == again
    kept = (tmp_path / "seed-0" / "predictions" / "translation" / "test-en-de.jsonl").read_text()
    assert kept == (mt / "seed-0" / "predictions" / "translation" / "test-en-de.jsonl").read_text()
    with pytest.raises(BadInput, match="no test set of 'en-fr'"):
        evaluate(mt, ["translation"], data, languages=["en-fr"])


# ---- it goes on ---------------------------------------------------------------------------------------------


def test_what_was_stopped_goes_on_to_the_same_end(
    encoder: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = {"dropout": 0.1}
    whole = run(encoder, data, tmp_path / "whole", **changes)
    taken = BitextFeed.__getitem__

    def failing(self: BitextFeed, step: int) -> Work:
        if step == 5:
            raise OSError(5, "the disk is gone")
        return taken(self, step)

    monkeypatch.setattr(BitextFeed, "__getitem__", failing)
    with pytest.raises(OSError, match="the disk is gone"):
        run(encoder, data, tmp_path / "cut", **changes)
    monkeypatch.undo()
    assert checkpoint.all_steps(tmp_path / "cut" / "training" / "seed-0" / "checkpoints")
    assert run(encoder, data, tmp_path / "cut", **changes) == whole
    one, other = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "cut"))
    assert all(torch.equal(one[name], other[name]) for name in one)
    logs = [(tmp_path / name / "metrics.jsonl").read_text().splitlines() for name in ("whole", "cut")]
    first, second = ([_timeless(line) for line in log] for log in logs)
    assert first == second
    assert not (tmp_path / "cut" / "training").exists()


def stop_before(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """A signal comes while the work of a step is fetched: the step is finished and saved."""
    taken = BitextFeed.__getitem__

    def stopping(self: BitextFeed, number: int) -> Work:
        if number == step - 1:
            signal.raise_signal(signal.SIGTERM)
        return taken(self, number)

    monkeypatch.setattr(BitextFeed, "__getitem__", stopping)


@pytest.mark.parametrize(
    ("stop", "doubt", "killed"), [(11, 0, False), (11, 0, True), (6, 0, False), (4, 4, False), (5, 4, False)]
)
def test_which_states_are_averaged_does_not_depend_on_where_it_was_stopped(
    encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop: int, doubt: int, killed: bool
) -> None:
    """A step in `doubt` is not saved where it is due: not even to be averaged by a run that was stopped there."""
    data = write_parallel(tmp_path / "data", {"train": 40, "test": 2})  # no dev: the mean is taken
    changes = {"steps": 12 if not doubt else 8, "average": 3}
    monkeypatch.setattr(Trainer, "_in_doubt", lambda self: self.step == doubt)
    run(encoder, data, tmp_path / "whole", **changes)
    assert facts(tmp_path / "whole").states == ([2, 6, 8] if doubt else [8, 10, 12])
    with monkeypatch.context() as once:
        stop_before(once, stop)
        with pytest.raises(Interrupted, match=f"stopped at step {stop}"):
            run(encoder, data, tmp_path / "cut", **changes)
    if killed:  # after the last state was written, before those that have had their time were removed
        monkeypatch.setattr(checkpoint.Checkpoints, "_prune", lambda *_: None)
    run(encoder, data, tmp_path / "cut", **changes)
    assert facts(tmp_path / "cut") == facts(tmp_path / "whole")
    one, other = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "cut"))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_a_state_in_doubt_is_not_the_best_one_even_if_the_run_was_stopped_there(
    encoder: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measured(self: Any, translator: Any) -> dict[str, float]:
        return {"dev": next(looks if translator is self.translator else choices)}

    monkeypatch.setattr(training._Training, "_measured", measured)
    monkeypatch.setattr(Trainer, "_in_doubt", lambda self: self.step == 4)
    for name in ("whole", "cut"):
        # At steps 0, 2, 4, ..., in all processes of a run; and at its end: the mean, then the best state.
        looks, choices = iter([0.0, 3.0, 9.0, 1.0, 1.0]), iter([1.0, 5.0])
        if name == "cut":
            with monkeypatch.context() as once:
                stop_before(once, 4)
                with pytest.raises(Interrupted):
                    run(encoder, data, tmp_path / name, pairs="en-de", steps=8)
        run(encoder, data, tmp_path / name, pairs="en-de", steps=8)
        assert facts(tmp_path / name).states == [2]


def test_what_is_under_way_may_be_looked_at_otherwise_and_nothing_else(
    encoder: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as once:
        stop_before(once, 3)
        with pytest.raises(Interrupted):
            run(encoder, data, tmp_path / "mt", pairs="en-de")
    with pytest.raises(BadInput, match="different: checkpoint_every"):
        run(encoder, data, tmp_path / "mt", pairs="en-de", checkpoint_every=3)
    spelt = f"{os.path.relpath(encoder)}/"
    run(spelt, data, tmp_path / "mt", pairs="en-de", beam=2, length_penalty=0.5, log_every=3)  # type: ignore[arg-type]
    assert facts(tmp_path / "mt").states
    run(encoder, data, tmp_path / "mt", pairs="en-de")  # finished, by the name it began with


def _timeless(line: str) -> dict[str, Any]:
    return {name: value for name, value in json.loads(line).items() if name not in TIMES}


def test_what_is_finished_is_not_made_again_and_nothing_else_is_made_of_it(
    encoder: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "mt"
    rows = run(encoder, data, out)
    monkeypatch.setattr(training._Training, "fit", _never)
    assert run(encoder, data, out) == rows
    with pytest.raises(BadInput, match=r"trained with another lr \(0.005, not 0.1\)"):
        run(encoder, data, out, lr=0.1)
    with pytest.raises(BadInput, match="another start"):
        run(encoder, data, out, random=True)
    other = write_parallel(tmp_path / "other", {"train": 50, "dev": 4, "test": 4})
    with pytest.raises(BadInput, match="other data than lies there now"):
        run(encoder, other, out)


def _never(*_: object, **__: object) -> None:
    raise AssertionError("it was done again")


def test_scores_are_of_the_text_and_the_beam_that_are_asked_for(
    encoder: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = shutil.copytree(data, tmp_path / "data")
    out = tmp_path / "mt"
    asked: list[tuple[int, float]] = []
    translate = Translator.translate

    def listening(self: Any, lines: Any, to: Any, beam: int, length_penalty: float, *more: Any) -> list[str]:
        asked.append((beam, length_penalty))
        return translate(self, lines, to, beam, length_penalty, *more)

    first = run(encoder, own, out, pairs="en-de", length_penalty=0.5)
    monkeypatch.setattr(training._Training, "fit", _never)
    monkeypatch.setattr(Translator, "translate", listening)
    assert run(encoder, own, out, pairs="en-de", length_penalty=0.5) == first
    assert not asked
    other = run(encoder, own, out, pairs="en-de", beam=3, length_penalty=0.7)
    assert asked == [(3, 0.7)]
    assert not {json.dumps(row) for row in other} & {json.dumps(row) for row in first}
    run(encoder, own, out, pairs="en-de", beam=3, length_penalty=0.6)
    assert asked == [(3, 0.7), (3, 0.6)]
    assert len(scores.read(out / "scores.jsonl")) == 3 * len(first)
    lines = (own / "test.de").read_text().splitlines()
    (own / "test.de").write_text("".join(f"{line}\n" for line in lines[::-1]))  # as many, and other ones
    new = run(encoder, own, out, pairs="en-de", beam=3, length_penalty=0.6)
    assert [row["value"] for row in new] == [
        row["value"] for row in evaluate(out, ["translation"], own, recompute=True)
    ]
    assert len(asked) == 3


# ---- which state it is --------------------------------------------------------------------------------------


def test_it_is_the_mean_of_the_last_states(
    encoder: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    states: list[dict[str, torch.Tensor]] = []
    keep = training._Training.keep

    def look(self: Any, out: Path, work: Path, steps: int) -> Any:
        for state in checkpoint.all_steps(work / "checkpoints"):
            states.append(stored.tensors(state))
        return keep(self, out, work, steps)

    def measured(self: Any, translator: Any) -> dict[str, float]:
        """What is chosen from at the end comes in this order: the mean, then the best of all states."""
        score = 1.0 if translator is self.translator else float(next(choices))
        return {"dev": score, "dev/en-de": score}

    choices = iter([5, 4])
    monkeypatch.setattr(training._Training, "keep", look)
    monkeypatch.setattr(training._Training, "_measured", measured)
    run(encoder, data, tmp_path / "mt", average=3)
    assert facts(tmp_path / "mt").states == [2, 4, 6]
    found = load_file(tmp_path / "mt" / "model.safetensors")
    assert len(states) == 3
    names = [name for name in states[0] if name.startswith("encoder.") and "/" not in name]
    assert any("cross" in name for name in names)
    for name in names:
        mean = torch.stack([state[name] for state in states]).mean(0)
        torch.testing.assert_close(found[name.removeprefix("encoder.")], mean)


def test_patience_ends_it_and_the_best_state_is_kept(
    encoder: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = {0: 0.0, 2: 5.0, 4: 7.0}  # by step; later ones are worse

    def measured(self: Any, translator: Any) -> dict[str, float]:
        at_work = translator is self.translator
        step = next(steps) if at_work else 0
        score = told.get(step, 1.0) if at_work else float(next(choices))
        return {"dev": score, "dev/en-de": score}

    steps, choices = iter(range(0, 100, 2)), iter([3, 7])  # at the end: the mean, then the best state
    monkeypatch.setattr(training._Training, "_measured", measured)
    run(encoder, data, tmp_path / "mt", steps=40, patience=3)
    known = facts(tmp_path / "mt")
    assert known.steps == 4 + 3 * 2
    assert known.states == [4]
    assert [point["bleu"] for point in known.curve] == [0, 5, 7, 1, 1, 1]


def test_what_patience_has_ended_is_not_trained_on_after_a_stop(
    encoder: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measured(self: Any, translator: Any) -> dict[str, float]:  # noqa: ARG001
        return {"dev": 1.0, "dev/en-de": 1.0}

    def failing(*_: object) -> None:
        raise OSError(5, "the disk is gone")

    monkeypatch.setattr(training._Training, "_measured", measured)
    with monkeypatch.context() as once:
        once.setattr(training._Training, "keep", failing)
        with pytest.raises(OSError, match="the disk is gone"):
            run(encoder, data, tmp_path / "mt", steps=40, patience=2)
    monkeypatch.setattr(BitextFeed, "__getitem__", _never)
    run(encoder, data, tmp_path / "mt", steps=40, patience=2)
    assert facts(tmp_path / "mt").steps == 2 + 2 * 2


def test_seeds_are_different_and_the_best_is_the_folder(encoder: Path, data: Path, tmp_path: Path) -> None:
    rows = run(encoder, data, tmp_path / "mt", seeds=2, seed=3, steps=2)
    assert {row["seed"] for row in rows} == {3, 4}
    one, other = (load_file(tmp_path / "mt" / f"seed-{n}" / "model.safetensors") for n in (3, 4))
    assert any(not torch.equal(one[name], other[name]) for name in one)
    best = max((facts(tmp_path / "mt" / f"seed-{n}") for n in (3, 4)), key=lambda each: sum(each.dev.values()))
    assert facts(tmp_path / "mt") == best


# ---- what it begins as --------------------------------------------------------------------------------------


def test_random_weights_have_the_shape_and_nothing_else(encoder: Path, data: Path, tmp_path: Path) -> None:
    quiet = {"steps": 1, "lr": 1e-9, "warmup": 0}
    run(encoder, data, tmp_path / "begun", **quiet)
    run(encoder, data, tmp_path / "random", random=True, seed=5, **quiet)  # the encoder is itself what seed 0 gives
    begun, random = (Translator.load(tmp_path / name).model for name in ("begun", "random"))
    theirs = load_file(encoder / "model.safetensors")
    for name, values in theirs.items():
        mine = dict(begun.named_parameters())[f"encoder.{name}"]
        new = dict(random.named_parameters())[f"encoder.{name}"]
        torch.testing.assert_close(mine[: len(values)].detach(), values, atol=1e-6, rtol=0)
        if values.std() > 0.01:  # no norm or bias, which begin alike
            assert not torch.allclose(new[: len(values)], values, atol=1e-3)
    assert facts(tmp_path / "random").start == "random"


def test_a_translator_goes_on_from_another(mt: Path, data: Path, encoder: Path, tmp_path: Path) -> None:
    run(mt, data, tmp_path / "more", steps=1, lr=1e-9, warmup=0)
    known = facts(tmp_path / "more")
    assert (known.start, known.model) == ("translator", str(mt))
    one, other = (load_file(folder / "model.safetensors") for folder in (mt, tmp_path / "more"))
    assert all(torch.allclose(one[name], other[name], atol=1e-6) for name in one)
    run(encoder, data, tmp_path / "one", pairs="en-de", steps=1)
    assert facts(tmp_path / "one").tags == {}
    with pytest.raises(BadInput, match="one direction, without tags"):
        run(tmp_path / "one", data, tmp_path / "no")
    write_parallel(tmp_path / "fr", {"train": 9}, ("en", "fr"))
    with pytest.raises(BadInput, match="has no tag for 'fr'"):
        run(mt, tmp_path / "fr", tmp_path / "no", pairs="en-fr")
    for change in ({"tied": False}, {"decoder_layers": 1}):
        with pytest.raises(BadInput, match=f"keeps its decoder; leave {next(iter(change))} out"):
            run(mt, data, tmp_path / "no", **change)
    run(mt, data, tmp_path / "same", steps=1, tied=True, decoder_layers=2, take="first")  # all layers, from either end
    assert facts(tmp_path / "same").hyper == {**known.hyper, "lr": SHORT["lr"], "warmup": 0.1}


def test_a_translator_that_goes_on_keeps_its_decoder_and_tells_what_it_is(
    encoder: Path, data: Path, tmp_path: Path
) -> None:
    changes: dict[str, Any] = {"pairs": "en-de", "steps": 1}
    run(encoder, data, tmp_path / "one", decoder_layers=1, take="first", tied=False, **changes)
    run(tmp_path / "one", data, tmp_path / "more", **changes)
    told = facts(tmp_path / "more").hyper
    assert (told["decoder_layers"], told["take"], told["tied"]) == (1, "first", False)
    config = Translator.load(tmp_path / "more").model.config
    assert (list(config.decoder_blocks or ()), config.tied) == ([0], False)
    with pytest.raises(BadInput, match="keeps its decoder; leave take out"):
        run(tmp_path / "one", data, tmp_path / "no", take="last", **changes)
    assert not (tmp_path / "no").exists()


@pytest.mark.parametrize("changes", [{"decoder_layers": 1}, {"decoder_layers": 1, "take": "first", "tied": False}])
def test_shallow_and_untied_decoders(encoder: Path, data: Path, tmp_path: Path, changes: dict[str, Any]) -> None:
    run(encoder, data, tmp_path / "mt", pairs="en-de", steps=1, **changes)
    told = facts(tmp_path / "mt").hyper
    assert (told["take"], told["tied"]) == (changes.get("take", "last"), changes.get("tied", True))
    config = Translator.load(tmp_path / "mt").model.config
    assert list(config.decoder_blocks or ()) == ([0] if changes.get("take") == "first" else [1])
    assert config.tied == changes.get("tied", True)


def test_an_encoder_of_transformers_becomes_a_translator(data: Path, tmp_path: Path) -> None:
    xlm_r = model_folder(tmp_path / "xlm-r", "xlm-roberta")
    assert run(xlm_r, data, tmp_path / "mt", pairs="de-en", steps=2)


# ---- what is refused ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"pairs": None}, "--pairs"),
        ({"pairs": "en-fr"}, "no training text for en-fr"),
        ({"lern": 1}, "there is no 'lern'"),
        ({"label_smoothing": 1}, "expected less than 1"),
        ({"lr": 0}, "expected more than 0"),
        ({"average": 0}, "expected at least 1"),
        ({"take": "middle"}, "expected one of first, last"),
        ({"decoder_layers": 3}, "a decoder of 3 layers"),
        ({"setting": "translate-train"}, "not for translation"),
        ({"seeds": 0}, "--seeds 0"),
    ],
)
def test_what_is_wrong_is_told_before_anything_is_written(
    encoder: Path, data: Path, tmp_path: Path, changes: dict[str, Any], told: str
) -> None:
    with pytest.raises(BadInput, match=told):
        run(encoder, data, tmp_path / "mt", **changes)
    assert not (tmp_path / "mt").exists()


def test_options_of_translation_are_refused_elsewhere(encoder: Path, data: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="are for --task translation, not for xnli"):
        finetune(encoder, "xnli", data, tmp_path / "mt", pairs="en-de")
    with pytest.raises(BadInput, match="takes a translator; make one"):
        evaluate(encoder, ["translation"], data)
    with pytest.raises(BadInput, match="ask for it alone"):
        evaluate(encoder, ["translation", "xnli"], data)


def test_patience_needs_a_dev_part_and_training_does_not(encoder: Path, tmp_path: Path) -> None:
    data = write_parallel(tmp_path / "data", {"train": 30, "test": 3})
    with pytest.raises(BadInput, match="needs a dev part"):
        run(encoder, data, tmp_path / "mt", patience=2)
    rows = run(encoder, data, tmp_path / "mt", steps=2)
    assert rows
    assert facts(tmp_path / "mt").dev == {}


def test_pairs_that_are_too_long_are_left_out_and_told_of(encoder: Path, tmp_path: Path) -> None:
    data = write_parallel(tmp_path / "data", {"train": 30, "dev": 3, "test": 3})
    for language in ("en", "de"):
        with (data / f"train.{language}").open("a") as file:
            file.write("dog " * 40 + "\n")
    with pytest.warns(UserWarning, match="2 of 62 pairs of sentences are longer than 16 tokens"):
        run(encoder, data, tmp_path / "mt", steps=1, length=16)
    with pytest.raises(BadInput, match="all pairs of sentences are longer"):
        run(encoder, write_long(tmp_path / "long"), tmp_path / "no", steps=1, length=8)


def write_long(folder: Path) -> Path:
    folder.mkdir()
    for language in ("en", "de"):
        (folder / f"train.{language}").write_text("dog " * 40 + "\n")
        (folder / f"test.{language}").write_text("dog\n")
    return folder


def test_the_usual_plan_is_valid() -> None:
    assert Plan.of() == Plan()
    assert "seed" not in Plan().hyper
