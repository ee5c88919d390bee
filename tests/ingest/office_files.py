"""Write small Word documents and Excel workbooks as Word and Excel do."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping, Sequence
from xml.sax.saxutils import escape

WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
SHEET = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
RELATIONS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"


def archive(parts: Mapping[str, str]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as written:
        for name, content in parts.items():
            written.writestr(name, content)
    return stream.getvalue()


def paragraph(text: str) -> str:
    """Return a paragraph, in which | separates two runs of text."""
    runs = "".join(f'<w:r><w:t xml:space="preserve">{escape(part)}</w:t></w:r>' for part in text.split("|"))
    return f"<w:p><w:pPr><w:tabs><w:tab/></w:tabs></w:pPr>{runs}</w:p>"


def docx(*items: str | Sequence[Sequence[str]], raw: str = "") -> bytes:
    """Return a document of paragraphs (text) and tables (rows of cells), and of XML as it is."""
    body = ""
    for item in items:
        if isinstance(item, str):
            body += paragraph(item)
        else:
            rows = (
                "".join(f"<w:tc>{''.join(map(paragraph, cell.split(chr(10))))}</w:tc>" for cell in row) for row in item
            )
            body += f"<w:tbl>{''.join(f'<w:tr>{row}</w:tr>' for row in rows)}</w:tbl>"
    document = f'<w:document xmlns:w="{WORD}"><w:body>{body}{raw}</w:body></w:document>'
    return archive({"word/document.xml": document})


def xlsx(sheets: Mapping[str, Sequence[Sequence[str]]], *, inline: bool = False) -> bytes:
    """Return a workbook. Empty cells are not stored."""
    strings: list[str] = []
    parts = {}
    for number, rows in enumerate(sheets.values(), start=1):
        body = ""
        for line, row in enumerate(rows, start=1):
            cells = ""
            for column, text in enumerate(row):
                place = f"{chr(ord('A') + column)}{line}"
                if text and inline:
                    cells += f'<c r="{place}" t="inlineStr"><is><t>{escape(text)}</t></is></c>'
                elif text:
                    cells += f'<c r="{place}" t="s"><v>{len(strings)}</v></c>'
                    strings.append(text)
            body += f'<row r="{line}">{cells}</row>'
        parts[f"xl/worksheets/sheet{number}.xml"] = (
            f'<worksheet xmlns="{SHEET}"><sheetData>{body}</sheetData></worksheet>'
        )
    names = "".join(
        f'<sheet name="{escape(name)}" sheetId="{number}" r:id="rId{number}"/>' for number, name in enumerate(sheets, 1)
    )
    links = "".join(
        f'<Relationship Id="rId{number}" Target="worksheets/sheet{number}.xml"/>' for number, _ in enumerate(sheets, 1)
    )
    items = "".join(f"<si><r><t>{escape(text)}</t></r><rPh><t>hint</t></rPh></si>" for text in strings)
    parts |= {
        "xl/workbook.xml": f'<workbook xmlns="{SHEET}" xmlns:r="{RELATIONS}"><sheets>{names}</sheets></workbook>',
        "xl/_rels/workbook.xml.rels": f"<Relationships>{links}</Relationships>",
        "xl/sharedStrings.xml": f'<sst xmlns="{SHEET}">{items}</sst>',
    }
    return archive(parts)
