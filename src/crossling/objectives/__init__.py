"""Training objectives: one file each, headed by its equation, with corruption, loss and cost.

The settings of a recipe are checked before torch is imported, which takes seconds. So the files of the objectives
import it in the functions that need it, and `Network`, which is a module of torch, is imported at first use.
"""

from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

from crossling.objectives.ca_mlm import CAMLM, CATLM
from crossling.objectives.contrastive import XLCo
from crossling.objectives.denoising import Denoising, PairDenoising
from crossling.objectives.distillation import SelfDistillation
from crossling.objectives.mlm import MLM, TLM
from crossling.objectives.objective import Objective, PretrainingObjective
from crossling.objectives.rtd import MRTD, TRTD

if _TYPE_CHECKING:
    from crossling.objectives.training_network import Network

__all__ = [  # noqa: RUF022 - objectives, then their contract
    "CAMLM",
    "CATLM",
    "Denoising",
    "MLM",
    "MRTD",
    "PairDenoising",
    "SelfDistillation",
    "TLM",
    "TRTD",
    "XLCo",
    "Network",
    "Objective",
    "PretrainingObjective",
]


def __getattr__(name: str) -> _Any:
    if name != "Network":
        raise AttributeError(f"module 'crossling.objectives' has no attribute {name!r}")
    from crossling.objectives.training_network import Network

    return Network
