from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crossling.benchmarks.columns import Columns, read_conllu
from crossling.benchmarks.examples import Tagged
from crossling.errors import BadInput

Put = Callable[[str, str], Path]
TAGS = ("B-LOC", "I-LOC", "O")
WORD = st.text(st.characters(exclude_categories=["Z", "Cc", "Cs"], exclude_characters="\ufeff"), min_size=1).filter(
    lambda word: word.strip() == word and not word.startswith("#")
)
SENTENCES = st.lists(st.lists(st.tuples(WORD, st.sampled_from(TAGS)), min_size=1), min_size=1)
same_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
LAYOUTS = {
    "token<TAB>tag": (Columns(), "{word}\t{tag}"),
    "index<TAB>token<TAB>tag": (Columns(word=1, width=3), "{row}\t{word}\t{tag}"),
    "token tag": (Columns(separator=" "), "{word} {tag}"),
    "token POS tag": (Columns(width=3, separator=" "), "{word} NN {tag}"),
    "en:token<TAB>tag": (Columns(prefix=True), "en:{word}\t{tag}"),
}


def expected(sentences: list[list[tuple[str, str]]]) -> list[Tagged]:
    return [Tagged(str(row), *map(tuple, zip(*sentence, strict=True))) for row, sentence in enumerate(sentences)]


@pytest.mark.parametrize("layout", LAYOUTS)
@same_folder
@given(sentences=SENTENCES)
def test_columns_are_read_back(put: Put, layout: str, sentences: list[list[tuple[str, str]]]) -> None:
    reader, line = LAYOUTS[layout]
    blocks = [
        "\n".join(line.format(row=row, word=pair[0], tag=pair[1]) for row, pair in enumerate(sentence))
        for sentence in sentences
    ]
    assert reader(put("a.tsv.gz", "\n\n".join(blocks) + "\n"), TAGS) == expected(sentences)


@same_folder
@given(sentences=SENTENCES)
def test_conllu_is_read_back_without_ranges_and_empty_nodes(put: Put, sentences: list[list[tuple[str, str]]]) -> None:
    text = ""
    for sentence in sentences:
        text += "# text = something\n1-2\tboth" + "\t_" * 8 + "\n"
        for row, (word, tag) in enumerate(sentence, start=1):
            text += f"{row}\t{word}\t_\t{tag}" + "\t_" * 6 + f"\n{row}.1\tunwritten\t_\tX" + "\t_" * 6 + "\n"
        text += "\n"
    assert read_conllu(put("a.conllu", text), TAGS) == expected(sentences)


def test_words_alone_have_no_tags(put: Put) -> None:
    assert Columns()(put("a.tsv", "a\nb\n\nc\n"), TAGS) == [Tagged("0", ("a", "b"), None), Tagged("1", ("c",), None)]


def test_the_line_between_two_texts_is_no_word(put: Put) -> None:
    found = Columns(width=3, separator=" ")(put("a", "-DOCSTART- -X- O\n\nRome NP B-LOC\n"), TAGS)
    assert found == [Tagged("0", ("Rome",), ("B-LOC",))]


@pytest.mark.parametrize(
    ("reader", "text", "said"),
    [
        (Columns(), "a\tO\nb\tNN\tO\n", "line 2 has 3 columns, expected 2"),
        (Columns(), "a\tO\n\nb\tB-LOK\n", "line 3: 'B-LOK' is no label of this set; did you mean 'B-LOC'"),
        (Columns(), "\tO\n", "line 1 has no word"),
        (Columns(), "a\tO\n\nb\tO\nc\n", "line 3 begins a sentence with a tag on some words only"),
        (read_conllu, "1\ta\t_\tO\n", "line 1 has 4 columns, expected CoNLL-U's 10"),
        (read_conllu, "2\ta\t_\tO" + "\t_" * 6, "line 1 is word '2', expected 1"),
        (read_conllu, "1\ta\t_\tNOUN" + "\t_" * 6, "line 1: 'NOUN' is no label"),
    ],
)
def test_a_bad_line_is_named(put: Put, reader: Columns, text: str, said: str) -> None:
    path = put("bad.tsv", text)
    with pytest.raises(BadInput, match=said) as error:
        reader(path, TAGS)
    assert str(path) in str(error.value)
