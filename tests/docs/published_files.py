"""Miniatures of what docs/reproduce starts from: the papers' corpora as they are published, and XLM-R.

File names, archives, compression and columns are those of the publishers. The sentences are of synthetic languages.
"""

from __future__ import annotations

import gzip
import io
import lzma
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

import crossling as xl
from crossling.core.files import write_json
from crossling.data.shards import SHARD_FORMAT
from tests.conftest import SMALL_MODEL

SYNTHETIC = {"en": "qaa", "de": "qab", "fr": "qac", "hi": "qac", "zh": "qac"}  # whose text a language gets
GIGA_FREN = "giga-fren.release2.fixed"
NEWSTESTS = ("newstest2012", "newstest2013")
Rows = list[tuple[str, str]]


# ---- corpora ------------------------------------------------------------------------------------------------


def write_downloads(folder: Path, synthetic: Path, translation: Path) -> None:
    """Write the papers' corpora.

    Args:
        folder: Gets a folder for each collection.
        synthetic: Corpora of synthetic languages.
        translation: Parallel text of these languages, with dev and test sets.
    """
    for name, language in (("en", "en"), ("de", "de"), ("hi", "hi"), ("zh-Hans", "zh")):
        text = (synthetic / f"text/{SYNTHETIC[language]}.txt").read_bytes()
        _write(folder / f"cc-100/{name}.txt.xz", lzma.compress(text))
    for pair in ("de-en", "en-zh"):
        moses = _moses("MultiUN", pair, _read_rows(synthetic, pair, 0))
        _write(folder / f"multiun/{pair}.txt.zip", _zip({"README": "MultiUN", "LICENSE": "free", **moses}))
    for pair in ("de-en", "de-zh", "en-hi"):
        moses = {**_moses("OpenSubtitles", pair, _read_rows(synthetic, pair, 0)), f"OpenSubtitles.{pair}.ids": "1"}
        _write(folder / f"opus/{pair}.txt.zip", _zip({"README": "OpenSubtitles", **moses}))
    _write(folder / "iitb/parallel.tgz", _tgz(_moses("parallel/IITB", "en-hi", _read_rows(synthetic, "en-hi", 1))))
    for pair in ("de-en", "en-hi", "en-zh"):
        rows = "".join(f"1.07\t{source}\t{target}\n" for source, target in _read_rows(synthetic, pair, 2))
        _write(folder / f"wikimatrix/WikiMatrix.{pair}.tsv.gz", gzip.compress(rows.encode()))
    for name, pair in (("de_DE-en_XX", "de-en"), ("en_XX-hi_IN", "en-hi"), ("en_XX-zh_CN", "en-zh")):
        rows = "".join(f"{source}\t{target}\t1.12\n" for source, target in _read_rows(synthetic, pair, 3))
        _write(folder / f"ccaligned/{name}.tsv.xz", lzma.compress(rows.encode()))
    for pair in ("de-en", "de-zh", "en-zh"):
        rows = "".join(f"1.25\t{source}\t{target}\n" for source, target in _read_rows(synthetic, pair, 0))
        _write(folder / f"ccmatrix/{pair}.bitextf.tsv.gz", gzip.compress(rows.encode()))
    _write_wmt14(folder / "wmt14", synthetic, translation)


def _write_wmt14(folder: Path, synthetic: Path, translation: Path) -> None:
    names = {
        "training-parallel-europarl-v7.tgz": "training/europarl-v7",
        "training-parallel-commoncrawl.tgz": "commoncrawl",
        "training-parallel-nc-v9.tgz": "training/news-commentary-v9",
    }
    for part, (archive, name) in enumerate(names.items()):
        files = [_moses(name, pair, _read_rows(synthetic, pair, part)) for pair in ("de-en", "fr-en")]
        _write(folder / archive, _tgz(files[0] | files[1]))
    rows = _read_rows(synthetic, "fr-en", 3)
    _write(folder / "training-parallel-un.tgz", _tgz(_moses("un/undoc.2000", "fr-en", rows)))
    giga = {name.replace(".fr-en", "") + ".gz": text for name, text in _moses(GIGA_FREN, "fr-en", rows).items()}
    _write(folder / "training-giga-fren.tar", _tgz({name: gzip.compress(text.encode()) for name, text in giga.items()}))
    dev = {f"dev/{year}.{code}": _lines(translation, "dev", code) for year in NEWSTESTS for code in ("de", "en", "fr")}
    _write(folder / "dev.tgz", _tgz({name: "\n".join(lines) + "\n" for name, lines in dev.items()}))
    sides = [("deen-src", "en"), ("deen-ref", "de"), ("fren-src", "en"), ("fren-ref", "fr")]
    test = {
        f"test-full/newstest2014-{kind}.{code}.sgm": _sgm(_lines(translation, "test", code)) for kind, code in sides
    }
    _write(folder / "test-full.tgz", _tgz(test))


def _lines(translation: Path, split: str, language: str) -> list[str]:
    return (translation / f"{split}.{SYNTHETIC[language]}").read_text(encoding="utf-8").splitlines()


def _read_rows(synthetic: Path, pair: str, part: int) -> Rows:
    """Return a quarter of the sentence pairs of two languages."""
    source, target = (SYNTHETIC[code] for code in pair.split("-"))
    file = synthetic / f"pairs/synthetic.{min(source, target)}-{max(source, target)}.tsv"
    rows = [line.split("\t") for line in file.read_text(encoding="utf-8").splitlines()][part::4]
    return [(one, other) if source < target else (other, one) for one, other in rows]


def _moses(name: str, pair: str, rows: Rows) -> dict[str, str]:
    return {
        f"{name}.{pair}.{code}": "".join(f"{row[side]}\n" for row in rows) for side, code in enumerate(pair.split("-"))
    }


def _sgm(lines: list[str]) -> str:
    segments = "".join(f'<seg id="{number}">{line}</seg>\n' for number, line in enumerate(lines, 1))
    return f'<srcset setid="newstest2014" srclang="any">\n<doc docid="1">\n<p>\n{segments}</p>\n</doc>\n</srcset>\n'


def _zip(files: dict[str, str]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return buffer.getvalue()


def _tgz(files: Mapping[str, str | bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, text in files.items():
            content = text.encode() if isinstance(text, str) else text
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


# ---- models and shards ---------------------------------------------------------------------------------------


def write_xlm_r(folder: Path, shards: Path, layers: int) -> None:
    """Write a model with the architecture, tokenizer and files of XLM-R, 16 wide."""
    small = [*SMALL_MODEL, f"model.layers={layers}", "model.max_length=512"]
    recipe = xl.recipes.xlm_r("tiny").set([*small, "mlm.tokens=128", "steps=2", "optimizer.warmup=1"])
    run = folder.with_name(f"{folder.name}-run")
    xl.pretrain(recipe, shards, run)
    xl.export(run, folder, as_="xlm-roberta")


def write_large_shards(folder: Path, vocabulary_size: int) -> None:
    """Write shards by their manifest alone, for `crossling plan`: its costs depend on counts.

    Sentences have 25 tokens, documents 20 sentences, and each side of a pair 28 tokens.
    """
    pairs = [("de", "en"), ("de", "fr"), ("en", "fr")]
    text = {
        language: {"tokens": sentences * 25, "sentences": sentences, "documents": sentences // 20}
        for language, sentences in (("de", 10**9), ("en", 3 * 10**9), ("fr", 10**9))
    }
    entries = {f"opus.{a}-{b}": {"languages": [a, b], "pairs": 10**8, "tokens": [28 * 10**8] * 2} for a, b in pairs}
    for name, entry in entries.items():
        (folder / "pairs" / name).mkdir(parents=True)
        for language in entry["languages"]:
            np.save(folder / "pairs" / name / f"{language}.tokens.npy", np.zeros(1, np.uint32))
            np.save(folder / "pairs" / name / f"{language}.offsets.npy", np.zeros(2, np.int64))
    vocabulary = {"size": vocabulary_size, "fingerprint": folder.name}
    _write(folder / "vocab/sentencepiece.model", b"")
    manifest = {"format": SHARD_FORMAT, "fingerprint": folder.name, "vocabulary": vocabulary}
    write_json(folder / "manifest.json", {**manifest, "text": text, "pairs": entries, "multi": {}})
