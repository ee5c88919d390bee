"""Settings: frozen dataclasses read from `key=value` text and from JSON, with types and bounds checked.

The type of a field defines the accepted values. Its bounds are declared beside it:

    @dataclass(frozen=True)
    class TrainingSettings:
        lr: Annotated[float, POSITIVE]
        steps: Annotated[int, AT_LEAST_1] = 1000
        length: Annotated[int, Bounds(at_least=8, at_most=512)] = 128
        dropout: Annotated[float, FRACTION] = 0.1
        limit: Annotated[int | None, AT_LEAST_1] = None  # None is within any bounds

    settings = assign(TrainingSettings(lr=1e-4), "steps=0")
    check_bounds(settings, "recipe xlm_e")  # BadInput: recipe xlm_e: steps must be at least 1, found 0.

`assign` and `from_dict` check types only, so that a caller can check once all values are set.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, is_dataclass, replace
from functools import cache
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from crossling.core.errors import BadInput, shorten, suggestion

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """Range of a numeric field, given in its annotation: `steps: Annotated[int, Bounds(at_least=1)]`."""

    at_least: float | None = None
    more_than: float | None = None
    at_most: float | None = None
    less_than: float | None = None

    def __contains__(self, value: float) -> bool:
        return (
            (self.at_least is None or value >= self.at_least)
            and (self.more_than is None or value > self.more_than)
            and (self.at_most is None or value <= self.at_most)
            and (self.less_than is None or value < self.less_than)
        )

    def __str__(self) -> str:
        given = dataclasses.asdict(self).items()
        return " and ".join(f"{name.replace('_', ' ')} {limit}" for name, limit in given if limit is not None)


AT_LEAST_0 = Bounds(at_least=0)
AT_LEAST_1 = Bounds(at_least=1)
POSITIVE = Bounds(more_than=0)
PROBABILITY = Bounds(at_least=0, at_most=1)
FRACTION = Bounds(at_least=0, less_than=1)
SEED = Bounds(at_least=0, less_than=2**32)

_PRECISION = "GPUs train in bfloat16 with float32 weights, CPUs in float32. Omit it."
_MICRO_BATCHES = "Micro-batches follow from the tokens that fit into memory at once. Set micro_tokens=N."
# Names that other libraries give to a setting, by our key or by a hint.
_CONVENTIONAL_NAMES = {
    "lr": "learning_rate peak_lr max_lr",
    "steps": "max_steps num_train_steps num_steps total_steps train_steps",
    "epochs": "num_train_epochs num_epochs",
    "batch": "batch_size train_batch_size per_device_train_batch_size",
    "length": "max_length max_seq_length max_seq_len seq_length sequence_length seq_len",
    "warmup": "warmup_steps num_warmup_steps warmup_ratio",
    "weight_decay": "wd",
    "clip": "max_grad_norm grad_clip gradient_clip_val clip_norm",
    "seed": "random_seed manual_seed",
    "log_every": "logging_steps log_interval log_every_n_steps",
    "checkpoint_every": "save_steps save_interval checkpoint_interval save_every",
    _PRECISION: "fp16 bf16 precision mixed_precision dtype amp",
    _MICRO_BATCHES: "gradient_accumulation_steps accumulate_grad_batches",
}


def conventional_aliases(**ours: str) -> dict[str, str]:
    """Return the names that other libraries give to training settings, for `assign`.

    Args:
        **ours: Key or hint for a setting with another key: `warmup="optimizer.warmup"`.

    Returns:
        Key or hint by conventional name.

    Example:
        >>> conventional_aliases(batch="tokens")["batch_size"]
        'tokens'
    """
    aliases = {name: ours.get(key, key) for key, names in _CONVENTIONAL_NAMES.items() for name in names.split()}
    return aliases | {key: name for key, name in ours.items() if key != name}


def check_bounds(settings: DataclassInstance, where: str) -> None:
    """Raise BadInput for the first value of `settings`, or of its nested dataclasses, that is out of its bounds.

    Args:
        settings: Dataclass whose fields may be annotated with `Bounds`.
        where: Start of the error message, for instance `recipe xlm_e` or a file name.
    """
    for key, value, hint in _plain_settings(settings):
        for bounds in getattr(hint, "__metadata__", ()):
            if not isinstance(bounds, Bounds) or value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise BadInput(f"{where}: {key} must be a number, found {value!r} ({type(value).__name__}).")
            if value not in bounds:
                raise BadInput(f"{where}: {key} must be {bounds}, found {value}.")


def flatten(settings: DataclassInstance) -> Iterator[tuple[str, Any]]:
    """Yield every plain setting with its key as `assign` takes it: `model.width`, `trtd.lambda`."""
    return ((key, value) for key, value, _ in _plain_settings(settings))


# Evaluating the annotations of a class takes milliseconds, and a plan of a lab needs them thousands of times.
@cache
def _annotations(cls: type) -> Mapping[str, Any]:
    """Return the annotation of every field, with its bounds."""
    return get_type_hints(cls, include_extras=True)


@cache
def _types(cls: type) -> Mapping[str, Any]:
    """Return the type of every field."""
    return get_type_hints(cls)


def _plain_settings(settings: DataclassInstance, prefix: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield key, value and annotation of every setting that is no dataclass itself."""
    hints = _annotations(type(settings))
    for field in dataclasses.fields(settings):
        key, value = f"{prefix}{field.name.rstrip('_')}", getattr(settings, field.name)
        if is_dataclass(value) and not isinstance(value, type):
            yield from _plain_settings(value, f"{key}.")
        else:
            yield key, value, hints[field.name]


def assign(value: T, assignment: str, aliases: Mapping[str, str] | None = None) -> T:
    """Return `value` with one setting changed: `steps=100`, `model.gate=false`, or `xlco=on` for an optional part.

    Args:
        value: Dataclass to change.
        assignment: Dotted key and value.
        aliases: Key or hint by conventional name, for the error of a name that is no setting (`alias_hint`).

    Raises:
        BadInput: The key is unknown, or the value has another type.
    """
    key, equals, text = assignment.partition("=")
    if not equals or not key:
        raise BadInput(f"{shorten(assignment)!r}: expected key=value, for instance steps=1000.")
    hint = alias_hint(value, key, text, aliases or {})
    if hint:
        raise BadInput(f"{assignment}: {hint}")
    changed: T = _assigned(value, key.split("."), text, key)
    return changed


def parse_value(cls: type, name: str, text: str) -> Any:
    """Return the value of one setting of a dataclass, given as text.

    Raises:
        BadInput: The value has another type.
    """
    return _parse(_types(cls)[name], text, name)


def alias_hint(settings: DataclassInstance, key: str, text: str, aliases: Mapping[str, str]) -> str | None:
    """Return which setting to use for a conventional name, or None if it is a setting here or unknown.

    Args:
        settings: Dataclass whose settings are known.
        key: Key that the user gave.
        text: Its value.
        aliases: Key or hint by conventional name.
    """
    name = key.rpartition(".")[2]
    ours = aliases.get(name, "")
    if " " in ours and not _has_key(settings, key):
        return ours
    if ours and _has_key(settings, ours) and not _has_key(settings, key):
        return f"{name} is called {ours} here. Set {ours}={text}."
    return None


def from_dict(cls: type[T], stored: Any, where: str) -> T:
    """Return a dataclass from its JSON object, refusing unknown keys, missing keys and wrong types."""
    hints = _types(cls)
    names = {field.name for field in dataclasses.fields(cls)}
    if not isinstance(stored, dict):
        raise BadInput(f"{where}: expected an object, found {stored!r}.")
    for key in stored:
        if key not in names:
            raise BadInput(f"{where}: there is no {key!r}{suggestion(key, names)}")
    values = {key: _from_json(hints[key], value, f"{where}: {key}") for key, value in stored.items()}
    for field in dataclasses.fields(cls):
        if field.name not in stored and field.default is field.default_factory is dataclasses.MISSING:
            raise BadInput(f"{where}: {field.name!r} is missing. Add it.")
    return cls(**values)


def without_later_settings(value: T, stored: Mapping[str, Any]) -> T:
    """Return `value` without the settings that an earlier version, which wrote `stored`, did not have.

    A setting that is added later has the default None, which means the behaviour before it was added.

    Args:
        value: Dataclass to change.
        stored: JSON object of such a dataclass.
    """
    changes: dict[str, Any] = {}
    for field in dataclasses.fields(value):
        current, is_stored = getattr(value, field.name), field.name in stored
        if is_dataclass(current) and not isinstance(current, type):
            if is_stored and isinstance(stored[field.name], dict):
                changes[field.name] = without_later_settings(current, stored[field.name])
        elif not is_stored and field.default is None:
            changes[field.name] = None
    return replace(value, **changes)


def part_type(cls: type, name: str) -> Any:
    """Return the dataclass that the field `name` of `cls` holds, also if it is optional."""
    return _dataclass_in(_types(cls)[name])


def _has_key(value: Any, keys: str) -> bool:
    cls: Any = type(value)
    for key in keys.split("."):
        if cls is None or key not in {field.name.rstrip("_") for field in dataclasses.fields(cls)}:
            return False
        cls = part_type(cls, key if key in _types(cls) else f"{key}_")
    return True


def _assigned(value: Any, keys: list[str], text: str, full: str) -> Any:
    cls: type = type(value)
    hints = _types(cls)
    key = keys[0] if keys[0] in hints else f"{keys[0]}_"  # `lambda` is a keyword of Python, its field is `lambda_`
    names = {field.name.rstrip("_") for field in dataclasses.fields(value)}
    if keys[0] not in names:
        raise BadInput(f"{full}: there is no {keys[0]!r}{suggestion(keys[0], names)}")
    part = _dataclass_in(hints[key])
    if part is None:
        if len(keys) > 1:
            raise BadInput(f"{full}: {keys[0]!r} is a single value. Set {keys[0]}=VALUE.")
        return replace(value, **{key: _parse(hints[key], text, full)})
    current = getattr(value, key)
    if len(keys) == 1:
        if text not in ("on", "off"):
            first = dataclasses.fields(part)[0].name.rstrip("_")
            raise BadInput(f"{full}={text}: expected on or off, or a setting in it as {full}.{first}=VALUE.")
        if text == "off" and NoneType not in get_args(hints[key]):
            raise BadInput(f"{full}=off: {full} cannot be turned off.")
        return replace(value, **{key: (current or part()) if text == "on" else None})
    return replace(value, **{key: _assigned(current or part(), keys[1:], text, full)})


def _parse(hint: Any, text: str, where: str) -> Any:
    """Return the value of `text` by the type `hint`."""
    options = _options(hint)
    if NoneType in options and text in ("none", "null"):
        return None
    option = next(option for option in options if option is not NoneType)
    if option is str:
        return text
    if get_origin(option) is Literal or option is bool:
        named = {"true": True, "on": True, "false": False, "off": False}
        allowed = named if option is bool else {str(value): value for value in get_args(option)}
        if text in allowed:
            return allowed[text]
    elif option in (int, float):
        with suppress(ValueError, OverflowError):
            number = float(text) if option is float or "e" in text.lower() else int(text)
            if math.isfinite(number) and (option is float or number == int(number)):
                return option(number)
    several = " Give each setting on its own." if "," in text and "=" in text else ""
    raise BadInput(f"{where}={shorten(text)}: expected {_type_name(option)}.{several}")


def _from_json(hint: Any, value: Any, where: str) -> Any:
    """Return a JSON value by the type `hint`: a dataclass, `tuple[X, ...]`, `dict[str, X]`, or a plain value."""
    for option in _options(hint) if value is not None else ():
        if isinstance(option, type) and is_dataclass(option):
            return from_dict(option, value, where)
        if get_origin(option) is tuple:
            if not isinstance(value, list):
                raise BadInput(f"{where}: expected a list, found {value!r}.")
            return tuple(_from_json(get_args(option)[0], item, where) for item in value)
        if get_origin(option) is dict:
            if not isinstance(value, dict):
                raise BadInput(f"{where}: expected an object, found {value!r}.")
            return {key: _from_json(get_args(option)[1], item, f"{where}: {key}") for key, item in value.items()}
    parsed = _parse(hint, value if isinstance(value, str) else json.dumps(value), where)
    # The number 100 is not the text "100", and null is not the text "none".
    if type(parsed) is not type(value) and not (type(value) is int and type(parsed) is float):
        raise BadInput(f"{where}={json.dumps(value)}: expected {_type_name(hint)}.")
    return parsed


def _options(hint: Any) -> tuple[Any, ...]:
    """Return the members of a union, or the type itself."""
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def _dataclass_in(hint: Any) -> Any:
    return next((option for option in _options(hint) if is_dataclass(option)), None)


def _type_name(hint: Any) -> str:
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "text", NoneType: "none"}
    return " or ".join(
        "an object" if is_dataclass(option) else names.get(option) or f"one of {', '.join(map(str, get_args(option)))}"
        for option in _options(hint)
    )
