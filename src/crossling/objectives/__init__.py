"""One objective, one file, headed by its equation: corruption and loss together."""

from crossling.objectives.ca_mlm import CAMLM, CATLM
from crossling.objectives.mlm import MLM
from crossling.objectives.mrtd import MRTD
from crossling.objectives.objective import Network, Objective
from crossling.objectives.tlm import TLM
from crossling.objectives.trtd import TRTD
from crossling.objectives.xlco import XLCo

__all__ = ["CAMLM", "CATLM", "MLM", "MRTD", "TLM", "TRTD", "Network", "Objective", "XLCo"]
