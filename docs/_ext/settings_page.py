"""Reference of all settings, from the dataclasses: key, type, default, bounds, and description from the docstring."""

from __future__ import annotations

import inspect
import re
import typing
from dataclasses import MISSING, dataclass, fields, is_dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from markdown_tables import code, escape, table

from crossling.core.settings import Bounds, flatten, part_type
from crossling.finetune.finetune_settings import FinetuneSettings, TranslationSettings
from crossling.recipes import RECIPES
from crossling.recipes.recipe import OBJECTIVES, Recipe

_ENTRY = re.compile(r"^ {4}(\w+): (.*(?:\n {8,}.*)*)", re.MULTILINE)
_TYPES = {int: "integer", float: "number", bool: "true, false", str: "text", NoneType: "none"}
_TITLES = {
    "model": "Architecture",
    "sampling": "Sampling",
    "optimizer": "Optimizer",
    "dro": "Resampling of bitext (DRO)",
    "mlm": "Masked language modelling (MLM)",
    "tlm": "Translation language modelling (TLM)",
    "mrtd": "Multilingual replaced token detection (MRTD)",
    "trtd": "Translation replaced token detection (TRTD)",
    "xlco": "Cross-lingual contrastive learning (XLCo)",
    "ca_mlm": "Cross-attention MLM on text (CA-MLM)",
    "ca_tlm": "Cross-attention MLM on translation pairs (CA-TLM)",
    "denoising": "Denoising of text",
    "pair_denoising": "Denoising of pairs",
    "distill": "Self-distillation",
}


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One key of a recipe or of fine-tuning."""

    key: str
    type: str  # with its bounds
    default: str  # empty if the class has none
    description: str


def pretraining_settings() -> str:
    """Return the settings of a recipe: those of the run, then one table for each part."""
    own = [setting for setting in settings(Recipe) if setting.key not in _TITLES and setting.key != "name"]
    parts = ["## Run\n", _table(own, "by recipe")]
    about = descriptions(Recipe)
    for name, title in _TITLES.items():
        part = part_type(Recipe, name)
        switch = f" Turn it on or off with `--set {name}=on`." if name in (*OBJECTIVES, "dro") else ""
        parts += [f"## {title}\n", f"`{name}`: {about[name]}{switch}\n"]
        parts += [_table(settings(part, f"{name}."), "by size")]
    return "\n".join(parts)


def recipe_values() -> str:
    """Return the settings in which recipes of the default size differ, with the value of each."""
    recipes = {name: build() for name, build in RECIPES.items()}
    rows = [
        [code(part), *("on" if getattr(recipe, part) else "off" for recipe in recipes.values())] for part in OBJECTIVES
    ]
    values = [dict(flatten(recipe)) for recipe in recipes.values()]
    defaults = _defaults()
    for key in dict.fromkeys(key for each in values for key in each if key not in ("name", *OBJECTIVES)):
        found = {_value(each[key]) for each in values if key in each}
        if len(found) > 1 or found != {defaults.get(key, *found)}:
            rows.append([code(key), *(_value(each[key]) if key in each else "" for each in values)])
    return table(["key", *(code(name) for name in recipes)], rows)


def _defaults() -> dict[str, str]:
    """Return the default of every key that has one."""
    parts = [("", Recipe), *((f"{name}.", part_type(Recipe, name)) for name in _TITLES)]
    return {setting.key: setting.default for prefix, part in parts for setting in settings(part, prefix)}


def finetuning_settings() -> str:
    """Return the settings of fine-tuning for a task."""
    return _table(settings(FinetuneSettings), "by data set")


def translation_settings() -> str:
    """Return the settings of a translator."""
    return _table(settings(TranslationSettings), "")


def settings(cls: type, prefix: str = "") -> list[Setting]:
    """Return the settings of a dataclass in the order of its fields."""
    hints, about = typing.get_type_hints(cls, include_extras=True), descriptions(cls)
    return [
        Setting(
            key=f"{prefix}{field.name.rstrip('_')}",
            type=_type(hints[field.name]),
            default="" if field.default is MISSING else _value(field.default),
            description=about.get(field.name, ""),
        )
        for field in fields(cls)
    ]


def descriptions(cls: type) -> dict[str, str]:
    """Return the description of each field from the Args of its class and of the classes that it derives from."""
    found: dict[str, str] = {}
    for each in reversed(cls.__mro__):
        arguments = inspect.cleandoc(each.__doc__ or "").partition("Args:\n")[2].partition("\n\n")[0]
        found |= {name: " ".join(text.split()) for name, text in _ENTRY.findall(arguments)}
    return found


def _table(rows: list[Setting], missing: str) -> str:
    return table(["key", "description", "values", "default"], [_row(setting, missing) for setting in rows])


def _row(setting: Setting, missing: str) -> tuple[str, ...]:
    """Return the cells of a setting. A default that the description states replaces that of the class."""
    stated = re.search(r" ?\[default: (.*?)\]", setting.description)
    default, text = setting.default or missing, setting.description
    if stated:
        default, text = stated[1], text.replace(stated[0], "")
    return code(setting.key), text, escape(setting.type), escape(default)


def _type(hint: Any) -> str:
    if get_origin(hint) is Annotated:
        limits = [_limits(each) for each in hint.__metadata__ if isinstance(each, Bounds)]
        first, *rest = _type(get_args(hint)[0]).split(", ")
        return ", ".join([" ".join([first, *limits]), *rest])
    if get_origin(hint) in (Union, UnionType):
        return ", ".join(_type(each) for each in get_args(hint))
    if get_origin(hint) is Literal:
        return ", ".join(map(str, get_args(hint)))
    return "on, off" if is_dataclass(hint) else _TYPES[hint]


def _limits(bounds: Bounds) -> str:
    signs = {"≥": bounds.at_least, ">": bounds.more_than, "≤": bounds.at_most, "<": bounds.less_than}
    return " and ".join(f"{sign} {_value(limit)}" for sign, limit in signs.items() if limit is not None)


def _value(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    if isinstance(value, float) and 0 < value < 0.01:
        return re.sub(r"e-0*", "e-", f"{value:.3g}" if "e" in f"{value:.3g}" else f"{value:.0e}")
    if isinstance(value, float) and value < 1000:
        return f"{value:g}"
    return f"{value:,}" if isinstance(value, int | float) else str(value)
