"""crossling: pre-train, adapt, fine-tune and evaluate cross-lingual language models.

    import crossling as xl
    model = xl.load("runs/xlm_e")                          # a run, an exported folder, any Hugging Face encoder
    model.align("the white house", "la maison blanche")    # [(0, 0), (1, 2), (2, 1)]

The names below are the public ones. Each is imported when it is first used, so that `crossling --help` does not wait
for torch. In Python the import also makes our models known to `transformers.AutoModel` and its kin.
"""

import sys
from importlib import import_module
from multiprocessing import parent_process
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from crossling import recipes as recipes
    from crossling.audit import audit as audit
    from crossling.babel import babel as babel
    from crossling.corpora.corpus import Corpora as Corpora
    from crossling.data.encode import encode as encode
    from crossling.data.shards import Shards as Shards
    from crossling.demo import demo as demo
    from crossling.errors import BadInput as BadInput
    from crossling.evaluate.alignment import align as align
    from crossling.evaluate.embedding import embed as embed
    from crossling.evaluate.encode import Encoder as Encoder
    from crossling.evaluate.evaluate import evaluate as evaluate
    from crossling.evaluate.mining import mine as mine
    from crossling.evaluate.report import report as report
    from crossling.export import export as export
    from crossling.finetune.finetune import finetune as finetune
    from crossling.inspect import inspect as inspect
    from crossling.laboratory.lab import lab as lab
    from crossling.load import load as load
    from crossling.quality.check import check as check
    from crossling.quality.clean import clean as clean
    from crossling.recipe.pretrain import pretrain as pretrain
    from crossling.recipe.recipe import Recipe as Recipe
    from crossling.recipe.start import Start as Start
    from crossling.translation.translate import translate as translate
    from crossling.vocabulary.vocab import vocab as vocab
    from crossling.vocabulary.vocabulary import Vocabulary as Vocabulary

_HOMES = {
    "BadInput": "errors",
    "Corpora": "corpora.corpus",
    "Encoder": "evaluate.encode",
    "Recipe": "recipe.recipe",
    "Shards": "data.shards",
    "Start": "recipe.start",
    "Vocabulary": "vocabulary.vocabulary",
    "align": "evaluate.alignment",
    "audit": "audit",
    "babel": "babel",
    "check": "quality.check",
    "clean": "quality.clean",
    "demo": "demo",
    "embed": "evaluate.embedding",
    "encode": "data.encode",
    "evaluate": "evaluate.evaluate",
    "export": "export",
    "finetune": "finetune.finetune",
    "inspect": "inspect",
    "lab": "laboratory.lab",
    "load": "load",
    "mine": "evaluate.mining",
    "pretrain": "recipe.pretrain",
    "recipes": "recipes",
    "report": "evaluate.report",
    "translate": "translation.translate",
    "vocab": "vocabulary.vocab",
}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'crossling' has no attribute {name!r}")
    module = import_module(f"crossling.{_HOMES[name]}")
    return module if name == "recipes" else getattr(module, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class _Package(ModuleType):
    """Keeps `crossling.babel` the function though the room `crossling/babel/` has the same name: importing a room
    would otherwise put it in the function's place."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _HOMES and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def _is_command_line() -> bool:
    """Whether this is `crossling` or `python -m crossling`."""
    program = Path(*sys.argv[:1])
    sought = program.name == "-m" and "crossling" in sys.orig_argv  # before the module has been found
    return sought or program.stem == "crossling" or program.parts[-2:] == ("crossling", "__main__.py")


# An exported folder opens with `import crossling` and `AutoModel.from_pretrained`: the classes must be registered by
# then. The command line does without, so that its help does not wait for torch; so does a worker, which imports what it
# needs.
if not _is_command_line() and parent_process() is None:
    import_module("crossling.model.pretrained")
