from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crossling.core.errors import BadInput
from crossling.tasks.massive import INTENTS, LANGUAGES, SLOTS, IntentReader, SlotReader
from crossling.tasks.metrics import METRICS
from crossling.tasks.registry import get_dataset

Put = Callable[[str, str], Path]
LOCALE, UTTERANCE, ANNOTATION = (
    "en-US",
    "wake me at five am this week",
    "wake me at [time : five am] [date : this week]",
)


def request(annotation: str | None = ANNOTATION, **changes: object) -> dict[str, object]:
    """Return a record with the keys of the release. `annotation` None: as in the held-out set without labels."""
    record: dict[str, object] = {"id": "1", "locale": LOCALE, "partition": "test", "scenario": "alarm"}
    record |= {"intent": "alarm_set", "utt": UTTERANCE, "annot_utt": annotation, "worker_id": "8"}
    record |= changes
    return {key: value for key, value in record.items() if annotation is not None or key not in ("annot_utt", "intent")}


def lines(*records: dict[str, object]) -> str:
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)


def test_a_locale_has_all_splits_in_one_file(put: Put, tmp_path: Path) -> None:
    parts = [request(id=str(row), partition=split) for row, split in enumerate(("train", "dev", "test", "test"))]
    put("massive/1.1/data/en-US.jsonl", lines(*parts))
    put("massive/1.1/data/zh-TW.jsonl.gz", lines(request("[date : 週]", utt="週", locale="zh-TW")))
    for name in ("massive-intents", "massive-slots"):
        dataset = get_dataset(name)
        assert dataset.languages(tmp_path, "test") == ["en", "zh-Hant"]
        assert [example.id for example in dataset.read(tmp_path, "test", "en")] == ["2", "3"]
        assert [example.id for example in dataset.read_training(tmp_path)[1]] == ["0"]
    with pytest.raises(BadInput, match=r"zh-TW.jsonl: no request of the partition 'train'"):
        get_dataset("massive-intents").read(tmp_path, "train", "zh-Hant")


def test_intents_and_slots_of_a_request(put: Put) -> None:
    file = put("en-US.jsonl", lines(request()))
    [intent] = IntentReader("test")(file, INTENTS)
    assert (intent.texts, intent.label) == ((UTTERANCE,), "alarm_set")
    [slots] = SlotReader("test")(file, SLOTS)
    assert slots.words == tuple(UTTERANCE.split())
    assert slots.tags == ("O", "O", "O", "time", "time", "date", "date")


def test_requests_without_labels(put: Put) -> None:
    file = put("en-US.jsonl", lines(request(None)))
    assert IntentReader("test")(file, INTENTS)[0].label is None
    [slots] = SlotReader("test")(file, SLOTS)
    assert (slots.words, slots.tags) == (tuple(UTTERANCE.split()), None)


@pytest.mark.parametrize(
    ("locale", "utterance", "annotation", "words", "tags"),
    [
        ("ja-JP", "今週の予定", "[date : 今週] の 予定", "今 週 の 予 定", "date date O O O"),
        ("zh-CN", "用 spotify 放歌", "用 [app_name : spotify] 放歌", "用 spotify 放 歌", "O app_name O O"),
        ("zh-CN", "7点叫我", "[time : 7点]叫我", "7 点 叫 我", "time time O O"),
        ("th-TH", "ปลุกฉัน ตอนห้าโมง", "ปลุกฉัน [time : ตอนห้าโมง]", "ปลุกฉัน ตอนห้าโมง", "O time"),
        ("de-DE", "um fünf, bitte", "um [time : fünf], bitte", "um fünf, bitte", "O time O"),
    ],
)
def test_words_are_those_of_the_published_program(
    put: Put, locale: str, utterance: str, annotation: str, words: str, tags: str
) -> None:
    [example] = SlotReader("test")(put("a.jsonl", lines(request(annotation, utt=utterance, locale=locale))), SLOTS)
    assert (" ".join(example.words), " ".join(example.tags or ())) == (words, tags)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"annot_utt": "wake me [date : this week]"}, "line 1: 7 words in 'utt' but 4 in 'annot_utt'"),
        ({"annot_utt": "wake me at [time five am this week"}, r"not written as \[type : text\]"),
        ({"annot_utt": "wake me at five am [day : this week]"}, "line 1: unknown label 'day'"),
        ({"utt": " ", "annot_utt": ""}, "line 1: 'utt' is empty"),
    ],
)
def test_damaged_slots_are_refused(put: Put, changes: dict[str, object], message: str) -> None:
    file = put("a.jsonl", lines(request(**changes)))
    with pytest.raises(BadInput, match=message):
        SlotReader("test")(file, SLOTS)


def test_damaged_requests_are_refused(put: Put) -> None:
    with pytest.raises(BadInput, match="line 2: unknown label 'alarm_sett'; did you mean 'alarm_set'"):
        IntentReader("test")(put("a.jsonl", lines(request(), request(intent="alarm_sett"))), INTENTS)
    with pytest.raises(BadInput, match="line 1: no key 'partition'"):
        IntentReader("test")(put("b.jsonl", '{"id": "1"}\n'), INTENTS)


def test_the_label_sets_have_the_published_sizes() -> None:
    assert (len(INTENTS), len(SLOTS) - 1, len(LANGUAGES), len({*LANGUAGES.values()})) == (60, 55, 52, 52)
    assert all("-" not in slot and not slot[0].isupper() for slot in SLOTS[1:])  # so that find_chunks sees types alone


SLOT = st.sampled_from(["O", "time", "date", "song_name"])


@settings(max_examples=30)
@given(
    sentences=st.lists(
        st.lists(st.one_of(SLOT.map(lambda tag: (tag, tag)), st.tuples(SLOT, SLOT)), min_size=1, max_size=8), min_size=1
    )
)
def test_slot_f1_equals_seqeval_on_the_published_conversion(sentences: list[list[tuple[str, str]]]) -> None:
    """MASSIVE's program writes B- at the first of a run of equal types and I- at the others, then calls seqeval."""
    f1_score = pytest.importorskip("seqeval.metrics").f1_score
    gold, predicted = ([[pair[side] for pair in sentence] for sentence in sentences] for side in (0, 1))
    converted = [
        [
            [
                "O" if tag == "O" else f"{'I' if place and tags[place - 1] == tag else 'B'}-{tag}"
                for place, tag in enumerate(tags)
            ]
            for tags in side
        ]
        for side in (gold, predicted)
    ]
    expected = 100 * f1_score(*converted, zero_division=0)
    assert METRICS["slot-f1"].score(gold, predicted) == pytest.approx(expected)
    right = [one == other for one, other in zip(gold, predicted, strict=True)]
    assert METRICS["slot-exact-match"].score(gold, predicted) == pytest.approx(100 * sum(right) / len(right))
