"""Tests of Word documents and Excel workbooks: text, tables, and files that are hostile or damaged."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

from crossling.core.errors import BadInput
from crossling.ingest import office
from crossling.ingest.columns import take_rows
from crossling.ingest.office import read_document, read_workbook

from .office_files import WORD, archive, docx, paragraph, xlsx


def write(tmp_path: Path, name: str, content: bytes) -> Path:
    file = tmp_path / name
    file.write_bytes(content)
    return file


def test_paragraphs_and_tables_are_read_in_order(tmp_path: Path) -> None:
    file = write(tmp_path, "a.docx", docx("One| sentence.", [["en", "sw"], ["Two\nlines", "Mbili & tatu"]], "", "End"))
    assert list(read_document(file)) == ["One sentence.", ["en", "sw"], ["Two\nlines", "Mbili & tatu"], "", "End"]


def test_deleted_moved_and_repeated_text_is_not_read(tmp_path: Path) -> None:
    raw = (
        "<w:p><w:r><w:t>kept</w:t><w:tab/><w:t>on</w:t><w:br/><w:t>two</w:t></w:r>"
        "<w:del><w:r><w:delText>deleted</w:delText></w:r></w:del>"
        "<w:moveFrom><w:r><w:t>moved</w:t></w:r></w:moveFrom><w:r><w:instrText>PAGE</w:instrText></w:r>"
        f"<Fallback><w:r><w:t>twice</w:t></w:r></Fallback><w:r>{paragraph('frame')}</w:r></w:p>"
    )
    assert list(read_document(write(tmp_path, "a.docx", docx(raw=raw)))) == ["frame", "kept on\ntwo"]


def test_notes_follow_the_text(tmp_path: Path) -> None:
    parts = {f"word/{name}.xml": f'<w:x xmlns:w="{WORD}">{paragraph(name)}</w:x>' for name in ("footnotes", "document")}
    assert list(read_document(write(tmp_path, "a.docx", archive(parts)))) == ["document", "footnotes"]


@pytest.mark.parametrize("inline", [False, True])
def test_sheets_are_read_in_order_with_empty_cells(tmp_path: Path, inline: bool) -> None:
    sheets = {"B": [["en", "", "sw"], [], ["one", "", "moja"]], "A & C": [["", "x"]]}
    file = write(tmp_path, "a.xlsx", xlsx(sheets, inline=inline))
    found = [(name, list(rows)) for name, rows in read_workbook(file)]
    assert found == [("B", [["en", "", "sw"], [], ["one", "", "moja"]]), ("A & C", [["", "x"]])]


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ('<!DOCTYPE a [<!ENTITY b "bb">]><a>&b;</a>', "declares the entity 'b'"),
        (f"{'<a>' * 300}{'</a>' * 300}", "nested more than 256 deep"),
        (f"<!-- {'x' * (3 << 20)} --><a/>", "too long"),
        ("<a><b></a>", "mismatched tag"),
    ],
)
def test_hostile_xml_is_refused(tmp_path: Path, document: str, expected: str) -> None:
    file = write(tmp_path, "a.docx", archive({"word/document.xml": document}))
    with pytest.raises(BadInput, match=expected):
        list(read_document(file))


def test_a_part_that_is_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(office, "MAX_PART_BYTES", 1 << 17)
    with pytest.raises(BadInput, match="more than"):
        list(read_document(write(tmp_path, "a.docx", docx(*["text"] * 10_000))))
    monkeypatch.setattr(office, "MAX_PART_BYTES", 1 << 30)
    monkeypatch.setattr(office, "MAX_ITEM_BYTES", 1 << 17)
    with pytest.raises(BadInput, match="a paragraph or row of more than"):
        list(read_document(write(tmp_path, "a.docx", docx([["cell"] * 10_000]))))
    monkeypatch.setattr(office, "MAX_SHARED_CHARACTERS", 10)
    with pytest.raises(BadInput, match="Save its sheets as CSV"):
        list(read_workbook(write(tmp_path, "a.xlsx", xlsx({"s": [["long enough", "b"]]}))))


def test_too_many_empty_strings_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(
        tmp_path, "a.xlsx", archive({"xl/workbook.xml": "<a/>", "xl/sharedStrings.xml": f"<a>{'<si/>' * 9}</a>"})
    )
    monkeypatch.setattr(office, "MAX_SHARED_STRINGS", 8)
    with pytest.raises(BadInput, match="Save its sheets as CSV"):
        list(read_workbook(file))


@pytest.mark.parametrize("value", ["", "<v>1</v>"])
def test_rows_with_one_cell_in_the_last_column_need_little_memory(tmp_path: Path, value: str) -> None:
    parts = {
        "xl/workbook.xml": '<workbook><sheets><sheet name="s" id="1"/></sheets></workbook>',
        "xl/_rels/workbook.xml.rels": '<a><Relationship Id="1" Target="worksheets/a.xml"/></a>',
        "xl/worksheets/a.xml": "<a>" + f'<row><c r="XFD1" s="1">{value}</c></row>' * 800 + "</a>",
    }
    file = write(tmp_path, "a.xlsx", archive(parts))
    tracemalloc.start()
    try:
        [(_, rows)] = ((name, take_rows(rows)[1]) for name, rows in read_workbook(file))
        assert sum(1 for _ in rows) == 800
        assert tracemalloc.get_traced_memory()[1] < 32 << 20
    finally:
        tracemalloc.stop()


def test_damaged_files_are_refused_in_one_line(tmp_path: Path) -> None:
    whole = docx(*(f"sentence {number}" for number in range(200)))
    for content in (b"", b"\xd0\xcf\x11\xe0" * 100, whole[:-30], archive({"other": "x"}), xlsx({"s": []})):
        with pytest.raises(BadInput, match=r"Save it as \.docx again") as refused:
            list(read_document(write(tmp_path, "a.docx", content)))
        assert "\n" not in str(refused.value)
    for position in range(0, len(whole), 40):
        content = whole[:position] + b"\xff" + whole[position + 1 :]
        try:
            list(read_document(write(tmp_path, "a.docx", content)))
        except BadInput as refused:
            assert "\n" not in str(refused)  # noqa: PT017
