"""`Encoder`: a model with its tokenizer that encodes sentences, aligns words and mines bitext, at any layer.

Layer 0 is the embedding output, layer k the output of block k.
"""
# K layers, N sentences, B batch, L length, D width, S source tokens, T target tokens

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, Unpack, overload

import numpy as np
import torch
from torch import Tensor

from crossling.core.errors import BadInput
from crossling.core.progress import Progress
from crossling.inference import mining
from crossling.inference.cpu_precision import TOKENS_PER_BATCH, PackedCopy
from crossling.inference.hidden_states import (
    BatchStates,
    EncodeOptions,
    check_compatibility,
    evaluation_mode,
    iter_states,
    max_input_length,
    probe_encoder,
    to_list,
    tokenize_sentences,
)
from crossling.inference.pooling import check_pooling, normalize_vectors, pool, to_normalized_tensor
from crossling.inference.word_links import WordLinks, WordPair, check_methods, join_word_pairs
from crossling.model.fingerprint import model_fingerprint

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

    from crossling.inference.hidden_states import Model
    from crossling.inference.pooling import Vectors


class Encoder:
    """A bidirectional `transformers` encoder and its tokenizer. `load` creates one from a folder or a name.

    Args:
        model: Model that returns its hidden states.
        tokenizer: Fast tokenizer of the model, with a padding token.
        name: Name in score rows and messages.
        universal_layer: Default layer of sentence vectors. [default: two thirds of the layers]
        seed: Random seed of the training, if known. It becomes part of score rows.
        precision: Precision of inference on a CPU: "float32", "bfloat16" or "int8".

    Attributes:
        num_layers: Number of blocks.
        hidden_size: Width of the hidden states.
        max_length: Longest input in tokens.

    Raises:
        BadInput: If the model is a decoder or an encoder-decoder, or the tokenizer does not fit.

    Example:
        >>> model = load("runs/xlm_e")
        >>> vectors = model.encode(["a sentence", "ein Satz"], normalize_embeddings=True)
        >>> model.similarity(vectors, vectors)
    """

    def __init__(
        self,
        model: Model,
        tokenizer: PreTrainedTokenizerFast,
        name: str,
        *,
        universal_layer: int | None = None,
        seed: int | None = None,
        precision: str = "float32",
    ) -> None:
        check_compatibility(model, tokenizer, name)
        self.model, self.tokenizer, self.name, self.seed = model, tokenizer, name, seed
        self.precision = precision
        self._packed = PackedCopy()
        self.max_length = max_input_length(model, tokenizer)
        self.num_layers, self.hidden_size = probe_encoder(model, tokenizer, name)
        if tokenizer.pad_token_id is None:  # after the probe, since the fact that it is a decoder is more useful
            raise BadInput(
                f"{name}: the tokenizer has no padding token. Give the tokenizer that the model was trained with."
            )
        self.universal_layer = (
            round(self.num_layers * 2 / 3) if universal_layer is None else self.resolve_layer(universal_layer)
        )

    def __repr__(self) -> str:
        return (
            f"Encoder({self.name!r}, num_layers={self.num_layers}, hidden_size={self.hidden_size}, "
            f"universal_layer={self.universal_layer}, precision={self.precision!r})"
        )

    @overload
    def encode(
        self,
        sentences: str | Iterable[str],
        *,
        convert_to_tensor: Literal[False] = ...,
        convert_to_numpy: Literal[True] = ...,
        **options: Unpack[EncodeOptions],
    ) -> np.ndarray: ...

    @overload
    def encode(
        self,
        sentences: str | Iterable[str],
        *,
        convert_to_tensor: bool = ...,
        convert_to_numpy: bool = ...,
        **options: Unpack[EncodeOptions],
    ) -> np.ndarray | Tensor | list[Tensor]: ...

    def encode(
        self,
        sentences: str | Iterable[str],
        *,
        batch_size: int | None = None,
        layer: int | None = None,
        pooling: str = "mean",
        normalize_embeddings: bool = False,
        convert_to_tensor: bool = False,
        convert_to_numpy: bool = True,
        show_progress_bar: bool | None = None,
        device: str | torch.device | None = None,
    ) -> np.ndarray | Tensor | list[Tensor]:
        """Compute sentence vectors. The arguments are those of Sentence Transformers, plus `layer` and `pooling`.

        Args:
            sentences: One sentence, or any iterable of sentences.
            batch_size: Largest number of sentences per batch. [default: as many as fit 4,096 tokens, or fewer on a CPU]
            layer: Layer of the vectors. [default: the universal layer of the model]
            pooling: "mean" over all tokens, or "cls" for the first token.
            normalize_embeddings: Scale the vectors to length one.
            convert_to_tensor: Return a tensor on the device of the model in place of an array.
            convert_to_numpy: Return an array. If False, return a list of tensors.
            show_progress_bar: Show a progress bar. [default: False]
            device: Move the model to this device first. [default: the device of the model]

        Returns:
            Vectors in float32, [N, D] for several sentences or [D] for a single string.

        Raises:
            BadInput: If a value is not a string, or the layer or pooling does not exist.

        Example:
            >>> model.encode("a sentence").shape
            (384,)
            >>> model.encode(["a sentence", "ein Satz"], normalize_embeddings=True).shape
            (2, 384)
        """
        is_single = isinstance(sentences, str)
        texts = to_list(sentences)
        if batch_size is not None and batch_size < 1:
            raise BadInput(f"batch_size={batch_size}: expected at least 1.")
        if device is not None:
            self.model.to(device)  # type: ignore[arg-type]
        with Progress("encode", len(texts), enabled=bool(show_progress_bar)) as progress:
            on_batch, layers = progress.advance if show_progress_bar else None, [self.resolve_layer(layer)]
            [vectors_ND] = self.encode_layers(texts, pooling, layers, batch_size=batch_size, on_batch=on_batch)
        if normalize_embeddings:
            vectors_ND = normalize_vectors(vectors_ND)
        if convert_to_numpy and not convert_to_tensor:
            return np.asarray(vectors_ND[0]) if is_single else vectors_ND
        tensor_ND = torch.from_numpy(vectors_ND).to(self.model.device)
        return tensor_ND[0] if is_single else tensor_ND if convert_to_tensor else list(tensor_ND)

    def encode_layers(
        self,
        sentences: Iterable[str],
        pooling: str = "mean",
        layers: Sequence[int] | None = None,
        *,
        batch_size: int | None = None,
        on_batch: Callable[[int], None] | None = None,
        translations: Iterable[str] | None = None,
    ) -> np.ndarray:
        """Compute sentence vectors of several layers.

        Args:
            sentences: Any iterable of sentences.
            pooling: "mean" over all tokens, special tokens included as in XTREME, or "cls" for the first token.
            layers: Layers of the vectors. [default: all]
            batch_size: Largest number of sentences per batch. [default: as many as fit 4,096 tokens, or fewer on a CPU]
            on_batch: Called with the number of sentences after each batch.
            translations: A translation of each sentence, to plug in cross-attention (VECO §3.1). The states of the
                sentence alone and those that attend to the translation are concatenated.

        Returns:
            Vectors in float32, [K, N, D], or [K, N, 2 D] with translations.

        Raises:
            BadInput: If a value is not a string, or the pooling does not exist.

        Example:
            >>> model.encode_layers(["a sentence", "ein Satz"]).shape  # embeddings and 6 blocks
            (7, 2, 384)
        """
        check_pooling(pooling)
        if isinstance(sentences, str):
            raise BadInput("encode_layers: found one string. Give a list of sentences.")
        layers = range(self.num_layers + 1) if layers is None else layers
        ids, other_ids, width = self._tokenize(sentences), None, self.hidden_size
        if translations is not None:
            self.check_cross_attention()
            other_ids, width = self._tokenize(translations), 2 * width
        vectors_KND = np.empty((len(layers), len(ids), width), dtype=np.float32)
        with evaluation_mode(self.model):
            for rows, hidden, valid_BL in self._states(ids, layers, batch_size=batch_size, translation_ids=other_ids):
                vectors_KND[:, rows] = pool([hidden[layer] for layer in layers], valid_BL, pooling).cpu().numpy()
                if on_batch is not None:
                    on_batch(len(rows))
        return vectors_KND

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

    def align(self, source: str, target: str, *, layer: int | None = None, method: str = "ot") -> WordLinks:
        """Align the words of two sentences. Words are separated by whitespace.

        Args:
            source: Source sentence.
            target: Target sentence.
            layer: Layer whose states are compared. [default: the universal layer of the model]
            method: "ot" (optimal transport), "argmax" or "itermax".

        Returns:
            Links (source word, target word), counted from 0.

        Raises:
            BadInput: If the layer or the method does not exist, or the pair is too long for the model.

        Example:
            >>> model.align("the white house", "la maison blanche")
            [(0, 0), (1, 2), (2, 1)]
        """
        if not (isinstance(source, str) and isinstance(target, str)):
            raise BadInput("align: expected two strings. For many pairs, use crossling.align with a file.")
        [links] = self.align_pairs([(source.split(), target.split())], [self.resolve_layer(layer)], [method])
        if links is None:
            limit = f"{self.max_length} tokens that {self.name} can read"
            raise BadInput(f"align: the pair is longer than the {limit}. Shorten it.")
        return links[method][0]

    def align_pairs(
        self, pairs: Sequence[WordPair], layers: Sequence[int], methods: Sequence[str] = ("ot",)
    ) -> list[dict[str, list[WordLinks]] | None]:
        """Align pairs of word lists with several methods at several layers.

        Args:
            pairs: Words of a source and of a target sentence.
            layers: Layers whose states are compared.
            methods: Alignment methods.

        Returns:
            For each pair the links of each layer by method, or None if the pair is too long for the model.

        Example:
            >>> model.align_pairs([(["the", "house"], ["la", "maison"])], layers=[4])
            [{'ot': [[(0, 0), (1, 1)]]}]
        """
        check_methods(methods)
        inputs = join_word_pairs(pairs, self.tokenizer, self.name)
        links: list[dict[str, list[WordLinks]] | None] = [None] * len(inputs)
        fitting = [index for index, each in enumerate(inputs) if len(each.ids) <= self.max_length]
        with evaluation_mode(self.model):
            for rows, hidden, _ in self._states([inputs[index].ids for index in fitting], layers):
                states_KBLD = torch.stack([hidden[layer] for layer in layers]).float().cpu().numpy()
                for position, row in enumerate(rows):
                    links[fitting[row]] = inputs[fitting[row]].link_words(states_KBLD[:, position], methods)
        return links

    def mine(
        self,
        first: Iterable[str],
        second: Iterable[str],
        *,
        layer: int | None = None,
        pooling: str = "mean",
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
            pooling: "mean" over all tokens, or "cls" for the first token.
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

    def check_cross_attention(self) -> None:
        """Check that the model has cross-attention to plug in.

        Raises:
            BadInput: If it has none.

        Example:
            >>> load("runs/veco").check_cross_attention()
        """
        if not getattr(self.model.config, "cross_attention", False):
            raise BadInput(
                f"{self.name}: no cross-attention to plug in. Give a model of the recipe veco, or omit plug_in."
            )

    def resolve_layer(self, layer: int | None) -> int:
        """Return a layer, or the universal layer.

        Args:
            layer: Number of the layer, 0 for the embeddings. [default: the universal layer]

        Raises:
            BadInput: If the layer does not exist.

        Example:
            >>> model.resolve_layer(None)
            8
        """
        if layer is None:
            return self.universal_layer
        if not 0 <= layer <= self.num_layers:
            raise BadInput(
                f"{self.name}: layer {layer} does not exist. Give one from 0 (embeddings) to {self.num_layers}."
            )
        return layer

    def fingerprint(self) -> str:
        """Return a hash of all weights. Encoders with the same hash compute the same vectors.

        Example:
            >>> load("runs/xlm_e").fingerprint() == load("exported").fingerprint()
            True
        """
        return model_fingerprint(self.model)

    def _tokenize(self, sentences: Iterable[str]) -> list[list[int]]:
        return tokenize_sentences(to_list(sentences), self.tokenizer, self.max_length, self.name)

    def _states(self, ids: Sequence[list[int]], layers: Sequence[int], **options: Any) -> Iterator[BatchStates]:
        network, options["layers"] = self.model, max(layers, default=None)
        if self.precision != "float32" and network.device.type == "cpu" and network.dtype == torch.float32:
            network, options["tokens"] = self._packed.get(network, self.precision), TOKENS_PER_BATCH[self.precision]
        return iter_states(network, ids, pad_id=self.tokenizer.pad_token_id or 0, **options)
