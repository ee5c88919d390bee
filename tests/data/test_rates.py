"""Rates of languages and of corpora in language pairs, from what the shards count."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from crossling.data.rates import pair_counts, rates
from crossling.errors import BadInput
from crossling.sampling import Sampling, m2m, tempered, xy_lent

BITEXTS = [
    ("opus.de-en", ("de", "en"), 600),
    ("bible", ("en", "de"), 200),
    ("bible", ("en", "sw"), 40),
    ("bible", ("ta", "en"), 60),
    ("bible", ("de", "sw"), 10),
    ("bible", ("de", "ta"), 20),
    ("news.sw-ta", ("sw", "ta"), 2),
    ("news.fr-ta", ("fr", "ta"), 0),
]


def shards(text: dict[str, int] | None = None, bitexts: list[Any] | None = None) -> Any:
    found = [
        SimpleNamespace(corpus=c, languages=two, pairs=n) for c, two, n in (BITEXTS if bitexts is None else bitexts)
    ]
    manifest = {"text": {language: {"tokens": n} for language, n in (text or {}).items()}}
    return SimpleNamespace(path=Path("shards"), manifest=manifest, bitexts=found)


COUNTS = {("de", "en"): 800, ("en", "sw"): 40, ("en", "ta"): 60, ("de", "sw"): 10, ("de", "ta"): 20, ("sw", "ta"): 2}


def test_text_follows_its_tokens() -> None:
    found = rates(shards({"en": 1000, "sw": 10, "ta": 0}), "text", Sampling(text_alpha=0.5))
    assert found == tempered({"en": 1000, "sw": 10, "ta": 0}, 0.5)
    assert found["ta"] == 0


def test_corpora_of_a_pair_are_counted_together_in_either_order() -> None:
    assert pair_counts(shards()) == {**COUNTS, ("fr", "ta"): 0}
    assert pair_counts(shards(), "sw") == {pair: n for pair, n in COUNTS.items() if "sw" in pair}


@pytest.mark.parametrize("rule", ["alpha", "m2m", "xy_lent"])
def test_pairs_follow_the_rule_and_their_corpora_the_size(rule: Any) -> None:
    sampling = Sampling(pair_rule=rule, pair_alpha=0.2)
    expected = {"alpha": tempered(COUNTS, 0.2), "m2m": m2m(COUNTS, 5), "xy_lent": xy_lent(COUNTS, 5)}[rule]
    found = rates(shards(), "pairs", sampling)
    assert found == pytest.approx(
        {
            "opus.de-en de-en": expected["de", "en"] * 0.75,
            "bible en-de": expected["de", "en"] * 0.25,
            "bible en-sw": expected["en", "sw"],
            "bible ta-en": expected["en", "ta"],
            "bible de-sw": expected["de", "sw"],
            "bible de-ta": expected["de", "ta"],
            "news.sw-ta sw-ta": expected["sw", "ta"],
        }
    )
    assert sum(found.values()) == pytest.approx(1)


def test_a_pivot_leaves_only_its_pairs() -> None:
    found = rates(shards(), "pairs", Sampling(pivot="sw"))
    assert {*found} == {"bible en-sw", "bible de-sw", "news.sw-ta sw-ta"}
    assert sum(found.values()) == pytest.approx(1)
    assert rates(shards(), "pairs", Sampling(pivot="yo")) == {}


def test_the_language_of_most_pairs_as_a_pivot() -> None:
    def of(*bitexts: tuple[str, tuple[str, str], int]) -> set[tuple[str, str]]:
        return {*pair_counts(shards(bitexts=[*bitexts]), "most")}

    a_few, many = ("a", ("en", "sw"), 10), ("b", ("de", "ta"), 100)
    assert of(a_few, many, ("c", ("en", "ta"), 95)) == {("de", "ta"), ("en", "ta")}
    # It is their number that counts, not that of languages; of equals the first by name.
    assert of(many, ("c", ("en", "sw"), 30), ("d", ("en", "fr"), 30), ("e", ("en", "el"), 30)) == {("de", "ta")}
    assert of(("c", ("sw", "en"), 5)) == {("en", "sw")}
    assert pair_counts(shards(bitexts=[]), "most") == {}


def test_nothing_gives_nothing() -> None:
    assert rates(shards(bitexts=[]), "pairs", Sampling(pivot="most")) == {}
    assert rates(shards(), "text", Sampling()) == {}
    assert rates(shards(bitexts=[]), "pairs", Sampling()) == {}
    assert rates(shards(bitexts=[("c", ("a", "b"), 0)]), "pairs", Sampling()) == {}


def test_a_focus_takes_its_share_of_text_and_of_the_corpora_of_its_pairs() -> None:
    held, sampling = shards({"en": 1000, "sw": 10, "ta": 30}), Sampling(focus="swh", replay=0.2)
    assert rates(held, "text", sampling)["sw"] == pytest.approx(0.8)
    found = rates(held, "pairs", sampling)
    assert sum(rate for name, rate in found.items() if "sw" in name) == pytest.approx(0.8)
    assert found["opus.de-en de-en"] == pytest.approx(3 * found["bible en-de"])
    assert sum(found.values()) == pytest.approx(1)


def test_a_focus_that_is_only_in_pairs_leaves_text_as_it_was() -> None:
    held = shards({"en": 1000, "de": 10, "sw": 0})
    assert rates(held, "text", Sampling(focus="sw")) == rates(held, "text", Sampling())


@pytest.mark.parametrize("stream", ["text", "pairs"])
@pytest.mark.parametrize(
    ("focus", "message"),
    [
        ("sw,sv", "shards: sampling.focus=sv is not in these shards; did you mean 'sw'?"),
        (
            "fr",
            "shards: sampling.focus=fr is not in these shards; valid: de, en, ja, sw, ta",
        ),  # its only corpus is empty
    ],
)
def test_a_focus_that_is_not_there_is_named(stream: str, focus: str, message: str) -> None:
    with pytest.raises(BadInput) as caught:
        rates(shards({"en": 5, "ja": 7, "yo": 0}), stream, Sampling(focus=focus))
    assert str(caught.value) == message
