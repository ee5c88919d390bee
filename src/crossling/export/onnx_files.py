"""ONNX files of an encoder. ONNX Runtime computes sample sentences with each file, and torch checks the vectors.

    onnx/model.onnx                       weights in float32
    onnx/model_qint8_avx512_vnni.onnx     matrices in 8 bits, activations quantized while it runs

The names are those of Sentence Transformers. Inputs are `input_ids` and `attention_mask`, [batch, length] in int64.
Outputs are `last_hidden_state`, [batch, length, width], and `sentence_embedding`, [batch, vector width]. The hidden
state is that of the layer that the folder's sentence vectors come from. Layers above it are not in the file.
"""
# B batch, L length, D width, E width of sentence vectors, H heads, W = 2S + 1 distances, N sentences

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from crossling.core.errors import BadInput, Failed, import_package, suggestion
from crossling.core.hub import quiet_transformers
from crossling.data.packing import batch_by_length
from crossling.inference.load import load_pretrained_encoder
from crossling.inference.pooling import normalize_vectors, pool
from crossling.inference.sentence_encoder import Encoder
from crossling.inference.sentence_head import SentenceHead
from crossling.model.attention import PositionBias
from crossling.model.encoder import EncoderNetwork

FOLDER = "onnx"
FILES = {"fp32": "model.onnx", "int8": "model_qint8_avx512_vnni.onnx"}
KINDS = (*FILES, "both")
OPSET = 18  # that the exporter of torch writes without a conversion
TOLERANCE = {"fp32": 1e-4, "int8": 0.05}  # largest cosine distance to the vectors of torch
INPUTS, OUTPUTS = ("input_ids", "attention_mask"), ("last_hidden_state", "sentence_embedding")
TOKENS_PER_BATCH = 512  # the fastest of 512, 1,024 and 4,096
LARGEST_FILE = 2_000_000_000  # bytes of a protobuf file; larger weights go to a file beside it
PACKAGES = ("onnx", "onnxruntime", "onnxscript")


@dataclass(frozen=True)
class OnnxCheck:
    """Comparison of an ONNX file with torch on the sample sentences."""

    file: str
    opset: int
    cosine_distance: float  # the largest of all sentences
    same_nearest: float  # percent of the sentences whose nearest other sentence is the same


def check_onnx(kind: str) -> None:
    """Raise BadInput if there is no such kind of file, or a package is missing that writes it."""
    if kind not in KINDS:
        raise BadInput(f"onnx={kind}: no such kind of file{suggestion(kind, KINDS)}")
    for package in PACKAGES:
        import_package(package, "ONNX files", extra="onnx")


def add_onnx(folder: Path, kind: str) -> list[OnnxCheck]:
    """Write ONNX files of the encoder in a folder to its subfolder `onnx`, and compare each with torch."""
    with quiet_transformers():
        encoder = load_pretrained_encoder(folder)
    layer = encoder.universal_layer if isinstance(encoder.model, EncoderNetwork) else encoder.declared_layer
    (folder / FOLDER).mkdir()
    return write_onnx(encoder, folder / FOLDER, kind, layer)


def write_onnx(encoder: Encoder, folder: Path, kind: str, layer: int) -> list[OnnxCheck]:
    """Write ONNX files of an encoder and compare each with torch.

    Args:
        encoder: Encoder on a CPU in float32. Its head computes the sentence vectors, or else the mean.
        folder: Folder to write. It exists.
        kind: `fp32`, `int8` or `both`.
        layer: Layer whose states are pooled.

    Returns:
        One comparison for each file.

    Raises:
        BadInput: The encoder excludes prompts from pooling.
        Failed: The vectors of a file are too far from those of torch.

    Example:
        >>> write_onnx(load("exported", device="cpu", precision="float32"), Path("exported/onnx"), "fp32", layer=4)
    """
    if encoder.head is not None and not encoder.head.counts_prompt:
        raise BadInput(f"{encoder.name}: excludes prompts from pooling, which ONNX files cannot. Omit onnx.")
    graph = OnnxGraph(encoder, layer)
    single = folder / FILES["fp32"]
    trace(graph, single)
    if kind != "fp32":
        quantize_file(single, folder / FILES["int8"])
    if kind == "int8":
        for file in folder.glob(f"{single.name}*"):
            file.unlink()
    return [_check(encoder, graph, folder / FILES[each], each) for each in FILES if (folder / FILES[each]).exists()]


class OnnxGraph(nn.Module):
    """Encoder and pooling, with tensors as inputs and outputs.

    Args:
        encoder: Encoder to export.
        layer: Layer whose states are pooled.
    """

    def __init__(self, encoder: Encoder, layer: int) -> None:
        super().__init__()
        model: Any = encoder.model
        self.is_ours, self.layer = isinstance(model, EncoderNetwork), layer
        self.is_last = layer == encoder.num_layers
        self.model = _GatheredBiasEncoder(model, layer) if self.is_ours else model
        self.head: SentenceHead | None = None if self.is_ours else encoder.head
        self.head_layers = nn.Sequential() if self.head is None else self.head.layers
        self.eval()

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> tuple[Tensor, Tensor]:
        """Return the states of the layer, [B, L, D], and the sentence vectors, [B, E]."""
        inputs = {"input_ids": input_ids, "attention_mask": attention_mask}
        if self.is_ours or self.is_last:
            state_BLD = self.model(**inputs).last_hidden_state
        else:
            state_BLD = self.model(**inputs, output_hidden_states=True).hidden_states[self.layer]
        if self.head is None:
            return state_BLD, pool([state_BLD], attention_mask, "mean")[0]
        return state_BLD, self.head.compute(state_BLD, attention_mask)


class _GatheredBiasEncoder(EncoderNetwork):
    """First layers of an encoder of ours, with a position bias that ONNX can compute at any length.

    The sliding view of `toeplitz_bias` has no equivalent there. A gather by distance has the same values. Beyond the
    saturation distance the bias is constant, so that a table up to there suffices.
    """

    def __init__(self, encoder: EncoderNetwork, layer: int) -> None:
        with torch.device("meta"):
            super().__init__(encoder.config)
        self.embeddings, self.relative, self.final_norm = encoder.embeddings, encoder.relative, encoder.final_norm
        self.blocks, self.layer = encoder.blocks, layer
        if self.relative is not None:
            self.far = self.relative.saturation_distance
            self.register_buffer("by_distance_HW", self.relative(self.far + 1).detach())

    def position_bias(self, length: int, for_kernel: bool, queries: int | None = None) -> PositionBias | None:  # noqa: ARG002
        """Return the bias of a sequence of `length` tokens."""
        if self.relative is None:
            return None
        position_L = torch.arange(length)
        distance_LL = (position_L - position_L[:, None]).clamp(-self.far, self.far)
        return PositionBias(self.get_buffer("by_distance_HW")[:, distance_LL + self.far], self.far)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Any:  # type: ignore[override]
        """Return the states of the layer."""
        return super().forward(input_ids, attention_mask, layers=self.layer)


@contextmanager
def quiet_exporter() -> Iterator[None]:
    """Silence the notes and warnings of the exporter and the quantizer, such as those about missing packages."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def trace(graph: nn.Module, file: Path) -> None:
    """Write a module with tensors as inputs and outputs as an ONNX file with dynamic batch size and length."""
    ids_BL = torch.full((2, 8), 5)
    shape = {0: "batch", 1: "length"}
    weight_bytes = sum(each.numel() * each.element_size() for each in graph.parameters())
    # Fused attention returns a memory layout that the exporter cannot follow.
    with quiet_exporter(), torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
        torch.onnx.export(
            graph,
            (ids_BL, torch.ones_like(ids_BL)),
            file,
            input_names=INPUTS,
            output_names=OUTPUTS,
            dynamic_shapes=(shape, shape),
            opset_version=OPSET,
            external_data=weight_bytes > LARGEST_FILE,
            dynamo=True,
            verbose=False,
        )


def quantize_file(file: Path, out: Path) -> None:
    """Write an ONNX file with its matrices in 8 bits. Each output has a scale, and activations are quantized later."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    has_data = file.with_name(f"{file.name}.data").exists()
    with quiet_exporter():
        quantize_dynamic(file, out, per_channel=True, weight_type=QuantType.QInt8, use_external_data_format=has_data)


def open_session(file: Path) -> Any:
    """Return an ONNX Runtime session that runs a file on the CPU with as many threads as torch."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    return onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])


def run_onnx(session: Any, ids: Sequence[list[int]], pad_id: int) -> list[np.ndarray]:
    """Return the sentence vectors that ONNX Runtime computes, in the order of `ids`."""
    vectors: dict[int, np.ndarray] = {}
    for rows in batch_by_length([len(each) for each in ids], TOKENS_PER_BATCH):
        longest = max(len(ids[row]) for row in rows)
        ids_BL = np.array([ids[row] + [pad_id] * (longest - len(ids[row])) for row in rows])
        mask_BL = np.array([[1] * len(ids[row]) + [0] * (longest - len(ids[row])) for row in rows])
        [vector_BE] = session.run(OUTPUTS[1:], dict(zip(INPUTS, (ids_BL, mask_BL), strict=True)))
        vectors |= dict(zip(rows, vector_BE, strict=True))
    return [vectors[row] for row in range(len(ids))]


def _check(encoder: Encoder, graph: OnnxGraph, file: Path, kind: str) -> OnnxCheck:
    """Compare a file with torch, where each sentence is computed alone."""
    sentences = (Path(__file__).parent / "sample_sentences.txt").read_text(encoding="utf-8").splitlines()
    ids = encoder.tokenizer(sentences, truncation=True, max_length=encoder.max_length)["input_ids"]
    with torch.no_grad():
        expected = [graph(torch.tensor([row]), torch.ones(1, len(row), dtype=torch.long))[1][0].numpy() for row in ids]
    one_NE = normalize_vectors(np.stack(expected))
    other_NE = normalize_vectors(np.stack(run_onnx(open_session(file), ids, encoder.tokenizer.pad_token_id or 0)))
    distance = float((1 - np.einsum("ne,ne->n", one_NE, other_NE)).max())
    if not distance <= TOLERANCE[kind]:
        raise Failed(
            f"onnx: the vectors of {kind} have a cosine distance of {distance:.2g} to those of torch, above"
            f" {TOLERANCE[kind]}. Export {'fp32 alone' if kind == 'int8' else 'without ONNX, and report this'}."
        )
    nearest = [(each_NE @ each_NE.T - 2 * np.eye(len(each_NE))).argmax(1) for each_NE in (one_NE, other_NE)]
    return OnnxCheck(file.name, OPSET, max(distance, 0.0), 100 * float(np.mean(nearest[0] == nearest[1])))
