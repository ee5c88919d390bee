"""Examples of what a model does, for the report page: word alignment, nearest translations and RTD.

They are stored in `showcase.json`. Every part is optional, but must be complete if present.

    {"title": "...", "subtitle": "...", "command": "crossling demo",
     "facts": {"seed": "0", "cost": "4 minutes on 2 cores"},         label -> text, for the end of the page
     "chance": 0.25,                                                 retrieval accuracy of random guesses, in percent
     "alignment": {"source": ["word", ...], "target": ["word", ...],
                   "similarity": [[0.3, ...], ...],                  one row per source word
                   "predicted": [[i, j], ...],                       links, counted from 0
                   "sure": [[i, j], ...], "possible": [[i, j], ...],
                   "languages": ["qaa", "qab"], "model": "runs/xlm_e"},
     "attention": {"queries": ["token", ...], "keys": ["token", ...],
                   "weights": [[0.3, ...], ...],                     one row per token that attends
                   "layer": 6, "languages": ["qaa", "qab"], "model": "runs/veco"},
     "neighbours": [{"query": "...", "language": "qaa", "truth": "...",
                     "candidates": [{"text": "...", "score": 0.81, "right": true}, ...]}, ...],      nearest first
     "rtd": {"auc": 0.83,
             "sentences": [{"tokens": [...], "replaced": [false, ...], "probability": [0.1, ...]}, ...]}}
"""
# B pairs, L positions, N sentences, D width, P positions with a token

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import mannwhitneyu

from crossling.core.errors import BadInput
from crossling.data.batches import TokenizedExamples
from crossling.data.keyed_random import KeyedRandom
from crossling.data.packing import pack
from crossling.evaluate.retrieval_pairs import RetrievalPair, read_tatoeba
from crossling.evaluate.word_alignment import GoldSet, read_gold
from crossling.inference.align_file import word_similarity
from crossling.inference.load import make_encoder
from crossling.inference.pooling import normalize_vectors
from crossling.inference.sentence_encoder import Encoder
from crossling.objectives import Network
from crossling.objectives.rtd import TRTD
from crossling.recipes.network import load_run
from crossling.vocabulary.open_vocabulary import AnyVocabulary, open_vocabulary

Showcase = dict[str, Any]

NUMBER = (int, float)
_LINKS = [[int]]
_PARTS: dict[str, Any] = {
    "title": str,
    "subtitle": str,
    "command": str,
    "facts": {...: str},
    "chance": NUMBER,
    "alignment": {
        "source": [str],
        "target": [str],
        "similarity": [[NUMBER]],
        "predicted": _LINKS,
        "sure": _LINKS,
        "possible": _LINKS,
        "languages": [str],
        "model": str,
    },
    "attention": {
        "queries": [str],
        "keys": [str],
        "weights": [[NUMBER]],
        "layer": int,
        "languages": [str],
        "model": str,
    },
    "neighbours": [
        {"query": str, "language": str, "truth": str, "candidates": [{"text": str, "score": NUMBER, "right": bool}]}
    ],
    "rtd": {"auc": NUMBER, "sentences": [{"tokens": [str], "replaced": [bool], "probability": [NUMBER]}]},
}


def read_showcase(path: Path) -> Showcase:
    """Read a showcase.json and check it against the schema."""
    try:
        showcase = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise BadInput(f"{path}: line {error.lineno} is not JSON. Write the file again.") from None
    if not isinstance(showcase, dict):
        raise BadInput(f"{path}: expected an object. Write the file again.")
    for part in _PARTS.keys() & showcase.keys():
        _check(showcase[part], _PARTS[part], part, path)
    if "alignment" in showcase:
        _check_alignment(showcase["alignment"], path)
    if "attention" in showcase:
        attention = showcase["attention"]
        _check_grid(attention["weights"], len(attention["queries"]), len(attention["keys"]), "attention.weights", path)
    for sentence in showcase.get("rtd", {}).get("sentences", []):
        if len({len(sentence[name]) for name in ("tokens", "replaced", "probability")}) > 1:
            raise BadInput(f"{path}: rtd: expected one 'replaced' and 'probability' per token.")
    return showcase


def _check(value: Any, shape: Any, key: str, path: Path) -> None:
    """Check a value against a shape: a type, [shape of the items], {name: shape}, or {...: shape} for any names."""
    if isinstance(shape, list):
        _expect(isinstance(value, list), "a list", key, path)
        for index, item in enumerate(value):
            _check(item, shape[0], f"{key}[{index}]", path)
    elif isinstance(shape, dict):
        _expect(isinstance(value, dict), "an object", key, path)
        for name in value if ... in shape else shape:
            _expect(name in value, f"a field {name!r}", key, path)
            _check(value[name], shape.get(..., shape.get(name)), f"{key}.{name}", path)
    else:
        is_valid = isinstance(value, shape) and (shape is bool or not isinstance(value, bool))
        name = {str: "text", bool: "true or false", int: "a whole number"}.get(shape, "a number")
        _expect(is_valid, name, key, path)


def _check_grid(values: list[list[float]], rows: int, columns: int, key: str, path: Path) -> None:
    fits = len(values) == rows and all(len(row) == columns for row in values)
    _expect(fits, f"{rows} rows of {columns} numbers", key, path)


def _check_alignment(alignment: dict[str, Any], path: Path) -> None:
    rows, columns = len(alignment["source"]), len(alignment["target"])
    _check_grid(alignment["similarity"], rows, columns, "alignment.similarity", path)
    for kind in ("predicted", "sure", "possible"):
        inside = all(len(link) == 2 and 0 <= link[0] < rows and 0 <= link[1] < columns for link in alignment[kind])
        _expect(inside, "links [i, j] inside the sentences, counted from 0", f"alignment.{kind}", path)


def _expect(condition: bool, expected: str, key: str, path: Path) -> None:
    if not condition:
        raise BadInput(f"{path}: {key}: expected {expected}. See the schema in crossling.report.showcase.")


# The examples are the first ones of their files: none is hand-picked.
NEIGHBORS = 4
SENTENCES = 3


def showcase_examples(run: Path, data: Path, languages: tuple[str, str]) -> dict[str, Any]:
    """Return the parts of showcase.json that show the model of a run on two languages."""
    net, vocabulary = load_run(run), open_vocabulary(run / "vocab")
    encoder = make_encoder(net, vocabulary, run.name)
    bitext = next(b for b in read_tatoeba(data) if (b.first.language, b.second.language) == languages)
    gold = next(gold for gold in read_gold(data) if gold.languages == "-".join(languages))
    return {
        "alignment": _alignment(encoder, gold),
        "neighbours": _neighbors(encoder, bitext),
        "rtd": _replaced_tokens(net, vocabulary, bitext),
    }


def _alignment(encoder: Encoder, gold: GoldSet) -> dict[str, Any]:
    pair = gold.pairs[0]
    source, target = " ".join(pair.source), " ".join(pair.target)
    layer = encoder.num_layers  # the last layer distinguishes words best
    return {
        "source": pair.source,
        "target": pair.target,
        "similarity": word_similarity(encoder, source, target, layer=layer).round(3).tolist(),
        "predicted": [list(link) for link in encoder.align(source, target, layer=layer)],
        "sure": [list(link) for link in sorted(pair.sure)],
        "possible": [list(link) for link in sorted(pair.possible - pair.sure)],
        "languages": gold.languages.split("-"),
        "model": encoder.name,
    }


def _neighbors(encoder: Encoder, bitext: RetrievalPair) -> list[dict[str, Any]]:
    query_ND = normalize_vectors(encoder.encode(bitext.first.sentences[:NEIGHBORS]))
    candidate_ND = normalize_vectors(encoder.encode(bitext.second.sentences))
    examples = []
    for row, scores_N in enumerate(query_ND @ candidate_ND.T):
        nearest = np.argsort(-scores_N, kind="stable")[:3]
        examples.append(
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
    return examples


@torch.no_grad()
def _replaced_tokens(net: Network, vocabulary: AnyVocabulary, bitext: RetrievalPair) -> dict[str, Any]:
    """Detect replaced tokens in held-out translation pairs, as in training (TRTD)."""
    net.eval()
    task, special = TRTD(), vocabulary.special
    first, second = (vocabulary.encode(side.sentences[:200]) for side in (bitext.first, bitext.second))
    source, target = ([np.array([*ids, special.eos]) for ids in side] for side in (first, second))
    pairs = TokenizedExamples(source, target, bos=special.bos)
    sequences = task.corrupt(pairs, KeyedRandom([0], 0, len(first)), special).inputs["ids"]
    batch = pack(sequences, int(sequences.lengths_N.max()), "ids", pad=special.pad)
    batch = {name: value.to(net.encoder.device) for name, value in batch.items()}
    _, seen_BL, scores_BL = task.detect(net, batch)
    probability_BL, present = torch.sigmoid(scores_BL), batch["ids_segments"] > 0
    replaced_BL = seen_BL != batch["targets"]
    pair_BL = batch["ids_segments"]
    targets = batch["targets"]
    words = present & (targets != special.bos) & (targets != special.eos)  # which are never replaced
    auc = area_under_roc(scores_BL[words].cpu().numpy(), replaced_BL[words].cpu().numpy())
    return {
        "auc": round(auc, 3),
        "sentences": [
            {
                "tokens": vocabulary.tokenizer().convert_ids_to_tokens(seen_BL[pair_BL == number].tolist()),
                "replaced": replaced_BL[pair_BL == number].tolist(),
                "probability": [round(p, 3) for p in probability_BL[pair_BL == number].tolist()],
            }
            for number in range(1, SENTENCES + 1)
        ],
    }


def area_under_roc(score_P: np.ndarray, positive_P: np.ndarray) -> float:
    """Area under the ROC curve: how often a positive outranks a negative. A tie counts half."""
    if positive_P.all() or not positive_P.any():
        return 0.5
    positives, negatives = score_P[positive_P], score_P[~positive_P]
    outranked = mannwhitneyu(positives, negatives, method="asymptotic").statistic
    return float(outranked / (len(positives) * len(negatives)))
