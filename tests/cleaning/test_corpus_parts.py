"""The slices of a part have its rows, one after the other, and a plan is made again when the file changes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from crossling.cleaning.corpus_parts import corpus_parts
from crossling.corpora import source_parts
from crossling.corpora.corpus import Corpora


@pytest.fixture
def corpora(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Corpora:
    monkeypatch.setattr(source_parts, "SLICE_BYTES", 500)
    files = {
        "text/en.txt": "".join(f"line {n}\n{'' if n % 9 else chr(10)}" for n in range(300)),
        "pairs/en-fr.tsv": "".join(f"line {n}\tligne {n}\n" if n % 7 else "no tab\n" for n in range(200)),
        "pairs/set.en-fr.en": "".join(f"{n}\n" for n in range(400)),
        "pairs/set.en-fr.fr": "".join(f"numéro {n}\n" for n in range(400)),
        "multi/set/en.txt": "one\n" * 400,
        "multi/set/fr.txt": "un\n" * 400,
    }
    for name, content in files.items():
        (tmp_path / "corpora" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "corpora" / name).write_text(content, encoding="utf-8")
    return Corpora(tmp_path / "corpora")


def test_slices_have_the_rows_and_counts_of_the_part(corpora: Corpora, tmp_path: Path) -> None:
    for part in corpus_parts(corpora):
        whole, of_slices = Counter[str](), Counter[str]()
        expected = [*part.rows(whole)]
        plan = part.plan(tmp_path / "plans")
        found = [[*part.slice(number, plan).rows(of_slices)] for number in range(part.slices)]
        assert [row for rows in found for row in rows] == expected
        assert of_slices == whole
        assert len(found) == 1 if part.kind == "multi" else len(found) > 2


def test_a_plan_is_stored_until_the_file_changes(
    corpora: Corpora, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = corpus_parts(corpora)[0]
    plan = part.plan(tmp_path / "plans")
    with monkeypatch.context() as patched:
        patched.setattr(type(part), "fingerprint", None)
        assert part.plan(tmp_path / "plans") == plan
    (tmp_path / "corpora" / "text" / "en.txt").write_text("other text\n" * 300)
    assert part.plan(tmp_path / "plans").sources != plan.sources
