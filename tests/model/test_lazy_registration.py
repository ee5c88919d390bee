"""`import crossling` lets the Auto classes of transformers find our models, in every order of imports."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from transformers import AutoConfig, AutoModel, AutoTokenizer
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from crossling.model.auto_classes import AUTO_CLASSES
from crossling.model.config import CrosslingConfig
from crossling.model.encoder_model import CrosslingModel
from crossling.model.lazy_registration import AutoConfigFinder, ConfigPlaceholder, register_lazily
from tests.tiny_encoder import make_tokenizer

NEW_PROCESS = """
import sys
first, folder = sys.argv[1:]
if first == "crossling":
    import crossling
    assert not {"torch", "transformers"} & {*sys.modules}, "import crossling is slow"
    import importlib.util
    importlib.util.find_spec("transformers.models.auto.configuration_auto")  # a lookup is no import
from transformers import AutoConfig
if first == "transformers":
    import crossling
assert "crossling.model.config" not in sys.modules
import transformers
for name in sys.stdin.read().split():
    auto_class = getattr(transformers, name)
    print(type(auto_class.from_config(AutoConfig.from_pretrained(folder))).__name__)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    sizes = {"vocab_size": 9, "hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 8}
    CrosslingConfig(**sizes, num_hidden_layers=1, decoder_blocks=[0], cross_attention=True).save_pretrained(tmp_path)
    return tmp_path


@pytest.mark.parametrize("first", ["crossling", "transformers"])
def test_every_auto_class_loads_our_models_in_a_new_process(first: str, folder: Path) -> None:
    command = [sys.executable, "-c", NEW_PROCESS, first, str(folder)]
    names = " ".join(auto_class.__name__ for auto_class in AUTO_CLASSES)
    done = subprocess.run(command, input=names, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [model_class.__name__ for model_class in AUTO_CLASSES.values()]


def test_importing_our_models_registers_them_itself() -> None:
    assert CONFIG_MAPPING["crossling"] is CrosslingConfig
    for auto_class, model_class in AUTO_CLASSES.items():
        assert auto_class._model_mapping[CrosslingConfig] is model_class


@pytest.fixture
def placeholder() -> Iterator[None]:
    """The state after `import crossling`."""
    register_lazily()
    assert CONFIG_MAPPING["crossling"] is ConfigPlaceholder  # type: ignore[comparison-overlap]
    yield
    AutoConfig.register("crossling", CrosslingConfig)


@pytest.mark.usefixtures("placeholder")
def test_the_placeholder_creates_configurations(folder: Path) -> None:
    for config in (
        AutoConfig.for_model("crossling", hidden_size=8),
        AutoConfig.from_pretrained(folder),
        CONFIG_MAPPING["crossling"].from_pretrained(folder),
    ):
        assert type(config) is CrosslingConfig
        assert config.hidden_size == 8


@pytest.mark.usefixtures("placeholder")
def test_models_and_tokenizers_load_through_the_placeholder(folder: Path) -> None:
    CrosslingModel(CrosslingConfig.from_pretrained(folder).replace(decoder_blocks=None)).save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)
    assert type(AutoModel.from_pretrained(folder)) is CrosslingModel
    assert AutoTokenizer.from_pretrained(folder).get_vocab() == make_tokenizer().get_vocab()


def test_other_modules_are_found_as_usual(monkeypatch: pytest.MonkeyPatch) -> None:
    finder = AutoConfigFinder()
    monkeypatch.setattr(sys, "meta_path", [finder, *sys.meta_path])
    assert finder.find_spec("transformers.models.auto", None) is None
    assert finder in sys.meta_path
    spec = finder.find_spec("transformers.models.auto.configuration_auto", None)
    assert spec is not None
    assert spec.origin == sys.modules[spec.name].__file__
