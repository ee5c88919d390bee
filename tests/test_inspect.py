"""What can be said of a run before it starts: rates, epochs, parameters, operations, and the page that shows them."""

from __future__ import annotations

import json
import re
import sys
from html.parser import HTMLParser
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from crossling import cli
from crossling.data.batches import Batches
from crossling.data.shards import Shards
from crossling.errors import BadInput
from crossling.inspect import inspect
from crossling.inspect.density import DOWNSTREAM, LEVELS, density, scale
from crossling.inspect.draws import Drawn
from crossling.inspect.plan import Plan
from crossling.inspect.tables import tables
from crossling.recipe import Recipe
from crossling.recipes import xlm_e
from crossling.sampling import Pair, m2m, tempered, xy_lent

WORKED = {("de", "en"): 800, ("en", "sw"): 40, ("en", "ta"): 60, ("de", "sw"): 10, ("de", "ta"): 20, ("sw", "ta"): 2}
STAR = {pair: n for pair, n in WORKED.items() if "en" in pair}
TEXT = {"en": 1_000_000, "de": 400_000, "sw": 30_000}


def shards_of(counts: dict[Pair, int], text: dict[str, int] | None = None) -> Any:
    """Shards as their manifest describes them; every sentence has ten tokens, every document a hundred sentences."""
    pairs = {
        f"opus.{a}-{b}": {"languages": [a, b], "pairs": n, "tokens": [10 * n, 10 * n]} for (a, b), n in counts.items()
    }
    of_text = {
        language: {"tokens": n, "sentences": n // 10, "documents": max(1, n // 1000)}
        for language, n in (TEXT if text is None else text).items()
    }
    bitexts = [SimpleNamespace(corpus=f"opus.{a}-{b}", languages=(a, b), pairs=n) for (a, b), n in counts.items()]
    manifest = {"text": of_text, "pairs": pairs, "multi": {}}
    return SimpleNamespace(path=Path("shards"), manifest=manifest, bitexts=bitexts, vocabulary_size=1000)


def recipe(*differences: str) -> Recipe:
    return xlm_e("tiny").set(["steps=100", "sampling.pair_alpha=0.2", *differences])


def drawn(plan: Plan, rule: str) -> Drawn[Pair]:
    found = plan.rules[rule]
    assert isinstance(found, Drawn)
    return found


def test_the_language_of_most_pairs_is_named() -> None:
    asked = {"most": "with the language of most pairs, de,", "en": "with en", None: "translation pairs"}
    for pivot, told in asked.items():
        counts = {**WORKED, ("de", "ta"): 2000}
        plan = inspect(recipe(*([f"sampling.pivot={pivot}"] if pivot else [])), shards_of(counts))
        assert plan.wanted_pairs.endswith(told)


# ---- rates and epochs ---------------------------------------------------------------------------------------


def test_every_rule_stands_beside_the_others() -> None:
    plan = inspect(recipe(), shards_of(WORKED))
    assert [*plan.rules] == ["alpha", "m2m", "xy_lent"]
    assert drawn(plan, "alpha").rates == tempered(WORKED, 0.2)
    assert drawn(plan, "m2m").rates == m2m(WORKED, 5)
    assert drawn(plan, "xy_lent").rates == xy_lent(WORKED, 5)
    assert plan.pairs == drawn(plan, "alpha")
    assert inspect(recipe("sampling.pair_rule=m2m"), shards_of(WORKED)).pairs == drawn(plan, "m2m")


def test_epochs_of_pairs_are_draws_over_what_there_is() -> None:
    plan = inspect(recipe(), shards_of(WORKED))
    assert plan.pairs is not None
    # <s> and two sentences of ten tokens are 21: so many pairs make the 4,096 tokens of a step.
    assert plan.loads["trtd"].length == pytest.approx(21, rel=1e-3)
    assert plan.loads["trtd"].examples == round(4096 / 21)
    draws = 100 * plan.loads["trtd"].examples
    for pair, n in WORKED.items():
        assert plan.pairs.epochs[pair] == pytest.approx(draws * plan.pairs.rates[pair] / n)
    assert plan.pairs.most_repeated == ("sw", "ta")


def test_objectives_on_the_same_pairs_add_up() -> None:
    one, two = (
        inspect(recipe(*more), shards_of(WORKED)) for more in ([], ["xlco=on", "xlco.pairs=95", "xlco.mixup=false"])
    )
    assert one.pairs is not None
    assert two.pairs is not None
    assert two.pairs.epochs["de", "en"] / one.pairs.epochs["de", "en"] == pytest.approx((195 + 95) / 195)
    assert two.tokens_per_step == pytest.approx(one.tokens_per_step + 95 * 21, rel=1e-3)


def test_long_sides_are_cut() -> None:
    shards = shards_of({("de", "en"): 10})
    shards.manifest["pairs"]["opus.de-en"]["tokens"] = [50000, 40]
    plan = inspect(recipe("trtd.length=64"), shards)
    assert plan.loads["trtd"].length == pytest.approx(1 + 31 + 4, rel=1e-3)


def test_a_multi_way_set_counts_its_filled_rows() -> None:
    shards = shards_of({})
    sides = {"de": {"rows": 100, "filled": 50, "tokens": 500}, "en": {"rows": 100, "filled": 20, "tokens": 600}}
    shards.manifest["multi"] = {"bible": {"languages": sides}}
    shards.bitexts.append(SimpleNamespace(corpus="bible", languages=("de", "en"), pairs=15))
    assert inspect(recipe(), shards).loads["trtd"].length == pytest.approx(1 + 10 + 30, rel=0.05)


def test_text_is_seen_as_often_as_its_tokens_fit_into_what_is_read() -> None:
    plan = inspect(recipe("trtd=off"), shards_of({}))
    assert plan.text is not None
    assert plan.rules == {}
    assert plan.pairs is None
    assert plan.text.rates == tempered(TEXT, 0.7)
    seen = sum(plan.text.epochs[language] * n for language, n in TEXT.items())
    length = plan.loads["mrtd"].length
    assert seen == pytest.approx(100 * 4096 * (length - 1) / length, rel=0.01)  # all but the <s> of every block
    assert plan.text.epochs["sw"] > plan.text.epochs["en"]


def test_a_recipe_without_text_says_nothing_of_it() -> None:
    plan = inspect(recipe("mrtd=off"), shards_of(WORKED))
    assert plan.text is None
    assert {*plan.dump()["rates"]} == {"pairs"}


@pytest.mark.parametrize("length", [24, 32, 64])
def test_loads_are_near_what_is_really_drawn(shards: Shards, full_recipe: Recipe, length: int) -> None:
    lengths = [f"mrtd.length={length}", "trtd.length=64", "xlco.length=64"]
    chosen = full_recipe.set(["mrtd.tokens=20000", "trtd.tokens=20000", *lengths])
    plan = inspect(chosen, shards)
    batches = Batches(shards, chosen.objectives, chosen.sampling, chosen.seed, chosen.micro_tokens)
    for name, load in plan.loads.items():
        assert load.examples == pytest.approx(batches.draws[name].number, rel=0.1)
    assert plan.tokens_per_step == pytest.approx(batches[0].tokens, rel=0.1)


def test_sparsity() -> None:
    rates = {("a", "b"): 0.5, ("a", "c"): 0.5, ("b", "c"): 0.0, ("c", "d"): 1e-13}
    found = Drawn(dict.fromkeys(rates, 10), rates, {pair: rate / 10 for pair, rate in rates.items()}, {})
    assert found.never == 0.5
    assert found.effective == pytest.approx(2)


# ---- where a rule cannot be had -----------------------------------------------------------------------------


def test_the_diagnosis_stands_in_place_of_the_rule_and_the_relaxed_one_beside_it() -> None:
    plan = inspect(recipe("sampling.pair_rule=xy_lent"), shards_of(STAR))
    assert [*plan.rules] == ["alpha", "m2m", "m2m relaxed", "xy_lent", "xy_lent relaxed"]
    assert "de, sw, ta should be 67.69% of all sentences drawn" in str(plan.rules["xy_lent"])
    assert drawn(plan, "xy_lent relaxed").rates == pytest.approx(tempered(STAR, 0.2))
    assert plan.pairs is None
    assert {*plan.loads} == {"mrtd", "trtd"}
    shown = plan.dump()
    assert shown["rules"]["xy_lent"] == {"cannot": plan.rules["xy_lent"]}
    assert "pairs" not in shown["rates"]


def test_relaxed_as_the_recipe_has_it() -> None:
    plan = inspect(recipe("sampling.pair_rule=xy_lent", "sampling.relax=true"), shards_of(STAR))
    assert plan.pairs == drawn(plan, "xy_lent relaxed")


def test_what_relaxing_costs_is_said() -> None:
    counts = {**STAR, ("de", "fr"): 900}
    plan = inspect(recipe("sampling.pair_alpha=0"), shards_of(counts))
    relaxed = drawn(plan, "xy_lent relaxed")
    assert relaxed.rates["de", "en"] == 0
    assert "1 of 4 pairs are never drawn" in relaxed.note


def test_a_pivot_leaves_a_star() -> None:
    plan = inspect(recipe("sampling.pivot=en"), shards_of(WORKED))
    assert {*drawn(plan, "alpha").rates} == {*STAR}
    assert isinstance(plan.rules["xy_lent"], str)


@pytest.mark.parametrize(
    ("counts", "text", "differences", "message"),
    [
        (WORKED, {}, [], "shards: the recipe needs text and these shards have none"),
        ({}, TEXT, [], "shards: the recipe needs translation pairs and these shards have none"),
        (WORKED, TEXT, ["sampling.pivot=yo"], "needs translation pairs with yo and these shards have none"),
        (WORKED, TEXT, ["steps=0"], "steps must be at least 1"),
    ],
)
def test_what_pretrain_would_refuse(
    counts: dict[Pair, int], text: dict[str, int], differences: list[str], message: str
) -> None:
    with pytest.raises(BadInput, match=message):
        inspect(recipe(*differences), shards_of(counts, text))


# ---- the page -----------------------------------------------------------------------------------------------


class Page(HTMLParser):
    """Checks that tags are closed in order, and gathers headings and text."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[str] = []
        self.headings: list[str] = []
        self.text = ""
        self.feed(page)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, _: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, _: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += f"{data} "
        if self.open and self.open[-1] == "h2":
            self.headings.append(data)


def page_of(plan_of: Any, out: Path, *differences: str) -> Page:
    inspect(recipe(*differences), plan_of, out)
    text = out.read_text(encoding="utf-8")
    assert not re.search(r"https?://|//[a-z]|url\(|@import|\bsrc=|<link|<script", text)
    return Page(text)


def test_the_page_shows_everything(tmp_path: Path) -> None:
    page = page_of(shards_of({**WORKED, ("en", "yo"): 5, ("de", "yo"): 3}), tmp_path / "page.html")
    benchmarks = ["Density, languages of the benchmarks", "Density, all languages"]
    assert page.headings == [
        "Memory and time as published",
        "Rules for pairs",
        *benchmarks,
        "Text",
        "Pairs",
        "The recipe",
    ]
    text = " ".join(page.text.split())
    assert "3 of the 21 languages of XNLI" in text  # ta and yo are not among them
    assert "5 languages (XY-LENT, Figure 6)" in text
    assert '"pair_alpha": 0.2' in text
    assert text.index("de-en 800") < text.index("en-ta 60") < text.index("sw-ta 2")
    assert page.tags.count("figure") == 6


def test_the_page_of_a_star_gives_the_reason(tmp_path: Path) -> None:
    page = page_of(shards_of(STAR), tmp_path / "page.html")
    text = " ".join(page.text.split())
    assert "xy_lent cannot be had. Sampling at temperature 5: de, sw, ta should be" in text
    assert "xy_lent relaxed 0.0 %" in text


def test_the_page_without_pairs_and_without_text(tmp_path: Path) -> None:
    assert page_of(shards_of({}), tmp_path / "a.html", "trtd=off").headings[1:] == ["Text", "The recipe"]
    assert "Text" not in page_of(shards_of(WORKED), tmp_path / "b.html", "mrtd=off").headings


def test_names_are_escaped(tmp_path: Path) -> None:
    shards = shards_of(WORKED)
    shards.path = Path("<script>x")
    page = page_of(shards, tmp_path / "page.html")
    assert "<script>x" in page.text


def test_a_page_of_all_languages_stays_small(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    languages = [*DOWNSTREAM, *(f"x{i:02}" for i in range(86))]
    pairs = [pair for pair in combinations(sorted(languages), 2) if rng.random() < 0.85]
    counts = {pair: int(n) for pair, n in zip(pairs, np.exp(rng.normal(11, 2, len(pairs))), strict=True)}
    assert len(counts) > 4700
    out = tmp_path / "page.html"
    inspect(recipe(), shards_of(counts), out)
    assert out.stat().st_size < 3_000_000


def test_a_page_is_html(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"page\.pdf: a page is written; give a name that ends in \.html"):
        inspect(recipe(), shards_of(WORKED), tmp_path / "page.pdf")
    assert not [*tmp_path.iterdir()]


def test_the_languages_of_the_benchmarks_are_those_of_the_paper() -> None:
    tables = {
        "XNLI": "en fr es de el bg ru tr ar vi th zh hi sw ur",
        "PAWS-X": "en de es fr ja ko zh",
        "XQuAD": "en ar de el es hi ru th tr vi zh",
        "MLQA": "en ar de es hi vi zh",
        "TyDiQA": "en ar bn fi id ko ru sw te",
    }
    assert {*DOWNSTREAM} == {language for languages in tables.values() for language in languages.split()}
    assert len(DOWNSTREAM) == 21


def test_density() -> None:
    rates = {("a", "b"): 0.8, ("a", "c"): 0.2, ("b", "c"): 0.0, ("c", "d"): 1e-9}
    colours = scale([rates])
    assert colours.level(0.4) == LEVELS
    assert 1 <= colours.level(0.5e-9) < colours.level(1e-4) < colours.level(0.1) < LEVELS
    drawing = density("rule", ["a", "b", "c"], rates, colours)
    cells = {outline: opacity for opacity, outline in drawing.filled}
    assert cells == {
        "M34 44h9v9h-9zM44 34h9v9h-9z": 1.0,
        "M34 54h9v9h-9zM54 34h9v9h-9z": pytest.approx(colours.level(0.1) / LEVELS),
    }
    assert drawing.never == "M44 54h9v9h-9zM54 44h9v9h-9z"  # c-d is not among the languages


# ---- the verb -----------------------------------------------------------------------------------------------


def crossling(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str | Path
) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["crossling", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return int(ended.value.code or 0), *capsys.readouterr()


def test_json(shards: Shards, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--size", "tiny", "--set", "sampling.pair_rule=xy_lent", "--json"]
    status, out, _ = crossling(monkeypatch, capsys, "inspect", "xlm_e", "--shards", shards.path, *options)
    assert status == 0
    found = json.loads(out)
    assert {"parameters", "flops_per_token", "rates", "epochs", "recipe", "rules"} <= {*found}
    assert {*found["flops_per_token"]} == {"full", "paper"}
    assert {*found["rates"]["text"]} == {"qaa", "qab", "qac"}
    assert {*found["rates"]["pairs"]} == {*found["epochs"]["pairs"]} == {"qaa-qab", "qaa-qac", "qab-qac"}
    assert found["recipe"]["sampling"]["pair_rule"] == "xy_lent"


def test_tables_and_a_page(
    shards: Shards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    options = ["--size", "tiny", "-o", page]
    status, out, _ = crossling(monkeypatch, capsys, "inspect", "xlm_e", "--shards", shards.path, *options)
    assert status == 0
    assert out.endswith(f"Open {page}\n")
    assert all(word in out for word in ("parameters", "FLOPs (full)", "qaa-qab", "xy_lent", "never drawn"))
    assert "Density, all languages" in Page(page.read_text(encoding="utf-8")).headings


def test_only_the_largest_are_printed() -> None:
    text = {f"l{i:02}": 1000 * (i + 1) for i in range(40)}
    found = [*tables(inspect(recipe("trtd=off"), shards_of({}, text)))]
    assert [table.row_count for table in found][1:] == [12, 3]
    assert found[1].caption == "and 28 smaller ones (--json, or -o page.html)"
