"""Word alignment of a file of sentence pairs, and the word similarities behind it."""
# L length, S source tokens, T target tokens, D width

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from crossling.core.errors import BadInput
from crossling.inference.hidden_states import evaluation_mode, iter_states
from crossling.inference.load_network import as_encoder
from crossling.inference.pooling import normalize_vectors
from crossling.inference.sentence_encoder import Encoder
from crossling.inference.word_links import WordLinks, check_methods, join_word_pairs
from crossling.tasks.readers import read_lines

PAIRS_PER_BLOCK = 1024


def align(
    model: Encoder | str | os.PathLike[str],
    file: str | os.PathLike[str],
    *,
    layer: int | None = None,
    method: str = "ot",
) -> Iterator[WordLinks]:
    """Align the words of every sentence pair of a file.

    Words are separated by whitespace.

    Args:
        model: Encoder, or a name that `load` takes.
        file: Lines of `source ||| target`, plain or .gz.
        layer: Layer whose states are compared. [default: the universal layer of the model]
        method: "ot" (optimal transport), "argmax" or "itermax".

    Returns:
        An iterator over the links of each line, as pairs (source word, target word) counted from 0.

    Raises:
        BadInput: If the file, a line, the layer or the method is invalid, or a pair is too long for the model.

    Example:
        >>> for links in align("runs/xlm_e", "pairs.txt"):
        ...     print(links)
        [(0, 0), (1, 2), (2, 1)]
    """
    check_methods([method])
    pairs, encoder = read_sentence_pairs(Path(file)), as_encoder(model)
    return _iter_links(encoder, Path(file), pairs, encoder.resolve_layer(layer), method)


def _iter_links(
    model: Encoder, file: Path, pairs: list[tuple[str, str]], layer: int, method: str
) -> Iterator[WordLinks]:
    for start in range(0, len(pairs), PAIRS_PER_BLOCK):
        words = [(source.split(), target.split()) for source, target in pairs[start : start + PAIRS_PER_BLOCK]]
        for number, by_method in enumerate(model.align_pairs(words, [layer], [method]), start=start + 1):
            if by_method is None:
                raise BadInput(
                    f"{file}: line {number}: longer than the {model.max_length} tokens that {model.name} can read. "
                    "Shorten or split it."
                )
            yield by_method[method][0]


def word_similarity(model: Encoder, source: str, target: str, *, layer: int | None = None) -> np.ndarray:
    """Return the similarity of every two words, [source words, target words]: the largest cosine of their tokens."""
    [joint] = join_word_pairs([(source.split(), target.split())], model.tokenizer, model.name)
    if len(joint.ids) > model.max_length:
        raise BadInput(f"the pair is longer than the {model.max_length} tokens that {model.name} can read. Shorten it.")
    layer = model.resolve_layer(layer)
    with evaluation_mode(model.model):
        [(_, hidden, _)] = iter_states(model.model, [joint.ids], pad_id=0, layers=layer)  # one input: no padding
    states_LD = normalize_vectors(hidden[layer][0].float().cpu().numpy())
    similarity = np.full((len(source.split()), len(target.split())), -1.0, dtype=np.float32)
    cosine_ST = states_LD[joint.source] @ states_LD[joint.target].T
    np.maximum.at(similarity, (joint.source_words[:, None], joint.target_words[None, :]), cosine_ST)
    return similarity


def read_sentence_pairs(file: Path) -> list[tuple[str, str]]:
    """Return the pairs of a file with lines of `source ||| target`, plain or .gz."""
    if not any(path.is_file() for path in (file, Path(f"{file}.gz"))):
        raise BadInput(f"{file}: no such file. Give a file with lines of `source ||| target`, plain or .gz.")
    pairs = []
    for number, line in enumerate(read_lines(file), start=1):
        source, bar, target = line.partition(" ||| ")
        if not (bar and source.strip() and target.strip()) or "|||" in target:
            raise BadInput(f"{file}: line {number}: expected `source ||| target`. Fix the line.")
        pairs.append((source, target))
    return pairs
