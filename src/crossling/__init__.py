"""crossling: pre-train, adapt, fine-tune and evaluate cross-lingual language models.

    import crossling as xl
    model = xl.load("runs/xlm_e")                          # a run, an exported folder, any Hugging Face encoder
    vectors = model.encode(["a sentence", "ein Satz"])     # as Sentence Transformers
    model.align("the white house", "la maison blanche")    # [(0, 0), (1, 2), (2, 1)]

The names below are public. Each is imported at first use, so that `import crossling` does not import torch. Our models
are registered with `transformers.AutoModel` and the other Auto classes, also at first use.
"""

import sys as _sys
from importlib import import_module as _import_module
from types import ModuleType as _ModuleType
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

from crossling.core.garbage_collection import pause_garbage_collection as _pause_garbage_collection

__version__ = "0.1.0"

if _TYPE_CHECKING:
    from crossling import recipes as recipes
    from crossling.adapt import adapt as adapt
    from crossling.audit import audit as audit
    from crossling.bench import bench as bench
    from crossling.cleaning.check import check as check
    from crossling.cleaning.clean import clean as clean
    from crossling.cleaning.rules import Rules as Rules
    from crossling.core.errors import BadInput as BadInput
    from crossling.core.errors import Failed as Failed
    from crossling.core.errors import Interrupted as Interrupted
    from crossling.core.jobs import Share as Share
    from crossling.corpora.corpus import Corpora as Corpora
    from crossling.data.shards import Shards as Shards
    from crossling.data.tokenize import tokenize as tokenize
    from crossling.demo import demo as demo
    from crossling.distill.distill import distill as distill
    from crossling.evaluate.evaluate import evaluate as evaluate
    from crossling.export.export_folder import export as export
    from crossling.export.merge_checkpoints import merge as merge
    from crossling.finetune.finetune import finetune as finetune
    from crossling.finetune.predict_file import predict as predict
    from crossling.finetune.translation.translate import translate as translate
    from crossling.finetune.translation.translator import Translator as Translator
    from crossling.finetune.tuned_model import TunedModel as TunedModel
    from crossling.inference.align_file import align as align
    from crossling.inference.attention_map import attention_map as attention_map
    from crossling.inference.encode_file import encode_file as encode_file
    from crossling.inference.load import load as load
    from crossling.inference.mining import MinedPair as MinedPair
    from crossling.inference.mining import mine as mine
    from crossling.inference.sentence_encoder import Encoder as Encoder
    from crossling.ingest.ingest import ingest as ingest
    from crossling.lab.lab import lab as lab
    from crossling.model.model_shape import ModelShape as ModelShape
    from crossling.objectives.ca_mlm import CAMLM as CAMLM
    from crossling.objectives.ca_mlm import CATLM as CATLM
    from crossling.objectives.contrastive import XLCo as XLCo
    from crossling.objectives.denoising import Denoising as Denoising
    from crossling.objectives.denoising import PairDenoising as PairDenoising
    from crossling.objectives.distillation import Distillation as Distillation
    from crossling.objectives.mlm import MLM as MLM
    from crossling.objectives.mlm import TLM as TLM
    from crossling.objectives.rtd import MRTD as MRTD
    from crossling.objectives.rtd import TRTD as TRTD
    from crossling.planning import plan as plan
    from crossling.pretraining import pretrain as pretrain
    from crossling.recipes.initial_model import InitialModel as InitialModel
    from crossling.recipes.native_model import NativeInitialModel as NativeInitialModel
    from crossling.recipes.recipe import Recipe as Recipe
    from crossling.report.report import report as report
    from crossling.sampling.sampling_settings import Sampling as Sampling
    from crossling.synthetic.corpus_files import BitextNoise as BitextNoise
    from crossling.synthetic.generate import synth as synth
    from crossling.synthetic.task_folders import ExampleCounts as ExampleCounts
    from crossling.tasks.examples import ClassificationExample as ClassificationExample
    from crossling.tasks.examples import QAExample as QAExample
    from crossling.tasks.examples import TaggingExample as TaggingExample
    from crossling.train.optimizer import OptimizerSettings as OptimizerSettings
    from crossling.vocabulary.build_vocabulary import vocab as vocab
    from crossling.vocabulary.fast_vocabulary import FastVocabulary as FastVocabulary
    from crossling.vocabulary.special_tokens import SpecialTokens as SpecialTokens
    from crossling.vocabulary.vocabulary import Vocabulary as Vocabulary

_HOMES = {
    "BadInput": "core.errors",
    "BitextNoise": "synthetic.corpus_files",
    "CAMLM": "objectives.ca_mlm",
    "CATLM": "objectives.ca_mlm",
    "Denoising": "objectives.denoising",
    "Distillation": "objectives.distillation",
    "PairDenoising": "objectives.denoising",
    "ClassificationExample": "tasks.examples",
    "Corpora": "corpora.corpus",
    "Encoder": "inference.sentence_encoder",
    "ExampleCounts": "synthetic.task_folders",
    "Failed": "core.errors",
    "FastVocabulary": "vocabulary.fast_vocabulary",
    "InitialModel": "recipes.initial_model",
    "Interrupted": "core.errors",
    "MLM": "objectives.mlm",
    "MRTD": "objectives.rtd",
    "MinedPair": "inference.mining",
    "ModelShape": "model.model_shape",
    "NativeInitialModel": "recipes.native_model",
    "OptimizerSettings": "train.optimizer",
    "QAExample": "tasks.examples",
    "Recipe": "recipes.recipe",
    "Rules": "cleaning.rules",
    "Sampling": "sampling.sampling_settings",
    "Shards": "data.shards",
    "Share": "core.jobs",
    "SpecialTokens": "vocabulary.special_tokens",
    "TLM": "objectives.mlm",
    "TRTD": "objectives.rtd",
    "TaggingExample": "tasks.examples",
    "Translator": "finetune.translation.translator",
    "TunedModel": "finetune.tuned_model",
    "Vocabulary": "vocabulary.vocabulary",
    "XLCo": "objectives.contrastive",
    "adapt": "adapt",
    "align": "inference.align_file",
    "attention_map": "inference.attention_map",
    "audit": "audit",
    "bench": "bench",
    "check": "cleaning.check",
    "clean": "cleaning.clean",
    "demo": "demo",
    "distill": "distill.distill",
    "encode_file": "inference.encode_file",
    "evaluate": "evaluate.evaluate",
    "export": "export.export_folder",
    "finetune": "finetune.finetune",
    "ingest": "ingest.ingest",
    "lab": "lab.lab",
    "load": "inference.load",
    "merge": "export.merge_checkpoints",
    "mine": "inference.mining",
    "plan": "planning",
    "predict": "finetune.predict_file",
    "pretrain": "pretraining",
    "recipes": "recipes",
    "report": "report.report",
    "synth": "synthetic.generate",
    "tokenize": "data.tokenize",
    "translate": "finetune.translation.translate",
    "vocab": "vocabulary.build_vocabulary",
}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> _Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'crossling' has no attribute {name!r}")
    with _pause_garbage_collection():
        module = _import_module(f"crossling.{_HOMES[name]}")
    return module if name == "recipes" else getattr(module, name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


class _Package(_ModuleType):
    """Keeps `crossling.evaluate` the function.

    Importing the package `crossling/evaluate/` would otherwise replace the function of the same name.
    """

    def __setattr__(self, name: str, value: _Any) -> None:
        if not (name in _HOMES and isinstance(value, _ModuleType)):
            super().__setattr__(name, value)


_sys.modules[__name__].__class__ = _Package

# An exported folder opens with `import crossling` and `AutoModel.from_pretrained`.
_import_module("crossling.model.lazy_registration").register_lazily()
