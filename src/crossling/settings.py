"""Frozen dataclasses from what a person writes: `key=value` differences and JSON, strictly by their types."""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import replace
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from crossling.errors import BadInput, nearest

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")


def changed(value: T, assignment: str) -> T:
    """`value` with one difference: `steps=100`, `model.gate=false`; an optional part also takes `on` and `off`."""
    key, equals, text = assignment.partition("=")
    if not equals or not key:
        raise BadInput(f"--set {assignment}: expected key=value, for instance --set steps=1000")
    return _assigned(value, key.split("."), text, key)


def read(cls: type[T], stored: Any, where: str) -> T:
    """A dataclass from its JSON, refusing unknown keys and wrong types."""
    hints = get_type_hints(cls)
    names = {field.name for field in dataclasses.fields(cls)}
    if not isinstance(stored, dict):
        raise BadInput(f"{where}: expected an object, found {stored!r}")
    for key in stored:
        if key not in names:
            raise BadInput(f"{where}: there is no {key!r}{nearest(key, names)}")
    values = {}
    for key, value in stored.items():
        part = _dataclass_in(hints[key])
        if part is not None and value is not None:
            values[key] = read(part, value, f"{where}: {key}")
        else:
            text = value if isinstance(value, str) else json.dumps(value)
            values[key] = _parse(hints[key], text, f"{where}: {key}")
            # 100 is not "100", and null is no word: what was parsed must be what was written.
            if type(values[key]) is not type(value) and not (type(value) is int and type(values[key]) is float):
                raise BadInput(f"{where}: {key}={json.dumps(value)}: expected {_kind(hints[key])}")
    for field in dataclasses.fields(cls):
        if field.name not in values and field.default is field.default_factory is dataclasses.MISSING:
            raise BadInput(f"{where}: {field.name!r} is missing")
    return cls(**values)


def part(cls: type, name: str) -> Any:
    """The dataclass that a field of `cls` holds, or may hold."""
    return _dataclass_in(get_type_hints(cls)[name])


def _assigned(value: Any, keys: list[str], text: str, full: str) -> Any:
    hints = get_type_hints(type(value))
    key = keys[0] if keys[0] in hints else f"{keys[0]}_"  # `lambda` is a word of Python, its field is `lambda_`
    names = {field.name.rstrip("_") for field in dataclasses.fields(value)}
    if keys[0] not in names:
        raise BadInput(f"--set {full}: there is no {keys[0]!r}{nearest(keys[0], names)}")
    part = _dataclass_in(hints[key])
    if part is None:
        if len(keys) > 1:
            raise BadInput(f"--set {full}: {keys[0]!r} has no parts")
        return replace(value, **{key: _parse(hints[key], text, f"--set {full}")})
    current = getattr(value, key)
    if len(keys) == 1:
        if text not in ("on", "off"):
            raise BadInput(f"--set {full}={text}: expected on or off, or a part as in {full}.{_first_field(part)}=...")
        if text == "off" and NoneType not in get_args(hints[key]):
            raise BadInput(f"--set {full}=off: {full} cannot be turned off")
        return replace(value, **{key: (current or part()) if text == "on" else None})
    return replace(value, **{key: _assigned(current or part(), keys[1:], text, full)})


def _parse(hint: Any, text: str, where: str) -> Any:
    """A plain value from text, by its type."""
    options = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    if NoneType in options and text in ("none", "null"):
        return None
    for option in options:
        if get_origin(option) is Literal:
            for allowed in get_args(option):
                if text == str(allowed):
                    return allowed
            raise BadInput(f"{where}={text}: expected {_kind(option)}")
        if option is bool:
            if text in ("true", "on", "false", "off"):
                return text in ("true", "on")
            raise BadInput(f"{where}={text}: expected {_kind(option)}")
        if option in (int, float):
            try:
                number = option(text)
                if option is int or math.isfinite(number):
                    return number
            except ValueError:
                pass
            raise BadInput(f"{where}={text}: expected {_kind(option)}")
        if option is str:
            return text
    raise BadInput(f"{where}={text}: not understood")


def _dataclass_in(hint: Any) -> Any:
    """The dataclass of a field's type, through `| None`."""
    for option in get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,):
        if dataclasses.is_dataclass(option):
            return option
    return None


def _kind(hint: Any) -> str:
    """A plain type in words."""
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "text", NoneType: "none"}
    options = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    return " or ".join(
        names[option] if option in names else f"one of {', '.join(map(str, get_args(option)))}" for option in options
    )


def _first_field(cls: Any) -> str:
    return dataclasses.fields(cls)[0].name.rstrip("_")
