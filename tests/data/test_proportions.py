"""Sampling probabilities of languages and of corpora in language pairs, from the counts of the shards."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from crossling.core.errors import BadInput
from crossling.data.example_sampler import pair_counts, sampling_probabilities
from crossling.sampling import Sampling, m2m, temperature_sampling, xy_lent

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


def test_text_probabilities_follow_the_tokens() -> None:
    found = sampling_probabilities(shards({"en": 1000, "sw": 10, "ta": 0}), "text", Sampling(text_alpha=0.5))
    assert found == temperature_sampling({"en": 1000, "sw": 10, "ta": 0}, 0.5)
    assert found["ta"] == 0


def test_pair_counts_sum_corpora_in_either_order() -> None:
    assert pair_counts(shards(), Sampling()) == {**COUNTS, ("fr", "ta"): 0}
    assert pair_counts(shards(), Sampling(pivot="sw")) == {pair: n for pair, n in COUNTS.items() if "sw" in pair}


@pytest.mark.parametrize("rule", ["alpha", "m2m", "xy_lent"])
def test_pairs_follow_the_rule_and_corpora_their_size(rule: Any) -> None:
    sampling = Sampling(pair_rule=rule, pair_alpha=0.2)
    expected = {"alpha": temperature_sampling(COUNTS, 0.2), "m2m": m2m(COUNTS, 5), "xy_lent": xy_lent(COUNTS, 5)}[rule]
    found = sampling_probabilities(shards(), "pairs", sampling)
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


def test_a_pivot_selects_its_pairs() -> None:
    found = sampling_probabilities(shards(), "pairs", Sampling(pivot="sw"))
    assert {*found} == {"bible en-sw", "bible de-sw", "news.sw-ta sw-ta"}
    assert sum(found.values()) == pytest.approx(1)
    assert sampling_probabilities(shards(), "pairs", Sampling(pivot="yo")) == {}


def test_the_most_paired_language_as_pivot() -> None:
    def of(*bitexts: tuple[str, tuple[str, str], int]) -> set[tuple[str, str]]:
        return {*pair_counts(shards(bitexts=[*bitexts]), Sampling(pivot="most"))}

    a_few, many = ("a", ("en", "sw"), 10), ("b", ("de", "ta"), 100)
    assert of(a_few, many, ("c", ("en", "ta"), 95)) == {("de", "ta"), ("en", "ta")}
    # Pairs are counted, not languages. Ties are broken by name.
    assert of(many, ("c", ("en", "sw"), 30), ("d", ("en", "fr"), 30), ("e", ("en", "el"), 30)) == {("de", "ta")}
    assert of(("c", ("sw", "en"), 5)) == {("en", "sw")}
    assert pair_counts(shards(bitexts=[]), Sampling(pivot="most")) == {}


def test_languages_select_text_and_the_pairs_of_two_of_them() -> None:
    held, sampling = shards({"en": 1000, "de": 500, "sw": 10}), Sampling(languages=" eng, swh,deu")
    assert {*sampling_probabilities(held, "text", sampling)} == {"en", "de", "sw"}
    assert {*pair_counts(held, sampling)} == {("de", "en"), ("en", "sw"), ("de", "sw")}
    two = Sampling(languages="en,sw")
    assert sampling_probabilities(held, "text", two) == temperature_sampling({"en": 1000, "sw": 10}, 0.7)
    assert sampling_probabilities(held, "pairs", two) == {"bible en-sw": 1}
    # The most paired language is counted among the selected pairs.
    assert {*pair_counts(held, Sampling(languages="de,sw,ta", pivot="most"))} == {("de", "sw"), ("de", "ta")}


def test_languages_without_text_or_pairs_are_an_error() -> None:
    held = shards({"en": 1000, "fr": 0})
    for languages, message in {
        "en,sw,sv": "shards: sampling.languages=sv is not in these shards; did you mean 'sw'?",
        "fr": "shards: sampling.languages=fr is not in these shards; valid: de, en, sw, ta",
        "english": "sampling.languages=english: 'english' is not a language code of ISO 639 or BCP 47",
    }.items():
        for stream in ("text", "pairs"):
            with pytest.raises(BadInput) as caught:
                sampling_probabilities(held, stream, Sampling(languages=languages))
            assert str(caught.value).startswith(message)


def test_empty_shards_have_no_probabilities() -> None:
    assert sampling_probabilities(shards(bitexts=[]), "pairs", Sampling(pivot="most")) == {}
    assert sampling_probabilities(shards(), "text", Sampling()) == {}
    assert sampling_probabilities(shards(bitexts=[]), "pairs", Sampling()) == {}
    assert sampling_probabilities(shards(bitexts=[("c", ("a", "b"), 0)]), "pairs", Sampling()) == {}


def test_a_focus_gets_its_fraction_of_text_and_pairs() -> None:
    held, sampling = shards({"en": 1000, "sw": 10, "ta": 30}), Sampling(focus="swh", replay=0.2)
    assert sampling_probabilities(held, "text", sampling)["sw"] == pytest.approx(0.8)
    found = sampling_probabilities(held, "pairs", sampling)
    assert sum(probability for name, probability in found.items() if "sw" in name) == pytest.approx(0.8)
    assert found["opus.de-en de-en"] == pytest.approx(3 * found["bible en-de"])
    assert sum(found.values()) == pytest.approx(1)


def test_a_focus_without_text_changes_no_text() -> None:
    held = shards({"en": 1000, "de": 10, "sw": 0})
    assert sampling_probabilities(held, "text", Sampling(focus="sw")) == sampling_probabilities(
        held, "text", Sampling()
    )


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
def test_a_missing_focus_is_an_error(stream: str, focus: str, message: str) -> None:
    with pytest.raises(BadInput) as caught:
        sampling_probabilities(shards({"en": 5, "ja": 7, "yo": 0}), stream, Sampling(focus=focus))
    assert str(caught.value) == message
