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
from crossling.core.resumable import fingerprint
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
from crossling.inference.pooling import DECLARED, check_pooling, normalize_vectors, pool, truncate_vectors
from crossling.inference.vector_search import VectorSearch
from crossling.inference.word_links import WordLinks, WordPair, check_methods, join_word_pairs
from crossling.model.fingerprint import model_fingerprint

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

    from crossling.inference.hidden_states import Model
    from crossling.inference.sentence_head import SentenceHead


class Encoder(VectorSearch):
    """A bidirectional `transformers` encoder and its tokenizer. `load` creates one from a folder or a name.

    Args:
        model: Model that returns its hidden states.
        tokenizer: Fast tokenizer of the model, with a padding token.
        name: Name in score rows and messages.
        universal_layer: Default layer of sentence vectors. [default: two thirds of the layers]
        seed: Random seed of the training, if known. It becomes part of score rows.
        precision: Precision of inference on a CPU: "float32", "bfloat16" or "int8".
        head: Sentence vectors that the folder of the model declares.

    Attributes:
        prompt: Text before each sentence. Empty: the default prompt of `head`, if that computes the vectors.
        num_layers: Number of blocks.
        hidden_size: Width of the hidden states.
        max_length: Longest input in tokens.
        declared_layer: Layer that `head` reads.

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
        head: SentenceHead | None = None,
    ) -> None:
        check_compatibility(model, tokenizer, name)
        self.model, self.tokenizer, self.name, self.seed = model, tokenizer, name, seed
        self.precision, self.head, self.prompt = precision, head, ""
        self._packed = PackedCopy()
        self.max_length = max_input_length(model, tokenizer)
        self.num_layers, self.hidden_size = probe_encoder(model, tokenizer, name)
        self.declared_layer = self.num_layers if head is None or head.layer is None else self.resolve_layer(head.layer)
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
        pooling: str = "auto",
        prompt: str | None = None,
        prompt_name: str | None = None,
        normalize_embeddings: bool = False,
        truncate_dim: int | None = None,
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
            pooling: "mean" over all tokens, or "cls" for the first token. "auto" is what the folder of a Sentence
                Transformers model declares, if no layer is given, and otherwise "mean".
            prompt: Text to put before each sentence.
            prompt_name: Name of a prompt that the folder declares, such as "query".
            normalize_embeddings: Scale the vectors to length one, after they are truncated.
            truncate_dim: Keep only this many dimensions, the first. [default: all]
            convert_to_tensor: Return a tensor on the device of the model in place of an array.
            convert_to_numpy: Return an array. If False, return a list of tensors.
            show_progress_bar: Show a progress bar. [default: False]
            device: Move the model to this device first. [default: the device of the model]

        Returns:
            Vectors in float32, [N, D] for several sentences or [D] for a single string.

        Raises:
            BadInput: If a value is not a string, or the layer, pooling or dimension does not exist.

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
        if prompt is None and prompt_name is not None:
            prompt = self._declared().find_prompt(prompt_name)
        with Progress("encode", len(texts), enabled=bool(show_progress_bar)) as progress:
            on_batch = progress.advance if show_progress_bar else None
            pooling, layer = self.resolve_pooling(pooling, layer)
            [vectors_ND] = self.encode_layers(
                texts, pooling, [layer], batch_size=batch_size, on_batch=on_batch, prompt=prompt
            )
        vectors_ND = truncate_vectors(vectors_ND, truncate_dim)
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
        prompt: str | None = None,
    ) -> np.ndarray:
        """Compute sentence vectors of several layers.

        Args:
            sentences: Any iterable of sentences.
            pooling: "mean" over all tokens, special tokens included as in XTREME, or "cls" for the first token. Or
                "declared", at one layer only: what the folder of a Sentence Transformers model declares.
            layers: Layers of the vectors. [default: all]
            batch_size: Largest number of sentences per batch. [default: as many as fit 4,096 tokens, or fewer on a CPU]
            on_batch: Called with the number of sentences after each batch.
            translations: A translation of each sentence, to plug in cross-attention (VECO §3.1). The states of the
                sentence alone and those that attend to the translation are concatenated.
            prompt: Text to put before each sentence. [default: that of the encoder]

        Returns:
            Vectors in float32, [K, N, D], or [K, N, 2 D] with translations.

        Raises:
            BadInput: If a value is not a string, or the pooling does not exist.

        Example:
            >>> model.encode_layers(["a sentence", "ein Satz"]).shape  # embeddings and 6 blocks
            (7, 2, 384)
        """
        if isinstance(sentences, str):
            raise BadInput("encode_layers: found one string. Give a list of sentences.")
        head, layers = None, range(self.num_layers + 1) if layers is None else layers
        if pooling == DECLARED:
            head, layers = self._declared(), [self.declared_layer]
            head.layers.to(self.model.device)
        else:
            check_pooling(pooling)
        prompt = self.prompt_for(pooling) if prompt is None else prompt
        prompt_length = len(self._tokenize([prompt])[0]) - 1 if prompt else 0  # without the token at its end
        ids, other_ids, width = self._tokenize(sentences, prompt, head), None, self.vector_width(pooling)
        if translations is not None:
            self.check_cross_attention()
            other_ids, width = self._tokenize(translations), 2 * width
        vectors_KND = np.empty((len(layers), len(ids), width), dtype=np.float32)
        with evaluation_mode(self.model):
            for rows, hidden, valid_BL in self._states(ids, layers, batch_size=batch_size, translation_ids=other_ids):
                if head is None:
                    found_KBD = pool([hidden[layer] for layer in layers], valid_BL, pooling)
                else:
                    found_KBD = head.compute(hidden[layers[0]], valid_BL, prompt_length)[None]
                vectors_KND[:, rows] = found_KBD.cpu().numpy()
                if on_batch is not None:
                    on_batch(len(rows))
        return vectors_KND

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

    def resolve_pooling(self, pooling: str, layer: int | None = None) -> tuple[str, int]:
        """Return the pooling and the layer of sentence vectors, where "auto" and None are replaced.

        Example:
            >>> load("LaBSE").resolve_pooling("auto")
            ('declared', 12)
        """
        check_pooling(pooling)
        if pooling == "auto":
            pooling = "mean" if self.head is None or layer is not None else DECLARED
        return pooling, self.declared_layer if pooling == DECLARED else self.resolve_layer(layer)

    def prompt_for(self, pooling: str) -> str:
        """Return the text before each sentence, with a pooling that `resolve_pooling` returned.

        Example:
            >>> load().prompt_for("mean")
            ''
        """
        return self.prompt or (self._declared().find_prompt(None) if pooling == DECLARED else "")

    def vector_width(self, pooling: str) -> int:
        """Return the width of sentence vectors with a pooling that `resolve_pooling` returned.

        Example:
            >>> load().vector_width("mean")
            384
        """
        return self._declared().width if pooling == DECLARED else self.hidden_size

    def fingerprint(self) -> str:
        """Return a hash of all weights. Encoders with the same hash compute the same vectors.

        Example:
            >>> load("runs/xlm_e").fingerprint() == load("exported").fingerprint()
            True
        """
        weights = model_fingerprint(self.model)
        return weights if self.head is None else fingerprint([weights, self.head.description(), self.prompt])

    def _declared(self) -> SentenceHead:
        if self.head is None:
            raise BadInput(f"{self.name}: the folder declares no sentence vectors (modules.json). Omit prompt_name.")
        return self.head

    def _tokenize(
        self, sentences: Iterable[str], prompt: str = "", head: SentenceHead | None = None
    ) -> list[list[int]]:
        texts = [prompt + sentence for sentence in to_list(sentences)]
        if head is not None and head.lowercases:
            texts = [text.lower() for text in texts]
        limit = min(self.max_length, (head and head.max_length) or self.max_length)
        return tokenize_sentences(texts, self.tokenizer, limit, self.name)

    def _states(self, ids: Sequence[list[int]], layers: Sequence[int], **options: Any) -> Iterator[BatchStates]:
        network, options["layers"] = self.model, max(layers, default=None)
        if self.precision != "float32" and network.device.type == "cpu" and network.dtype == torch.float32:
            network, options["tokens"] = self._packed.get(network, self.precision), TOKENS_PER_BATCH[self.precision]
        return iter_states(network, ids, pad_id=self.tokenizer.pad_token_id or 0, **options)
