"""Register our models with the Auto classes of `transformers` when they are first needed.

After `import crossling`, `AutoModel.from_pretrained` and the other Auto classes load a folder that crossling exported.
Neither torch nor transformers is imported for this. Every Auto class loads the configuration first, through
`AutoConfig`. There a placeholder stands for our configuration. Its first use imports `crossling.model.auto_classes`,
which registers the classes themselves.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

AUTO_CONFIG_MODULE = "transformers.models.auto.configuration_auto"
MODEL_TYPE = "crossling"


class ConfigPlaceholder:
    """Stands for `CrosslingConfig` in `AutoConfig` until a configuration is created."""

    model_type = MODEL_TYPE

    def __new__(cls, *arguments: Any, **settings: Any) -> Any:
        """Return a `CrosslingConfig`, as `AutoConfig.for_model` expects."""
        return _config_class()(*arguments, **settings)

    @staticmethod
    def from_dict(settings: dict[str, Any], **options: Any) -> Any:
        """Return a `CrosslingConfig`, as `AutoConfig.from_pretrained` expects."""
        return _config_class().from_dict(settings, **options)

    @staticmethod
    def from_pretrained(name: Any, **options: Any) -> Any:
        """Return the `CrosslingConfig` of a folder."""
        return _config_class().from_pretrained(name, **options)


def _config_class() -> Any:
    return import_module("crossling.model.auto_classes").CrosslingConfig


class AutoConfigFinder(MetaPathFinder):
    """Adds the placeholder as soon as the module of `AutoConfig` has been imported."""

    def __init__(self) -> None:
        self._is_searching = False

    def find_spec(self, fullname: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:  # noqa: ARG002
        """Return the usual spec of the module of `AutoConfig`, and None for every other module."""
        if fullname != AUTO_CONFIG_MODULE or self._is_searching:
            return None
        self._is_searching = True
        try:
            spec = find_spec(fullname)
        finally:
            self._is_searching = False
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def execute_and_register(module: ModuleType) -> None:
            execute(module)
            _add_placeholder(module)
            if self in sys.meta_path:
                sys.meta_path.remove(self)

        setattr(spec.loader, "exec_module", execute_and_register)  # noqa: B010 - mypy refuses to assign to a method
        return spec


def _add_placeholder(module: ModuleType) -> None:
    module.AutoConfig.register(MODEL_TYPE, ConfigPlaceholder)


def register_lazily() -> None:
    """Let `AutoConfig` find our models, whether `transformers` is imported before or after."""
    module = sys.modules.get(AUTO_CONFIG_MODULE)
    if module is None:
        sys.meta_path.insert(0, AutoConfigFinder())
    else:
        _add_placeholder(module)
