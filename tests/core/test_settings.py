"""Settings from text and JSON: right types, bounds, and errors that name the fix."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossling.core import settings
from crossling.core.errors import BadInput
from crossling.core.settings import AT_LEAST_1, FRACTION, POSITIVE, PROBABILITY, SEED, Bounds


@dataclass(frozen=True)
class Engine:
    power: Annotated[float, POSITIVE]
    norm: Literal["post", "pre"] = "post"
    queue: Literal[0, 8] = 0
    lambda_: Annotated[float, Bounds(at_least=0, at_most=100)] = 50.0
    turbo: bool = False


@dataclass(frozen=True)
class Radio:
    volume: Annotated[int, Bounds(at_least=0, at_most=11)] = 5
    station: str | None = None


@dataclass(frozen=True)
class Car:
    name: str
    engine: Engine
    seats: Annotated[int, AT_LEAST_1] = 4
    limit: Annotated[int | None, AT_LEAST_1] = None
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
def test_assign_parses_by_type(assignment: str, path: str, expected: object) -> None:
    found = get(settings.assign(CAR, assignment), path)
    assert found == expected
    assert type(found) is type(expected)


def test_assign_changes_one_setting_of_a_copy() -> None:
    assert settings.assign(CAR, "engine.norm=pre") == Car("red", Engine(1.5, norm="pre"))
    assert Car("red", Engine(1.5)) == CAR


def test_on_keeps_the_settings_of_a_part_that_is_on() -> None:
    loud = settings.assign(CAR, "radio.volume=11")
    assert settings.assign(loud, "radio=on").radio == Radio(volume=11)


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("seats", "'seats': expected key=value"),
        ("=5", "'=5': expected key=value"),
        ("", "'': expected key=value"),
        ("seets=5", "seets: there is no 'seets'; did you mean 'seats'?"),
        ("engine.powr=5", "engine.powr: there is no 'powr'; did you mean 'power'?"),
        ("engine.lamda=5", "engine.lamda: there is no 'lamda'; did you mean 'lambda'?"),
        ("radio.zzz=5", "radio.zzz: there is no 'zzz'; valid: station, volume"),
        ("seats.left=5", "seats.left: 'seats' is a single value. Set seats=VALUE."),
        ("seats=many", "seats=many: expected a whole number"),
        ("seats=2.5", "seats=2.5: expected a whole number"),
        ("seats=", "seats=: expected a whole number"),
        ("limit=x", "limit=x: expected a whole number"),
        ("engine.power=much", "engine.power=much: expected a number"),
        ("engine.power=nan", "engine.power=nan: expected a number"),
        ("engine.power=1e999", "engine.power=1e999: expected a number"),
        ("engine.turbo=1", "engine.turbo=1: expected true or false"),
        ("engine.norm=mid", "engine.norm=mid: expected one of post, pre"),
        ("engine.queue=4", "engine.queue=4: expected one of 0, 8"),
        ("radio=5", "radio=5: expected on or off, or a setting in it as radio.volume=VALUE."),
        ("engine=off", "engine=off: engine cannot be turned off"),
        ("spare=none", "spare=none: expected on or off"),
    ],
)
def test_wrong_assignment_names_problem_and_fix(assignment: str, message: str) -> None:
    with pytest.raises(BadInput) as caught:
        settings.assign(CAR, assignment)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


@given(st.integers())
def test_every_whole_number_is_parsed(number: int) -> None:
    assert settings.assign(CAR, f"seats={number}").seats == number


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_number_is_parsed_to_the_bit(number: float) -> None:
    assert settings.assign(CAR, f"engine.power={number!r}").engine.power == number


KEYS = ["seats", "limit", "engine", "engine.power", "engine.turbo", "engine.norm", "radio", "radio.station", "name"]


@given(st.text() | st.builds("{}={}".format, st.sampled_from(KEYS), st.text()))
def test_any_text_is_an_assignment_or_bad_input(text: str) -> None:
    try:
        found = settings.assign(CAR, text)
    except BadInput:
        return
    assert settings.from_dict(Car, json.loads(json.dumps(asdict(found))), "file") == found


# ---- JSON ---------------------------------------------------------------------------------------------------


def test_json_is_read_back() -> None:
    car = Car("blue", Engine(2.0, "pre", 8, 1.0, True), 2, 9, Radio(1, "fm4"), Radio(0))
    for one in (car, CAR):
        assert settings.from_dict(Car, json.loads(json.dumps(asdict(one))), "file") == one


def test_missing_keys_are_defaults_and_whole_numbers_are_numbers() -> None:
    found = settings.from_dict(Car, {"name": "x", "engine": {"power": 2}}, "file")
    assert found == Car("x", Engine(2.0))
    assert type(found.engine.power) is float


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seets": 4}, "car.json: there is no 'seets'; did you mean 'seats'?"),
        ({"engine": {"power": 1, "nrm": "pre"}}, "car.json: engine: there is no 'nrm'; did you mean 'norm'?"),
        ({"engine": {"norm": "pre"}}, "car.json: engine: 'power' is missing"),
        ({"engine": None}, "car.json: engine=null: expected an object"),
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
def test_wrong_json_names_the_key(change: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput) as caught:
        settings.from_dict(Car, {"name": "red", "engine": {"power": 1.5}} | change, "car.json")
    assert str(caught.value).startswith(message)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(["none", "on", "4", "pre"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["power", "norm", "x"]), inner),
    max_leaves=4,
)


@given(st.sampled_from(["name", "seats", "limit", "engine", "radio", "spare", "x"]), JSON)
def test_any_json_is_read_unchanged_or_bad_input(key: str, value: Any) -> None:
    stored = {"name": "red", "engine": {"power": 1.5}, key: value}
    try:
        found = settings.from_dict(Car, stored, "file")
    except BadInput:
        return
    written = asdict(found)
    if isinstance(value, dict):
        assert written[key] | value == written[key]
    else:
        assert written[key] == value
        assert type(written[key]) is type(value)


# ---- bounds -------------------------------------------------------------------------------------------------


def test_values_within_bounds_pass() -> None:
    settings.check_bounds(CAR, "car")
    settings.check_bounds(Car("red", Engine(1.5, lambda_=100.0), seats=1, limit=None, radio=Radio(11)), "car")


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("seats=0", "car red: seats must be at least 1, found 0."),
        ("limit=-3", "car red: limit must be at least 1, found -3."),
        ("engine.power=0", "car red: engine.power must be more than 0, found 0.0."),
        ("engine.lambda=101", "car red: engine.lambda must be at least 0 and at most 100, found 101.0."),
        ("radio.volume=12", "car red: radio.volume must be at least 0 and at most 11, found 12."),
        ("spare.volume=-1", "car red: spare.volume must be at least 0 and at most 11, found -1."),
    ],
)
def test_value_out_of_bounds_names_key_bound_and_value(assignment: str, message: str) -> None:
    with pytest.raises(BadInput) as caught:
        settings.check_bounds(settings.assign(CAR, assignment), "car red")
    assert str(caught.value) == message


def test_nan_is_out_of_any_bounds() -> None:
    with pytest.raises(BadInput, match=r"engine\.power must be more than 0, found nan"):
        settings.check_bounds(Car("red", Engine(float("nan"))), "car")


@pytest.mark.parametrize(
    ("bounds", "inside", "outside"),
    [
        (AT_LEAST_1, (1, 5), (0, -1)),
        (POSITIVE, (1e-9, 5), (0, -1)),
        (PROBABILITY, (0, 0.5, 1), (-0.1, 1.1)),
        (FRACTION, (0, 0.999), (-0.1, 1)),
        (SEED, (0, 2**32 - 1), (-1, 2**32)),
    ],
)
def test_bounds_contain(bounds: Bounds, inside: tuple[float, ...], outside: tuple[float, ...]) -> None:
    assert all(value in bounds for value in inside)
    assert not any(value in bounds for value in outside)


def test_flatten_gives_keys_as_assign_takes_them() -> None:
    found = dict(settings.flatten(CAR))
    assert found["engine.lambda"] == 50.0
    assert found["radio"] is None
    assert settings.assign(CAR, f"engine.lambda={found['engine.lambda']}") == CAR


def test_later_settings_are_reset_to_none_unless_they_are_stored() -> None:
    car = Car("red", Engine(1.5, turbo=True), limit=3, spare=Radio(7, "one"))
    stored = json.loads(json.dumps(asdict(car)))
    assert settings.without_later_settings(car, stored) == car
    del stored["limit"], stored["spare"]["station"], stored["engine"]["turbo"]
    # Only a setting whose default is None can have been added later.
    assert settings.without_later_settings(car, stored) == replace(car, limit=None, spare=Radio(7))


# ---- aliases ------------------------------------------------------------------------------------------------

ALIASES = {"horsepower": "engine.power", "doors": "A car here has seats only. Use --set seats=N.", "volume": "x"}


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("horsepower=2", "horsepower=2: horsepower is called engine.power here. Set engine.power=2."),
        ("engine.horsepower=2", "engine.horsepower=2: horsepower is called engine.power here."),
        ("doors=4", "doors=4: A car here has seats only. Use --set seats=N."),
    ],
)
def test_alias_is_answered_with_the_key_used_here(assignment: str, message: str) -> None:
    with pytest.raises(BadInput) as caught:
        settings.assign(CAR, assignment, ALIASES)
    assert str(caught.value).startswith(message)


def test_setting_of_the_same_name_as_an_alias_is_assigned() -> None:
    assert settings.assign(CAR, "spare.volume=7", ALIASES).spare.volume == 7
