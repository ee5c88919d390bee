"""Sentences are read from every layout, without labels and identifiers."""

from __future__ import annotations

import gzip
import json
import lzma
from pathlib import Path

import pytest

from crossling.cleaning.contamination import find_benchmark_files
from crossling.core.errors import BadInput

ONE = "The first sentence of this benchmark."
TWO = "Here follows the second sentence."
QA = {
    "version": "1.1",
    "data": [
        {
            "title": "Short",
            "paragraphs": [
                {
                    "context": f"{ONE} {TWO}",
                    "qas": [
                        {"id": "56beb4343aeaaa14008c925b", "question": "What is this sentence about?", "answers": []}
                    ],
                }
            ],
        }
    ],
}
COLUMNS = "The\tDET\nfirst\tADJ\nsentence\tNOUN\nof\tADP\nthis\tDET\nbenchmark\tNOUN\n.\tPUNCT\n\n"
LAYOUTS = {
    "tatoeba/v1/tatoeba.afr-eng.afr": (f"{ONE}\n{TWO}\nShort.\n", "af", [ONE, TWO]),
    "word-alignment/deen/deen.src-tgt": (f"{ONE} ||| {TWO}\n", "de-en", [ONE, TWO]),
    "xnli/test-sw.tsv.gz": (f"{ONE}\t{TWO}\tentailment\n", "sw", [ONE, TWO]),
    "glue/MRPC/dev.tsv": (f"\ufeffQuality\t#1 ID\t#1 String\n1\t1355540\t{ONE}\n", "", [ONE]),
    "bucc2018/zh-en.dev.zh.xz": ("zh-000000001\t辽宁省简称辽旧称奉天省\n", "zh", ["辽宁省简称辽旧称奉天省"]),
    "xquad/xquad.el.json": (json.dumps(QA), "el", [ONE, TWO, "What is this sentence about?"]),
    "squad/train.json": (json.dumps(QA, indent=1), "", [ONE, TWO, "What is this sentence about?"]),
    "xcopa/sw/val.sw.jsonl": (
        "".join(json.dumps({"premise": text, "label": 0}) + "\n" for text in (ONE, TWO)),
        "sw",
        [ONE, TWO],
    ),
    "chemprot/dev.txt": (json.dumps({"text": ONE, "label": "INHIBITOR-OF-SOMETHING-ELSE"}), "", [ONE]),
    "udpos/test-af.tsv": (COLUMNS, "af", ["The first sentence of this benchmark ."]),
    "masakhaner/hau/test.txt": (COLUMNS.replace("\t", " "), "ha", ["The first sentence of this benchmark ."]),
    "conll2002/esp.testa": (
        COLUMNS.replace("\t", " ").replace("\n", " O\n").replace("\n O", "\n"),
        "es",
        ["The first sentence of this benchmark ."],
    ),
    "wikineural/de/test.conllu": (
        "".join(f"{n}\t{w}\tO\n" for n, w in enumerate(ONE.split())) + "\n",
        "de",
        ["The first sentence of this benchmark."],
    ),
    "ud/UD_French-GSD/fr_gsd-ud-test.conllu": (
        f"# sent_id = 1\n# text = {ONE}\n1-2\tdu\t_\n1\tde\t_\n2\tle\t_\n\n",
        "fr",
        [ONE],
    ),
    "mlqa/dev-context-ar-question-en.json": (json.dumps(QA), "ar-en", [ONE, TWO, "What is this sentence about?"]),
    "labels/test.tsv": (f"{'0123456789abcdef' * 2}\thttp://example.org/a/long/address\n", "", []),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_sentences_of_every_layout_are_found(name: str, tmp_path: Path) -> None:
    content, language, expected = LAYOUTS[name]
    file = tmp_path / name
    file.parent.mkdir(parents=True)
    pack = {".gz": gzip.compress, ".xz": lzma.compress}.get(file.suffix, bytes)
    file.write_bytes(pack(content.encode()))
    [benchmark] = find_benchmark_files(tmp_path)
    assert benchmark.name == name.split("/")[0]
    assert benchmark.language == language
    assert [sentence for sentence, _ in benchmark.sentences()] == expected


def test_tokens_and_their_sentence_have_the_same_form(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text(COLUMNS)
    (tmp_path / "b.txt").write_text(ONE)
    forms = [form for benchmark in find_benchmark_files(tmp_path) for _, form in benchmark.sentences()]
    assert forms == ["thefirstsentenceofthisbenchmark"] * 2


def test_notes_labels_and_programs_are_skipped(tmp_path: Path) -> None:
    for name in ("README", "README.md", "LICENSE", "NOTICE", "a.gold", "rows.ids.xz", ".hidden", "load.py"):
        (tmp_path / name).write_text(ONE)
    assert find_benchmark_files(tmp_path) == []


def test_the_folder_of_one_benchmark_is_accepted(tmp_path: Path) -> None:
    (tmp_path / "xnli").mkdir()
    (tmp_path / "xnli" / "test-sw.tsv").write_text(ONE)
    assert [file.name for file in find_benchmark_files(tmp_path / "xnli")] == ["xnli"]


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="absent: folder not found"):
        find_benchmark_files(tmp_path / "absent")
