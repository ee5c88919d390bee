from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from crossling.core.errors import BadInput
from crossling.tasks.reading_comprehension import CHOICES, AssembledReader, read_belebele, read_race
from crossling.tasks.registry import get_dataset

Put = Callable[[str, str], Path]
COLUMNS = ("dataset", "split", "passage_id", "question_id", "passage", "question")
COLUMNS += ("answer1", "answer2", "answer3", "answer4", "correct_answer", "correct_answer_num")
PASSAGE = 'He wrote:\n"Rain."\tThen he left.'


def belebele(**changes: object) -> str:
    """Return a line with the keys of the release."""
    record = {"link": "https://a", "question_number": 1, "flores_passage": "It rained.", "question": "What fell?"}
    record |= {f"mc_answer{number}": answer for number, answer in enumerate(("Rain", "Snow", "Hail", "Fog"), start=1)}
    record |= {"correct_answer_num": "1", "dialect": "deu_Latn", "ds": "2023-05-03"} | changes
    return json.dumps(record) + "\n"


def assembled(*splits: str, answer: object = 3) -> str:
    """Return a table as pandas writes it: with an index column, quoted where needed."""
    text = io.StringIO()
    table = csv.writer(text, delimiter="\t", lineterminator="\n")
    table.writerow(["", *COLUMNS])
    for row, split in enumerate(splits):
        table.writerow([row, "RACE", split, "1", "2", PASSAGE, "What?", "a", "b", "c", "d", "c", answer])
    return text.getvalue()


def race(**changes: object) -> str:
    record = {"article": "It rained.", "questions": ["What fell?"], "options": [["a", "b", "c", "d"]]}
    return json.dumps(record | {"answers": ["D"], "id": "high1.txt"} | changes)


def test_a_question_of_belebele_is_read_with_each_answer(put: Put, tmp_path: Path) -> None:
    put("Belebele/deu_Latn.jsonl", belebele() + belebele(correct_answer_num=4))
    put("Belebele/zho_Hant.jsonl", belebele())
    dataset = get_dataset("belebele")
    assert dataset.languages(tmp_path, "test") == ["de", "zh-Hant"]
    first, second = dataset.read(tmp_path, "test", "de")
    assert first.texts == ("It rained.",)
    assert first.choices == ("What fell? Rain", "What fell? Snow", "What fell? Hail", "What fell? Fog")
    assert (first.label, second.label) == ("0", "3")


def test_the_assembled_training_set(put: Put, tmp_path: Path) -> None:
    put("belebele/belebele_training_set.tsv", assembled("train", "dev", "train"))
    dataset = get_dataset("belebele")
    name, examples = dataset.read_training(tmp_path)
    assert (name, [example.label for example in examples]) == ("belebele", ["2", "2"])
    assert examples[0].texts == (PASSAGE,)
    assert len(dataset.read_dev(tmp_path)[1]) == 1


def test_race_is_a_training_set_of_belebele(put: Put, tmp_path: Path) -> None:
    put("RACE/train/high/1.txt", race())
    put("RACE/train/middle/7.txt", race(answers=["A"]))
    put("RACE/dev/high/2.txt", race())
    name, examples = get_dataset("belebele").read_training(tmp_path)
    assert (name, [(example.id, example.label) for example in examples]) == ("race", [("0", "3"), ("1", "0")])
    assert examples[0].choices[3] == "What fell? d"
    assert get_dataset("belebele").read_dev(tmp_path)[0] == "race"


@pytest.mark.parametrize(
    ("read", "text", "message"),
    [
        (read_belebele, belebele(correct_answer_num="5"), "line 1: 'correct_answer_num' is '5', expected 1 to 4"),
        (read_belebele, belebele() + '{"question": "a"}\n', "line 2: no key 'mc_answer1'"),
        (AssembledReader("train"), assembled("train", answer=0), "is '0', expected 1 to 4"),
        (AssembledReader("train"), assembled("train").replace("\tsplit", ""), "columns are not those of the header"),
        (AssembledReader("train"), assembled("train").replace('"', "", 1), "line 2: its columns"),
        (AssembledReader("train"), assembled("train").replace('."\t', ".\t"), "line 2: unexpected end of data"),
        (read_race, race(answers=[]), "expected as many 'questions' as 'options' and 'answers'"),
        (read_race, race(answers=["E"]), "the answer 'E' is not A, B, C or D"),
        (read_race, race(options=[["a", "b"]]), "question 1 has no four options"),
        (read_race, "[]", "expected as many 'questions'"),
    ],
)
def test_damaged_files_are_refused(put: Put, read: Callable[..., object], text: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        read(put("a", text), CHOICES)
