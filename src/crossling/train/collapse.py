"""Warnings of a network that learns nothing, or no longer: read off the rows of metrics, in every run.

chance     2,000 steps after the warm-up a prediction is hardly better than always answering with the most frequent
           piece, which a network that learns leaves behind within some hundred steps. Less than 1.25 times as often
           right counts as hardly better: how frequent that piece is was counted on a sample, to within some percent.
           For contrast: the bound on mutual information, log |N| - L, is below 1% of log |N|. Accuracy would not do:
           where all keys are alike it may be anything.
lost       The bound has fallen to less than half of the best since the warm-up. It is in nats and 0 where nothing is
           known, so that half of it means the same for any vocabulary and queue; bounds of healthy runs waver by tenths
           of a nat. What a diverged network still knows, the frequencies of pieces, is less than that.
guessing   A discriminator that was better than guessing costs what guessing costs (guard.py has the two thresholds).
           Where a run began as a model the guard ends it; one that began with nothing may know early nonsense better
           than what its generator makes later, and goes on.
copies     Fewer than 1 in 200 tokens are replaced: at a masking rate of 15%, the generator's samples are right 29 times
           of 30, which no text allows to one that does not see it.

A sign must show in three rows in a row and for 500 steps: then it is told, once in a run. Not seen from here: contrast
that tells new keys from old ones by how far the encoder has moved on, which looks perfect.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any

import torch

from crossling.data.packing import Batch
from crossling.objectives.mlm import at
from crossling.train.guard import LEARNED, LOST, cost_of_guessing

ROWS, STEPS = 3, 500  # in which a sign must show
LONG = 2000  # steps after the warm-up
TIMES_CHANCE = 1.25
NOTHING = 0.01  # of the largest bound there can be
HALF, LEAST = 0.5, 1.0  # of the best bound; of which there must have been so many nats
COPIES = 0.005  # of all tokens
COUNTED = 20_000  # places, to know how frequent the most frequent piece is


class Collapse:
    """`most_frequent(term)` is the share of the most frequent piece among what a term predicts; none if it predicts no
    pieces. It is asked late and once."""

    def __init__(self, weights: Mapping[str, float], warmup: int, most_frequent: Callable[[str], float | None]) -> None:
        self.terms = [term for term, weight in weights.items() if weight]  # what has none only looks on
        self.warmup, self.most_frequent = warmup, cache(most_frequent)
        self.best: dict[str, float] = {}  # bounds
        self.learned: list[str] = []  # discriminators that were better than guessing
        self.signs: dict[str, list[int]] = {}  # the step a sign first showed at, and in how many rows since
        self.told: list[str] = []

    def watch(self, row: Mapping[str, float]) -> None:
        step = int(row["step"])
        if step <= self.warmup:
            return
        for term in self.terms:
            if term not in row:
                continue
            found = {f"{term} {sign}": sentence for sign, sentence in self._signs(term, row, step).items()}
            for kind in [kind for kind in self.signs if kind.startswith(f"{term} ") and kind not in found]:
                del self.signs[kind]  # it has passed
            for kind, sentence in found.items():
                seen = self.signs.setdefault(kind, [step, 0])
                seen[1] += 1
                if seen[1] >= ROWS and step - seen[0] >= STEPS and kind not in self.told:
                    self.told.append(kind)
                    warnings.warn(f"step {step}: {sentence}", stacklevel=2)

    def _signs(self, term: str, row: Mapping[str, float], step: int) -> dict[str, str]:
        """What this row shows, each with its sentence."""
        signs: dict[str, str] = {}
        if f"{term}_bound" in row:
            signs |= self._of_bound(term, row[f"{term}_bound"])
            if step > self.warmup + LONG:
                signs |= self._of_chance(term, row)
        if row.get(f"{term}_replaced", 1.0) < 1:
            signs |= self._of_detection(term, row[term], row[f"{term}_replaced"])
        return signs

    def _of_bound(self, term: str, bound: float) -> dict[str, str]:
        best = self.best[term] = max(bound, self.best.get(term, bound))
        if best < LEAST or bound >= HALF * best:
            return {}
        sentence = (
            f"{term} has lost more than half of what it had learned: {bound:.2f} nats of {best:.2f}; it may have"
            " diverged: begin anew with a lower lr, a longer optimizer.warmup or a lower optimizer.clip"
        )
        return {"lost": sentence}

    def _of_chance(self, term: str, row: Mapping[str, float]) -> dict[str, str]:
        share, bound, accuracy = self.most_frequent(term), row[f"{term}_bound"], row[f"{term}_accuracy"]
        most = row[term] + bound  # log |N|
        if share is None and bound < NOTHING * most:
            sentence = (
                f"{term} tells no translation from other sentences: its bound on mutual information is {bound:.2f}"
                f" nats, by chance 0, at most {most:.2f}; its keys may be all alike: try a lower lr, or"
                f" {term}.normalise=true with {term}.temperature=0.05 and {term}.pooling=mean"
            )
            return {"chance": sentence}
        if share is not None and accuracy < TIMES_CHANCE * share:
            sentence = (
                f"{term} has learned nothing from context: it is right at {accuracy:.1%} of places, the most frequent"
                f" piece alone at {share:.1%}; try a lower lr or a longer optimizer.warmup"
            )
            return {"chance": sentence}
        return {}

    def _of_detection(self, term: str, loss: float, share: float) -> dict[str, str]:
        if share < COPIES:
            sentence = (
                f"the generator of {term} is nearly always right, so that only {share:.2%} of the tokens are replaced"
                f" and there is little to detect: try fewer model.generator_layers or a higher {term}.rate"
            )
            return {"copies": sentence}
        guessing = cost_of_guessing(share)
        if loss < LEARNED * guessing and term not in self.learned:
            self.learned.append(term)
        if loss < LOST * guessing or term not in self.learned:
            return {}
        sentence = (
            f"{term} has fallen back to guessing which tokens are replaced: its loss is {loss:.4g}, where the best"
            f" constant answer costs {guessing:.4g}; if that stays so, begin anew with a lower lr or fewer"
            " model.generator_layers"
        )
        return {"guessing": sentence}

    def dump(self) -> dict[str, Any]:
        """For a checkpoint: a run that goes on says nothing twice."""
        return {"best": self.best, "learned": self.learned, "signs": self.signs, "told": self.told}

    def load(self, dumped: Mapping[str, Any]) -> None:
        self.best, self.learned = {**dumped["best"]}, [*dumped["learned"]]
        self.signs, self.told = {kind: [*seen] for kind, seen in dumped["signs"].items()}, [*dumped["told"]]


def most_frequent(batches: Iterable[Batch]) -> float | None:
    """The share of the most frequent piece among those to be predicted; none where these batches have no such."""
    found = torch.zeros(0, dtype=torch.long)
    for batch in batches:
        sides = [key.removesuffix("masked_at") for key in batch if key.endswith("masked_at")]
        found = torch.cat([found, *(at(batch[f"{side}targets"], batch[f"{side}masked_at"]) for side in sides)])
        if not sides or len(found) >= COUNTED:
            break
    return float(found.bincount().max() / len(found)) if len(found) else None
