"""A standalone folder in a process that has no crossling, and what `import crossling` makes known elsewhere."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModel, AutoTokenizer

from crossling.export import export
from crossling.export.standalone import AUTO_MAP, sources
from crossling.model import heads
from crossling.recipe import load_run

from .conftest import Train

WITHOUT_CROSSLING = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "crossling":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
folder, other, saved, text = sys.argv[1:]
from pathlib import Path
from safetensors.torch import save_file
from transformers import (
    AutoModel, AutoModelForMaskedLM, AutoModelForPreTraining, AutoTokenizer, PreTrainedModel, pipeline
)

try:
    AutoModel.from_pretrained(folder, trust_remote_code=False)
    raise SystemExit("code ran that nobody had trusted")
except ValueError as error:
    assert "trust_remote_code=True" in str(error)

def opened(kind, folder) -> PreTrainedModel:
    return kind.from_pretrained(folder, trust_remote_code=True).eval()

inputs = dict(AutoTokenizer.from_pretrained(folder, trust_remote_code=True)(text, return_tensors="pt"))
found = {
    "encoder": opened(AutoModel, folder)(**inputs).last_hidden_state,
    "replaced": opened(AutoModelForPreTraining, folder)(**inputs).logits,
    "filled": opened(AutoModelForMaskedLM, f"{folder}/generator")(**inputs).logits,
    "other": opened(AutoModelForMaskedLM, other)(**inputs).logits,
}
opened(AutoModelForPreTraining, folder).save_pretrained(saved)
found["again"] = opened(AutoModelForPreTraining, saved)(**inputs).logits
pipeline("fill-mask", model=f"{folder}/generator", trust_remote_code=True)(f"{text} <mask>")
try:
    from sentence_transformers import SentenceTransformer
    model = SentenceTransformer(folder, trust_remote_code=True, device="cpu")
    found["vector"] = model.encode(text, convert_to_tensor=True)
except ImportError:
    pass
save_file({name: values.detach().contiguous() for name, values in found.items()}, Path(saved) / "found.safetensors")
assert "crossling" not in sys.modules
"""


def python(program: str, *arguments: Path | str, home: Path) -> str:
    environment = os.environ | {"HF_HOME": str(home), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", program, *map(str, arguments)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=home)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_folder_opens_without_crossling(train: Train, lines: list[str], tmp_path: Path) -> None:
    run, other = train("xlm_e", "model.token_table=gdes"), train("veco")
    folder = export(run, tmp_path / "one", standalone=True)
    second = export(other, tmp_path / "two", standalone=True)
    python(WITHOUT_CROSSLING, folder, second, tmp_path / "saved", lines[0], home=tmp_path)
    found = load_file(tmp_path / "saved" / "found.safetensors")

    net, second_net = load_run(run).eval(), load_run(other).eval()
    inputs = dict(AutoTokenizer.from_pretrained(folder)(lines[0], return_tensors="pt"))
    with torch.no_grad():
        output = net.encoder(**inputs, output_hidden_states=True)
        expected = {
            "encoder": output.last_hidden_state,
            "replaced": net.parts["rtd_head"](output.last_hidden_state),
            "again": net.parts["rtd_head"](output.last_hidden_state),
            "filled": net.parts["generator_head"](
                net.parts["generator"](**inputs).last_hidden_state, net.parts["generator"].embeddings.tokens.weight
            ),
            "other": second_net.parts["lm_head"](
                second_net.encoder(**inputs).last_hidden_state, second_net.encoder.embeddings.tokens.weight
            ),
            "vector": output.hidden_states[net.encoder.config.universal_layer][0].mean(0),
        }
    for name, values in found.items():
        torch.testing.assert_close(values, expected[name], atol=1e-6, rtol=0, msg=name)


def test_its_code_needs_nothing_of_crossling_and_registers_nothing() -> None:
    code = sources()
    assert {"config.py", "heads.py", "transformer.py"} <= {*code}
    for text in code.values():
        assert "crossling." not in "".join(line for line in text.splitlines() if "import" in line)
        assert ".register(" not in text
    for reference in AUTO_MAP.values():
        file, name = reference.split(".")
        assert hasattr(heads, name)
        assert name in code[f"{file}.py"]


def test_where_crossling_is_its_own_classes_come_first(train: Train, tmp_path: Path) -> None:
    folder = export(train("xlm_e"), tmp_path / "exported", standalone=True)
    for trust in (False, True):
        model = AutoModel.from_pretrained(folder, trust_remote_code=trust)
        assert type(model).__module__ == "crossling.model.transformer"


def test_import_crossling_is_enough(train: Train, tmp_path: Path) -> None:
    folder = export(train("xlm_e"), tmp_path / "exported")
    program = (
        "import sys, crossling; from transformers import AutoModel\n"
        "print(type(AutoModel.from_pretrained(sys.argv[1], trust_remote_code=False)).__name__)"
    )
    assert python(program, folder, home=tmp_path) == "CrosslingModel\n"


@pytest.mark.parametrize(
    ("argv", "waits"),
    [
        (["/usr/bin/crossling", "pretrain"], False),
        (["crossling.exe"], False),
        (["/lib/crossling/__main__.py"], False),
        (["script.py", "crossling"], True),
        (["/crossling/script.py"], True),
        (["-m"], True),  # another module that imports crossling while it is looked for
        ([""], True),
        ([], True),
    ],
)
def test_only_the_command_line_does_not_wait_for_torch(
    argv: list[str], waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    import crossling

    monkeypatch.setattr(sys, "argv", argv)
    assert crossling._is_command_line() == (not waits)
