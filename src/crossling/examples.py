"""Examples of what a trained network does, for a person to look at: links, translations, replaced tokens.

None is picked for its looks: they are the first ones of their files.
"""
# B pairs, L positions, N sentences, D width, P positions with a token

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from crossling.data.batches import Examples
from crossling.data.noise import Noise
from crossling.data.packing import pack
from crossling.evaluate.alignment import GoldSet, read_gold
from crossling.evaluate.cosine import unit
from crossling.evaluate.encode import Encoder
from crossling.evaluate.retrieval import Bitext, read_tatoeba
from crossling.load import encoder_of
from crossling.objectives import Network
from crossling.objectives.objective import valid
from crossling.objectives.trtd import TRTD
from crossling.recipe import load_run
from crossling.vocabulary.vocabulary import BOS, EOS, Vocabulary

NEIGHBOURS = 4
SENTENCES = 3


def examples(run: Path, data: Path, languages: tuple[str, str]) -> dict[str, Any]:
    """The parts of showcase.json (see evaluate/showcase.py) that show the network of a run at work on two languages."""
    net, vocabulary = load_run(run), Vocabulary.load(run / "vocab")
    encoder = encoder_of(net, vocabulary, run.name)
    bitext = next(b for b in read_tatoeba(data) if (b.first.language, b.second.language) == languages)
    gold = next(gold for gold in read_gold(data) if gold.languages == "-".join(languages))
    return {
        "alignment": _alignment(encoder, gold),
        "neighbours": _neighbours(encoder, bitext),
        "detection": _detection(net, vocabulary, bitext),
    }


def _alignment(encoder: Encoder, gold: GoldSet) -> dict[str, Any]:
    pair = gold.pairs[0]
    source, target = " ".join(pair.source), " ".join(pair.target)
    layer = encoder.layers  # the last: where words, not sentences, are told apart
    return {
        "source": pair.source,
        "target": pair.target,
        "similarity": encoder.similarity(source, target, layer).round(3).tolist(),
        "predicted": [list(link) for link in encoder.align(source, target, layer)],
        "sure": [list(link) for link in sorted(pair.sure)],
        "possible": [list(link) for link in sorted(pair.possible - pair.sure)],
        "languages": gold.languages.split("-"),
        "model": encoder.name,
    }


def _neighbours(encoder: Encoder, bitext: Bitext) -> list[dict[str, Any]]:
    query_ND = unit(encoder.embed(bitext.first.sentences[:NEIGHBOURS]))
    candidate_ND = unit(encoder.embed(bitext.second.sentences))
    found = []
    for row, scores_N in enumerate(query_ND @ candidate_ND.T):
        nearest = np.argsort(-scores_N, kind="stable")[:3]
        found.append(
            {
                "query": bitext.first.sentences[row],
                "language": bitext.first.language,
                "truth": bitext.second.sentences[row],
                "candidates": [
                    {"text": bitext.second.sentences[k], "score": round(float(scores_N[k]), 3), "right": bool(k == row)}
                    for k in nearest
                ],
            }
        )
    return found


@torch.no_grad()
def _detection(net: Network, vocabulary: Vocabulary, bitext: Bitext) -> dict[str, Any]:
    """How well replaced tokens are found in held-out translation pairs, as in training (TRTD)."""
    net.eval()
    task = TRTD()
    first, second = (vocabulary.encode(side.sentences[:200]) for side in (bitext.first, bitext.second))
    pairs = Examples([np.array([*ids, EOS]) for ids in first], [np.array([*ids, EOS]) for ids in second])
    sequences = task.corrupt(pairs, Noise([0], 0, len(first)), vocabulary.mask).inputs["ids"]
    batch = pack(sequences, int(sequences.lengths_N.max()), "ids")
    batch = {name: value.to(net.encoder.device) for name, value in batch.items()}
    _, seen_BL, scores_BL = task.detect(net, batch)
    probability_BL, present = torch.sigmoid(scores_BL), valid(batch["targets"])
    replaced_BL = seen_BL != batch["targets"]
    pair_BL = batch["ids_segments"]
    words = present & (batch["targets"] != BOS) & (batch["targets"] != EOS)  # a mark is never replaced: too easy
    auc = area(scores_BL[words].cpu().numpy(), replaced_BL[words].cpu().numpy())
    return {
        "auc": round(auc, 3),
        "sentences": [
            {
                "tokens": [vocabulary.pieces.id_to_piece(i) for i in seen_BL[pair_BL == number].tolist()],
                "replaced": replaced_BL[pair_BL == number].tolist(),
                "probability": [round(p, 3) for p in probability_BL[pair_BL == number].tolist()],
            }
            for number in range(1, SENTENCES + 1)
        ],
    }


def area(score_P: np.ndarray, positive_P: np.ndarray) -> float:
    """The area under the ROC curve: how often a positive outranks a negative; a tie counts half."""
    if positive_P.all() or not positive_P.any():
        return 0.5
    _, place_P, times = np.unique(score_P, return_inverse=True, return_counts=True)
    rank_P = (np.cumsum(times) - (times - 1) / 2)[place_P]  # the mean rank of all that score the same
    positives = int(positive_P.sum())
    outranked = rank_P[positive_P].sum() - positives * (positives + 1) / 2
    return float(outranked / (positives * (len(positive_P) - positives)))
