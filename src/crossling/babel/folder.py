"""The folder of one constructed family of languages: writing it, and reading its frames back."""

from __future__ import annotations

import gc
import gzip
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from crossling.babel.benchmarks import write_alignment, write_retrieval
from crossling.babel.corpora import MULTI, Corpora
from crossling.babel.domain import DOMAINS, GENERAL
from crossling.babel.family import Family
from crossling.babel.frame import Frame
from crossling.babel.heldout import ALIGNMENT, RETRIEVAL, HeldOut, Sentences
from crossling.babel.language import found_languages
from crossling.babel.noise import Noise
from crossling.babel.resources import FALL, Resources
from crossling.babel.story import documents
from crossling.babel.tasks import PARTS, Examples, Tasks
from crossling.babel.world import World
from crossling.disk import new_folder, write_json
from crossling.errors import BadInput, nearest

CARD = "babel.json"
EXAMPLES = "examples"
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
    examples: Examples | None = None,
) -> Path:
    """Invents `languages` languages and writes their corpora, benchmarks and truth into the folder `out`.

    `sentences` is the monolingual text of the best-resourced language, and the data sets have `examples` in proportion
    to it, if not said otherwise. The languages are those of `seed`, `lemmas` and their number, in every `domain`
    (general, science). The same arguments give the same bytes, so a
    folder that was written with them is left as it is; any other folder that is not empty is refused.
    """
    out = Path(out)
    arguments = {"seed": seed, "lemmas": lemmas, "sentences": sentences, "noise": asdict(noise)}
    arguments |= {RETRIEVAL: test_sentences, ALIGNMENT: alignment_sentences, "domain": domain}
    _check(languages, sentences, lemmas, test_sentences, alignment_sentences, domain)
    examples = examples or Examples.plan(sentences)
    arguments |= {EXAMPLES: asdict(examples)}
    if _is_there(out, languages, arguments):
        return out
    with new_folder(out) as folder, _no_collection():
        world = World(lemmas, seed, DOMAINS[domain])
        family = Family(world, found_languages(languages, world, seed), seed)
        resources = Resources.plan(family.codes, sentences)
        _write(folder, family, resources, {RETRIEVAL: test_sentences, ALIGNMENT: alignment_sentences}, examples, noise)
        write_json(folder / CARD, _card(arguments, family, resources))
    return out


def _write(
    folder: Path, family: Family, resources: Resources, tests: dict[str, int], examples: Examples, noise: Noise
) -> None:
    """Candidates for the benchmarks first; then the corpora, which may strike some out; then what is left of them."""
    heldout = HeldOut(family.codes)
    stories = Sentences(family.world, family.languages, family.seed, heldout)
    retrieval, alignment = (stories.gather(part, wanted) for part, wanted in tests.items())
    tasks = Tasks(family, examples, heldout)
    corpora = Corpora(folder / "corpora", family.world, family.seed, heldout)
    by_code = {language.code: language for language in family.languages}
    for code, count in resources.text.items():
        corpora.text(by_code[code], count)
    damaged = [
        row for (a, b), count in resources.pairs.items() for row in corpora.pair(by_code[a], by_code[b], count, noise)
    ]
    corpora.multi(family.languages, resources)
    pairs = list(resources.pairs)
    write_retrieval(folder / "data" / "tatoeba", pairs, retrieval.remaining())
    write_alignment(folder / "data" / "word-alignment", pairs, alignment.remaining())
    tasks.write(folder / "data")
    _write_lines(folder / "truth" / "noise.jsonl.gz", damaged)
    _write_frames(
        folder / "truth" / "frames.jsonl.gz",
        ((pool.part, one.frame) for pool in (retrieval, alignment) for one in pool.remaining()),
    )
    _write_frames(folder / "truth" / "examples.jsonl.gz", tasks.frames())


def frames(out: Path, part: str) -> Iterator[Frame]:
    """The frames of one part of a babel folder, one for each sentence, in the order of its files.

    Parts: `text/CODE`, `pairs/CODE-CODE` (as the rows were before noise), `multi`, `retrieval` and `alignment`; and
    the sets of examples by split, such as `xnli/test`: their sentences, each once, in the order they were made.
    """
    card_path = Path(out) / CARD
    if not card_path.is_file():
        raise BadInput(f"{out}: not a babel folder, it has no {CARD}; make one with crossling babel")
    card = _read_card(card_path)
    counts = {f"text/{one['code']}": one["sentences"] for one in card["languages"]}
    counts |= {f"pairs/{name}": rows for name, rows in card["pairs"].items()} | {MULTI: card["multi"]}
    if part in (RETRIEVAL, ALIGNMENT, *PARTS):
        name = "examples" if part in PARTS else "frames"
        with gzip.open(Path(out) / "truth" / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
            beginning = json.dumps({"split": part})[:-1] + ","
            kept = [json.loads(line)["frame"] for line in lines if line.startswith(beginning)]
        return map(Frame.from_json, kept)
    if part not in counts:
        raise BadInput(f"{out}: there is no part {part!r}{nearest(part, [*counts, RETRIEVAL, ALIGNMENT, *PARTS])}")
    world = World(card["lemmas"], card["seed"], DOMAINS[card["domain"]])
    return (frame for document in documents(world, card["seed"], part, counts[part]) for frame in document)


@contextmanager
def _no_collection() -> Iterator[None]:
    """Words and frames refer to each other in no circle, so the collector would find nothing; but it would walk over
    the millions of them again and again, for a third of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


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
    """What was written; a card that says nothing of a domain is of a general folder, one that says nothing of examples
    of a folder from before there were any."""
    return {"domain": GENERAL.name, EXAMPLES: None} | json.loads(path.read_text(encoding="utf-8"))


def _card(arguments: dict[str, Any], family: Family, resources: Resources) -> dict[str, Any]:
    if family.world.domain is GENERAL:
        arguments = {name: value for name, value in arguments.items() if name != "domain"}
    return arguments | {
        "pivot": family.pivot,
        "languages": [
            {
                "code": one.code,
                "family": one.family,
                "script": one.script,
                "order": one.grammar.order,
                "morphology": one.grammar.morphology,
                "lemmas": len({stem for concept in family.world.lemmas for stem in one.lexicon.stems[concept]}),
                "sentences": resources.text[one.code],
                "multi_share": resources.coverage[one.code],
            }
            for one in family.languages
        ],
        "pairs": {f"{a}-{b}": rows for (a, b), rows in resources.pairs.items()},
        "multi": resources.multi,
        "fall": FALL,
    }


def _write_frames(path: Path, parts: Iterable[tuple[str, Frame]]) -> None:
    _write_lines(path, ({"split": part, "frame": frame.to_json()} for part, frame in parts))


def _write_lines(path: Path, values: Iterable[dict[str, Any]]) -> None:
    """JSON lines, compressed without the time of day that would make equal content differ."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = "".join(json.dumps(value, ensure_ascii=False) + "\n" for value in values)
    path.write_bytes(gzip.compress(content.encode("utf-8"), mtime=0))
