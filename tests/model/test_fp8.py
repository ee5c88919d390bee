"""Linear layers in fp8 equal a slow reference that rounds each operand, and are close to float32."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from crossling.core.errors import BadInput
from crossling.core.hardware import FP8_CAPABILITY, require_fp8
from crossling.model.config import CrosslingConfig
from crossling.model.encoder import FeedForward
from crossling.model.encoder_model import CrosslingModel
from crossling.model.fp8 import Fp8Linear, Fp8Rows

TOKENS, INPUTS, OUTPUTS = 24, 32, 48
FP8_ERROR = 0.05  # relative: e4m3 has 3 bits after the leading one, and two operands are rounded
CONFIG: dict[str, Any] = {
    "hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 2, "num_hidden_layers": 2, "vocab_size": 40,
    "dropout": 0.0, "attention_dropout": 0.0,
}  # fmt: skip
on_gpu = pytest.mark.skipif(
    not torch.cuda.is_available() or torch.cuda.get_device_capability() < FP8_CAPABILITY, reason="needs a GPU with fp8"
)


def round_value(value: float) -> float:
    """Return the nearest number with 3 bits after the leading one and a smallest exponent of -6; ties to even."""
    if value == 0:
        return 0.0
    exponent = max(torch.tensor(abs(value)).log2().floor().int().item(), -6)
    step = 2.0 ** (exponent - 3)
    return float(round(value / step) * step)


def round_rows(matrix: Tensor) -> Tensor:
    """Round each row to fp8 and back, number by number."""
    rows = []
    for row in matrix.float():
        scale = row.abs().max() / 448
        rows.append([round_value(float(value / scale)) * float(scale) if scale else 0.0 for value in row])
    return torch.tensor(rows)


def relative_error(found: Tensor, expected: Tensor) -> float:
    return float((found.float() - expected.float()).norm() / expected.float().norm())


def make_layer(bias: bool = True) -> tuple[Fp8Linear, nn.Linear, Tensor, Tensor]:
    """Return a layer in fp8, the same layer in float32, an input and the gradient of the output."""
    torch.manual_seed(0)
    linear = nn.Linear(INPUTS, OUTPUTS, bias=bias)
    x = torch.randn(TOKENS, INPUTS)
    x[3] = 0  # a row of zeros
    x[5, 2] = 1000  # an outlier
    dy = torch.randn(TOKENS, OUTPUTS) * torch.logspace(-9, -2, TOKENS)[:, None]  # gradients differ by token
    dy[7] = 0
    return Fp8Linear.from_linear(copy.deepcopy(linear)), linear, x, dy


def gradients(layer: nn.Linear, x: Tensor, dy: Tensor) -> dict[str, Tensor]:
    x = x.clone().requires_grad_()
    y = layer(x)
    names = {"x": x, **dict(layer.named_parameters())}
    found = torch.autograd.grad(y, [*names.values()], dy.to(y.dtype))
    return {"y": y.detach(), **dict(zip(names, found, strict=True))}


@pytest.mark.parametrize("bias", [True, False])
def test_fp8_layer_equals_a_slow_reference(bias: bool) -> None:
    layer, linear, x, dy = make_layer(bias)
    weight = linear.weight.detach()
    found = gradients(layer, x, dy)
    expected = {
        "y": round_rows(x) @ round_rows(weight).t() + (linear.bias.detach() if bias else 0),
        "x": round_rows(dy) @ round_rows(weight.t()).t(),
        "weight": dy.t() @ x,
    }
    if bias:
        expected["bias"] = dy.sum(0)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-5, atol=1e-5 * float(value.abs().max()), msg=name)
    assert not found["x"][7].any()


def test_fp8_layer_is_close_to_float32() -> None:
    layer, linear, x, dy = make_layer()
    found, expected = gradients(layer, x, dy), gradients(linear, x, dy)
    for name, value in expected.items():
        assert relative_error(found[name], value) < FP8_ERROR, name
    # Each token has its own scale: the error of a small gradient does not depend on the large ones.
    for token in (0, TOKENS - 1):
        assert relative_error(found["x"][token], expected["x"][token]) < FP8_ERROR


def test_quantized_rows_have_the_largest_value_and_stay_finite() -> None:
    rows = torch.tensor([[1e-30, -2e-30], [3e38, -1e38], [0.0, 0.0], [-7.0, 7.0]])
    quantized = Fp8Rows.quantize(rows)
    assert quantized.values_MK.float().abs().amax(1).tolist() == [448, 448, 0, 448]
    torch.testing.assert_close(quantized.dequantize(), rows, rtol=2**-4, atol=0)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_values_that_are_not_finite_stay_visible(bad: float) -> None:
    """The step is skipped if the norm of its gradient is not finite."""
    layer, _, x, dy = make_layer()
    dy[2, 1] = bad
    assert not gradients(layer, x, dy)["x"][2].isfinite().all()


def test_autocast_computes_in_bfloat16_and_keeps_gradients_in_float32() -> None:
    layer, linear, x, dy = make_layer()
    with torch.autocast("cpu", torch.bfloat16):
        found = gradients(layer, x, dy)
    assert found["y"].dtype is torch.bfloat16
    expected = gradients(linear, x, dy)
    for name in ("x", "weight", "bias"):
        assert found[name].dtype is torch.float32
        assert relative_error(found[name], expected[name]) < FP8_ERROR, name


def test_evaluation_and_parameters_are_those_of_the_linear_layer() -> None:
    _, linear, x, _ = make_layer()
    layer = Fp8Linear.from_linear(linear)
    assert layer.weight is linear.weight
    assert layer.state_dict().keys() == linear.state_dict().keys()
    assert torch.equal(layer.eval()(x), linear(x))
    assert not torch.equal(layer.train()(x), linear(x))


def test_compiled_layer_equals_the_plain_one() -> None:
    layer, _, x, dy = make_layer()
    plain = gradients(layer, x, dy)
    layer.compile(backend="aot_eager", fullgraph=True)
    for name, value in gradients(layer, x, dy).items():
        torch.testing.assert_close(value, plain[name], msg=name)


def test_feed_forward_passes_the_bias_to_its_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    from types import SimpleNamespace

    from crossling.model import encoder

    module = FeedForward(CrosslingConfig(**CONFIG))
    module[0] = Fp8Linear.from_linear(module[0])
    x = torch.randn(4, 32)
    plain = module(x)
    gelu = SimpleNamespace(gelu=lambda product, bias: nn.functional.gelu(product + bias))
    monkeypatch.setattr(encoder, "kernel", gelu)
    monkeypatch.setattr(encoder, "uses_block_kernels", lambda _: True)
    torch.testing.assert_close(module(x), plain)


# ---- models --------------------------------------------------------------------------------------------------


def make_models(**changes: Any) -> tuple[CrosslingModel, CrosslingModel]:
    """Return a model with fp8 layers and the same model without."""
    torch.manual_seed(1)
    plain = CrosslingModel(CrosslingConfig(**CONFIG, **changes)).train()
    model = copy.deepcopy(plain)
    model.enable_fp8()
    return model, plain


def model_gradients(model: CrosslingModel, ids: Tensor, **inputs: Tensor) -> dict[str, Tensor]:
    model.zero_grad()
    hidden = model(ids, **inputs).last_hidden_state
    hidden.float().cumsum(-1).sin().sum().backward()
    return {name: value.grad for name, value in model.named_parameters() if value.grad is not None}


def test_all_linear_layers_of_blocks_that_are_not_square_are_in_fp8_and_no_others() -> None:
    model, plain = make_models(cross_attention=True)
    layers = {name for name, module in model.named_modules() if isinstance(module, Fp8Linear)}
    parts = {"attention": ["qkv"], "cross": ["key_value"], "feed_forward": ["0", "2"]}
    inside = [f"{part}.{name}" for part, names in parts.items() for name in names]
    assert layers == {f"blocks.{number}.{name}" for number in range(2) for name in inside}
    assert model.state_dict().keys() == plain.state_dict().keys()
    model.enable_fp8()  # a second time changes nothing


def test_model_in_fp8_has_nearly_the_gradients_of_float32_also_with_checkpointing() -> None:
    model, plain = make_models()
    ids = torch.randint(40, (2, 16))
    expected, found = model_gradients(plain, ids), model_gradients(model, ids)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        if value.norm() > 1e-3:
            assert relative_error(found[name], value) < 0.3, name
    model.gradient_checkpointing_enable()
    for name, value in model_gradients(model, ids).items():
        torch.testing.assert_close(value, found[name], msg=name)


def test_compiled_blocks_equal_plain_ones_also_with_checkpointing() -> None:
    model, _ = make_models()
    ids = torch.randint(40, (2, 16))
    plain = model_gradients(model, ids)
    for block in model.blocks:
        block.compile(backend="aot_eager")
    for name, value in model_gradients(model, ids).items():
        torch.testing.assert_close(value, plain[name], msg=name)
    model.gradient_checkpointing_enable()
    for name, value in model_gradients(model, ids).items():
        torch.testing.assert_close(value, plain[name], msg=name)


def test_cross_attention_and_selected_positions_train_in_fp8() -> None:
    model, _ = make_models(cross_attention=True)
    ids = torch.randint(40, (2, 16))
    paired, positions = torch.randn(2, 8, 32), torch.tensor([1, 5, 30])  # a number of tokens that is no multiple of 16
    found = model_gradients(model, ids, encoder_hidden_states=paired, positions=positions)
    assert all(value.isfinite().all() for value in found.values())
    assert found["blocks.0.cross.key_value.weight"].any()


def test_device_without_fp8_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadInput, match=r"precision=fp8: this device \(cpu\) has no .*Set precision=bf16"):
        require_fp8(torch.device("cpu"))
    monkeypatch.setattr(torch.version, "hip", None)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "NVIDIA A100")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (8, 0))
    with pytest.raises(BadInput, match="NVIDIA A100 has no products in fp8"):
        require_fp8(torch.device("cuda"))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    require_fp8(torch.device("cuda"))


# ---- on a GPU ------------------------------------------------------------------------------------------------


def move(layer: Fp8Linear, x: Tensor, dy: Tensor) -> tuple[Fp8Linear, Tensor, Tensor]:
    return layer.to("cuda"), x.to("cuda", torch.bfloat16), dy.to("cuda", torch.bfloat16)


@on_gpu
@pytest.mark.parametrize("tokens", [TOKENS, 1000, 4096])
@pytest.mark.parametrize("is_compiled", [False, True], ids=["plain", "compiled"])
def test_gpu_equals_emulation(tokens: int, is_compiled: bool) -> None:
    layer, linear, _, _ = make_layer()
    x = torch.randn(tokens, INPUTS).bfloat16()
    dy = torch.randn(tokens, OUTPUTS).mul(1e-4).bfloat16()
    expected = gradients(Fp8Linear.from_linear(linear), x, dy)
    layer, x, dy = move(layer, x, dy)
    if is_compiled:
        torch.compiler.reset()
        layer.compile()
    for name, value in gradients(layer, x, dy).items():
        assert relative_error(value.cpu(), expected[name]) < 1e-2, name


@on_gpu
def test_captured_step_equals_the_plain_one() -> None:
    layer, _, x, dy = make_layer()
    layer, x, dy = move(layer, x, dy)
    torch.compiler.reset()
    layer.compile()
    x.requires_grad_()

    def step() -> tuple[Tensor, ...]:
        with torch.autocast("cuda", torch.bfloat16):
            y = layer(x)
        return (y, *torch.autograd.grad(y, (x, layer.weight, layer.bias), dy))

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        plain = [value.clone() for value in step()]
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    graph.replay()
    torch.cuda.synchronize()
    for value, expected in zip(captured, plain, strict=True):
        assert relative_error(value, expected) < 1e-3
