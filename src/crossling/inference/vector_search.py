"""Functions of sentence vectors: similarities, as Sentence Transformers has them, and mining."""
# N vectors of one set, M of the other, D width

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from crossling.inference import mining
from crossling.inference.hidden_states import to_list
from crossling.inference.pooling import to_normalized_tensor

if TYPE_CHECKING:
    from torch import Tensor

    from crossling.inference.hidden_states import Model
    from crossling.inference.pooling import Vectors


class VectorSearch:
    """Mixin of an encoder with the functions of its sentence vectors."""

    model: Model
    encode: Any

    def similarity(self, embeddings1: Vectors, embeddings2: Vectors) -> Tensor:
        """Compute the cosine similarity of every vector of one set with every vector of another.

        Args:
            embeddings1: Vectors [N, D] or one vector [D], as an array, a tensor or a list.
            embeddings2: Vectors [M, D] or one vector [D].

        Returns:
            Tensor [N, M].

        Example:
            >>> vectors = model.encode(["a sentence", "ein Satz"])
            >>> model.similarity(vectors, vectors)
        """
        return to_normalized_tensor(embeddings1) @ to_normalized_tensor(embeddings2).T

    def similarity_pairwise(self, embeddings1: Vectors, embeddings2: Vectors) -> Tensor:
        """Compute the cosine similarity of vector i of one set with vector i of another.

        Args:
            embeddings1: Vectors [N, D] or one vector [D], as an array, a tensor or a list.
            embeddings2: Vectors of the same shape.

        Returns:
            Tensor [N].

        Example:
            >>> model.similarity_pairwise(model.encode(english), model.encode(german))
        """
        return (to_normalized_tensor(embeddings1) * to_normalized_tensor(embeddings2)).sum(dim=-1)

    def mine(
        self,
        first: Iterable[str],
        second: Iterable[str],
        *,
        layer: int | None = None,
        pooling: str = "auto",
        margin: str = "ratio",
        k: int = mining.DEFAULT_NEIGHBORS,
        threshold: float = 0.0,
        retrieval: str = "max",
    ) -> list[mining.MinedPair]:
        """Find translations in two lists of sentences (Artetxe and Schwenk 2019).

        Args:
            first: Sentences in one language.
            second: Sentences in the other language.
            layer: Layer of the sentence vectors. [default: the universal layer of the model]
            pooling: "auto", "mean" or "cls", as in `encode`.
            margin: "ratio", "distance" or "absolute".
            k: Number of neighbors in the margin.
            threshold: Return pairs whose score is larger by more than 1e-6, the rounding error.
            retrieval: "max", "forward", "backward" or "intersection".

        Returns:
            Pairs with `score`, `source` and `target`, best first, see `crossling.mine`.

        Raises:
            BadInput: If an option is invalid or a value is not a string.

        Example:
            >>> model.mine(["the house", "a dog"], ["ein Hund", "das Haus"])[0].target
            'das Haus'
        """
        mining.check_margin(margin, k, retrieval)
        sides = [list(dict.fromkeys(to_list(sentences))) for sentences in (first, second)]
        if not all(sides):
            return []
        one, other = (mining.VectorRows.all(self.encode(side, layer=layer, pooling=pooling)) for side in sides)
        near = mining.find_neighbors(one, other, k, device=self.model.device)
        return list(mining.iter_pairs(mining.retrieve_pairs(*near, margin, retrieval), sides[0], sides[1], threshold))
