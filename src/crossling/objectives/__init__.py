"""Training objectives: one file each, headed by its equation, with corruption, loss and cost."""

from crossling.objectives.ca_mlm import CAMLM, CATLM
from crossling.objectives.contrastive import XLCo
from crossling.objectives.mlm import MLM, TLM
from crossling.objectives.objective import Network, Objective, PretrainingObjective
from crossling.objectives.rtd import MRTD, TRTD

__all__ = ["CAMLM", "CATLM", "MLM", "MRTD", "TLM", "TRTD", "Network", "Objective", "PretrainingObjective", "XLCo"]
