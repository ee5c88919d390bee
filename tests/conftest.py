"""A small family of languages, its vocabulary and its shards, and the order of tests in several processes."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

from tests.shared_folder import make_once

# The same examples in every run; HYPOTHESIS_PROFILE=explore searches for new ones.
# No deadline, because other processes slow examples down.
settings.register_profile("same", derandomize=True, deadline=None, max_examples=60)
settings.register_profile("explore", max_examples=1000, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))

# The tests compare bits; a GPU, where there is one, rounds in its own way. CROSSLING_TEST_GPU=1 shows it to the tests.
if os.environ.get("CROSSLING_TEST_GPU") != "1":
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
# Some virtual machines report AMX and then end the process with "Illegal instruction" when oneDNN uses it.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

if TYPE_CHECKING:
    from crossling.data.shards import Shards
    from crossling.inference.sentence_encoder import Encoder
    from crossling.recipes.recipe import Recipe

# Settings that scale any recipe down to a few milliseconds a step.
SMALL_MODEL = [
    *("model.layers=2", "model.width=16", "model.heads=2", "model.feed_forward=32"),
    *("model.generator_layers=1", "model.max_length=64"),
]
SMALL_RUN = ["optimizer.warmup=2", "lr=0.01", "steps=7", "log_every=2", "checkpoint_every=3"]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Run the tests of a file in one process, so that only one makes the fixtures of the file."""
    from xdist.scheduler import LoadFileScheduling

    config.option.loadscopereorder = False  # files with one test, which may be a long one, would come last
    return LoadFileScheduling(config, log) if config.getvalue("dist") == "load" else None


def pytest_collection_finish() -> None:
    """Exclude all modules from garbage collection, each of which would visit millions of objects."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


def pytest_unconfigure() -> None:
    gc.unfreeze()


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    """Tiny tensors on many threads spend their time waiting, the more so beside other test processes."""
    import torch

    torch.set_num_threads(1)


@pytest.fixture
def encoder() -> Encoder:
    from crossling.inference.sentence_encoder import Encoder
    from tests.tiny_encoder import make_model, make_tokenizer

    return Encoder(make_model(), make_tokenizer(), "runs/tiny")


@pytest.fixture
def declared_encoder() -> Encoder:
    """Return an encoder whose folder declares sentence vectors: [CLS], a dense layer, and a prompt."""
    import torch

    from crossling.inference.sentence_encoder import Encoder
    from crossling.inference.sentence_head import DenseLayer, SentenceHead
    from tests.tiny_encoder import make_model, make_tokenizer

    model = make_model()
    torch.manual_seed(0)
    dense = DenseLayer(model.config.hidden_size, 8)
    dense.activation = torch.nn.Tanh()
    head = SentenceHead(
        poolings=("cls",), layers=torch.nn.Sequential(dense), width=8, prompts={"all": "the "}, default_prompt="all"
    )
    return Encoder(model, make_tokenizer(), "labse", head=head)


@pytest.fixture
def write() -> Callable[[Path, str], Path]:
    def write(path: Path, text: str) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    return write


@pytest.fixture
def real_data() -> Path:
    """The folder of real benchmarks, where there is one."""
    root = os.environ.get("CROSSLING_DATA")
    if not root or not (Path(root) / "eval" / "tatoeba").is_dir():
        pytest.skip("CROSSLING_DATA names no folder with the real benchmarks")
    return Path(root) / "eval"


@pytest.fixture(scope="session")
def synth_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """corpora/ and data/ of three languages."""
    from crossling.synthetic import synth

    def make(out: Path) -> None:
        synth(out, languages=3, sentences=200, lemmas=300, test_sentences=12, alignment_sentences=6)

    return make_once(tmp_path_factory, "synth", make)


@pytest.fixture(scope="session")
def corpora_folder(synth_folder: Path) -> Path:
    return synth_folder / "corpora"


@pytest.fixture(scope="session")
def vocabulary_folder(corpora_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from crossling.corpora.corpus import Corpora
    from crossling.vocabulary.build_vocabulary import vocab

    return make_once(tmp_path_factory, "vocab", lambda out: vocab(Corpora(corpora_folder), out, size=400))


@pytest.fixture(scope="session")
def shards(corpora_folder: Path, vocabulary_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Shards:
    import torch

    from crossling.corpora.corpus import Corpora
    from crossling.data.tokenize import tokenize

    torch.set_num_threads(1)
    return tokenize(Corpora(corpora_folder), vocabulary_folder, tmp_path_factory.mktemp("shards") / "shards")


@pytest.fixture(scope="session")
def small_model() -> list[str]:
    """`--set` differences that make any recipe's network small."""
    return list(SMALL_MODEL)


@pytest.fixture(scope="session")
def full_recipe() -> Recipe:
    """MRTD, TRTD and XLCo with dropout, seven steps, small."""
    from crossling.recipes import xlm_e

    objectives = [
        *("mrtd.tokens=192", "mrtd.length=32", "trtd.tokens=192", "trtd.length=40"),
        *("xlco.pairs=6", "xlco.length=40", "xlco.layer=1", "xlco.weight=0.5", "xlco.queue=16"),
    ]
    recipe = xlm_e("tiny").set([*SMALL_MODEL, *SMALL_RUN, *objectives])
    assert recipe.model.dropout > 0
    return recipe
