"""The transformer encoder as a model of Hugging Face `transformers`."""

from __future__ import annotations

from torch import nn
from transformers import PreTrainedModel

from crossling.model.config import CrosslingConfig
from crossling.model.embedding import init_weights
from crossling.model.encoder import EncoderNetwork
from crossling.model.int8 import Int8LoadingMixin


class CrosslingPreTrainedModel(Int8LoadingMixin, PreTrainedModel):
    """Base class of all crossling models: initial weights, loading and saving."""

    config: CrosslingConfig
    config_class = CrosslingConfig
    base_model_prefix = "encoder"
    supports_gradient_checkpointing = True
    _no_split_modules = ["Block"]  # noqa: RUF012 - as Hugging Face names it

    def _init_weights(self, module: nn.Module) -> None:
        init_weights(module, self.config.initializer_range)


class CrosslingModel(EncoderNetwork, CrosslingPreTrainedModel):  # type: ignore[misc]
    """Transformer encoder, without a head.

    Args:
        config: Configuration. The weights are initialized at random. Use `from_pretrained` to load weights.

    Example:
        >>> from transformers import AutoModel, AutoTokenizer
        >>> import crossling
        >>> folder = crossling.bundled.folder()
        >>> model, tokenizer = AutoModel.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
        >>> states = model(**tokenizer("the white house", return_tensors="pt")).last_hidden_state
    """

    def __init__(self, config: CrosslingConfig) -> None:
        CrosslingPreTrainedModel.__init__(self, config)
        self._build(config)
        self.post_init()
