"""Tests of translation memories (TMX): languages, markup, encodings, and damaged files."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crossling.core.errors import BadInput
from crossling.corpora.corpus import Corpora
from crossling.corpora.records import MAX_DEPTH, MAX_TAG_BYTES
from crossling.corpora.text_files import BLOCK_BYTES, MAX_LINE_BYTES

from .sample_files import COMPRESS, allowed, corpora_of, put, readable, tmx


def rows(
    root: Path, content: str | bytes, counts: Counter[str] | None = None, pair: str = "en-fr"
) -> list[tuple[str, str]]:
    [pairs] = Corpora(put(root, {f"pairs/{pair}.tmx": content})).pairs
    return list(pairs.rows(counts))


def body(units: str) -> str:
    return f"<tmx><body>{units}</body></tmx>"


def unit(source: str, target: str) -> str:
    return f'<tu><tuv xml:lang="en"><seg>{source}</seg></tuv><tuv xml:lang="fr"><seg>{target}</seg></tuv></tu>'


@pytest.mark.parametrize("attribute", ["xml:lang", "lang"])
def test_the_two_requested_languages_are_read(tmp_path: Path, attribute: str) -> None:
    counts: Counter[str] = Counter()
    content = tmx(
        [
            [("en", "one & <two>"), ("fr", "un & <deux>")],
            [("fr", "trois"), ("de", "drei"), ("en", "three"), ("xx", "?"), ("", "?")],
            [("en", "alone")],
            [("de", "allein")],
            [],
            [("en", " "), ("fr", "vide")],
            [("EN-us", "four"), ("fr_CA", "quatre"), ("fr", "the first with exactly fr"), ("fr", "not this")],
        ],
        attribute,
    )
    assert rows(tmp_path, content, counts) == [
        ("one & <two>", "un & <deux>"),
        ("three", "trois"),
        ("four", "the first with exactly fr"),
    ]
    assert counts == {"missing side": 3, "empty side": 1}


def test_a_requested_region_is_a_language_of_its_own(tmp_path: Path) -> None:
    content = tmx([[("pt-PT", "a"), ("pt-BR", "b")], [("pt-BR", "d"), ("pt", "c")]])
    assert rows(tmp_path, content, pair="pt-pt_BR") == [("a", "b"), ("c", "d")]
    with pytest.raises(BadInput, match="no usable line"):
        rows(tmp_path / "2", tmx([[("pt", "a"), ("en", "b")]]), pair="pt_BR-en")


def test_inline_text_is_kept_and_markup_is_dropped(tmp_path: Path) -> None:
    source = (
        'Press <bpt i="1">&lt;b x="<sub>a tip</sub>"&gt;</bpt>the <hi type="x">red<hi>dish</hi></hi> button'
        '<ept i="1">&lt;/b&gt;</ept><ph x="2"/> <it pos="begin">{</it>now<ut>}</ut>'
    )
    content = body(f"<prop>no text</prop>{unit(source, '<![CDATA[a < b]]><!-- no --> &amp; &#233;')}")
    assert rows(tmp_path, content) == [("Press a tipthe reddish button now", "a < b & é")]


def test_notes_and_properties_are_dropped(tmp_path: Path) -> None:
    content = body(
        '<tu tuid="1"><note>n</note><prop type="x">p</prop><tuv xml:lang="en"><note>n</note><seg>\n  one\n  two\n</seg>'
        '</tuv><tuv xml:lang="fr"><prop>p</prop><seg>un</seg>tail</tuv></tu>'
    )
    assert rows(tmp_path, content) == [("one   two", "un")]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "iso-8859-1", "windows-1252"])
def test_the_declared_encoding_is_used(tmp_path: Path, encoding: str) -> None:
    declared = f'<?xml version="1.0" encoding="{encoding.removesuffix("-sig")}"?>' + body(unit("é", "à"))
    assert rows(tmp_path, declared.encode(encoding)) == [("é", "à")]


def test_html_entities_are_resolved_without_the_document_type(tmp_path: Path) -> None:
    head = '<!DOCTYPE tmx SYSTEM "http://localhost:1/tmx14.dtd">'
    assert rows(tmp_path, head + body(unit("caf&eacute;&nbsp;au &whatever; lait", "x"))) == [
        ("café\xa0au &whatever; lait", "x")
    ]


def test_texts_that_are_too_long_are_counted(tmp_path: Path) -> None:
    counts: Counter[str] = Counter()
    long = "é" * (MAX_LINE_BYTES // 2)
    units = [unit(long, "a"), unit(long + "x", "b"), unit("c", "x" * (3 * MAX_LINE_BYTES)), unit("d", "e")]
    assert rows(tmp_path, body("".join(units)), counts) == [(long, "a"), ("d", "e")]
    assert counts == {"line too long": 2}


# ---- damaged files -------------------------------------------------------------------------------------------

BOMB = '<!DOCTYPE tmx [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;">]>'


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("", "line 1: .*no element found"),
        ("\n\nplain text\n", "line 3: .*(syntax error|not well-formed)"),
        (body(unit("a", "b")).removesuffix("</tmx>"), "line 1: .*no element found"),
        ("<tmx><body>\n<tu><tuv xml:lang='en'>\n<seg>a</tuv></tu></body></tmx>", "line 3: .*mismatched tag"),
        (body("\n" + unit("a & b", "c")), "line 2: .*not well-formed"),
        (body(unit("a\x0bb", "c")), "line 1: .*not well-formed"),
        (body("\n\n" + unit("a", "c")).encode().replace(b"a<", b"\xff<"), "line 3: .*not well-formed"),
        (body(unit("&eacute;", "c")), "line 1: .*undefined entity"),
        (BOMB + body(unit("&b;", "c")), "line 1: .*declares the entity 'a'"),
        (
            '<!DOCTYPE tmx [<!ENTITY a SYSTEM "file:///etc/passwd">]>' + body(unit("&a;", "c")),
            "declares the entity 'a'",
        ),
        ('<?xml version="1.0" encoding="martian"?><tmx/>', "line 1: .*(unknown encoding|martian)"),
        ('<?xml version="1.0" encoding="utf-7"?><tmx/>', "line 1"),
        ("<a>" * (MAX_DEPTH + 1), f"nested more than {MAX_DEPTH} deep"),
        ("<tmx>\n<!--" + "x" * (MAX_TAG_BYTES + 2 * BLOCK_BYTES), "line 2: .*more than 4 MiB starts here"),
        ("<tmx>\n<tu a='" + "x" * (MAX_TAG_BYTES + 2 * BLOCK_BYTES), "line 2: .*more than 4 MiB starts here"),
    ],
)
def test_a_damaged_file_is_refused_with_its_line(tmp_path: Path, content: str | bytes, expected: str) -> None:
    with pytest.raises(BadInput, match=rf"^\S*en-fr\.tmx, {'' if 'line' in expected else 'line .*'}{expected}.*Fix it"):
        rows(tmp_path, content)


def test_a_file_without_units_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"en-fr\.tmx: no usable line \(it is empty\)"):
        rows(tmp_path, "<html><body>no units</body></html>")
    with pytest.raises(BadInput, match=r"no usable line \(missing side: 2\)"):
        rows(tmp_path, tmx([[("en", "a"), ("de", "b")]] * 2))


def test_rows_before_the_damage_are_returned_in_order(tmp_path: Path) -> None:
    content = body("".join(unit(str(n), str(n)) for n in range(5000))).removesuffix("</tmx>")
    [pairs] = Corpora(put(tmp_path, {"pairs/en-fr.tmx.xz": content})).pairs
    rows = pairs.rows()
    assert [next(rows) for _ in range(5000)] == [(str(n), str(n)) for n in range(5000)]
    with pytest.raises(BadInput, match=r"en-fr\.tmx\.xz, line 1"):
        next(rows)


# ---- properties ------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(readable, readable), min_size=1), st.sampled_from(sorted(COMPRESS)))
def test_rows_are_read_as_written(texts: list[tuple[str, str]], suffix: str) -> None:
    content = tmx([[("fr", target), ("en", source)] for source, target in texts])
    with corpora_of({f"pairs/en-fr.tmx{suffix}": content}) as corpora:
        assert list(corpora.pairs[0].rows()) == texts


VALID = tmx([[("en", "one"), ("fr", "un")], [("en", "two")], [("en", "three"), ("fr", "trois")]])
fragments = st.sampled_from([b"<tu>", b"</tu>", b"<seg>", b"</seg>", b"<bpt>", b"<sub>", b"&", b"]]>", b"<!ENTITY"])


@settings(deadline=None, max_examples=200)
@given(st.data())
def test_no_bytes_crash_the_reader(data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(VALID)))
    damaged = VALID[:at] + data.draw(st.binary() | fragments) + VALID[data.draw(st.integers(at, len(VALID))) :]
    with tempfile.TemporaryDirectory() as folder, allowed(BadInput, naming="en-fr.tmx"):
        assert rows(Path(folder), damaged)
