r"""Losses of sentence vectors.

Multiple negatives ranking loss (Henderson et al. 2017; InfoNCE), of pairs <a_i, p_i>:

    L_i = - log( exp(cos(a_i, p_i) / tau) / sum over c in C_i of exp(cos(a_i, c) / tau) )

C_i contains p_i, the positives of the other pairs of the step and all hard negatives of the step, each text once.
It does not contain other positives of the text a_i, nor a_i itself: equal texts are never negatives of each other. The
symmetric form is the mean with the loss from positives to anchors.

CoSENT (Su 2022), of pairs with scores y_i and cosines s_i:

    L = log( 1 + sum over i, j with y_i > y_j of exp((s_j - s_i) / tau) )

Cosine loss: L_i = (s_i - y_i)^2.
"""
# N pairs of this process, M of all processes, A candidates, K known texts of a pair, E width

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from crossling.core.distributed import all_gather_rows
from crossling.data.packing import Batch
from crossling.finetune.supervised_training import SupervisedObjective

REVERSE = "reverse_"  # prefix of the tensors from positives to anchors
NO_TEXT = -1  # pads the known texts of a pair


class SentenceObjective(SupervisedObjective):
    """A loss of the vectors that a `SentenceModel` computes.

    Args:
        loss_name: "ranking", "cosent" or "cosine".
        temperature: Divisor of the cosines, tau.
        symmetric: Average the ranking loss with that from positives to anchors.
    """

    def __init__(self, loss_name: str, temperature: float, symmetric: bool = False) -> None:
        self.loss_name, self.temperature, self.symmetric = loss_name, temperature, symmetric

    @property
    def exchanges_tensors(self) -> bool:
        return True  # negatives of other processes

    def loss_and_correct(self, model: Any, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the summed loss, and the pairs that are ranked first (ranking) or in the right order (scores)."""
        vectors = model(batch)
        with torch.autocast(vectors.device.type, enabled=False):  # cosine / 0.05 needs more digits than bfloat16 has
            vector_TE = F.normalize(vectors.float(), dim=-1)
            if self.loss_name == "ranking":
                prefixes = ("", REVERSE) if self.symmetric else ("",)
                parts = [self._ranking(vector_TE, batch, prefix) for prefix in prefixes]
                loss, correct = (torch.stack(each).sum() / len(parts) for each in zip(*parts, strict=True))
                return loss, correct
            cosine_N = (vector_TE[batch["queries"]] * vector_TE[batch["positives"]]).sum(-1)
            return self._scored(cosine_N, batch["scores"])

    def _ranking(self, vector_TE: Tensor, batch: Batch, prefix: str) -> tuple[Tensor, Tensor]:
        query_NE = vector_TE[batch[f"{prefix}queries"]]
        candidate_AE, first = all_gather_rows(vector_TE[batch[f"{prefix}candidates"]])
        text_A, _ = all_gather_rows(batch[f"{prefix}candidate_texts"])
        target_N = batch[f"{prefix}targets"] + first
        excluded_NA = (text_A[None, :, None] == batch[f"{prefix}known"][:, None, :]).any(-1) | _is_repeated(text_A)
        excluded_NA = excluded_NA.scatter(1, target_N[:, None], value=False)
        score_NA = (query_NE @ candidate_AE.T / self.temperature).masked_fill(excluded_NA, -torch.inf)
        return F.cross_entropy(score_NA, target_N, reduction="sum"), (score_NA.argmax(-1) == target_N).sum()

    def _scored(self, cosine_N: Tensor, score_N: Tensor) -> tuple[Tensor, Tensor]:
        (cosine_M, first), (score_M, _) = all_gather_rows(cosine_N), all_gather_rows(score_N)
        above_MM = score_M[:, None] > score_M[None, :]
        own = slice(first, first + len(cosine_N))
        right_N = (above_MM & (cosine_M[:, None] > cosine_M[None, :])).sum(1) / above_MM.sum(1).clamp(min=1)
        right_N = torch.where(above_MM.any(1), right_N, 1.0)
        if self.loss_name == "cosine":
            return (cosine_N - score_N).square().sum(), right_N[own].sum()
        difference_MM = (cosine_M[None, :] - cosine_M[:, None]) / self.temperature
        terms = difference_MM.masked_fill(~above_MM, -torch.inf).flatten()
        loss = torch.cat([terms, terms.new_zeros(1)]).logsumexp(0)
        return loss * len(cosine_N), right_N[own].sum()


def _is_repeated(text_A: Tensor) -> Tensor:
    """Return which candidates are the text of an earlier one, of another process."""
    distinct, number_A = text_A.unique(return_inverse=True)
    place_A = torch.arange(len(text_A), device=text_A.device)
    first = place_A.new_full((len(distinct),), len(text_A)).scatter_reduce(0, number_A, place_A, "amin")
    return first[number_A] != place_A
