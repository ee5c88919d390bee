"""No stream of new text is read more often than the epochs allow, whatever the sizes of text and pairs are."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from crossling.adapt.adapt_request import AdaptRequest
from crossling.adapt.adapt_settings import AdaptSettings
from crossling.adapt.choose_settings import choose_settings
from crossling.adapt.prepare_text import PreparedText
from crossling.adapt.replay_sample import read_icelandic
from crossling.adapt.streams import Streams
from crossling.vocabulary.open_vocabulary import open_vocabulary


def choose(
    model: Path, folder: Path, pairs: int, lines: int, **given: str
) -> tuple[AdaptSettings, dict[str, str], Streams]:
    """Return the choices for as many pairs and lines, of which the folder has the first ones."""
    rows = read_icelandic()[:50]
    new = PreparedText(folder, pairs={"en-is": pairs} if pairs else {}, lines={"is": lines} if lines else {})
    files = {
        "pairs/en-is.tsv": "".join(f"{a}\t{b}\n" for a, b in rows),
        "text/is.txt": "".join(f"{b}\n" for _, b in rows),
    }
    for name, content in files.items():
        if lines if "text" in name else pairs:
            (folder / name).parent.mkdir(parents=True)
            (folder / name).write_text(content, encoding="utf-8")
    facts: Any = SimpleNamespace(
        vocabulary=open_vocabulary(model),
        is_native=True,
        has_lm_head=True,
        device="cpu",
        width=16,
        max_length=64,
        can_extend=True,
        reason="",
        name="tiny",
    )
    choices, streams = choose_settings(AdaptRequest(model="tiny"), given, facts, new, None)
    return choices.finish(), choices.reasons, streams


@pytest.mark.parametrize(
    ("pairs", "lines"), [(5000, 3000), (20_000, 100), (500, 60_000), (0, 40), (12, 0), (0, 5000), (40_000, 20)]
)
def test_no_stream_is_read_more_often_than_the_epochs(tiny_model: Path, tmp_path: Path, pairs: int, lines: int) -> None:
    settings, _, streams = choose(tiny_model, tmp_path, pairs, lines)
    passes = streams.passes(settings)
    assert passes
    assert max(passes.values()) <= 10.5
    assert max(passes.values()) >= 8


def test_fewer_epochs_limit_all_streams(tiny_model: Path, tmp_path: Path) -> None:
    settings, _, streams = choose(tiny_model, tmp_path, 5000, 1000, epochs="3")
    assert max(streams.passes(settings).values()) <= 3.1


def test_text_that_is_too_small_is_not_masked_and_the_plan_states_it(tiny_model: Path, tmp_path: Path) -> None:
    settings, reasons, _ = choose(tiny_model, tmp_path, 100_000, 20)
    assert settings.objectives == "tlm,xlco,distillation"
    assert "no MLM, since 15,625 steps would read its" in reasons["objectives"]


def test_much_text_beside_few_pairs_is_read_in_part_and_the_plan_states_it(tiny_model: Path, tmp_path: Path) -> None:
    settings, _, streams = choose(tiny_model, tmp_path, 500, 60_000)
    assert streams.passes(settings)["text for MLM"] < 1
    assert "pairs 10 times" in streams.describe(settings)
    assert "text for MLM 0." in streams.describe(settings)
