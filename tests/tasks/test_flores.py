from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from crossling.core.errors import BadInput
from crossling.corpora.languages import canonical_code
from crossling.tasks.benchmark_files import FLORES, find_task_files
from crossling.tasks.flores import (
    DEV,
    DEVTEST,
    find_flores_files,
    find_release,
    flores_language,
    read_flores,
    release_files,
)

Put = Callable[[str, str], Path]
# The codes of FLORES-200 whose language has several scripts or a code of its own.
CODES = """
    ace_Arab ace_Latn arb_Arab arb_Latn ary_Arab arz_Arab azb_Arab azj_Latn bjn_Arab bjn_Latn ckb_Arab cmn_Hans
    cmn_Hant fil_Latn kas_Arab kas_Deva kmr_Latn knc_Arab knc_Latn lvs_Latn min_Arab min_Latn mni_Beng mni_Mtei
    nno_Latn nob_Latn pes_Arab prs_Arab quy_Latn srp_Cyrl snd_Arab snd_Deva taq_Latn taq_Tfng yue_Hant zsm_Latn
    apc_Arab_nort3139 apc_Arab_sout3123 twi_Latn_akua1239 twi_Latn_asan1239
"""


def jsonl(*texts: str) -> str:
    rows = [{"id": row, "iso_639_3": "eng", "iso_15924": "Latn", "text": text} for row, text in enumerate(texts)]
    return "".join(json.dumps(row) + "\n" for row in reversed(rows))


def parquet(path: Path, *texts: str) -> None:
    arrow = pytest.importorskip("pyarrow.parquet")
    table = pytest.importorskip("pyarrow").table({"id": [*range(len(texts))], "text": [*texts], "domain": ["x"] * 2})
    path.parent.mkdir(parents=True, exist_ok=True)
    arrow.write_table(table, path)


def test_the_layouts_of_all_releases_have_equal_sentences(put: Put, tmp_path: Path) -> None:
    put("a/flores200_dataset/devtest/eng_Latn.devtest", "One.\nTwo.\n")
    put("b/floresp-v2.0-rc.3/devtest/devtest.eng_Latn.gz", "One.\nTwo.\n")
    put("c/flores_plus/devtest/eng_Latn.jsonl", jsonl("One.", "Two."))
    parquet(tmp_path / "d/flores_plus/devtest/eng_Latn.parquet", "One.", "Two.")
    for folder in "abcd":
        release = find_release(tmp_path / folder)
        assert release is not None
        assert release == find_release(release)  # the folder itself may be given
        files = release_files(release, DEVTEST)
        assert ([*files], read_flores(files["en"])) == (["en"], ["One.", "Two."])
        assert release_files(release, DEV) == {}
    assert find_release(tmp_path) is None


def test_pairs_are_those_with_english_and_the_requested_ones(put: Put, tmp_path: Path) -> None:
    for code in ("eng_Latn", "deu_Latn", "zho_Hant", "zho_Hans"):
        put(f"flores200_dataset/devtest/{code}.devtest", "One.\n")
        put(f"flores200_dataset/dev/{code}.dev", "One.\n")
    assert [*find_flores_files(tmp_path)] == ["de-en", "zh-en", "zh-Hant-en"]
    assert {file.suffix for files in find_flores_files(tmp_path).values() for file in files} == {".devtest"}
    for languages, expected in [
        (["deu_Latn"], ["de-en"]),
        (["zh-Hant"], ["zh-Hant-en"]),
        (["zho_Hant-eng_Latn", "zh"], ["zh-en", "zh-Hant-en"]),
        (["de-zh-Hant"], ["de-zh-Hant"]),
        (["zho_Hans-deu_Latn", "de"], ["de-en", "zh-de"]),
    ]:
        assert [*find_task_files(FLORES, tmp_path, languages)] == expected
    with pytest.raises(BadInput, match="no files of language 'de-fr'"):
        find_task_files(FLORES, tmp_path, ["de-fr"])


def test_every_variety_has_a_code_of_its_own() -> None:
    codes = [canonical_code(code) for code in CODES.split()]
    assert len({*codes}) == len(codes)
    assert {"zh", "zh-Hant", "ar", "ar-Latn", "apc-nort3139", "tw-asan1239", "mni-Mtei"} <= {*codes}


def test_a_retired_code_is_no_foreign_file() -> None:
    assert flores_language(Path("ajp_Arab.devtest")) == "ajp"
    assert flores_language(Path("notes_Arab.devtest")) == ""


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "no FLORES here. Expected flores200_dataset/devtest/LL_Script.devtest"),
        ({"flores200_dataset/devtest/deu_Latn.devtest": "a\n"}, "has no pair with English here"),
        (
            {"flores200_dataset/dev/eng_Latn.dev": "a\n", "flores_plus/dev/eng_Latn.jsonl": "{}"},
            r"several releases of FLORES \(flores200_dataset, flores_plus\)",
        ),
        (
            {"flores/devtest/est_Latn.devtest": "a\n", "flores/devtest/ekk_Latn.devtest": "a\n"},
            "the same language as ekk_Latn.devtest",
        ),
    ],
)
def test_damaged_folders_are_refused(put: Put, tmp_path: Path, files: dict[str, str], message: str) -> None:
    for name, text in files.items():
        put(name, text)
    with pytest.raises(BadInput, match=message):
        find_flores_files(tmp_path)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("eng_Latn.devtest", "One.\n \nThree.\n", "sentence 2 is empty"),
        ("eng_Latn.jsonl", '{"text": "One."}\n', "line 1: no key 'id'"),
        ("eng_Latn.jsonl", '{"id": 1, "text": "One."}\n{"id": 1, "text": "Two."}\n', "one number per sentence"),
        ("eng_Latn.parquet", "not a table", "not readable as Parquet"),
    ],
)
def test_damaged_files_are_refused(put: Put, name: str, text: str, message: str) -> None:
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
    with pytest.raises(BadInput, match=message):
        read_flores(put(f"flores/devtest/{name}", text))
