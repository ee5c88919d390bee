"""Mining of hard negatives: texts close to an anchor that are not its positives.

The candidates are the positives and negatives of all pairs. Those of an anchor a with positive p are its nearest
candidates c, except for its known positives, equal texts, and probable false negatives:

    cos(a, c) >= (1 - margin) cos(a, p)

That is TopK-PercPos of NV-Retriever (Moreira et al. 2024), with a margin of 5% by default.
"""
# N anchors, A candidates, k neighbors

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from crossling.core.progress import count_truncations
from crossling.finetune.sentence_vectors.vector_model import find_prompts
from crossling.finetune.sentence_vectors.vector_texts import VectorTexts
from crossling.inference.mining import VectorRows, find_neighbors
from crossling.inference.pooling import DECLARED
from crossling.inference.sentence_encoder import Encoder

SEARCHED = 32  # neighbors for each negative that is needed, because some are positives or false negatives


def mine_hard_negatives(encoder: Encoder, texts: VectorTexts, number: int, margin: float) -> list[tuple[int, ...]]:
    """Return for each pair the candidates that are its hard negatives, as numbers of texts, nearest first.

    Args:
        encoder: The model, with declared sentence vectors.
        texts: Texts of all pairs.
        number: Most negatives of a pair.
        margin: Fraction by which a negative must be less similar than the positive.
    """
    anchor_rows, candidate_rows = texts.distinct_anchors, texts.distinct_candidates
    query_prompt, document_prompt = find_prompts(encoder.head) if encoder.head else ("", "")
    anchors, candidates = (
        _encode(encoder, [texts.strings[row] for row in rows], prompt)
        for rows, prompt in ((anchor_rows, query_prompt), (candidate_rows, document_prompt))
    )
    k = min(SEARCHED * number, len(candidate_rows))
    device = encoder.model.device
    near, _ = find_neighbors(
        VectorRows.all(anchors), VectorRows.all(candidates), k, device=device, title="hard negatives"
    )
    position = {row: place for place, row in enumerate(candidate_rows)}
    place_of_anchor = {row: place for place, row in enumerate(anchor_rows)}
    unit = [each / np.maximum(np.linalg.norm(each, axis=1, keepdims=True), 1e-12) for each in (anchors, candidates)]
    found: list[tuple[int, ...]] = []
    for anchor, positive in zip(texts.anchors, texts.positives, strict=True):
        place = place_of_anchor[anchor]
        limit = (1 - margin) * float(unit[0][place] @ unit[1][position[positive]])
        neighbors = zip(near.row_Nk[place].tolist(), near.cosine_Nk[place].tolist(), strict=True)
        known = {*texts.known_positives[anchor], anchor}
        kept = [candidate_rows[row] for row, cosine in neighbors if cosine < limit and candidate_rows[row] not in known]
        found.append(tuple(kept[:number]))
    return found


def _encode(encoder: Encoder, texts: Sequence[str], prompt: str) -> np.ndarray:
    with count_truncations("hard negatives"):
        [vectors] = encoder.encode_layers(texts, DECLARED, prompt=prompt)
    return np.asarray(vectors)
