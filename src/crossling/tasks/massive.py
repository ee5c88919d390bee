"""MASSIVE: intents and slots of requests to a voice assistant, in one JSON Lines file per locale with all splits.

Words are those of its own program: split at spaces, and for ja-JP, zh-CN and zh-TW into characters, except words of
ASCII characters. A tag is the type of the slot, without B and I: neighbouring words with the same type are one slot.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crossling.core.errors import BadInput
from crossling.tasks.dataset import ALL_SPLITS, FilePattern, Reader
from crossling.tasks.examples import ClassificationExample, TaggingExample
from crossling.tasks.label_metrics import OUTSIDE
from crossling.tasks.readers import check_label, get_text, read_json_lines

INTENTS = (
    "alarm_query", "alarm_remove", "alarm_set", "audio_volume_down", "audio_volume_mute", "audio_volume_other",
    "audio_volume_up", "calendar_query", "calendar_remove", "calendar_set", "cooking_query", "cooking_recipe",
    "datetime_convert", "datetime_query", "email_addcontact", "email_query", "email_querycontact", "email_sendemail",
    "general_greet", "general_joke", "general_quirky", "iot_cleaning", "iot_coffee", "iot_hue_lightchange",
    "iot_hue_lightdim", "iot_hue_lightoff", "iot_hue_lighton", "iot_hue_lightup", "iot_wemo_off", "iot_wemo_on",
    "lists_createoradd", "lists_query", "lists_remove", "music_dislikeness", "music_likeness", "music_query",
    "music_settings", "news_query", "play_audiobook", "play_game", "play_music", "play_podcasts", "play_radio",
    "qa_currency", "qa_definition", "qa_factoid", "qa_maths", "qa_stock", "recommendation_events",
    "recommendation_locations", "recommendation_movies", "social_post", "social_query", "takeaway_order",
    "takeaway_query", "transport_query", "transport_taxi", "transport_ticket", "transport_traffic", "weather_query",
)  # fmt: skip
SLOTS = (
    OUTSIDE, "alarm_type", "app_name", "artist_name", "audiobook_author", "audiobook_name", "business_name",
    "business_type", "change_amount", "coffee_type", "color_type", "cooking_type", "currency_name", "date",
    "definition_word", "device_type", "drink_type", "email_address", "email_folder", "event_name", "food_type",
    "game_name", "game_type", "general_frequency", "house_place", "ingredient", "joke_type", "list_name", "meal_type",
    "media_type", "movie_name", "movie_type", "music_album", "music_descriptor", "music_genre", "news_topic",
    "order_type", "person", "personal_info", "place_name", "player_setting", "playlist_name", "podcast_descriptor",
    "podcast_name", "radio_name", "relation", "song_name", "sport_type", "time", "time_zone", "timeofday",
    "transport_agency", "transport_descriptor", "transport_name", "transport_type", "weather_descriptor",
)  # fmt: skip
_LOCALES = """
    af-ZA am-ET ar-SA az-AZ bn-BD ca-ES cy-GB da-DK de-DE el-GR en-US es-ES fa-IR fi-FI fr-FR he-IL hi-IN hu-HU hy-AM
    id-ID is-IS it-IT ja-JP jv-ID ka-GE km-KH kn-IN ko-KR lv-LV ml-IN mn-MN ms-MY my-MM nb-NO nl-NL pl-PL pt-PT ro-RO
    ru-RU sl-SL sq-AL sv-SE sw-KE ta-IN te-IN th-TH tl-PH tr-TR ur-PK vi-VN zh-CN
"""
LANGUAGES = {locale: locale.partition("-")[0] for locale in _LOCALES.split()} | {"zh-TW": "zh-Hant"}  # by locale
CHARACTER_LOCALES = ("ja-JP", "zh-CN", "zh-TW")

_SLOT = re.compile(r"\[\s*(?P<type>[^\[\]:]*?)\s*:(?P<text>[^\[\]]*)\]")


@dataclass(frozen=True)
class IntentReader:
    """Reader of the requests of one split with their intent."""

    split: str

    def __call__(self, path: Path, labels: tuple[str, ...]) -> list[ClassificationExample]:
        """Return the examples of a file."""
        return [
            ClassificationExample(
                get_text(where, record, "id"),
                (get_text(where, record, "utt"),),
                check_label(where, str(record["intent"]), labels) if "intent" in record else None,
            )
            for where, record in _read_split(path, self.split)
        ]


@dataclass(frozen=True)
class SlotReader:
    """Reader of the words of one split with the types of their slots."""

    split: str

    def __call__(self, path: Path, labels: tuple[str, ...]) -> list[TaggingExample]:
        """Return the examples of a file."""
        examples = []
        for where, record in _read_split(path, self.split):
            into_characters = get_text(where, record, "locale") in CHARACTER_LOCALES
            words = [word for word, _ in _split_words([(get_text(where, record, "utt"), OUTSIDE)], into_characters)]
            tags: tuple[str, ...] | None = None
            if "annot_utt" in record:
                tagged = _split_words(_parse_annotation(where, str(record["annot_utt"])), into_characters)
                if into_characters:  # spaces around slots separate words that `utt` writes together
                    words = [word for word, _ in tagged]
                elif len(tagged) != len(words):
                    raise BadInput(
                        f"{where}: {len(words)} words in 'utt' but {len(tagged)} in 'annot_utt'. Download the file"
                        " again."
                    )
                tags = tuple(check_label(where, tag, labels) for _, tag in tagged)
            if not words:
                raise BadInput(f"{where}: 'utt' is empty. Download the file again.")
            examples.append(TaggingExample(get_text(where, record, "id"), tuple(words), tags))
        return examples


def _read_split(path: Path, split: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the place for error messages and the record of each request of a split."""
    found = False
    for line, record in read_json_lines(path):
        where = f"{path}: line {line}"
        if get_text(where, record, "partition") == split:
            found = True
            yield where, record
    if not found:
        raise BadInput(f"{path}: no request of the partition {split!r}. Download the file again.")


def _parse_annotation(where: str, annotation: str) -> Iterator[tuple[str, str]]:
    """Yield the parts of `wake me [date : this week]` with their tag, without brackets and types."""
    end = 0
    for match in _SLOT.finditer(annotation):
        yield annotation[end : match.start()], OUTSIDE
        yield match["text"].strip(), match["type"]
        end = match.end()
    yield annotation[end:], OUTSIDE
    if "[" in _SLOT.sub("", annotation):
        raise BadInput(f"{where}: a slot of 'annot_utt' is not written as [type : text]. Download the file again.")


def _split_words(
    parts: Iterator[tuple[str, str]] | list[tuple[str, str]], into_characters: bool
) -> list[tuple[str, str]]:
    """Return the words with the tag of their first character."""
    text, tags = "", []
    for part, tag in parts:
        text += part
        tags += [tag] * len(part)
    words = []
    for match in re.finditer(r"\S+", text):
        if into_characters and not match[0].isascii():
            words += [(character, tags[match.start() + offset]) for offset, character in enumerate(match[0])]
        else:
            words.append((match[0], tags[match.start()]))
    return words


def _files(reader: Callable[[str], Reader]) -> tuple[FilePattern, ...]:
    """Return the file names of the releases, one pattern for each split."""
    return tuple(
        FilePattern(f"{folder}/{{language}}.jsonl", reader(split), splits={split: split}, codes=LANGUAGES)
        for folder in ("massive", "massive/data", "massive/1.1/data", "massive/1.0/data")
        for split in ALL_SPLITS
    )


INTENT_FILES, SLOT_FILES = _files(IntentReader), _files(SlotReader)
