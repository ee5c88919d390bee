"""Files of the task data: names, sizes, parallel rows, and sentences that occur in one place only."""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from crossling import cli
from crossling.core.errors import BadInput
from crossling.synthetic import frames, synth
from crossling.synthetic.task_folders import PARTS, ExampleCounts

from .task_folder import CODES, LABELS, TABLES, TaskFolder

# ---- files --------------------------------------------------------------------------------------------------


def test_files_have_the_names_of_the_benchmarks(tasks: TaskFolder) -> None:
    expected = {f"{name}/train-qaa.tsv" for name in TABLES} | {"xquad/train-qaa.json"}
    for code in CODES:
        expected |= {f"{name}/{split}-{code}.tsv" for name in TABLES for split in ("dev", "test")}
        expected |= {f"xquad/dev-{code}.json", f"xquad/xquad.{code}.json"}
        into = "qaa" if code != "qaa" else "qab"
        for split in ("dev", "test"):
            expected |= {f"{name}/translated/{into}/{split}-{code}.tsv" for name in TABLES}
            expected |= {f"xquad/translated/{into}/{split}-{code}.json"}
        expected |= {f"translation/{split}.{code}" for split in ("train", "dev", "test")}
        if code != "qaa":
            expected |= {f"{name}/translated/{code}/train.tsv" for name in TABLES}
            expected |= {f"xquad/translated/{code}/train.json"}
            ends = (code, "qaa", "gold")
            expected |= {f"bucc2018/{code}-qaa.{split}.{end}" for split in ("dev", "test") for end in ends}
    files = {path.relative_to(tasks.data).as_posix() for path in tasks.data.rglob("*") if path.is_file()}
    assert {file for file in files if not file.startswith(("tatoeba", "word-alignment"))} == expected


def test_card_has_the_pivot_and_the_sizes(tasks: TaskFolder) -> None:
    card = json.loads((tasks.folder / "synthetic.json").read_text(encoding="utf-8"))
    assert card["pivot"] == max(card["languages"], key=lambda one: one["sentences"])["code"] == "qaa"
    assert card["examples"] == {"train": 600, "dev": 48, "test": 360}


@pytest.mark.parametrize(("split", "count"), [("train", 600), ("dev", 48), ("test", 360)])
def test_every_language_has_the_requested_number_of_examples(tasks: TaskFolder, split: str, count: int) -> None:
    for code in CODES:
        assert {len(tasks.rows(name, split, code)) for name in LABELS} == {count}
        assert {len(tasks.tagged(name, split, code)) for name in ("udpos", "panx")} == {count}
        assert sum(len(paragraph["qas"]) for paragraph in tasks.squad(split, code)) == count


def test_sizes_depend_on_the_text_and_are_whole_groups(tmp_path: Path) -> None:
    assert ExampleCounts.plan(20_000) == ExampleCounts(train=2000, dev=200, test=400)
    small = ExampleCounts.plan(50)
    folder = synth(
        tmp_path / "out", 2, 50, lemmas=300, test_sentences=5, alignment_sentences=5, examples=ExampleCounts(59, 24, 35)
    )
    card = json.loads((folder / "synthetic.json").read_text(encoding="utf-8"))
    assert card["examples"] == {"train": 59, "dev": small.dev, "test": 35}
    tasks = TaskFolder(folder, "general")
    assert [len(tasks.rows("xnli", split, "qab")) for split in ("train", "dev", "test")] == [48, 24, 24]
    assert [len(tasks.rows("pawsx", split, "qab")) for split in ("train", "dev", "test")] == [56, 24, 32]
    with pytest.raises(BadInput, match="other arguments"):
        synth(folder, 2, 50, lemmas=300, test_sentences=5, alignment_sentences=5)


def test_folder_without_task_data_is_refused(tmp_path: Path) -> None:
    folder = synth(tmp_path / "out", 2, 50, lemmas=300, test_sentences=5, alignment_sentences=5)
    card = json.loads((folder / "synthetic.json").read_text(encoding="utf-8"))
    old = {name: value for name, value in card.items() if name not in ("examples", "pivot")}
    (folder / "synthetic.json").write_text(json.dumps(old), encoding="utf-8")
    assert next(iter(frames(folder, "retrieval")))
    with pytest.raises(BadInput, match="other arguments"):
        synth(folder, 2, 50, lemmas=300, test_sentences=5, alignment_sentences=5)


@pytest.mark.parametrize("sizes", [(47, 24, 24), (48, 23, 24), (48, 24, 0)])
def test_too_few_examples_are_refused(sizes: tuple[int, int, int]) -> None:
    with pytest.raises(BadInput, match=r"must be at least [0-9]+, found [0-9]+\.$"):
        ExampleCounts(*sizes)


def test_command_has_options_for_the_sizes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def crossling(*more: str) -> int:
        size = ("--languages", "2", "--sentences", "80", "--lemmas", "300")
        monkeypatch.setattr(sys, "argv", ["crossling", "synth", "-o", str(tmp_path / "out"), *size, *more])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return int(ended.value.code or 0)

    assert crossling("--dev", "1") == 2
    assert "examples: dev must be at least 24, found 1." in capsys.readouterr().err
    assert crossling("--train", "60", "--test", "36", "--json") == 0
    card = json.loads(capsys.readouterr().out)
    assert card["examples"] == {"train": 60, "dev": 24, "test": 36}
    assert card["pivot"] == "qaa"


# ---- parallel rows ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("split", ["dev", "test"])
def test_dev_and_test_data_have_translations_without_labels(tasks: TaskFolder, split: str) -> None:
    """Translations into the pivot, and of the pivot into the next language, for models that read both."""
    for code in CODES:
        into = "qaa" if code != "qaa" else "qab"

        def translated(name: str, ending: str = "tsv", place: str = f"{into}/{split}-{code}") -> str:
            return (tasks.data / name / "translated" / f"{place}.{ending}").read_text(encoding="utf-8")

        for name in LABELS:
            assert [tuple(line.split("\t")) for line in translated(name).splitlines()] == [
                row[:2] for row in tasks.rows(name, split, into)
            ]
        for name in ("udpos", "panx"):
            blocks = translated(name).removesuffix("\n\n").split("\n\n")
            words = [[word for word, _ in sentence] for sentence in tasks.tagged(name, split, into)]
            assert [block.split("\n") for block in blocks] == words
        bare = [
            paragraph
            for article in json.loads(translated("xquad", "json"))["data"]
            for paragraph in article["paragraphs"]
        ]
        full = tasks.squad(split, into)
        assert [paragraph["context"] for paragraph in bare] == [paragraph["context"] for paragraph in full]
        questions = [[(question["id"], question["question"]) for question in each["qas"]] for each in full]
        assert [[(question["id"], question["question"]) for question in each["qas"]] for each in bare] == questions
        assert not any(question["answers"] for paragraph in bare for question in paragraph["qas"])
    both = [
        tasks.data / "tatoeba" / place for place in ("v1/tatoeba.qaa-qab.qaa", "translated/qaa/tatoeba.qaa-qab.qab")
    ]
    assert both[0].read_bytes() == both[1].read_bytes()


@pytest.mark.parametrize("split", ["train", "dev", "test"])
def test_rows_are_the_same_examples_in_every_language(tasks: TaskFolder, split: str) -> None:
    for name in LABELS:
        assert len({tuple(label for *_, label in tasks.rows(name, split, code)) for code in CODES}) == 1
    for code in CODES[1:]:
        for here, there in zip(tasks.squad(split, "qaa"), tasks.squad(split, code), strict=True):
            assert here["context"].count("\n") == there["context"].count("\n")
            assert [one["id"] for one in here["qas"]] == [one["id"] for one in there["qas"]]
        for name, same in (("panx", ("B-PER", "B-LOC", "B-ORG")), ("udpos", ("NOUN", "VERB", "ADJ", "ADV", "NUM"))):
            for one, other in zip(tasks.tagged(name, split, "qaa"), tasks.tagged(name, split, code), strict=True):
                counts = [Counter(tag for _, tag in sentence if tag in same) for sentence in (one, other)]
                assert counts[0] == counts[1]


@pytest.mark.parametrize("name", ["xnli", "pawsx"])
def test_sentences_have_one_translation_in_each_other_language(tasks: TaskFolder, name: str) -> None:
    """Rows are parallel on either side."""
    for code in CODES[1:]:
        partners = defaultdict(set)
        for here, there in zip(tasks.rows(name, "test", "qaa"), tasks.rows(name, "test", code), strict=True):
            for side in (0, 1):
                partners[here[side]].add(there[side])
        assert {len(found) for found in partners.values()} == {1}
        assert len(set.union(*partners.values())) == len(partners)


def test_lines_of_parallel_text_have_the_numbers_of_their_frames(tasks: TaskFolder) -> None:
    for split in ("train", "dev", "test"):
        known_frames = list(frames(tasks.folder, f"translation/{split}"))
        for code in CODES:
            lines = tasks.lines(split, code)
            assert len(lines) == len(known_frames)
            for frame, line in zip(known_frames, lines, strict=True):
                digits = sorted(concept for concept in frame.concepts().values() if concept.isdigit())
                assert sorted(word for word in line.split() if word.isdigit()) == digits


# ---- held-out content ---------------------------------------------------------------------------------------


def test_parts_and_corpora_have_no_frame_in_common(tasks: TaskFolder) -> None:
    card = json.loads((tasks.folder / "synthetic.json").read_text(encoding="utf-8"))
    corpora = ["multi", *(f"text/{code}" for code in CODES), *(f"pairs/{name}" for name in card["pairs"])]
    taken = {frame.key() for part in corpora for frame in frames(tasks.folder, part)}
    assert len(taken) > 500
    for part in ("retrieval", "alignment", *PARTS):
        keys = {frame.key() for frame in frames(tasks.folder, part)}
        assert keys
        assert not keys & taken
        taken |= keys


def test_parts_and_corpora_have_no_sentence_in_common(tasks: TaskFolder) -> None:
    for code in CODES:
        files = [*(tasks.folder / "corpora").rglob(f"{code}.txt"), *(tasks.folder / "corpora").rglob(f"*{code}*.tsv")]
        taken = {
            sentence
            for file in files
            for line in file.read_text(encoding="utf-8").splitlines()
            for sentence in line.split("\t")
        }
        for part in PARTS:
            sentences = tasks.sentences(part, code)
            assert len(sentences) > 10
            assert not sentences & taken
            taken |= sentences


def test_every_sentence_of_a_part_has_one_frame(tasks: TaskFolder) -> None:
    for part in PARTS:
        known_frames = list(frames(tasks.folder, part))
        if part.startswith("bucc2018"):  # some sentences occur in the pivot only, some in the others only
            partners = len(tasks.gold("qab-qaa", part.split("/")[1]))
            assert len(known_frames) == len(tasks.sentences(part, "qaa")) + len(tasks.sentences(part, "qab")) - partners
        else:
            assert len(known_frames) == len(tasks.sentences(part, "qab"))
