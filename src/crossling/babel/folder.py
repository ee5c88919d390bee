"""The folder of one constructed family of languages: writing it, and reading its frames back."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from crossling.babel.benchmarks import write_alignment, write_retrieval
from crossling.babel.corpora import MULTI, Corpora
from crossling.babel.domain import DOMAINS, GENERAL
from crossling.babel.frame import Frame
from crossling.babel.heldout import ALIGNMENT, RETRIEVAL, HeldOut
from crossling.babel.language import Language, found_languages
from crossling.babel.noise import Noise
from crossling.babel.resources import FALL, Resources
from crossling.babel.story import documents
from crossling.babel.world import World
from crossling.disk import new_folder, write_json
from crossling.errors import BadInput, nearest

CARD = "babel.json"
LANGUAGES = range(2, 41)
LEMMAS = range(300, 10_001)
FEWEST_SENTENCES = 50


def babel(
    out: Path,
    languages: int = 6,
    sentences: int = 20_000,
    seed: int = 0,
    lemmas: int = 400,
    noise: Noise = Noise(),  # noqa: B008 - frozen
    test_sentences: int = 400,
    alignment_sentences: int = 100,
    domain: str = GENERAL.name,
) -> Path:
    """Invents `languages` languages and writes their corpora, benchmarks and truth into the folder `out`.

    `sentences` is the monolingual text of the best-resourced language. The languages are those of `seed`, `lemmas` and
    their number, in every `domain` (general, science). The same arguments give the same bytes, so a
    folder that was written with them is left as it is; any other folder that is not empty is refused.
    """
    out = Path(out)
    arguments = {"seed": seed, "lemmas": lemmas, "sentences": sentences, "noise": asdict(noise)}
    arguments |= {RETRIEVAL: test_sentences, ALIGNMENT: alignment_sentences, "domain": domain}
    _check(languages, sentences, lemmas, test_sentences, alignment_sentences, domain)
    if _is_there(out, languages, arguments):
        return out
    world = World(lemmas, seed, DOMAINS[domain])
    spoken = found_languages(languages, world, seed)
    resources = Resources.plan([language.code for language in spoken], sentences)
    heldout = HeldOut(world, spoken, seed, {RETRIEVAL: test_sentences, ALIGNMENT: alignment_sentences})
    with new_folder(out) as folder:
        corpora = Corpora(folder / "corpora", world, seed, heldout)
        by_code = {language.code: language for language in spoken}
        for code, count in resources.text.items():
            corpora.text(by_code[code], count)
        damaged = [
            row
            for (a, b), count in resources.pairs.items()
            for row in corpora.pair(by_code[a], by_code[b], count, noise)
        ]
        corpora.multi(spoken, resources)
        pairs = list(resources.pairs)
        write_retrieval(folder / "data" / "tatoeba" / "v1", pairs, heldout.remaining(RETRIEVAL))
        write_alignment(folder / "data" / "word-alignment", pairs, heldout.remaining(ALIGNMENT))
        _write_lines(folder / "truth" / "noise.jsonl.gz", damaged)
        _write_lines(
            folder / "truth" / "frames.jsonl.gz",
            (
                {"split": split, "frame": candidate.frame.to_json()}
                for split in (RETRIEVAL, ALIGNMENT)
                for candidate in heldout.remaining(split)
            ),
        )
        write_json(folder / CARD, _card(arguments, world, spoken, resources))
    return out


def frames(out: Path, part: str) -> Iterator[Frame]:
    """The frames of one part of a babel folder, one for each sentence, in the order of its files.

    Parts: `text/CODE`, `pairs/CODE-CODE` (as the rows were before noise), `multi`, `retrieval` and `alignment`.
    """
    card_path = Path(out) / CARD
    if not card_path.is_file():
        raise BadInput(f"{out}: not a babel folder, it has no {CARD}; make one with crossling babel")
    card = _read_card(card_path)
    counts = {f"text/{one['code']}": one["sentences"] for one in card["languages"]}
    counts |= {f"pairs/{name}": rows for name, rows in card["pairs"].items()} | {MULTI: card["multi"]}
    if part in (RETRIEVAL, ALIGNMENT):
        with gzip.open(Path(out) / "truth" / "frames.jsonl.gz", "rt", encoding="utf-8") as lines:
            kept = [json.loads(line) for line in lines]
        return (Frame.from_json(one["frame"]) for one in kept if one["split"] == part)
    if part not in counts:
        raise BadInput(f"{out}: there is no part {part!r}{nearest(part, [*counts, RETRIEVAL, ALIGNMENT])}")
    world = World(card["lemmas"], card["seed"], DOMAINS[card["domain"]])
    return (frame for document in documents(world, card["seed"], part, counts[part]) for frame in document)


def _is_there(out: Path, languages: int, arguments: dict[str, Any]) -> bool:
    """Whether just this family lies in `out` already; another one, or anything else, must not be written over."""
    if out.is_file():
        raise BadInput(f"{out}: this is a file, expected a folder to write to")
    if not out.is_dir() or not any(out.iterdir()):
        return False
    try:
        card = _read_card(out / CARD)
        known = {name: card[name] for name in arguments}
        spoken = len(card["languages"])
    except (OSError, ValueError, KeyError, TypeError):
        raise BadInput(f"{out}: the folder is not empty and not an earlier babel folder; give another one") from None
    if (known, spoken) != (arguments, languages):
        raise BadInput(f"{out}: holds languages made with other arguments (see {CARD}); give another folder")
    return True


def _check(languages: int, sentences: int, lemmas: int, test: int, alignment: int, domain: str) -> None:
    if languages not in LANGUAGES:
        raise BadInput(f"languages: {languages} given, expected {LANGUAGES[0]} to {LANGUAGES[-1]}")
    if lemmas not in LEMMAS:
        raise BadInput(f"lemmas: {lemmas} given, expected {LEMMAS[0]} to {LEMMAS[-1]}")
    if sentences < FEWEST_SENTENCES:
        raise BadInput(f"sentences: {sentences} given, expected at least {FEWEST_SENTENCES}")
    if test < 1 or alignment < 1:
        raise BadInput(f"test sentences: {test} and {alignment} given, expected at least 1 of each")
    if domain not in DOMAINS:
        raise BadInput(f"domain: there is no {domain!r}{nearest(domain, DOMAINS)}")


def _read_card(path: Path) -> dict[str, Any]:
    """What was written; a card that says nothing of a domain is of a general folder."""
    return {"domain": GENERAL.name} | json.loads(path.read_text(encoding="utf-8"))


def _card(arguments: dict[str, Any], world: World, languages: list[Language], resources: Resources) -> dict[str, Any]:
    if world.domain is GENERAL:
        arguments = {name: value for name, value in arguments.items() if name != "domain"}
    return arguments | {
        "languages": [
            {
                "code": one.code,
                "family": one.family,
                "script": one.script,
                "order": one.grammar.order,
                "morphology": one.grammar.morphology,
                "lemmas": len({stem for concept in world.lemmas for stem in one.lexicon.stems[concept]}),
                "sentences": resources.text[one.code],
                "multi_share": resources.coverage[one.code],
            }
            for one in languages
        ],
        "pairs": {f"{a}-{b}": rows for (a, b), rows in resources.pairs.items()},
        "multi": resources.multi,
        "fall": FALL,
    }


def _write_lines(path: Path, values: Iterable[dict[str, Any]]) -> None:
    """JSON lines, compressed without the time of day that would make equal content differ."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = "".join(json.dumps(value, ensure_ascii=False) + "\n" for value in values)
    path.write_bytes(gzip.compress(content.encode("utf-8"), mtime=0))
