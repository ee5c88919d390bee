"""From shards to the batches of a step: sample examples, corrupt them as the objective defines, pack them into rows.

Every random number is a function of (seed, stream, step, position in the global batch). So no result depends on how a
batch is split, and the data need no state but the step. Every example of a corpus is read once before any is repeated.

A step is divided into micro-batches of nearly equal numbers of tokens before any token is read. Rank r of W processes
computes the micro-batches r, r + W, r + 2W, ... Their content depends on their number, but not on the rank.
"""
# G groups (a language of text, or one corpus in one language pair), N examples of a step, U units of E examples

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from crossling.core.errors import BadInput
from crossling.data.balanced_parts import balanced_parts, count_micro_batches
from crossling.data.example_groups import TeacherGroup, example_lengths, make_groups
from crossling.data.example_sampler import ExampleSampler
from crossling.data.keyed_random import MAX_EXAMPLES, MAX_LENGTH, KeyedRandom
from crossling.data.packing import Batch, Sequences, pack
from crossling.data.shards import Shards
from crossling.sampling import Sampling
from crossling.vocabulary.special_tokens import BOS, PAD, SpecialTokens

LENGTH_MULTIPLE = 8  # the attention kernels of a GPU need row lengths that are multiples of it
SAMPLE, CORRUPT, DROPOUT = 0, 1, 2  # the use of a random stream; part of its key

Stream = Literal["text", "pairs", "sentences"]  # `sentences` have vectors of a teacher
# Sampling order of each stream. The names are part of the random key: others would change the sampled examples.
STREAM_ORDERS: dict[Stream, str] = {"text": "mrtd", "pairs": "trtd", "sentences": "distillation"}


@dataclass(frozen=True)
class TokenizedExamples:
    """Blocks of text or translation pairs, as token ids without the leading <s>. Every sentence ends in </s>."""

    ids: Sequence[np.ndarray]
    translation_ids: Sequence[np.ndarray] = ()  # empty for text
    row_N: np.ndarray | None = None  # equal for all translations of one row of a multi-way corpus; unique otherwise
    bos: int = BOS  # id of <s>
    vector_NE: np.ndarray | None = None  # of a teacher

    def sequences(self) -> Sequences:
        """Return <s> ids."""
        return prepend_bos(self.ids, bos=self.bos)

    def translation_sequences(self) -> Sequences:
        """Return <s> translation_ids."""
        return prepend_bos(self.translation_ids, bos=self.bos)

    def joined_sequences(self) -> Sequences:
        """Return <s> source </s> target </s>."""
        return prepend_bos(self.ids, self.translation_ids, bos=self.bos)


def prepend_bos(*segments: Sequence[np.ndarray], bos: int = BOS) -> Sequences:
    """Return sequences of <s> followed by the segments of each example."""
    first = np.asarray([bos], dtype=np.min_scalar_type(bos))
    columns = [[first] * len(segments[0]), *segments]
    flat = np.concatenate([segment for example in zip(*columns, strict=True) for segment in example]).astype(np.int64)
    lengths_N = sum(np.fromiter(map(len, column), dtype=np.int64, count=len(column)) for column in columns)
    return Sequences(np.asarray(lengths_N), {"ids": flat})


@dataclass(frozen=True)
class CorruptedExamples:
    """Model inputs that an objective makes of examples."""

    inputs: dict[str, Sequences]  # by the name of the input
    per_example: dict[str, np.ndarray] = field(default_factory=dict)  # arrays [N, ...]
    sequences_per_example: int = 1  # which are in one row
    has_same_rows: bool = False  # row k of every input has the same examples
    read_tokens: int | None = None  # if an input repeats the tokens of another one

    @property
    def tokens(self) -> int:
        """Number of tokens that count as read: by default those of all inputs."""
        if self.read_tokens is not None:
            return self.read_tokens
        return sum(int(sequences.lengths_N.sum()) for sequences in self.inputs.values())

    def pack(self, length: int, has_bucketed_shapes: bool = False, pad: int = PAD) -> Batch:
        """Pack the inputs into rows of `length` tokens, rounded up for the kernels. `pad` is the id of padding."""
        import torch

        width = -(-length // LENGTH_MULTIPLE) * LENGTH_MULTIPLE
        batch: Batch = {name: torch.from_numpy(values) for name, values in self.per_example.items()}
        longest_N = None
        if self.has_same_rows:
            longest_N = np.maximum.reduce([sequences.lengths_N for sequences in self.inputs.values()])
        for name, sequences in self.inputs.items():
            batch |= pack(
                sequences,
                width,
                name,
                space_N=longest_N,
                per_example=self.sequences_per_example,
                has_bucketed_shapes=has_bucketed_shapes,
                pad=pad,
            )
        return batch


class DataObjective(ABC):
    """The data half of the contract of an objective: which examples it reads, and how it corrupts them.

    `crossling.objectives.objective.PretrainingObjective` adds the other half: modules, loss and cost.
    """

    stream: ClassVar[Stream]
    length: int  # maximum number of tokens of a sequence

    @property
    def example_order(self) -> str:
        """Name of the sampling order. Objectives of one order read the same examples at the same steps.

        All objectives of one stream have one order, so recipes are compared on the same data if they read as many
        examples.
        """
        return STREAM_ORDERS[self.stream]

    @property
    def examples_per_unit(self) -> int:
        """Number of examples that `example_units` keeps together."""
        return 1

    @property
    def has_in_batch_negatives(self) -> bool:
        """True if the examples of a step are each other's negatives. Then each process has one micro-batch a step."""
        return False

    def example_units(self, group_N: np.ndarray, noise: KeyedRandom) -> np.ndarray:  # noqa: ARG002
        """Return which examples of a step stay together, [U, E]. By default each example is a unit of its own."""
        return np.arange(len(group_N))[:, None]

    @abstractmethod
    def examples_per_step(self, mean_length: float) -> int:
        """Return the number of sequences or pairs of a step, over all processes."""

    @abstractmethod
    def corrupt(self, examples: TokenizedExamples, noise: KeyedRandom, special: SpecialTokens) -> CorruptedExamples:
        """Return the model inputs. Runs on the host, so all counts are known before the forward pass.

        Args:
            examples: Blocks of text or translation pairs.
            noise: The only source of randomness.
            special: Ids of the special tokens.
        """

    @abstractmethod
    def counts(self, batch: Batch) -> dict[str, int]:
        """Return the denominator of each sum of `loss`, to be summed over all processes and micro-batches."""


@dataclass(frozen=True)
class StepWork:
    """The micro-batches of one step in one process."""

    micro_batches: list[tuple[str, Batch]]  # with the name of the objective
    counts: dict[str, int]  # denominator of each loss term, to be summed over all processes
    tokens: int  # without padding
    seeds: list[int] = field(default_factory=list)  # dropout seed of each micro-batch, the same in any process

    def pin_memory(self) -> StepWork:
        """Return a copy in pinned memory. DataLoader calls this, so that copies to the GPU overlap with computation."""
        works = self.micro_batches
        pinned = [(name, {key: values.pin_memory() for key, values in batch.items()}) for name, batch in works]
        return replace(self, micro_batches=pinned)


if TYPE_CHECKING:
    from torch.utils.data import Dataset

    WorkDataset = Dataset[StepWork]
else:
    WorkDataset = object  # torch takes any class with __getitem__, and importing it takes seconds


class StepDataset(WorkDataset):
    """Base class of the data of a training run: dataset[step] is the work of that step in this process.

    The work must depend on the step alone, so a resumed run reads the same data.
    """

    has_bucketed_shapes = False  # True: micro-batches have few shapes, so that a step can be captured as CUDA graphs

    def __getitem__(self, step: int) -> StepWork:
        raise NotImplementedError

    def objective_batches(self, name: str, step: int) -> Iterator[Batch]:
        """Yield the micro-batches of one objective."""
        return (batch for objective, batch in self[step].micro_batches if objective == name)


class Batches(StepDataset):
    """Batches of a recipe: batches[step] is the work of that step in one process."""

    def __init__(
        self,
        shards: Shards,
        objectives: Mapping[str, DataObjective],
        sampling: Sampling,
        *,
        seed: int,
        micro_tokens: int,
        alternate: bool = False,
        rank: int = 0,
        world_size: int = 1,
        has_bucketed_shapes: bool = False,
        later: Sequence[Sampling] = (),
    ) -> None:
        """Plan the sampling of each objective.

        Args:
            shards: Tokenized corpora.
            objectives: Objectives by name. The name is part of the random key.
            sampling: Sampling probabilities of languages and language pairs.
            seed: Seed of all random numbers.
            micro_tokens: Tokens of a micro-batch.
            alternate: Read text on even steps and pairs on odd ones.
            rank: Rank of this process.
            world_size: Processes that compute a step together.
            has_bucketed_shapes: Pad rows and masked positions, so that micro-batches have few shapes.
            later: Sampling of later phases, whose groups `next_phase` may sample.

        Raises:
            BadInput: If the shards have no data for an objective, or a step is too large or too small.
        """
        self.objectives, self.micro_tokens, self.special = objectives, micro_tokens, shards.special
        self.rank, self.world_size, self.has_bucketed_shapes = rank, world_size, has_bucketed_shapes
        self.shuffle_window = sampling.shuffle_window
        # Alternation needs both streams. Sentences with vectors of a teacher are read at every step.
        self.alternate = alternate and {"text", "pairs"} <= {objective.stream for objective in objectives.values()}
        self.groups = {
            name: make_groups(shards, objective.stream, objective.length, sampling, later)
            for name, objective in objectives.items()
        }
        self._plan_all(seed)

    def _plan_all(self, seed: int) -> None:
        # Keyed by name and not by index: turning off one objective leaves the data of the others unchanged.
        self.keys = {name: [seed, int.from_bytes(name.encode())] for name in self.objectives}
        self.samplers: dict[str, ExampleSampler] = {}
        self.mean_lengths: dict[str, float] = {}  # tokens of an example
        self.micro_batch_counts: dict[str, int] = {}  # of a step, over all processes
        for name in self.objectives:
            self._plan(name)

    def _plan(self, name: str) -> None:
        """Set up the sampler of an objective."""
        groups, objective = self.groups[name], self.objectives[name]
        length_G = np.array([group.mean_length for group in groups])
        probability_G = self._example_probabilities(name, {group.name: group.probability for group in groups})
        mean_length = float(probability_G @ length_G)
        number = objective.examples_per_step(mean_length)
        if number > MAX_EXAMPLES or objective.length > MAX_LENGTH:
            raise BadInput(
                f"{name}: {number:,} sequences of up to {objective.length:,} tokens a step. At most {MAX_EXAMPLES:,} of"
                f" {MAX_LENGTH:,} are possible. Lower {name}.tokens or {name}.length."
            )
        seed, _ = self.keys[name]
        order = objective.example_order.encode()
        windows_G = None
        if self.shuffle_window is not None:
            windows_G = np.maximum(1, self.shuffle_window // length_G).tolist()
        self.samplers[name] = ExampleSampler(
            probability_G.tolist(),
            list(map(len, groups)),
            examples_per_step=number,
            key=[seed, int.from_bytes(order), SAMPLE],
            stream=sum(order),
            windows=windows_G,
        )
        self._set_mean_length(name, mean_length)

    def _example_probabilities(self, name: str, probabilities: Mapping[str, float]) -> np.ndarray:
        """Return the probability that an example is of each group."""
        groups = self.groups[name]
        probability_G = np.array([probabilities.get(group.name, 0.0) for group in groups])
        if self.objectives[name].stream == "text":  # of tokens; one sample is a block of them
            probability_G = probability_G / (np.array([group.mean_length for group in groups]) - 1)
        return np.asarray(probability_G / probability_G.sum())

    def _set_mean_length(self, name: str, mean_length: float) -> None:
        """Derive from it the number of micro-batches of a step."""
        objective, number = self.objectives[name], self.samplers[name].examples_per_step
        units = len(objective.example_units(np.zeros(number, dtype=np.int64), self._noise(name, 0)))
        if units < self.world_size:
            raise BadInput(
                f"{name}: {units} examples a step for {self.world_size} processes. Increase the batch size, or start"
                " fewer processes."
            )
        self.mean_lengths[name] = mean_length
        one_per_process = objective.has_in_batch_negatives
        self.micro_batch_counts[name] = count_micro_batches(
            number * mean_length, self.micro_tokens, units, self.world_size, one_per_process=one_per_process
        )

    def resample(self, probabilities: Mapping[str, float], step: int, stream: Stream = "pairs") -> None:
        """Sample a stream with new probabilities, by group name, from a step on.

        The number of examples of a step stays the same.
        """
        for name, objective in self.objectives.items():
            if objective.stream == stream:
                probability_G = self._example_probabilities(name, probabilities)
                sampler = self.samplers[name]
                self.samplers[name] = sampler.reweight(probability_G.tolist(), self._turn(step, stream))
                length_G = np.array([group.mean_length for group in self.groups[name]])
                self._set_mean_length(name, float(probability_G @ length_G))

    def next_phase(
        self, objectives: Mapping[str, DataObjective], probabilities: Mapping[Stream, Mapping[str, float]], step: int
    ) -> Batches:
        """Return the batches from a step on, with other masking rates and sampling probabilities."""
        batches = copy(self)
        batches.objectives, batches.samplers = objectives, {**self.samplers}
        batches.mean_lengths, batches.micro_batch_counts = {**self.mean_lengths}, {**self.micro_batch_counts}
        for stream, own in probabilities.items():
            batches.resample(own, step, stream)
        return batches

    def _turn(self, step: int, stream: Stream) -> int:
        """Return the number of earlier steps that read a stream, so that it skips no example."""
        return (step + (stream == "text")) // 2 if self.alternate and stream != "sentences" else step

    def single_group(self, index: int, objectives: Mapping[str, DataObjective], seed: int) -> Batches:
        """Return batches of one group alone, for other objectives of the same names."""
        batches = copy(self)
        batches.objectives, batches.alternate = objectives, False
        batches.groups = {name: [self.groups[name][index]] for name in objectives}
        batches._plan_all(seed)
        return batches

    def __getitem__(self, step: int) -> StepWork:
        work = StepWork([], {}, 0)
        tokens = 0
        for name, objective in self.objectives.items():
            if self.alternate and objective.stream == ("text" if step % 2 else "pairs"):
                continue
            turn = self._turn(step, objective.stream)
            for index, corrupted in self._corrupted(name, turn):
                batch = corrupted.pack(objective.length, self.has_bucketed_shapes, self.special.pad)
                work.micro_batches.append((name, batch))
                work.seeds.append(self._dropout_seed(name, turn, index))
                tokens += corrupted.tokens
                for term, count in objective.counts(batch).items():
                    work.counts[term] = work.counts.get(term, 0) + count
        return replace(work, tokens=tokens)

    def objective_batches(self, name: str, step: int) -> Iterator[Batch]:
        length = self.objectives[name].length
        return (
            each.pack(length, self.has_bucketed_shapes, self.special.pad) for _, each in self._corrupted(name, step)
        )

    def _corrupted(self, name: str, step: int) -> Iterator[tuple[int, CorruptedExamples]]:
        """Yield the index and the examples of each micro-batch of this process. Reads only lengths of the others."""
        objective, noise = self.objectives[name], self._noise(name, step)
        group_N, index_N = self.samplers[name][step]
        units_UE, micro_batches = objective.example_units(group_N, noise), self.micro_batch_counts[name]
        parts = [np.arange(len(units_UE))]
        if micro_batches > 1:
            length_N = example_lengths(self.groups[name], group_N, index_N)
            parts = balanced_parts(length_N[units_UE].sum(1), micro_batches)
        for index in range(self.rank, micro_batches, self.world_size):
            selected = units_UE[parts[index]].ravel()
            own_noise = noise.select(selected)
            examples = self._read(name, group_N[selected], index_N[selected], own_noise)
            yield index, objective.corrupt(examples, own_noise, self.special)

    def _read(self, name: str, group_N: np.ndarray, index_N: np.ndarray, noise: KeyedRandom) -> TokenizedExamples:
        groups = self.groups[name]
        read = [groups[group].example(index) for group, index in zip(group_N.tolist(), index_N.tolist(), strict=True)]
        if self.objectives[name].stream != "pairs":
            vectors = groups[0].teacher.vectors if isinstance(groups[0], TeacherGroup) else None
            vector_NE = None if vectors is None else vectors[[row for _, _, row in read]]
            return TokenizedExamples([ids for ids, _, _ in read], bos=self.special.bos, vector_NE=vector_NE)
        # In random order, so that no language is always first.
        swapped_N = noise.per_example("order") < 0.5
        pairs = [(b, a) if swapped else (a, b) for (a, b, _), swapped in zip(read, swapped_N, strict=True)]
        row_N = np.asarray([row for _, _, row in read])
        return TokenizedExamples([a for a, _ in pairs], [b for _, b in pairs], row_N, self.special.bos)

    def _noise(self, name: str, step: int) -> KeyedRandom:
        return KeyedRandom([*self.keys[name], CORRUPT], step, self.samplers[name].examples_per_step)

    def _dropout_seed(self, name: str, step: int, index: int) -> int:
        return int(np.random.SeedSequence([*self.keys[name], DROPOUT, step, index]).generate_state(1, np.uint64)[0])
