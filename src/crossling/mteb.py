"""Encoders as models of MTEB (https://github.com/embeddings-benchmark/mteb), and MTEB's results as score rows.

    import mteb
    from crossling.mteb import MtebEncoder, add_results

    tasks = mteb.get_tasks(["Tatoeba", "BUCC.v2"])
    mteb.evaluate(MtebEncoder("runs/xlm_e"), tasks, cache=mteb.ResultCache("mteb_results"))
    add_results("mteb_results", "scores")         # or: crossling report mteb_results scores

Needs the extra `mteb`. Only the encoder does: results are read without it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from crossling.core.errors import BadInput, import_package
from crossling.inference.cpu_precision import in_float32
from crossling.inference.load_network import as_encoder
from crossling.inference.pooling import normalize_vectors
from crossling.tasks.mteb_results import ORGANIZATION
from crossling.tasks.mteb_results import add_results as add_results
from crossling.tasks.mteb_results import read_results as read_results

if TYPE_CHECKING:
    from crossling.inference.sentence_encoder import Encoder

PROMPT_NAMES = {"query": ("query",), "document": ("document", "passage")}  # of a folder, by MTEB's type of prompt


class MtebEncoder:
    """Encoder in MTEB's `EncoderProtocol`. The vectors are those of `Encoder.encode` in float32, as in `evaluate`.

    Args:
        model: Encoder, or a name that `load` takes. [default: the bundled model]
        revision: Name of the version in MTEB's results. [default: the hash of the weights]
        device: Device to compute on. [default: that of the model]
        layer: Layer of the vectors. [default: as in `Encoder.encode`]
        pooling: As in `Encoder.encode`.

    Example:
        >>> mteb.evaluate(MtebEncoder("runs/xlm_e"), mteb.get_task("Tatoeba"))
    """

    def __init__(
        self,
        model: Encoder | str | os.PathLike[str] | None = None,
        revision: str | None = None,
        *,
        device: str | None = None,
        layer: int | None = None,
        pooling: str = "auto",
    ) -> None:
        self.encoder = in_float32(as_encoder("bundled" if model is None else model))
        self.layer, self.pooling, self.device = layer, pooling, device
        self.revision = revision or self.encoder.fingerprint()[:16]

    def encode(
        self,
        inputs: Iterable[Mapping[str, Any]],
        *,
        prompt_type: Any = None,
        batch_size: int | None = None,
        precision: str = "float32",
        **_: Any,
    ) -> np.ndarray:
        """Return the vectors of batches of texts.

        Args:
            inputs: Batches with a list of texts under `text`, such as MTEB's data loader.
            prompt_type: `query` or `document`: the prompt of this name is used if the folder declares one.
            batch_size: As in `Encoder.encode`.
            precision: Precision of the vectors. Others than float32 are refused.

        Returns:
            Vectors, [N, D].

        Raises:
            BadInput: If another precision is requested.

        Example:
            >>> MtebEncoder("runs/xlm_e").encode([{"text": ["a sentence"]}]).shape
            (1, 384)
        """
        if precision != "float32":
            raise BadInput(f"precision={precision}: vectors have float32. Omit it from encode_kwargs.")
        texts = [text for batch in inputs for text in batch["text"]]
        row_of = {text: row for row, text in enumerate(dict.fromkeys(texts))}  # equal texts have equal vectors
        vectors_ND = self.encoder.encode(
            list(row_of),
            batch_size=batch_size,
            layer=self.layer,
            pooling=self.pooling,
            prompt_name=self._prompt_name(prompt_type),
            device=self.device,
        )
        return np.asarray(vectors_ND[[row_of[text] for text in texts]])

    def similarity(self, embeddings1: Any, embeddings2: Any) -> np.ndarray:
        """Return the cosine of every pair.

        Args:
            embeddings1: Vectors, [N, D] or [D].
            embeddings2: Vectors, [M, D] or [D].

        Returns:
            Cosines, [N, M].

        Example:
            >>> model.similarity(vectors, vectors).shape
            (2, 2)
        """
        one, other = (normalize_vectors(np.atleast_2d(np.asarray(each))) for each in (embeddings1, embeddings2))
        return np.asarray(one @ other.T)

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> np.ndarray:
        """Return the cosine of each row of the one with the same row of the other.

        Args:
            embeddings1: Vectors, [N, D] or [D].
            embeddings2: Vectors, [N, D] or [D].

        Returns:
            Cosines, [N].

        Example:
            >>> model.similarity_pairwise(vectors, vectors)
            array([1., 1.], dtype=float32)
        """
        one, other = (normalize_vectors(np.atleast_2d(np.asarray(each))) for each in (embeddings1, embeddings2))
        return np.asarray((one * other).sum(axis=1))

    @property
    def mteb_model_meta(self) -> Any:
        """Description of the model for MTEB's results: name, revision, size, width and greatest length.

        Example:
            >>> MtebEncoder().mteb_model_meta.name
            'crossling/bundled'
        """
        meta = import_package("mteb.models.model_meta", "crossling.mteb", extra="mteb")
        encoder = self.encoder
        return meta.ModelMeta.create_empty(
            {
                "name": mteb_name(encoder.name),
                "revision": self.revision,
                "n_parameters": sum(each.numel() for each in encoder.model.parameters()),
                "max_tokens": encoder.max_length,
                "embed_dim": encoder.vector_width(encoder.resolve_pooling(self.pooling, self.layer)[0]),
                "similarity_fn_name": meta.ScoringFunction.COSINE,
                "framework": ["PyTorch"],
                "modalities": ["text"],
            }
        )

    def _prompt_name(self, prompt_type: Any) -> str | None:
        declared = {} if self.encoder.head is None else self.encoder.head.prompts
        names = PROMPT_NAMES.get(str(getattr(prompt_type, "value", prompt_type)), ())
        return next((name for name in names if name in declared), None)


def mteb_name(model: str) -> str:
    """Return the name of a model as MTEB requires it: `organization/name`.

    Args:
        model: Name of an encoder, often a path.

    Example:
        >>> mteb_name("bundled"), mteb_name("runs/xlm_e"), mteb_name("/data/runs/xlm_e")
        ('crossling/bundled', 'runs/xlm_e', 'crossling/xlm_e')
    """
    parts = Path(model).parts
    return model if len(parts) == 2 and not Path(model).is_absolute() else f"{ORGANIZATION}/{parts[-1]}"
