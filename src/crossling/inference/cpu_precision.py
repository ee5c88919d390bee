"""Inference on a CPU in bfloat16 or in 8-bit integers, with the kernels of oneDNN that are part of torch.

`pack_network` copies a model and replaces its linear layers by packed ones. In crossling models, the gates of the
position bias become columns of the linear layer of queries, keys and values. GELU becomes a part of the linear layer
before it.

8-bit layers have one scale for each output of the weights, and one for each token. The vector of a sentence therefore
does not depend on the other sentences of its batch. Hidden states stay in float32.
"""
# B batch, L length, H heads, D width, K width of a head, N tokens, O outputs, G gates

from __future__ import annotations

import copy
import os
import select
import signal
import warnings
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from crossling.core.errors import BadInput, suggestion
from crossling.inference.stored_weights import StoredEmbedding, StoredLinear
from crossling.model.attention import AttentionMask, PositionBias, SelfAttention
from crossling.model.encoder import FeedForward
from crossling.model.int8 import LARGEST, quantize_rows
from crossling.model.position import RotaryAngles

if TYPE_CHECKING:
    from crossling.inference.hidden_states import Model
    from crossling.inference.sentence_encoder import Encoder

PRECISIONS = ("auto", "float32", "bfloat16", "int8")
TOKENS_PER_BATCH = {"bfloat16": 2048, "int8": 1024}  # so that the states of a batch stay in the caches
COLUMN_MULTIPLE = 32  # oneDNN is slower for other numbers of outputs
ZERO = 128  # oneDNN is only fast with unsigned inputs on CPUs without AMX, so that 128 stands for zero
PROBE_SECONDS = 10.0  # for one small product; a child that takes longer is killed
SMALLEST_SCALE = 1e-12  # of a token whose state is zero


def check_precision(precision: str) -> None:
    """Raise BadInput if there is no such precision."""
    if precision not in PRECISIONS:
        raise BadInput(f"precision={precision}: no such precision{suggestion(str(precision), PRECISIONS)}")


def resolve_precision(precision: str, device: torch.device, has_int8_weights: bool) -> str:
    """Return the precision to compute in: float32, bfloat16 or int8.

    Args:
        precision: Requested precision.
        device: Device of the model.
        has_int8_weights: The weights are stored in 8 bits. Other models stay in float32 with `auto`.

    Raises:
        BadInput: If the device cannot compute in the requested precision.
    """
    check_precision(precision)
    if precision == "auto":
        return fastest_precision() if has_int8_weights and device.type == "cpu" else "float32"
    if precision != "float32" and device.type != "cpu":
        raise BadInput(f"precision={precision}: expected a model on the CPU, found {device}. Give device cpu.")
    is_supported = {"float32": True, "bfloat16": _has_bfloat16(), "int8": _has_int8()}
    if not (is_supported[precision] and (precision == "float32" or _is_safe())):
        raise BadInput(f"precision={precision}: this CPU has no instructions for it. Give auto.")
    return precision


def fastest_precision() -> str:
    """Return the fastest precision of this CPU: bfloat16 with AMX, int8 with VNNI, and float32 otherwise."""
    if not _is_safe():
        return "float32"
    if torch.cpu._is_amx_tile_supported() and _has_bfloat16():
        return "bfloat16"
    return "int8" if _has_int8() else "float32"


@cache
def amx_works() -> bool:
    """Return True if a child process can multiply with AMX.

    Some virtual machines report AMX, and end a process that uses it with "Illegal instruction".
    """
    if not hasattr(os, "fork"):
        return True
    result, answer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Python about threads: the child has one and uses no other
        child = os.fork()
    if child == 0:
        try:
            _multiply_in_bfloat16()
            os.write(answer, b"1")
        finally:
            os._exit(0)
    os.close(answer)
    with os.fdopen(result, "rb") as pipe:
        works = bool(select.select([pipe], [], [], PROBE_SECONDS)[0]) and pipe.read() == b"1"
    with suppress(ProcessLookupError, ChildProcessError):  # no status remains where SIGCHLD is ignored
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return works


def _multiply_in_bfloat16() -> None:
    torch.set_num_threads(1)
    BFloat16Linear(torch.ones(64, 64), torch.zeros(64), has_gelu=False)(torch.ones(64, 64, dtype=torch.bfloat16))


def _has_bfloat16() -> bool:
    return torch.backends.mkldnn.is_available() and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def _has_int8() -> bool:
    # Without VNNI, sums of two 8-bit products saturate at 16 bits.
    return torch.backends.mkldnn.is_available() and torch.cpu._is_vnni_supported()


def _is_safe() -> bool:
    """Return False if oneDNN would use AMX, in both precisions, and the CPU cannot."""
    return not torch.cpu._is_amx_tile_supported() or amx_works()


def in_float32(encoder: Encoder) -> Encoder:
    """Return the encoder with the same weights that computes in float32, for scores."""
    exact = copy.copy(encoder)
    exact.precision = "float32"
    return exact


def pack_network(model: Model, precision: str) -> Model:
    """Return a copy of a model that computes in bfloat16 or int8. It is for inference on a CPU only."""
    # A copy of the modules, whose parameters have the same memory until they are replaced.
    shared = {id(each): nn.Parameter(each.detach(), requires_grad=False) for each in model.parameters()}
    packed: Model = copy.deepcopy(model, shared).eval()
    _replace_layers(packed, precision)
    if precision == "bfloat16":
        packed.bfloat16()
    return packed


class PackedCopy:
    """Packed copy of a network. It is made when it is needed, and again after the weights change."""

    def __init__(self) -> None:
        self._key: Any = None
        self._network: Model | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return PackedCopy, ()  # packed weights cannot be copied or pickled

    def get(self, network: Model, precision: str) -> Model:
        """Return the packed copy of a network."""
        key = precision, [(weight.data_ptr(), weight._version) for weight in network.parameters()]
        if self._network is None or self._key != key:
            self._key, self._network = key, pack_network(network, precision)
        return self._network


def _replace_layers(module: nn.Module, precision: str) -> None:
    for name, child in module.named_children():
        if isinstance(child, SelfAttention):
            setattr(module, name, PackedSelfAttention(child, precision))
        elif isinstance(child, FeedForward):
            into: Any = child[0]
            out: Any = child[2]
            layers = pack_linear(into, precision, has_gelu=True), pack_linear(out, precision)
            setattr(module, name, nn.Sequential(*layers))
        elif isinstance(child, nn.Linear) and type(child) in (nn.Linear, StoredLinear):
            setattr(module, name, pack_linear(child, precision))
        elif isinstance(child, StoredEmbedding) and precision == "bfloat16":
            setattr(module, name, StoredEmbedding(child.values_RC, child.scale_R1, torch.bfloat16))
        else:
            _replace_layers(child, precision)


def pack_linear(linear: nn.Linear, precision: str, has_gelu: bool = False) -> nn.Module:
    """Return a linear layer for inference, followed by GELU if requested."""
    return PACKED[precision](*_weight_and_bias(linear), has_gelu)


def _weight_and_bias(linear: nn.Linear) -> tuple[Tensor, Tensor]:
    """Return weight and bias of a linear layer, zeros if it has no bias."""
    weight_OD = linear.weight.detach()
    return weight_OD, weight_OD.new_zeros(len(weight_OD)) if linear.bias is None else linear.bias.detach()


class BFloat16Linear(nn.Module):
    """Linear layer in bfloat16. The weights are stored in the layout that oneDNN computes with."""

    def __init__(self, weight_OD: Tensor, bias_O: Tensor, has_gelu: bool) -> None:
        super().__init__()
        self.packed = torch.ops.mkldnn._reorder_linear_weight(weight_OD.bfloat16().contiguous(), None)
        self.bias_O = bias_O.bfloat16()
        self.activation: tuple[str, list[float], str] = ("gelu", [], "none") if has_gelu else ("none", [], "")

    def forward(self, hidden: Tensor) -> Tensor:
        """Return the outputs, [..., O]."""
        output: Tensor = torch.ops.mkldnn._linear_pointwise(hidden, self.packed, self.bias_O, *self.activation)
        return output


class Int8Linear(nn.Module):
    """Linear layer in 8-bit integers. Inputs and outputs are float32."""

    def __init__(self, weight_OD: Tensor, bias_O: Tensor, has_gelu: bool) -> None:
        super().__init__()
        values_OD, scale_O1 = quantize_rows(weight_OD)
        self.packed = torch.ops.onednn.qlinear_prepack(values_OD, None)
        self.scale_O, self.bias_O, self.has_gelu = scale_O1[:, 0], bias_O.float(), has_gelu
        self.zero = torch.tensor(float(ZERO))
        self.zero_point_O = torch.zeros(len(values_OD), dtype=torch.int32)

    def forward(self, hidden: Tensor) -> Tensor:
        """Return the outputs, [..., O]."""
        hidden_ND = hidden.flatten(0, -2)
        largest_N1 = torch.maximum(hidden_ND.amax(1, keepdim=True), -hidden_ND.amin(1, keepdim=True))
        scale_N1 = (largest_N1 / LARGEST).clamp_(min=SMALLEST_SCALE)
        values_ND = torch.addcmul(self.zero, hidden_ND, scale_N1.reciprocal()).round_().to(torch.uint8)
        weights = self.packed, self.scale_O, self.zero_point_O
        # The operator has one scale for all tokens, so those of the tokens follow it.
        output_NO = torch.ops.onednn.qlinear_pointwise(
            values_ND, 1.0, ZERO, *weights, None, 1.0, 0, torch.float32, "none", [], ""
        )
        torch.addcmul(self.bias_O, output_NO, scale_N1, out=output_NO)
        output = F.gelu(output_NO) if self.has_gelu else output_NO
        return output.view(*hidden.shape[:-1], -1)


PACKED = {"bfloat16": BFloat16Linear, "int8": Int8Linear}


class PackedSelfAttention(nn.Module):
    """Self-attention of a crossling model whose gates are columns of the first linear layer."""

    def __init__(self, attention: SelfAttention, precision: str) -> None:
        super().__init__()
        self.heads, self.width = attention.heads, attention.qkv.in_features
        weight_OD, bias_O = _weight_and_bias(attention.qkv)
        self.scale_H = None if attention.gate is None else attention.gate.scale_H
        if attention.gate is not None:
            gate_weight_GD, gate_bias_G = fold_gates(attention)
            weight_OD, bias_O = torch.cat([weight_OD, gate_weight_GD]), torch.cat([bias_O, gate_bias_G])
        unused = -len(weight_OD) % COLUMN_MULTIPLE
        weight_OD, bias_O = F.pad(weight_OD, (0, 0, 0, unused)), F.pad(bias_O, (0, unused))
        self.into, self.out = PACKED[precision](weight_OD, bias_O, False), pack_linear(attention.out, precision)

    def forward(
        self,
        hidden_BLD: Tensor,
        position: PositionBias | RotaryAngles | None,
        mask: AttentionMask | None,
        *_: Any,
    ) -> Tensor:
        """Return the output at all positions, [B, L, D]. The cache of a decoder is not supported."""
        joint = self.into(hidden_BLD)
        states = joint[..., : 3 * self.width].unflatten(-1, (3, self.heads, -1))
        if isinstance(position, RotaryAngles):
            states, position = position.rotate(states), None
        query, key, value = states.permute(2, 0, 3, 1, 4).unbind(0)
        added = None if mask is None else mask.additive_B1LT
        if position is not None:
            bias_HLL = position.values.to(joint.dtype)
            if self.scale_H is None:
                added = bias_HLL if added is None else bias_HLL + added
            else:
                gate_BHL1 = self._gates(joint, self.scale_H)[..., None]
                added = gate_BHL1 * bias_HLL if added is None else torch.addcmul(added, gate_BHL1, bias_HLL)
        context_BHLK = F.scaled_dot_product_attention(query, key, value, attn_mask=added)
        output: Tensor = self.out(context_BHLK.transpose(1, 2).flatten(2))
        return output

    def _gates(self, joint: Tensor, scale_H: Tensor) -> Tensor:
        """Return the gates of the position bias, [B, H, L]."""
        columns = joint[..., 3 * self.width : 3 * self.width + 2 * self.heads]
        update_BLH, reset_BLH = torch.sigmoid(columns).chunk(2, dim=-1)
        return (1 + update_BLH + (1 - update_BLH) * scale_H * reset_BLH).transpose(1, 2)


def fold_gates(attention: SelfAttention) -> tuple[Tensor, Tensor]:
    """Return weights [2 H, D] and biases [2 H] that compute both gates of all heads from the hidden state."""
    assert attention.gate is not None
    width, heads = attention.qkv.in_features, attention.heads
    weight_2K, bias_2, _ = (values.detach() for values in attention.gate.weights())
    if attention.gate_by_query:
        input_DD, input_bias_D = (values[:width] for values in _weight_and_bias(attention.qkv))
    else:
        input_DD, input_bias_D = torch.eye(width), torch.zeros(width)
    weight_2HD = torch.einsum("gk,hkd->ghd", weight_2K, input_DD.unflatten(0, (heads, -1)))
    bias_2H = torch.einsum("gk,hk->gh", weight_2K, input_bias_D.unflatten(0, (heads, -1))) + bias_2[:, None]
    return weight_2HD.flatten(0, 1), bias_2H.flatten()
