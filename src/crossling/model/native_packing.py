"""Packed rows in encoders of Hugging Face: several sequences in a row, exactly as if each had a row of its own.

A sequence attends to itself alone through a block-diagonal mask, and its positions start again. Model families take
such a mask in different forms, or not at all. `choose_packing` tries the forms and keeps the first whose hidden states
equal those of single sequences. Families without one run one sequence a row, in four groups of similar length. Families
whose states depend on the padding of those rows (FNet, ConvBERT) are refused.
"""
# R rows, W tokens of a row, N sequences, L positions, P = R x W positions of all rows, D width

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from crossling.core.errors import BadInput
from crossling.model.position import compute_position_ids

GROUPS = 4  # of sequences by length. Constant, because with FSDP all processes call the layers equally often
TOLERANCE = 2e-5  # relative, of float32
PROBE_LENGTHS = (9, 4, 6, 2, 5)  # more than GROUPS, so that one of them is padded without packing
MARGIN = 8  # tokens of the first probe sequence beyond the reach of local attention

Masks = Any  # a tensor, or one for each type of layer


@dataclass(frozen=True)
class Packing:
    """The form in which a model takes packed rows."""

    make_mask: Callable[[PreTrainedModel, Tensor, torch.dtype], Masks]
    at_encoder: bool = False  # the layers take the mask, but the embeddings expect one of padding

    def run(self, base: PreTrainedModel, ids_RW: Tensor, segments_RW: Tensor, **options: Any) -> Any:
        """Return the output of the model for packed rows."""
        mask = self.make_mask(base, segments_RW, _mask_dtype(base))
        if "position_ids" in inspect.signature(base.forward).parameters:
            options["position_ids"] = compute_position_ids(segments_RW) + first_position(base)
        if not self.at_encoder:
            return base(input_ids=ids_RW, attention_mask=mask, **options)
        with _replaced_mask(base.get_submodule("encoder"), mask):
            return base(input_ids=ids_RW, attention_mask=torch.ones_like(ids_RW), **options)


def _mask_dtype(base: PreTrainedModel) -> torch.dtype:
    device = base.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else base.dtype


def first_position(base: nn.Module) -> int:
    """Return the index of the first position. RoBERTa and its variants start after the padding id."""
    for name, module in base.named_modules():
        if name.endswith("position_embeddings") and getattr(module, "padding_idx", None) is not None:
            return int(module.padding_idx) + 1
    return 0


# ---- forms of the mask ------------------------------------------------------------------------------------------


def _is_same(segments_RW: Tensor) -> Tensor:
    """Return which tokens are in one sequence, [R, W, W]. Padding attends to padding, so no row is empty."""
    return segments_RW[:, :, None] == segments_RW[:, None, :]


def _to_scores(base: PreTrainedModel, is_visible: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the mask [R, 1, W, W] as the attention of the model takes it: boolean, or to be added to the scores."""
    visible_R1WW = is_visible[:, None]
    if base.config._attn_implementation == "sdpa":
        return visible_R1WW
    zeros = torch.zeros(visible_R1WW.shape, dtype=dtype, device=is_visible.device)
    return zeros.masked_fill(~visible_R1WW, torch.finfo(dtype).min)


def _by_layer_type(base: PreTrainedModel, segments_RW: Tensor, dtype: torch.dtype) -> Masks:
    """Return a mask for layers with global attention and one for those with local attention (ModernBERT)."""
    is_same = _is_same(segments_RW)
    reach = local_reach(base)
    position_W = torch.arange(segments_RW.shape[1], device=segments_RW.device)
    is_near = (position_W - position_W[:, None]).abs() <= reach
    scores = {"full_attention": is_same, "sliding_attention": is_same & is_near}
    return {name: _to_scores(base, is_visible, dtype) for name, is_visible in scores.items()}


def local_reach(base: PreTrainedModel) -> int:
    """Return the largest distance of local attention, which Hugging Face calls `sliding_window`. 0 without it."""
    return int(getattr(base.config, "sliding_window", None) or 0)


def _four_dimensional(base: PreTrainedModel, segments_RW: Tensor, dtype: torch.dtype) -> Masks:
    return _to_scores(base, _is_same(segments_RW), dtype)


def _three_dimensional(base: PreTrainedModel, segments_RW: Tensor, dtype: torch.dtype) -> Masks:  # noqa: ARG001
    return _is_same(segments_RW).long()


FORMS = (
    Packing(_by_layer_type),
    Packing(_four_dimensional),
    Packing(_three_dimensional),
    Packing(_three_dimensional, at_encoder=True),  # DeBERTa
)


@contextmanager
def _replaced_mask(encoder: nn.Module, mask: Tensor) -> Iterator[None]:
    """Replace the second argument of a module, which is its mask."""

    def replace(_: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        return inputs[0], mask, *inputs[2:]

    hook = encoder.register_forward_pre_hook(replace)
    try:
        yield
    finally:
        hook.remove()


# ---- choice -----------------------------------------------------------------------------------------------------


@torch.no_grad()
def choose_packing(base: PreTrainedModel) -> Packing | None:
    """Return the form of packed rows with which a model computes the same states, or None if there is none.

    Raises:
        BadInput: The states also change when a sequence of its own row is padded.
    """
    if base.device.type == "meta":
        return None
    lengths = [*PROBE_LENGTHS]
    if reach := local_reach(base):
        lengths[0] = reach + MARGIN
    segments_W = torch.repeat_interleave(torch.arange(1, len(lengths) + 1), torch.tensor(lengths))
    generator = torch.Generator().manual_seed(0)
    size = base.config.vocab_size
    ids_W = torch.randint(size // 2, size - 1, segments_W.shape, generator=generator)  # hardly ever special tokens
    modes = {module: module.training for module in base.modules()}
    state = torch.get_rng_state()
    base.eval()
    try:
        expected_WD = _run_single(base, ids_W, lengths)
        for form in FORMS:
            try:
                found_WD = form.run(base, ids_W[None], segments_W[None]).last_hidden_state[0]
            except Exception:  # each family fails in its own way on a mask that it does not take
                continue
            if _is_close(found_WD, expected_WD):
                return form
        if not _is_close(run_unpacked(base, ids_W[None], segments_W[None])[0], expected_WD):
            raise BadInput(
                f"{base.name_or_path or 'model'}: states of type {base.config.model_type} change with the padding of a"
                " batch. Give a model of another family."
            )
    finally:
        torch.set_rng_state(state)
        for module, mode in modes.items():
            module.training = mode
    return None


def _run_single(base: PreTrainedModel, ids_W: Tensor, lengths: list[int]) -> Tensor:
    """Return the states of each sequence in a batch of its own, without padding."""
    rows = [ids_L[None] for ids_L in ids_W.split(lengths)]
    states = [base(input_ids=ids_1L, attention_mask=torch.ones_like(ids_1L)).last_hidden_state[0] for ids_1L in rows]
    return torch.cat(states)


def _is_close(found_WD: Tensor, expected_WD: Tensor) -> bool:
    return bool((found_WD - expected_WD).abs().max() <= TOLERANCE * expected_WD.abs().max())


# ---- one sequence a row -----------------------------------------------------------------------------------------


def run_unpacked(base: PreTrainedModel, ids_RW: Tensor, segments_RW: Tensor, layer: int | None = None) -> Tensor:
    """Return the states of packed rows, computed with one sequence a row.

    Args:
        base: Model without a head.
        ids_RW: Token ids.
        segments_RW: Number of the sequence each token belongs to. 0 is padding, whose states are zero.
        layer: Index of the hidden states to return [default: those of the last layer].
    """
    segments_P, ids_P = segments_RW.flatten(), ids_RW.flatten()
    order_P = segments_P.argsort(stable=True)
    lengths_N = torch.bincount(segments_P)[1:]
    starts_N = (segments_P == 0).sum() + lengths_N.cumsum(0) - lengths_N
    groups = list(lengths_N.argsort(descending=True).tensor_split(GROUPS))
    positions, states = [], []
    for group in groups:
        rows_N = group if len(group) else groups[0][:1]  # a group of no use, so that the number of calls is constant
        position_L = torch.arange(int(lengths_N[rows_N].max()), device=ids_RW.device)
        is_token_NL = position_L < lengths_N[rows_N, None]
        index_NL = order_P[(starts_N[rows_N, None] + position_L).clamp(max=len(order_P) - 1)]
        ids_NL = ids_P[index_NL].where(is_token_NL, base.config.pad_token_id or 0)
        inputs = {"input_ids": ids_NL, "attention_mask": is_token_NL.long()}
        hidden_NLD = select_layer(partial(base, **inputs), layer)
        if len(group):
            positions.append(index_NL[is_token_NL])
            states.append(hidden_NLD[is_token_NL])
    values_PD = torch.cat(states)
    packed_PD = values_PD.new_zeros(len(ids_P), values_PD.shape[-1])
    return packed_PD.index_copy(0, torch.cat(positions), values_PD).view(*ids_RW.shape, -1)


def select_layer(run: Callable[..., Any], layer: int | None) -> Tensor:
    """Return the hidden states of a layer, or of the last one. `run` calls the model with further options."""
    output = run() if layer is None else run(output_hidden_states=True)
    states: Tensor = output.last_hidden_state if layer is None else output.hidden_states[layer]
    return states
