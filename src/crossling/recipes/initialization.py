"""Load the model that a run is initialized from: converted to crossling's architecture, or in its own."""

from __future__ import annotations

import os

from crossling.recipes.initial_model import InitialModel
from crossling.recipes.native_model import NativeInitialModel, is_native

AnyInitialModel = InitialModel | NativeInitialModel


def load_initial_model(
    model: str | os.PathLike[str],
    generator: str | os.PathLike[str] | None = None,
    architecture: str | None = None,
) -> AnyInitialModel:
    """Load a model to initialize from.

    Args:
        model: Run, exported folder, Hugging Face encoder or hub name.
        generator: Another model as generator of replaced token detection [default: that of the model, or its first
            layers].
        architecture: `crossling` converts the model, `native` keeps its architecture. [default: `crossling` where the
            conversion is exact]

    Returns:
        The loaded model.

    Raises:
        BadInput: There is no such model, or it cannot be used.

    Example:
        >>> load_initial_model("mmBERT-base").encoder.config.num_hidden_layers
        22
    """
    kind = NativeInitialModel if is_native(model, architecture) else InitialModel
    return kind.load(model, generator)
