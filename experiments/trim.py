"""Size and retrieval of encoders whose vocabulary is trimmed to two languages.

    python experiments/trim.py --text TEXT --tatoeba TATOEBA -o experiments/results/DATE-trim.json

Synthetic   a tiny model of four synthetic languages, trained here, is trimmed to two of them.
Real        the bundled model is trimmed to English and one language, by text of several sizes. TEXT has `LL.txt.xz` and
            TATOEBA has `tatoeba.XXX-eng.XXX`. Lines of the test are not used to trim.
Shapes      two encoders with random weights and XLM-R's 250,002 entries: sizes alone.

Every model is trimmed by `crossling export MODEL --trim`. Retrieval is the mean accuracy of both directions.
"""

from __future__ import annotations

import argparse
import lzma
import tempfile
from collections.abc import Iterable, Iterator
from datetime import date
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import XLMRobertaConfig, XLMRobertaModel

import crossling as xl
from crossling.core.files import read_json, write_json
from crossling.core.hardware import device_name
from crossling.vocabulary.text_normalization import default_charsmap
from crossling.vocabulary.vocabulary import SPECIAL, Vocabulary

LANGUAGES = {"de": "deu", "fi": "fin", "sw": "swh", "zh": "cmn"}
LINES = (2_000, 20_000, 200_000)  # of text in each language
STEPS = 150
ENTRIES, KEPT = 250_002, 16_384
SHAPES = {"XLM-R Base": (12, 768), "MiniLM, 12 layers": (12, 384)}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--text", type=Path, help="folder of LL.txt.xz")
    parser.add_argument("--tatoeba", type=Path, help="folder of tatoeba.XXX-eng.XXX")
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        parts = [measure_synthetic(work / "synthetic"), measure_shapes(work / "shapes")]
        if arguments.text and arguments.tatoeba:
            parts.insert(1, measure_real(work / "real", arguments.text, arguments.tatoeba))
        for part in parts:
            for row in part:
                rows.append(row)
                print(row, flush=True)
    about = {"date": str(date.today()), "device": device_name(torch.device("cpu")), "torch": torch.__version__}
    write_json(arguments.output, {**about, "crossling": xl.__version__, "rows": rows})


# ---- models -------------------------------------------------------------------------------------------------


def measure_synthetic(
    work: Path, steps: int = STEPS, sentences: int = 4000, size: int = 3000
) -> Iterator[dict[str, Any]]:
    """Yield the rows of a model that is trained here."""
    xl.synth(work / "languages", languages=4, sentences=sentences)
    corpora = work / "languages" / "corpora"
    xl.vocab(corpora, work / "vocab", size=size)
    shards = xl.tokenize(xl.Corpora(corpora), work / "vocab", work / "shards")
    short = [f"steps={steps}", "optimizer.warmup=0.1", "xlco.pairs=64", "mlm.tokens=1024", "tlm.tokens=1024"]
    xl.pretrain(xl.recipes.rosetta("tiny").set(short), shards, work / "run")
    model = xl.export(work / "run", work / "exported")
    for one, other in (("qaa", "qab"), ("qaa", "qac")):
        folder = work / "languages" / "data" / "tatoeba" / "v1"
        tests = find_pairs(folder, one, other)
        text = {code: read_lines(corpora / "text" / f"{code}.txt") for code in (one, other)}
        yield from measure(model, "synthetic tiny", {len(text[one]): text}, tests, work / f"{one}-{other}")


def measure_real(work: Path, text: Path, tatoeba: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of the bundled model."""
    for code, name in LANGUAGES.items():
        tests = find_pairs(tatoeba, name, "eng")
        excluded = {line for side in tests for line in side}
        texts = {}
        for lines in LINES:
            files = {each: read_lines(text / f"{each}.txt.xz", excluded) for each in (code, "en")}
            texts[lines] = {each: islice(found, lines) for each, found in files.items()}
        yield from measure("bundled", "bundled", texts, tests, work / code, f"{code}-en")


def measure_shapes(work: Path, rows: int = ENTRIES, kept: int = KEPT) -> Iterator[dict[str, Any]]:
    """Yield the sizes of encoders with random weights."""
    entries = {f"▁{number:x}": -10.0 - number / rows for number in range(rows - len(SPECIAL))}
    vocabulary = Vocabulary.from_scores(entries, default_charsmap())
    smaller = dict(islice(entries.items(), kept - len(SPECIAL)))
    Vocabulary.from_scores(smaller, default_charsmap()).save(work / "kept")
    for name, (layers, width) in SHAPES.items():
        model = work / name
        config = XLMRobertaConfig(
            vocab_size=rows, hidden_size=width, num_hidden_layers=layers, num_attention_heads=12,
            intermediate_size=4 * width, max_position_embeddings=514, type_vocab_size=1, pad_token_id=1,
        )  # fmt: skip
        XLMRobertaModel(config, add_pooling_layer=False).save_pretrained(model)
        vocabulary.tokenizer().save_pretrained(model)
        yield describe(model, name, "all", "as stored")
        for precision in ("single", "half"):
            out = xl.export(model, work / f"{name} {precision}", trim=work / "kept", precision=precision)
            yield describe(out, name, f"{kept:,} entries", precision)


# ---- measures -----------------------------------------------------------------------------------------------


def measure(
    model: str | Path, name: str, texts: dict[int, Any], tests: tuple[list[str], list[str]], work: Path, pair: str = ""
) -> Iterator[dict[str, Any]]:
    """Yield a row for the model, and for every amount of text that trims it; the largest in every precision."""
    about = {"pair": pair or work.name, "sentences": len(tests[0])}
    folder = Path(model) if Path(model).is_dir() else xl.bundled.folder()
    yield describe(folder, name, "all", "as stored") | about | score(folder, tests)
    for number, (lines, text) in enumerate(texts.items(), start=1):
        corpora = work / f"{lines}" / "text"
        corpora.mkdir(parents=True)
        for code, found in text.items():
            (corpora / f"{code}.txt").write_text("".join(f"{line}\n" for line in found), encoding="utf-8")
        for precision in (None, *(("half", "int8") if number == len(texts) else ())):
            out = xl.export(model, work / f"{lines} {precision}", trim=corpora.parent, precision=precision)
            row = describe(out, name, f"at most {lines:,} lines", precision or "as stored")
            yield row | about | score(out, tests)


def describe(folder: Path, name: str, text: str, precision: str) -> dict[str, Any]:
    """Return the sizes of a folder."""
    config = read_json(folder / "config.json")
    files = [file for file in folder.rglob("*") if file.is_file()]
    return {
        "model": name,
        "trimmed by": text,
        "precision": precision,
        "entries": config["vocab_size"],
        "weights MB": round((folder / "model.safetensors").stat().st_size / 1e6, 2),
        "folder MB": round(sum(file.stat().st_size for file in files) / 1e6, 2),
    }


def score(folder: Path, tests: tuple[list[str], list[str]]) -> dict[str, float]:
    """Return retrieval accuracy in percent, and tokens that are unknown in percent."""
    encoder = xl.load(folder, device="cpu", precision="float32")
    one_ND, other_ND = (encoder.encode(side, normalize_embeddings=True) for side in tests)
    scores_NN = one_ND @ other_ND.T
    number = np.arange(len(scores_NN))
    accuracy = np.mean([(scores_NN.argmax(axis) == number).mean() for axis in (0, 1)])
    ids = [token for side in tests for row in encoder.tokenizer(side)["input_ids"] for token in row]
    unknown = np.mean(np.array(ids) == encoder.tokenizer.unk_token_id)
    return {"retrieval": round(100 * float(accuracy), 2), "unknown": round(100 * float(unknown), 3)}


def find_pairs(folder: Path, one: str, other: str) -> tuple[list[str], list[str]]:
    """Return the sentences of `tatoeba.ONE-OTHER` in both languages, whichever comes first in the name."""
    for first, second in ((one, other), (other, one)):
        if (folder / f"tatoeba.{first}-{second}.{first}").is_file():
            stem = folder / f"tatoeba.{first}-{second}"
            return tuple([*read_lines(Path(f"{stem}.{code}"))] for code in (one, other))  # type: ignore[return-value]
    raise SystemExit(f"{folder}: no sentences of {one} and {other}")


def read_lines(file: Path, excluded: Iterable[str] = ()) -> Any:
    """Return the lines of a file: all of them, or of a compressed one an iterator without the excluded lines."""
    if file.suffix != ".xz":
        return file.read_text(encoding="utf-8").splitlines()
    skipped = {*excluded, ""}
    return (line for line in map(str.rstrip, lzma.open(file, "rt", encoding="utf-8")) if line not in skipped)


if __name__ == "__main__":
    main()
