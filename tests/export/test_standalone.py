"""Standalone folders in a process without crossling, and the effect of `import crossling`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file
from transformers import AutoModel, AutoTokenizer

from crossling.export import export
from crossling.export.standalone import AUTO_MAP, collect_sources
from crossling.model import heads
from crossling.recipes.network import load_run

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
    raise SystemExit("untrusted code was run")
except ValueError as error:
    assert "trust_remote_code=True" in str(error)

def load_model(auto_class, folder) -> PreTrainedModel:
    return auto_class.from_pretrained(folder, trust_remote_code=True).eval()

inputs = dict(AutoTokenizer.from_pretrained(folder, trust_remote_code=True)(text, return_tensors="pt"))
found = {
    "encoder": load_model(AutoModel, folder)(**inputs).last_hidden_state,
    "rtd": load_model(AutoModelForPreTraining, folder)(**inputs).logits,
    "mlm": load_model(AutoModelForMaskedLM, f"{folder}/generator")(**inputs).logits,
    "other": load_model(AutoModelForMaskedLM, other)(**inputs).logits,
}
load_model(AutoModelForPreTraining, folder).save_pretrained(saved)
found["again"] = load_model(AutoModelForPreTraining, saved)(**inputs).logits
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
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=home)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_standalone_folder_loads_without_crossling(train: Train, lines: list[str], tmp_path: Path) -> None:
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
            "rtd": net.parts["rtd_head"](output.last_hidden_state),
            "again": net.parts["rtd_head"](output.last_hidden_state),
            "mlm": net.parts["generator_head"](
                net.parts["generator"](**inputs).last_hidden_state, net.parts["generator"].embeddings.tokens.weight
            ),
            "other": second_net.parts["lm_head"](
                second_net.encoder(**inputs).last_hidden_state, second_net.encoder.embeddings.tokens.weight
            ),
            "vector": output.hidden_states[net.encoder.config.universal_layer][0].mean(0),
        }
    for name, values in found.items():
        torch.testing.assert_close(values, expected[name], atol=1e-6, rtol=0, msg=name)


def test_standalone_code_does_not_import_crossling() -> None:
    sources = collect_sources()
    assert {"config.py", "heads.py", "encoder.py"} <= {*sources}
    for text in sources.values():
        assert "crossling." not in "".join(line for line in text.splitlines() if "import" in line)
        assert ".register(" not in text
    for reference in AUTO_MAP.values():
        file, name = reference.split(".")
        assert hasattr(heads, name)
        assert name in sources[f"{file}.py"]


def test_classes_of_an_imported_crossling_are_used(train: Train, tmp_path: Path) -> None:
    folder = export(train("xlm_e"), tmp_path / "exported", standalone=True)
    for trust in (False, True):
        model = AutoModel.from_pretrained(folder, trust_remote_code=trust)
        assert type(model).__module__ == "crossling.model.encoder_model"


def test_import_crossling_registers_the_models(train: Train, tmp_path: Path) -> None:
    folder = export(train("xlm_e"), tmp_path / "exported")
    program = (
        "import sys, crossling; from transformers import AutoModel\n"
        "print(type(AutoModel.from_pretrained(sys.argv[1], trust_remote_code=False)).__name__)"
    )
    assert python(program, folder, home=tmp_path) == "CrosslingModel\n"
