"""What a person writes becomes a value of the right type, or one sentence that helps."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossling import settings
from crossling.errors import BadInput


@dataclass(frozen=True)
class Engine:
    power: float
    norm: Literal["post", "pre"] = "post"
    queue: Literal[0, 8] = 0
    lambda_: float = 50.0
    turbo: bool = False


@dataclass(frozen=True)
class Radio:
    volume: int = 5
    station: str | None = None


@dataclass(frozen=True)
class Car:
    name: str
    engine: Engine
    seats: int = 4
    limit: int | None = None
    radio: Radio | None = None
    spare: Radio = field(default_factory=Radio)


CAR = Car("red", Engine(1.5))


def get(value: Any, path: str) -> Any:
    for name in path.split("."):
        value = getattr(value, name)
    return value


@pytest.mark.parametrize(
    ("assignment", "path", "expected"),
    [
        ("seats=2", "seats", 2),
        ("seats=-1", "seats", -1),
        ("engine.power=2", "engine.power", 2.0),
        ("engine.power=1e-3", "engine.power", 0.001),
        ("engine.turbo=true", "engine.turbo", True),
        ("engine.turbo=on", "engine.turbo", True),
        ("engine.turbo=off", "engine.turbo", False),
        ("engine.norm=pre", "engine.norm", "pre"),
        ("engine.queue=8", "engine.queue", 8),
        ("engine.lambda=5", "engine.lambda_", 5.0),
        ("limit=3", "limit", 3),
        ("limit=none", "limit", None),
        ("name=a=b", "name", "a=b"),
        ("name=", "name", ""),
        ("name=none", "name", "none"),
        ("radio=on", "radio", Radio()),
        ("radio=off", "radio", None),
        ("radio.volume=7", "radio", Radio(volume=7)),
        ("radio.station=fm4", "radio.station", "fm4"),
        ("spare=on", "spare", Radio()),
    ],
)
def test_a_difference(assignment: str, path: str, expected: object) -> None:
    found = get(settings.changed(CAR, assignment), path)
    assert found == expected
    assert type(found) is type(expected)


def test_nothing_else_changes_and_the_old_value_stays() -> None:
    assert settings.changed(CAR, "engine.norm=pre") == Car("red", Engine(1.5, norm="pre"))
    assert Car("red", Engine(1.5)) == CAR


def test_on_keeps_what_is_on_already() -> None:
    loud = settings.changed(CAR, "radio.volume=11")
    assert settings.changed(loud, "radio=on").radio == Radio(volume=11)


@pytest.mark.parametrize(
    ("assignment", "sentence"),
    [
        ("seats", "--set seats: expected key=value"),
        ("=5", "--set =5: expected key=value"),
        ("", "--set : expected key=value"),
        ("seets=5", "--set seets: there is no 'seets'; did you mean 'seats'?"),
        ("engine.powr=5", "--set engine.powr: there is no 'powr'; did you mean 'power'?"),
        ("engine.lamda=5", "--set engine.lamda: there is no 'lamda'; did you mean 'lambda'?"),
        ("radio.zzz=5", "--set radio.zzz: there is no 'zzz'; valid: station, volume"),
        ("seats.left=5", "--set seats.left: 'seats' has no parts"),
        ("seats=many", "--set seats=many: expected a whole number"),
        ("seats=2.5", "--set seats=2.5: expected a whole number"),
        ("seats=", "--set seats=: expected a whole number"),
        ("limit=x", "--set limit=x: expected a whole number"),
        ("engine.power=much", "--set engine.power=much: expected a number"),
        ("engine.power=nan", "--set engine.power=nan: expected a number"),
        ("engine.power=1e999", "--set engine.power=1e999: expected a number"),
        ("engine.turbo=1", "--set engine.turbo=1: expected true or false"),
        ("engine.norm=mid", "--set engine.norm=mid: expected one of post, pre"),
        ("engine.queue=4", "--set engine.queue=4: expected one of 0, 8"),
        ("radio=5", "--set radio=5: expected on or off, or a part as in radio.volume=..."),
        ("engine=off", "--set engine=off: engine cannot be turned off"),
        ("spare=none", "--set spare=none: expected on or off"),
    ],
)
def test_a_wrong_difference_is_one_sentence(assignment: str, sentence: str) -> None:
    with pytest.raises(BadInput) as caught:
        settings.changed(CAR, assignment)
    assert str(caught.value).startswith(sentence)
    assert "\n" not in str(caught.value)


@given(st.integers())
def test_every_whole_number_comes_through(number: int) -> None:
    assert settings.changed(CAR, f"seats={number}").seats == number


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_number_comes_through_to_the_bit(number: float) -> None:
    assert settings.changed(CAR, f"engine.power={number!r}").engine.power == number


KEYS = ["seats", "limit", "engine", "engine.power", "engine.turbo", "engine.norm", "radio", "radio.station", "name"]


@given(st.text() | st.builds("{}={}".format, st.sampled_from(KEYS), st.text()))
def test_any_text_is_a_difference_or_bad_input(text: str) -> None:
    try:
        found = settings.changed(CAR, text)
    except BadInput:
        return
    assert settings.read(Car, json.loads(json.dumps(asdict(found))), "file") == found


# ---- JSON ---------------------------------------------------------------------------------------------------


def test_what_is_written_is_read() -> None:
    car = Car("blue", Engine(2.0, "pre", 8, 1.0, True), 2, 9, Radio(1, "fm4"), Radio(0))
    for one in (car, CAR):
        assert settings.read(Car, json.loads(json.dumps(asdict(one))), "file") == one


def test_what_is_not_written_is_the_default_and_whole_numbers_are_numbers() -> None:
    found = settings.read(Car, {"name": "x", "engine": {"power": 2}}, "file")
    assert found == Car("x", Engine(2.0))
    assert type(found.engine.power) is float


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"seets": 4}, "car.json: there is no 'seets'; did you mean 'seats'?"),
        ({"engine": {"power": 1, "nrm": "pre"}}, "car.json: engine: there is no 'nrm'; did you mean 'norm'?"),
        ({"engine": {"norm": "pre"}}, "car.json: engine: 'power' is missing"),
        ({"engine": None}, "car.json: engine=null"),
        ({"engine": 5}, "car.json: engine: expected an object, found 5"),
        ({"seats": "4"}, 'car.json: seats="4": expected a whole number'),
        ({"seats": "many"}, "car.json: seats=many: expected a whole number"),
        ({"seats": 4.0}, "car.json: seats=4.0: expected a whole number"),
        ({"seats": True}, "car.json: seats=true: expected a whole number"),
        ({"seats": None}, "car.json: seats=null: expected a whole number"),
        ({"name": 5}, "car.json: name=5: expected text"),
        ({"name": None}, "car.json: name=null: expected text"),
        ({"limit": "none"}, 'car.json: limit="none": expected a whole number or none'),
        ({"engine": {"power": "1"}}, 'car.json: engine: power="1": expected a number'),
        ({"engine": {"power": float("nan")}}, "car.json: engine: power=NaN: expected a number"),
        ({"engine": {"power": 1, "turbo": "on"}}, 'car.json: engine: turbo="on": expected true or false'),
        ({"engine": {"power": 1, "turbo": 1}}, "car.json: engine: turbo=1: expected true or false"),
        ({"engine": {"power": 1, "queue": "0"}}, 'car.json: engine: queue="0": expected one of 0, 8'),
        ({"engine": {"power": 1, "norm": ["pre"]}}, 'car.json: engine: norm=["pre"]: expected one of post, pre'),
    ],
)
def test_wrong_json_is_one_sentence(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadInput) as caught:
        settings.read(Car, {"name": "red", "engine": {"power": 1.5}} | change, "car.json")
    assert str(caught.value).startswith(sentence)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(["none", "on", "4", "pre"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["power", "norm", "x"]), inner),
    max_leaves=4,
)


@given(st.sampled_from(["name", "seats", "limit", "engine", "radio", "spare", "x"]), JSON)
def test_any_json_is_read_as_it_is_or_bad_input(key: str, value: Any) -> None:
    stored = {"name": "red", "engine": {"power": 1.5}, key: value}
    try:
        found = settings.read(Car, stored, "file")
    except BadInput:
        return
    written = asdict(found)
    if isinstance(value, dict):
        assert written[key] | value == written[key]
    else:
        assert written[key] == value
        assert type(written[key]) is type(value)
