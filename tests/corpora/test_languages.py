"""Tests of canonical language codes and language pairs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossling.core.errors import BadInput
from crossling.corpora.languages import canonical_code, match_codes, parse_pair, small_languages

WRITTEN_AND_CANONICAL = """
eng en   swh sw   swa sw   cmn zh   zho zh   pes fa   arb ar   nob nb   nno nn   zsm ms   ekk et   lvs lv   khk mn
azj az   uzn uz   npi ne   plt mg   als sq   pbt ps   ydd yi   ory or   gaz om   fil tl   tgl tl   iw he   in id   ji yi
ger de   fre fr   chi zh   dut nl   gre el   cze cs   rum ro   per fa   baq eu   bur my   tib bo   wel cy   kmr ku
en en   no no   EN en   Swh sw   ckb ckb   quy quy   yue yue   arz arz   ber ber   hbs sh   ns nso
qaa qaa   qab qab   qtz qtz   QAA qaa
zh-Hant zh-Hant   zh_hant zh-Hant   zh-Hans zh   zh_TW zh-TW   zh-cn zh-CN   pt-BR pt-BR   pt_br pt-BR   es-419 es-419
my_zaw my-Qaag   hi_rom hi-Latn   hi-Latn hi-Latn   ca-valencia ca-valencia   zh-Hant-HK zh-Hant-HK
swh_Latn sw   zho_Hant zh-Hant   zho_Hans zh   srp_Cyrl sr   sr-Latn sr-Latn   kas_Arab ks   kas_Deva ks-Deva
arb_Arab ar   arb_Latn ar-Latn   jpn_Jpan ja   kor_Hang ko   ace_Latn ace   ace_Arab ace-Arab   ckb_Arab ckb
"""
EXAMPLES = list(zip(*[iter(WRITTEN_AND_CANONICAL.split())] * 2, strict=True))


@pytest.mark.parametrize(("written", "canonical"), EXAMPLES)
def test_canonical_code(written: str, canonical: str) -> None:
    assert canonical_code(written) == canonical


@given(st.sampled_from([canonical for _, canonical in EXAMPLES]), st.booleans(), st.booleans())
def test_a_canonical_code_is_unchanged_for_any_case_and_separator(code: str, upper: bool, underscore: bool) -> None:
    written = code.upper() if upper else code.lower()
    assert canonical_code(written.replace("-", "_") if underscore else written) == code


@pytest.mark.parametrize(
    ("written", "suggestion"),
    [("xx", "xh"), ("jp", "jpn"), ("english", "eng"), ("zh-", "zh"), ("qzz", "zzj")],
)
def test_an_unknown_code_is_refused_with_a_suggestion(written: str, suggestion: str) -> None:
    with pytest.raises(BadInput, match=f"{written!r} is not a language code.*did you mean '{suggestion}'"):
        canonical_code(written)


@pytest.mark.parametrize(
    "written", ["", "e", "e1", "en-", "-en", "en--US", "en fr", "en.txt", "x-klingon", "en-x-mine", "日本"]
)
def test_invalid_codes_are_refused(written: str) -> None:
    with pytest.raises(BadInput, match="is not a language code"):
        canonical_code(written)


# ---- pairs ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("en-fr", ("en", "fr")),
        ("FRA-eng", ("fr", "en")),
        ("pt-BR-en", ("pt-BR", "en")),
        ("en-pt_br", ("en", "pt-BR")),
        ("zh-Hant-zh", ("zh-Hant", "zh")),
        ("qaa-qab", ("qaa", "qab")),
        ("en-zh_CN", ("en", "zh-CN")),
        ("af_ZA-en_XX", ("af", "en")),
        ("en_XX-pt_XX", ("en", "pt")),
        ("en_XX-zh_CN", ("en", "zh")),
        ("en_XX-zh_TW", ("en", "zh-Hant")),
        ("cb_IQ-en_XX", ("ckb", "en")),
        ("en_XX-zz_TR", ("en", "zza")),
        ("en_XX-hi_IN_rom", ("en", "hi-Latn")),
    ],
)
def test_the_two_languages_of_a_pair(written: str, canonical: tuple[str, str]) -> None:
    assert parse_pair(written) == canonical


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("en", "'en' is not a language pair. Write two codes"),
        ("", "is not a language pair"),
        ("en_fr", "is not a language pair"),
        ("en-", "is not a language pair"),
        ("en-fr-de", "is not a language pair"),
        ("en-xx", "'xx' is not a language code"),
        ("sw-swh", "pairs sw with itself"),
        ("en_XX-en_US", "pairs en with itself"),
        ("en_XX-xx_XX", "'xx' is not a language code"),
    ],
)
def test_invalid_pairs_are_refused(written: str, expected: str) -> None:
    with pytest.raises(BadInput, match=expected):
        parse_pair(written)


@pytest.mark.parametrize(
    ("codes", "pair", "found"),
    [
        ("en fr", ("en", "fr"), ("en", "fr")),
        ("fra text ENG id", ("en", "fr"), ("ENG", "fra")),
        ("en-US en fr-FR fr-CA", ("en", "fr"), ("en", "fr-FR")),
        ("de fr", ("en", "fr"), (None, "fr")),
        ("pt-PT pt-BR", ("pt", "pt-BR"), ("pt-PT", "pt-BR")),
        ("pt-BR", ("pt", "pt-BR"), (None, "pt-BR")),
        ("pt", ("pt-BR", "en"), (None, None)),
        ("zh-TW zh-Hant-HK", ("zh", "zh-Hant"), ("zh-TW", "zh-Hant-HK")),
        ("ca-valencia es-419", ("ca", "es"), ("ca-valencia", "es-419")),
        (f"en-{'x' * 1_000_000}", ("en", "fr"), (None, None)),
    ],
)
def test_codes_of_the_two_languages_of_a_pair(
    codes: str, pair: tuple[str, str], found: tuple[str | None, str | None]
) -> None:
    assert match_codes(codes.split(), pair) == found


# ---- languages with few pairs -------------------------------------------------------------------------------


def test_a_removed_language_takes_its_pairs_along() -> None:
    pairs = {("a", "b"): 10, ("b", "c"): 6, ("c", "d"): 3, ("a", "e"): 20}
    assert small_languages(pairs, 5) == {"d": 3}
    assert small_languages(pairs, 8) == {"d": 3, "c": 6}
    assert small_languages(pairs, 11) == {"d": 3, "c": 9, "b": 10}
    assert small_languages(pairs, 1) == {}


@given(
    st.dictionaries(st.tuples(st.sampled_from("abc"), st.sampled_from("def")), st.integers(0, 20), max_size=9),
    st.integers(1, 30),
)
def test_every_remaining_language_has_enough_pairs(pairs: dict[tuple[str, str], int], fewest: int) -> None:
    removed = small_languages(pairs, fewest)
    left = {both: count for both, count in pairs.items() if not removed.keys() & set(both)}
    for language in {language for both in left for language in both}:
        assert sum(count for both, count in left.items() if language in both) >= fewest
    assert not small_languages(left, fewest)
