"""A model and its tokenizer, ready to be measured or used: sentence vectors and word links at every layer.

Layer 0 is the embedding output, everywhere; layer k is the output of block k.
"""
# K layers with the embeddings, N sentences, B of a batch, L positions, D width, S source pieces, T target pieces

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
import torch
import xxhash
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from crossling.errors import BadInput
from crossling.evaluate.asked import check_pooling
from crossling.evaluate.cosine import unit
from crossling.evaluate.links import check_methods, link
from crossling.hub import TOKENIZER, WEIGHTS, model_folder
from crossling.model.pretrained import pretrained, tokenizer_of
from crossling.transfer import cuts
from crossling.transfer.lengths import batches

TOKENS_PER_BATCH = 4096  # padding included; the states of all 25 layers of a large model then stay under half a GiB

Links = list[tuple[int, int]]


class Encoder:
    """Anything from `transformers` that reads both ways and returns its hidden states."""

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerFast,
        name: str,
        universal_layer: int | None = None,  # the layer whose mean is the sentence vector; two thirds up if not said
        seed: int | None = None,  # of its training, where it is known
    ) -> None:
        _check_parts(model, tokenizer, name)
        self.model = model
        self.tokenizer = tokenizer
        self.name = name
        self.seed = seed
        self.longest = _longest(model, tokenizer)  # tokens
        self.layers, self.width = self._probe()
        if tokenizer.pad_token_id is None:  # after the probe: that a model is a decoder is what should be said of it
            raise BadInput(f"{name}: no tokenizer with a padding token; give the tokenizer the model was trained with")
        self.universal_layer = round(self.layers * 2 / 3) if universal_layer is None else self.layer(universal_layer)

    def __repr__(self) -> str:
        return f"<{self.name}: {self.layers} layers of {self.width}, sentences at layer {self.universal_layer}>"

    def pooled(
        self,
        sentences: Sequence[str],
        pooling: str = "mean",
        layers: Sequence[int] | None = None,
        told: Callable[[int], None] | None = None,  # how many are done, as they are
        translations: Sequence[str] | None = None,  # one of each
    ) -> np.ndarray:
        """The vectors of the sentences at every layer, or at those given, [K, N, D] in float32.

        `mean` is over all positions but padding, with the special ones, as XTREME does; `cls` is the first position.
        With `translations`, cross-attention is plugged in (VECO §3.1): the states of a sentence by itself and those
        that see its translation, side by side, [K, N, 2 D].
        """
        check_pooling(pooling)
        if isinstance(sentences, str):
            raise BadInput("one sentence was given where several are expected; give a list of sentences")
        layers = range(self.layers + 1) if layers is None else layers
        ids, width = self._tokenise(sentences), self.width if translations is None else 2 * self.width
        pooled_KND = np.empty((len(layers), len(sentences), width), dtype=np.float32)
        with measuring(self.model):
            states = self._states(ids) if translations is None else self._plugged(ids, self._tokenise(translations))
            for rows, hidden, valid_BL in states:
                pooled_KND[:, rows] = _pool([hidden[layer] for layer in layers], valid_BL, pooling).cpu().numpy()
                if told is not None:
                    told(len(rows))
        return pooled_KND

    def embed(self, sentences: Sequence[str], layer: int | None = None, pooling: str = "mean") -> np.ndarray:
        """The vectors of the sentences at one layer, [N, D] in float32."""
        return self.pooled(sentences, pooling, [self.layer(layer)])[0]

    def align(self, source: str, target: str, layer: int | None = None, method: str = "ot") -> Links:
        """Links between the whitespace words of two sentences, counted from 0."""
        if not (isinstance(source, str) and isinstance(target, str)):
            raise BadInput("align takes two sentences, each as text; for many write a file and take crossling.align")
        pair = (source.split(), target.split())
        [found] = self.align_all([pair], [self.layer(layer)], [method])
        if found is None:
            raise self._too_long()
        return found[method][0]

    def align_all(
        self, pairs: Sequence[tuple[list[str], list[str]]], layers: Sequence[int], methods: Sequence[str] = ("ot",)
    ) -> list[dict[str, list[Links]] | None]:
        """For each pair of word lists the links by each method at each of `layers`, or None where it is too long for
        the model."""
        check_methods(methods)
        joints = self._join(pairs)
        found: list[dict[str, list[Links]] | None] = [None] * len(joints)
        fitting = [index for index, joint in enumerate(joints) if len(joint.ids) <= self.longest]
        with measuring(self.model):
            for rows, hidden, _ in self._states([joints[index].ids for index in fitting]):
                states_KBLD = torch.stack([hidden[layer] for layer in layers]).float().cpu().numpy()
                for place, row in enumerate(rows):
                    joint = joints[fitting[row]]
                    source_KSD, target_KTD = (states_KBLD[:, place, side] for side in (joint.source, joint.target))
                    found[fitting[row]] = {
                        method: [joint.words(links_N) for links_N in link(source_KSD, target_KTD, method)]
                        for method in methods
                    }
        return found

    def similarity(self, source: str, target: str, layer: int | None = None) -> np.ndarray:
        """How alike the words of two sentences are, [words, words]: the largest cosine of their pieces."""
        [joint] = self._join([(source.split(), target.split())])
        if len(joint.ids) > self.longest:
            raise self._too_long()
        chosen = self.layer(layer)
        with measuring(self.model):
            [(_, hidden, _)] = self._states([joint.ids])
        states_LD = unit(hidden[chosen][0].float().cpu().numpy())
        words = np.full((len(source.split()), len(target.split())), -1.0, dtype=np.float32)
        cosine_ST = states_LD[joint.source] @ states_LD[joint.target].T
        np.maximum.at(words, (joint.source_words[:, None], joint.target_words[None, :]), cosine_ST)
        return words

    def check_plug_in(self) -> None:
        """Refuses a model that cannot read a sentence with its translation."""
        if not getattr(self.model.config, "cross_attention", False):
            raise BadInput(
                f"{self.name}: it has no cross-attention to plug in; give a model of the recipe veco (crossling"
                " pretrain veco), or leave --plug-in out"
            )

    def layer(self, layer: int | None) -> int:
        """The layer asked for, if it exists; the universal one if none is."""
        if layer is None:
            return self.universal_layer
        if not 0 <= layer <= self.layers:
            raise BadInput(f"{self.name}: layer {layer} does not exist; give one from 0 (embeddings) to {self.layers}")
        return layer

    def fingerprint(self) -> str:
        """Of all weights: two encoders with the same give the same vectors."""
        found = xxhash.xxh3_64()
        for name, values in sorted(self.model.state_dict().items()):
            found.update(name.encode())
            found.update(values.detach().cpu().reshape(-1).view(torch.uint8).numpy())
        return found.hexdigest()

    def _too_long(self) -> BadInput:
        return BadInput(f"the pair is longer than the {self.longest} tokens {self.name} can read; shorten it")

    def _tokenise(self, sentences: Sequence[str]) -> list[list[int]]:
        if not sentences:
            return []
        plain = {"return_attention_mask": False, "return_token_type_ids": False, "verbose": False}
        ids = self.tokenizer(list(sentences), **plain)["input_ids"]
        long = [row for row, sentence_ids in enumerate(ids) if len(sentence_ids) > self.longest]
        if long:
            cut = self.tokenizer([sentences[row] for row in long], truncation=True, max_length=self.longest, **plain)
            for row, sentence_ids in zip(long, cut["input_ids"], strict=True):
                ids[row] = sentence_ids
            told = f"sentences are longer than the {self.longest} tokens {self.name} can read; their ends were left out"
            cuts.note(len(long), len(ids), told)
        for row, sentence_ids in enumerate(ids):
            if not sentence_ids:
                raise BadInput(f"{self.name}: sentence {row + 1} has no tokens; leave empty sentences out")
        return ids

    def _join(self, pairs: Sequence[tuple[list[str], list[str]]]) -> list[_Joint]:
        """`<s> source </s> target </s>`, every word split by itself, as XLM-Align does."""
        start, end = self.tokenizer.cls_token_id, self.tokenizer.sep_token_id
        start = self.tokenizer.bos_token_id if start is None else start
        end = self.tokenizer.eos_token_id if end is None else end
        if start is None or end is None:
            raise BadInput(f"{self.name}: its tokenizer marks no start or end of a sentence; word alignment needs both")
        distinct = sorted({word for pair in pairs for side in pair for word in side})
        pieces = self.tokenizer(distinct, add_special_tokens=False)["input_ids"] if distinct else []
        split = dict(zip(distinct, pieces, strict=True))
        joints = []
        for source, target in pairs:
            source_ids, target_ids = ([piece for word in side for piece in split[word]] for side in (source, target))
            source_words, target_words = (
                np.repeat(np.arange(len(side)), [len(split[word]) for word in side]) for side in (source, target)
            )
            joints.append(_Joint([start, *source_ids, end, *target_ids, end], source_words, target_words))
        return joints

    def _states(self, ids: Sequence[list[int]]) -> Iterator[tuple[list[int], tuple[Tensor, ...], Tensor]]:
        """Rows of `ids`, their states of every layer [B, L, D] and what is no padding [B, L], a batch at a time; to be
        asked while `measuring`."""
        for rows in batches([len(row) for row in ids], TOKENS_PER_BATCH):
            given = self._padded([ids[row] for row in rows])
            yield rows, self.model(**given, output_hidden_states=True).hidden_states, given["attention_mask"]

    def _plugged(
        self, ids: Sequence[list[int]], paired: Sequence[list[int]]
    ) -> Iterator[tuple[list[int], tuple[Tensor, ...], Tensor]]:
        """The same of sentences with their translations: [H : S] of every layer, [B, L, 2 D]."""
        self.check_plug_in()
        lengths = [len(own) + len(other) for own, other in zip(ids, paired, strict=True)]
        for rows in batches(lengths, TOKENS_PER_BATCH // 2):
            own, other = (self._padded([side[row] for row in rows]) for side in (ids, paired))
            alone = self.model(**own, output_hidden_states=True).hidden_states
            both = self.model(
                **own,
                encoder_hidden_states=self.model(**other).last_hidden_state,
                encoder_attention_mask=other["attention_mask"],
                output_hidden_states=True,
            ).hidden_states
            states = tuple(torch.cat(each, -1) for each in zip(alone, both, strict=True))
            yield rows, states, own["attention_mask"]

    def _padded(self, ids: Sequence[list[int]]) -> dict[str, Tensor]:
        lengths_B = np.array([len(row) for row in ids])
        valid_BL = np.arange(lengths_B.max()) < lengths_B[:, None]
        ids_BL = np.full(valid_BL.shape, self.tokenizer.pad_token_id or 0)
        ids_BL[valid_BL] = np.fromiter(chain.from_iterable(ids), np.int64, lengths_B.sum())
        given = {"input_ids": ids_BL, "attention_mask": valid_BL.astype(np.int64)}
        return {name: torch.from_numpy(values).to(self.model.device) for name, values in given.items()}

    def _probe(self) -> tuple[int, int]:
        """Layers and width as the model itself shows them; refuses one whose positions do not see what follows."""
        special = set(self.tokenizer.all_special_ids)
        one, other = [piece for piece in range(len(self.tokenizer)) if piece not in special][:2]
        with measuring(self.model):
            [(_, hidden, _)] = self._states([[one, one, one], [one, one, other], [other, one, one]])
        if hidden is None:
            raise BadInput(f"{self.name}: the model returns no hidden states; give an encoder of transformers")
        same_LD, end_LD, start_LD = hidden[-1].float()
        rounding = 1e-5 * float(same_LD.abs().max())  # rows of a batch may differ in their last bits
        of_end, of_start = (
            float(seen_D.abs().max()) for seen_D in (same_LD[0] - end_LD[0], same_LD[-1] - start_LD[-1])
        )
        if of_end <= rounding:
            # A decoder sees what went before. A discriminator that guesses sees nothing either way, as most do for
            # some time before they learn: that is no reason not to measure it.
            if of_start > max(rounding, 100 * of_end):
                raise BadInput(f"{self.name}: a decoder, whose positions do not see what follows; give an encoder")
            warnings.warn(
                f"{self.name}: at its last layer no position sees any other: a model that has collapsed, or one that"
                " has only begun to learn",
                stacklevel=3,
            )
        return len(hidden) - 1, hidden[-1].shape[-1]


def load(model: str | Path) -> Encoder:
    """An encoder from an exported or fine-tuned folder, any Hugging Face folder, or by its name on the hub; heads are
    left out, only safetensors are read, and no code that comes with a model is run."""
    folder = model_folder(model, TOKENIZER + WEIGHTS)
    network = pretrained(folder, model)
    return Encoder(network, tokenizer_of(folder, model), str(model), getattr(network.config, "universal_layer", None))


@dataclass(frozen=True)
class _Joint:
    """Two sentences as one input, and which word each piece comes from."""

    ids: list[int]
    source_words: np.ndarray  # [S]
    target_words: np.ndarray  # [T]

    @property
    def source(self) -> slice:
        return slice(1, 1 + len(self.source_words))

    @property
    def target(self) -> slice:
        return slice(2 + len(self.source_words), 2 + len(self.source_words) + len(self.target_words))

    def words(self, links_N: np.ndarray) -> Links:
        """Links of pieces to links of words: a word pair is linked if any of its pieces are."""
        source, target = self.source_words[links_N[:, 0]].tolist(), self.target_words[links_N[:, 1]].tolist()
        return sorted(set(zip(source, target, strict=True)))


def _check_parts(model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, name: str) -> None:
    if tokenizer is None:
        raise BadInput(f"{name}: no tokenizer; give the tokenizer the model was trained with")
    if getattr(model.config, "is_encoder_decoder", False):
        raise BadInput(f"{name}: an encoder-decoder; give an encoder")
    embeddings = model.get_input_embeddings()
    if isinstance(embeddings, nn.Embedding) and len(tokenizer) > embeddings.num_embeddings:
        raise BadInput(f"{name}: the tokenizer has more pieces than the model; give the one it was trained with")


def _longest(model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast) -> int:
    limit = min(tokenizer.model_max_length, getattr(model.config, "max_position_embeddings", None) or 2**31)
    for name, module in model.named_modules():
        if name.endswith("position_embeddings") and isinstance(module, nn.Embedding):
            # RoBERTa counts positions from the one after padding: 514 positions hold 512 tokens
            unused = 0 if module.padding_idx is None else module.padding_idx + 1
            limit = min(limit, module.num_embeddings - unused)
    return limit


@contextmanager
def measuring(model: nn.Module) -> Iterator[None]:
    """No dropout, no gradients, full precision; afterwards every module trains or not as before."""
    modes = {module: module.training for module in model.modules()}
    device = next(model.parameters()).device
    model.eval()
    try:
        with torch.no_grad(), torch.autocast(device.type, enabled=False):
            yield
    finally:
        for module, mode in modes.items():
            module.training = mode


def _pool(hidden: Sequence[Tensor], valid_BL: Tensor, pooling: str) -> Tensor:
    """The states of each layer to its vectors, [K, B, D]."""
    if pooling == "cls":
        return torch.stack([hidden_BLD[:, 0].float() for hidden_BLD in hidden])
    # A product of matrices reads each state once and needs no room for masked copies.
    weight_B1L = (valid_BL / valid_BL.sum(dim=1, keepdim=True)).unsqueeze(1)
    return torch.stack([torch.bmm(weight_B1L, hidden_BLD.float()).squeeze(1) for hidden_BLD in hidden])
