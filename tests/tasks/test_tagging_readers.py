from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crossling.core.errors import BadInput
from crossling.tasks.examples import TaggingExample
from crossling.tasks.readers import ColumnReader, read_conllu

Put = Callable[[str, str], Path]
TAGS = ("B-LOC", "I-LOC", "O")
WORD = st.text(st.characters(exclude_categories=["Z", "Cc", "Cs"], exclude_characters="\ufeff"), min_size=1).filter(
    lambda word: word.strip() == word and not word.startswith("#")
)
SENTENCES = st.lists(st.lists(st.tuples(WORD, st.sampled_from(TAGS)), min_size=1), min_size=1)
same_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
FORMATS = {
    "token<TAB>tag": (ColumnReader(), "{word}\t{tag}"),
    "index<TAB>token<TAB>tag": (ColumnReader(word=1, width=3), "{row}\t{word}\t{tag}"),
    "token tag": (ColumnReader(separator=" "), "{word} {tag}"),
    "token POS tag": (ColumnReader(width=3, separator=" "), "{word} NN {tag}"),
    "en:token<TAB>tag": (ColumnReader(language_prefix=True), "en:{word}\t{tag}"),
}


def expected(sentences: list[list[tuple[str, str]]]) -> list[TaggingExample]:
    return [
        TaggingExample(str(row), *map(tuple, zip(*sentence, strict=True))) for row, sentence in enumerate(sentences)
    ]


@pytest.mark.parametrize("name", FORMATS)
@same_folder
@given(sentences=SENTENCES)
def test_columns_round_trip(put: Put, name: str, sentences: list[list[tuple[str, str]]]) -> None:
    reader, line = FORMATS[name]
    blocks = [
        "\n".join(line.format(row=row, word=pair[0], tag=pair[1]) for row, pair in enumerate(sentence))
        for sentence in sentences
    ]
    assert reader(put("a.tsv.gz", "\n\n".join(blocks) + "\n"), TAGS) == expected(sentences)


@same_folder
@given(sentences=SENTENCES)
def test_conllu_skips_multiword_tokens_and_empty_nodes(put: Put, sentences: list[list[tuple[str, str]]]) -> None:
    text = ""
    for sentence in sentences:
        text += "# text = something\n1-2\tboth" + "\t_" * 8 + "\n"
        for row, (word, tag) in enumerate(sentence, start=1):
            text += f"{row}\t{word}\t_\t{tag}" + "\t_" * 6 + f"\n{row}.1\tunwritten\t_\tX" + "\t_" * 6 + "\n"
        text += "\n"
    assert read_conllu(put("a.conllu", text), TAGS) == expected(sentences)


def test_words_without_tags_are_unlabeled(put: Put) -> None:
    assert ColumnReader()(put("a.tsv", "a\nb\n\nc\n"), TAGS) == [
        TaggingExample("0", ("a", "b"), None),
        TaggingExample("1", ("c",), None),
    ]


def test_document_marks_are_skipped(put: Put) -> None:
    found = ColumnReader(width=3, separator=" ")(put("a", "-DOCSTART- -X- O\n\nRome NP B-LOC\n"), TAGS)
    assert found == [TaggingExample("0", ("Rome",), ("B-LOC",))]


@pytest.mark.parametrize(
    ("reader", "text", "message"),
    [
        (ColumnReader(), "a\tO\nb\tNN\tO\n", "line 2: 3 columns, expected 2"),
        (ColumnReader(), "a\tO\n\nb\tB-LOK\n", "line 3: unknown label 'B-LOK'; did you mean 'B-LOC'"),
        (ColumnReader(), "\tO\n", "line 1: no word"),
        (ColumnReader(), "a\tO\n\nb\tO\nc\n", "line 3: sentence with tags on some words only"),
        (read_conllu, "1\ta\t_\tO\n", "line 1: 4 columns, expected 10"),
        (read_conllu, "2\ta\t_\tO" + "\t_" * 6, "line 1: word '2', expected 1"),
        (read_conllu, "1\ta\t_\tNOUN" + "\t_" * 6, "line 1: unknown label 'NOUN'"),
    ],
)
def test_errors_name_the_file_and_line(put: Put, reader: ColumnReader, text: str, message: str) -> None:
    path = put("bad.tsv", text)
    with pytest.raises(BadInput, match=message) as error:
        reader(path, TAGS)
    assert str(path) in str(error.value)
