"""The files that pages start from: `% files: corpora shards run`. Each is made once for all test processes."""

from __future__ import annotations

import lzma
import shutil
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock

import crossling as xl
from tests.conftest import SMALL_MODEL

from .published_files import write_downloads, write_large_shards, write_xlm_r

EXAMPLES = Path(__file__).parents[2] / "examples" / "data"


def prepare(names: tuple[str, ...], folder: Path, cache: Path) -> None:
    """Copy prepared files into the folder of a page."""
    for name in names:
        made = _make(name, cache)
        copy: Callable[..., object] = shutil.copytree if made.is_dir() else shutil.copy
        copy(made, folder / name)


def _make(name: str, cache: Path) -> Path:
    with FileLock(f"{cache}.lock"):
        if not (cache / name).exists():
            cache.mkdir(exist_ok=True)
            _MAKERS[name](cache)
    return cache / name


def _read_pairs(name: str, count: int) -> list[tuple[str, str]]:
    with lzma.open(EXAMPLES / name, "rt", encoding="utf-8") as file:
        rows = [line.rstrip("\n").split("\t") for line in file]
    return [(source, target) for source, target in rows[:: len(rows) // count][:count]]


def _write(path: Path, lines: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def _corpora(cache: Path) -> None:
    folder = cache / "corpora"
    for language in ("de", "is"):
        pairs = _read_pairs(f"en-{language}.tsv.xz", 600)
        _write(folder / f"pairs/en-{language}.tsv", ["\t".join(pair) for pair in pairs])
        _write(folder / f"text/{language}.txt", [target for _, target in pairs])
        if language == "de":
            _write(folder / "text/en.txt", [source for source, _ in pairs])


def _benchmark(cache: Path) -> None:
    """Write sentences that `_corpora` does not contain, in the layout of Tatoeba."""
    for language, code in (("de", "deu"), ("is", "isl")):
        with lzma.open(EXAMPLES / f"en-{language}.tsv.xz", "rt", encoding="utf-8") as file:
            rows = [line.rstrip("\n").split("\t") for line in file]
        rows = rows[3 :: len(rows) // 100][:100]
        for column, name in enumerate(("eng", code)):
            _write(cache / f"benchmark/tatoeba/v1/tatoeba.{code}-eng.{name}", [row[column] for row in rows])


def _synthetic(cache: Path) -> None:
    xl.synth(cache / "synth", languages=3, sentences=200, lemmas=300, test_sentences=12, alignment_sentences=6)
    shutil.move(cache / "synth" / "corpora", cache / "synth-corpora")
    shutil.move(cache / "synth" / "data", cache / "data")


def _vocabulary(cache: Path) -> None:
    xl.vocab(_make_inside("synth-corpora", cache), cache / "vocab", size=400)


def _shards(cache: Path) -> None:
    xl.tokenize(_make_inside("synth-corpora", cache), _make_inside("vocab", cache), cache / "shards")


def _run(cache: Path) -> None:
    sizes = ("mlm.tokens=256", "tlm.tokens=256", "xlco.pairs=8", "mlm.length=48", "tlm.length=48", "xlco.length=48")
    recipe = xl.recipes.rosetta("tiny").set([*SMALL_MODEL, *sizes, "steps=6", "optimizer.warmup=2", "log_every=2"])
    xl.pretrain(recipe, _make_inside("shards", cache), cache / "run")


def _downloads(cache: Path) -> None:
    write_downloads(
        cache / "downloads", _make_inside("synth-corpora", cache), _make_inside("data", cache) / "translation"
    )


def _make_inside(name: str, cache: Path) -> Path:
    """Make a file that another one needs. The lock is held."""
    if not (cache / name).exists():
        _MAKERS[name](cache)
    return cache / name


def _sentences(cache: Path) -> None:
    pairs = _read_pairs("en-de.tsv.xz", 20)
    _write(cache / "english.txt", [source for source, _ in pairs])
    _write(cache / "german.txt", [target for _, target in reversed(pairs)])
    _write(cache / "pairs.txt", [f"{source} ||| {target}" for source, target in pairs[:3]])


def _examples(cache: Path) -> None:
    shutil.copytree(EXAMPLES.parent, cache / "examples", ignore=shutil.ignore_patterns("__pycache__"))


_MAKERS: dict[str, Callable[[Path], None]] = {
    **{
        "corpora": _corpora,
        "benchmark": _benchmark,
        "synth-corpora": _synthetic,
        "data": _synthetic,
        "vocab": _vocabulary,
        "shards": _shards,
    },
    **{
        "examples": _examples,
        "run": _run,
        "downloads": _downloads,
        "xlm-roberta-base": lambda cache: write_xlm_r(cache / "xlm-roberta-base", _make_inside("shards", cache), 12),
        "xlm-roberta-large": lambda cache: write_xlm_r(cache / "xlm-roberta-large", _make_inside("shards", cache), 24),
        "large-shards": lambda cache: write_large_shards(cache / "large-shards", 250_002),
        "large-shards-500k": lambda cache: write_large_shards(cache / "large-shards-500k", 500_002),
        "pairs.txt": _sentences,
        "english.txt": _sentences,
        "german.txt": _sentences,
    },
}
