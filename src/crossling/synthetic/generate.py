"""Write the folder of a synthetic language family, and read its frames."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from crossling.core.errors import BadInput, suggestion
from crossling.core.files import atomic_folder, write_json
from crossling.core.garbage_collection import pause_garbage_collection
from crossling.core.locks import output_lock
from crossling.synthetic.corpus_files import MULTI, RESOURCE_EXPONENT, BitextNoise, Resources, SyntheticCorpora
from crossling.synthetic.documents import documents
from crossling.synthetic.frames import Frame
from crossling.synthetic.heldout import ALIGNMENT, RETRIEVAL, HeldOut, gather_pools, write_alignment, write_retrieval
from crossling.synthetic.language import LanguageFamily, create_languages
from crossling.synthetic.task_folders import PARTS, ExampleCounts, SyntheticTasks
from crossling.synthetic.world import DOMAINS, GENERAL, World

CARD = "synthetic.json"
EXAMPLES = "examples"
LANGUAGES = range(2, 41)
LEMMAS = range(300, 10_001)
MIN_SENTENCES_TOTAL = 50


def synth(
    out: str | os.PathLike[str],
    languages: int = 6,
    sentences: int = 20_000,
    seed: int = 0,
    *,
    lemmas: int = 400,
    noise: BitextNoise = BitextNoise(),  # noqa: B008 - frozen
    test_sentences: int = 400,
    alignment_sentences: int = 100,
    domain: str = GENERAL.name,
    examples: ExampleCounts | None = None,
) -> Path:
    """Generate synthetic languages and write their corpora, benchmarks and ground truth.

    The same arguments give the same bytes. A folder that was written with them is kept; any other folder that is not
    empty is refused.

    Args:
        out: Folder to write: `corpora/`, `data/` and `truth/`.
        languages: Number of languages, 2 to 40.
        sentences: Monolingual sentences of the language with the most text.
        seed: Seed of the languages and of all text.
        lemmas: Size of the lexicon.
        noise: Proportions of noisy bitext. The options --wrong, --copies, --near-duplicates and --many-to-one are its
            fields.
        test_sentences: Sentences of the retrieval benchmark.
        alignment_sentences: Sentences of the word alignment benchmark.
        domain: `general` or `science`: other words and events in the same languages.
        examples: Number of examples of each task. The options --train, --dev and --test are its fields.
            [default: in proportion to `sentences`]

    Returns:
        The folder.

    Raises:
        BadInput: If an argument is out of range or `out` holds something else.

    Example:
        >>> synth("languages", languages=3, sentences=1000)  # doctest: +SKIP
    """
    out = Path(out)
    tests = {RETRIEVAL: test_sentences, ALIGNMENT: alignment_sentences}
    arguments = {"seed": seed, "lemmas": lemmas, "sentences": sentences, "noise": asdict(noise), **tests}
    _check_arguments(languages, sentences, lemmas, test_sentences, alignment_sentences, domain)
    examples = examples or ExampleCounts.plan(sentences)
    arguments |= {"domain": domain, EXAMPLES: asdict(examples)}
    if _is_finished(out, languages, arguments):
        return out
    with output_lock(out), atomic_folder(out) as folder, pause_garbage_collection():
        world = World(lemmas, seed, DOMAINS[domain])
        family = LanguageFamily(world, create_languages(languages, world, seed), seed)
        resources = Resources.plan(family.codes, sentences)
        _write_folder(folder, family, resources, tests, examples, noise)
        write_json(folder / CARD, _card(arguments, family, resources))
    return out


def _write_folder(
    folder: Path,
    family: LanguageFamily,
    resources: Resources,
    tests: dict[str, int],
    examples: ExampleCounts,
    noise: BitextNoise,
) -> None:
    """Sample benchmark candidates, write the corpora, which exclude some, then write the remaining candidates."""
    heldout = HeldOut(family.codes)
    retrieval, alignment = pools = gather_pools(family, heldout, tests)
    tasks = SyntheticTasks(family, examples, heldout)
    corpora = SyntheticCorpora(folder / "corpora", family, heldout)
    by_code = {language.code: language for language in family.languages}
    for code, count in resources.text.items():
        corpora.text(by_code[code], count)
    damaged = [
        row for (a, b), count in resources.pairs.items() for row in corpora.pair(by_code[a], by_code[b], count, noise)
    ]
    corpora.multi(resources)
    pairs = list(resources.pairs)
    write_retrieval(folder / "data" / "tatoeba", pairs, retrieval.remaining())
    write_alignment(folder / "data" / "word-alignment", pairs, alignment.remaining())
    tasks.write(folder / "data")
    _write_lines(folder / "truth" / "noise.jsonl.gz", damaged)
    sentences = ((pool.part, one.frame) for pool in pools for one in pool.remaining())
    _write_frames(folder / "truth" / "frames.jsonl.gz", sentences)
    _write_frames(folder / "truth" / "examples.jsonl.gz", tasks.frames())


def frames(out: Path, part: str) -> Iterator[Frame]:
    """Yield the frames of one part of a synthetic folder, one for each sentence, in file order.

    Parts are `text/CODE`, `pairs/CODE-CODE` (before noise), `multi`, `retrieval` and `alignment`. Tasks have parts by
    split, such as `xnli/test`, with each sentence once.
    """
    card_path = Path(out) / CARD
    if not card_path.is_file():
        raise BadInput(f"{out}: not a folder of synthetic languages: no {CARD} found. Make one with crossling synth.")
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
        raise BadInput(f"{out}: no part {part!r}{suggestion(part, [*counts, RETRIEVAL, ALIGNMENT, *PARTS])}")
    world = World(card["lemmas"], card["seed"], DOMAINS[card["domain"]])
    return (frame for document in documents(world, card["seed"], part, counts[part]) for frame in document)


def _is_finished(out: Path, languages: int, arguments: dict[str, Any]) -> bool:
    """Return whether `out` already holds this family. Refuse any other content."""
    if out.is_file():
        raise BadInput(f"{out}: a file, expected a folder. Give another path.")
    if not out.is_dir() or not any(out.iterdir()):
        return False
    try:
        card = _read_card(out / CARD)
        known = {name: card[name] for name in arguments}
        count = len(card["languages"])
    except (OSError, ValueError, KeyError, TypeError):
        raise BadInput(f"{out}: not empty, and not a folder of synthetic languages. Give another folder.") from None
    if (known, count) != (arguments, languages):
        raise BadInput(f"{out}: holds languages made with other arguments (see {CARD}). Give another folder.")
    return True


def _check_arguments(languages: int, sentences: int, lemmas: int, test: int, alignment: int, domain: str) -> None:
    for name, value, valid in (("languages", languages, LANGUAGES), ("lemmas", lemmas, LEMMAS)):
        if value not in valid:
            raise BadInput(f"{name}={value}: expected {valid[0]} to {valid[-1]}.")
    minimums = (("sentences", sentences, MIN_SENTENCES_TOTAL), ("test_sentences", test, 1))
    for name, value, minimum in (*minimums, ("alignment_sentences", alignment, 1)):
        if value < minimum:
            raise BadInput(f"{name}={value}: expected at least {minimum}.")
    if domain not in DOMAINS:
        raise BadInput(f"domain={domain}: unknown domain{suggestion(domain, DOMAINS)}")


def _read_card(path: Path) -> dict[str, Any]:
    """Read the description of a folder. The general domain is the default and is not stored."""
    card: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return {"domain": GENERAL.name, EXAMPLES: None} | card


def _card(arguments: dict[str, Any], family: LanguageFamily, resources: Resources) -> dict[str, Any]:
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
        "fall": RESOURCE_EXPONENT,
    }


def _write_frames(path: Path, parts: Iterable[tuple[str, Frame]]) -> None:
    _write_lines(path, ({"split": part, "frame": frame.to_json()} for part, frame in parts))


def _write_lines(path: Path, values: Iterable[dict[str, Any]]) -> None:
    """Write compressed JSON lines without a time stamp, so that equal content gives equal bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = "".join(json.dumps(value, ensure_ascii=False) + "\n" for value in values)
    path.write_bytes(gzip.compress(content.encode("utf-8"), mtime=0))
