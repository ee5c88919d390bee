"""The answer to a question as a span of a text. A long text is read in windows that overlap; every piece is judged in
the window where it has most text around it, as SQuAD's script does.

The best start and end are sought among the pieces of the text alone; the script takes the best twenty of all positions
first, and may be left with none. Characters of the answer are those of the text itself.
"""
# B windows, L positions, P pieces of a text, V windows of a text

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from crossling.benchmarks.examples import Question
from crossling.data.packing import Batch
from crossling.transfer import cuts
from crossling.transfer.family import Family, Feature, Prediction, unlabelled
from crossling.transfer.frame import Pieces

FIRST_TOKEN = 0  # what a window points at that does not hold the answer


@dataclass(frozen=True)
class View(Feature):
    """A window on the text of a question."""

    spans: np.ndarray  # [P, 2]: characters of each piece of the window
    widest: np.ndarray  # [P]: whether no other window has more text around the piece
    target: tuple[int, int] = (FIRST_TOKEN, FIRST_TOKEN)  # positions of the first and the last piece of the answer

    @property
    def first(self) -> int:
        """Where the window begins."""
        return self.inputs[0].first


class Answering(Family):
    term = "answering"

    def read(self, examples: Sequence[Question], targets: bool) -> list[View]:
        questions = [asked.ids for asked in self.frame.split([example.question for example in examples])]
        contexts = self.frame.split([example.context for example in examples])
        both = self.form.length - self.frame.room(2)
        query = min(self.form.query, both // 2)  # a short model leaves room for the text too
        cut = sum(len(ids) > query for ids in questions)
        cuts.note(cut, len(examples), f"questions are longer than {query} tokens; their ends were left out")
        features = []
        for number, (example, question, context) in enumerate(zip(examples, questions, contexts, strict=True)):
            asked = question[:query]
            room = both - len(asked)
            starts = _starts(len(context.ids), room, self.form.stride)
            answer = _pieces(example, context) if targets else None
            widest_VP = _widest(starts, room, len(context.ids))
            for window, start in enumerate(starts):
                end = min(start + room, len(context.ids))
                read = self.frame.two(asked, context.ids[start:end])
                target = (FIRST_TOKEN, FIRST_TOKEN)
                if answer is not None and start <= answer[0] and answer[1] < end:
                    target = read.first + answer[0] - start, read.first + answer[1] - start
                features.append(
                    View(number, (read,), context.spans[start:end], widest_VP[window, start:end].copy(), target)
                )
        return features

    def targets(self, features: Sequence[View], width: int) -> Batch:  # noqa: ARG002
        return {"targets": torch.tensor([feature.target for feature in features])}

    def count(self, features: Sequence[View]) -> int:
        return len(features)

    def loss(self, output: Any, batch: Batch) -> tuple[Tensor, Tensor]:
        """The mean over start and end, where both are right counts as right."""
        ends = [(output.start_logits.float(), 0), (output.end_logits.float(), 1)]
        losses = [F.cross_entropy(scores_BL, batch["targets"][:, end], reduction="sum") for scores_BL, end in ends]
        right = [scores_BL.argmax(1) == batch["targets"][:, end] for scores_BL, end in ends]
        return (losses[0] + losses[1]) / 2, (right[0] & right[1]).sum()

    def scores(self, output: Any) -> list[np.ndarray]:
        return list(torch.stack([output.start_logits, output.end_logits], 1).float().cpu().numpy())

    def predictions(
        self, examples: Sequence[Question], features: Sequence[View], scores: Sequence[np.ndarray]
    ) -> list[Prediction]:
        best = [(-np.inf, "")] * len(examples)
        null = [np.inf] * len(examples)
        for feature, (start_L, end_L) in zip(features, scores, strict=True):
            number = feature.example
            null[number] = min(null[number], float(start_L[FIRST_TOKEN] + end_L[FIRST_TOKEN]))
            score, (begin, end) = self._best(feature, start_L, end_L)
            text = examples[number].context[begin:end].strip()
            if text and score > best[number][0]:
                best[number] = score, text
        if self.form.null:
            return ["" if null[number] > score else text for number, (score, text) in enumerate(best)]
        return [text for _, text in best]

    def _best(self, feature: View, start_L: np.ndarray, end_L: np.ndarray) -> tuple[float, tuple[int, int]]:
        """The best span of a window: its score and its characters."""
        pieces = slice(feature.first, feature.first + len(feature.spans))
        start_P, end_P = np.where(feature.widest, start_L[pieces], -np.inf), end_L[pieces]
        begin_N, end_N = (np.argsort(-each, kind="stable")[: self.form.n_best] for each in (start_P, end_P))
        if not len(begin_N):
            return -np.inf, (0, 0)
        pieces_NN = end_N[None, :] - begin_N[:, None]
        score_NN = np.where(
            (pieces_NN >= 0) & (pieces_NN < self.form.answer),
            start_P[begin_N][:, None] + end_P[end_N][None, :],
            -np.inf,
        )
        row, column = np.unravel_index(score_NN.argmax(), score_NN.shape)
        return float(score_NN[row, column]), (feature.spans[begin_N[row], 0], feature.spans[end_N[column], 1])


def _starts(pieces: int, room: int, stride: int) -> list[int]:
    """Where windows of `room` pieces begin, each `stride` after the last, until the end of the text is in one."""
    stride = min(stride, room)
    return [stride * window for window in range(1 + max(0, -(-(pieces - room) // stride)))]


def _widest(starts: Sequence[int], room: int, pieces: int) -> np.ndarray:
    """Which window each piece is judged in, [V, P]: where the shorter of its two sides is longest."""
    place_P = np.arange(pieces)
    around_VP = np.full((len(starts), pieces), -1.0)
    for window, start in enumerate(starts):
        end = min(start + room, pieces)
        sides_P = np.minimum(place_P - start, end - 1 - place_P) + 0.01 * (end - start)
        around_VP[window, start:end] = sides_P[start:end]
    widest_VP = np.zeros(around_VP.shape, dtype=np.bool_)
    widest_VP[around_VP.argmax(0), place_P] = True
    return widest_VP


def _pieces(example: Question, context: Pieces) -> tuple[int, int] | None:
    """The first and the last piece of the first answer whose place is known; none where there is no answer."""
    if example.impossible:
        return None
    if not example.answers:
        raise unlabelled(example)
    answer = next((each for each in example.answers if each.start >= 0), None)  # or nobody knows where it is
    if answer is None:
        return None
    begin = answer.start
    end = begin + len(answer.text)
    inside = np.flatnonzero((context.spans[:, 0] < end) & (context.spans[:, 1] > begin))
    return (int(inside[0]), int(inside[-1])) if len(inside) else None
