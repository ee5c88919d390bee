"""Record what a source tree computes, and compare two such records.

A refactoring renames packages, commands, settings and keys, but must not change behaviour. Record the tree before it
and the tree after it on one machine, then compare:

    python tools/golden.py record before.json        # with the `crossling` that this interpreter imports
    python tools/golden.py record after.json
    python tools/golden.py compare before.json after.json

Every run starts from fixed seeds and uses one thread. The comparison is exact. It applies the renames in `RENAMED` and
`RENAMED_VALUES` to the first record, and accepts no other difference. Times, versions and absolute paths are not
recorded. `--device cuda` records the section `recipes` alone, with fused kernels and deterministic algorithms.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import hashlib
import importlib
import importlib.util
import io
import json
import math
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

# The script is written with the names of the tree `before`. `modules` says where its classes are. The other tables
# translate commands, options, keys of --set, attributes and file names, and need only the names that differ.
MODULES = {"app": "crossling.cli:app", "named": "crossling.recipes:named"}
MODULES |= {"Shards": "crossling.data.shards:Shards", "Batches": "crossling.data.batches:Batches"}
NAMES: dict[str, dict[str, dict[str, str]]] = {
    "before": {"modules": MODULES, "commands": {}, "options": {}, "settings": {}, "attributes": {}, "files": {}},
    "after": {
        "modules": {**MODULES, "named": "crossling.recipes:get_recipe"},
        "commands": {"babel": "synth", "encode": "tokenize", "inspect": "plan"},
        **{
            "options": {"--pairs": "--directions"},
            "settings": {"recompute": "gradient_checkpointing"},
            "attributes": {"micro": "micro_batches"},
            "files": {},
        },
    },
}
ONLY_BEFORE = "crossling.babel"  # a package that the tree `after` does not have

# Renamed keys of the record `before`, by section ("*": every section). A pattern matches the whole key. Each `*` in it
# matches any text, which replaces the `*` at the same position of the new name: {"probe/*": "eval/*"} is a prefix.
RENAMED: dict[str, dict[str, str]] = {
    "*": {
        "recompute": "gradient_checkpointing",
        "optimizer.generator_rate": "optimizer.generator_lr_factor",
        "generator_rate": "generator_lr_factor",
    }
}
RENAMED["finetune"] = {"answering*": "qa*"}
RENAMED["vocabulary"] = {"pieces": "subwords", "made": "settings"}
RENAMED["cleaning"] = {"seen instead": "detected languages", "language not judged": "languages not checked"}
RENAMED["cleaning"] |= {"gone": "removed", "look": "statistics"}
# Renamed string values of the record `before`, by the key (after renaming) they belong to: {"metric": {"f1": "F1"}}.
RENAMED_VALUES: dict[str, dict[str, str]] = {"model": {"box": "bundled"}}
RENAMED_VALUES["sources"] = {  # fingerprints of the cleaned corpora, which contain the format version of the report
    "25673a3c845fc67455360374dc511029": "c284d3fef9daa5f5e0e15071653992fc",
    "60bdfc079664d660bdd55669bf8f02e9": "92103ae43ad10bcbbd690743f6ede58f",
}
_SHARE = "sampling at temperature 1.43: qab, qac, qad should be 58.01% of all"
RENAMED_VALUES["cannot"] = {
    f"{_SHARE} sentences drawn, but they are paired only with qaa, at 41.99%, and can be no more than that: set"
    " sampling.relax=true or sampling.pair_alpha=1, or add pairs among them": f"{_SHARE} sampled sentences, but they"
    " are paired only with qaa, at 41.99%, and cannot exceed that. Set sampling.relax=true or sampling.pair_alpha=1,"
    " or add pairs among them."
}
RENAMED_VALUES["why"] = {
    "the fewest of a run, though the shards are so small that they are seen over 40 times": "the minimum of a run,"
    " though the shards are so small that it is over 40 epochs"
}

# Keys that depend on the clock or the machine, in metrics and costs. List the names of both trees.
TIMED = {"seconds", "tokens_per_second", "loader_wait", "mfu", "machines"}
# Keys whose values contain versions, command lines, or hashes over the names of settings.
DERIVED = {"key", "fingerprint", "tuned", "signature", "command"}

RECIPES = {"xlm_r": "mlm", "xlm": "mlm tlm", "xlm_e": "mrtd trtd", "infoxlm": "mlm tlm xlco", "xy_lent": "mrtd trtd",
           "veco": "ca_mlm ca_tlm tlm", "rosetta": "mlm tlm xlco"}  # fmt: skip
SIZES = ("tiny", "small", "base", "large")
STEPS = 20
FINE_TUNED = ("xnli", "panx", "xquad")  # classification, tagging, question answering
PAIRS = "the white house ||| la maison blanche\nI drink a cup of tea . ||| ich trinke eine Tasse Tee .\n"
ENGLISH = "The white house is old.\nI drink a cup of tea.\nMy brother lives in London.\nWhere is the hospital?\n"
GERMAN = "Wo ist das Krankenhaus?\nMein Bruder lebt in London.\nDas weiße Haus ist alt.\nIch trinke eine Tasse Tee.\n"


class Tree:
    """The importable source tree: its names, and its command line in this process."""

    def __init__(self, device: str) -> None:
        os.environ.update(OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
        os.environ.update({"CUDA_VISIBLE_DEVICES": ""} if device == "cpu" else {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"})
        if importlib.util.find_spec("crossling") is None:
            sys.exit("golden: cannot import crossling. Use the interpreter of its virtualenv, or set PYTHONPATH=src.")
        spec = importlib.util.find_spec(ONLY_BEFORE)  # without an origin: only a leftover folder of caches
        self.device, self.name = device, "before" if spec and spec.origin else "after"
        self.names = NAMES[self.name]
        import torch

        torch.set_num_threads(1)
        if device == "cuda":
            if not torch.cuda.is_available():
                sys.exit("golden: --device cuda: torch finds no GPU here. Use --device cpu.")
            torch.use_deterministic_algorithms(True, warn_only=True)

    def load(self, name: str) -> Any:
        module, _, attribute = self.names["modules"][name].partition(":")
        return getattr(importlib.import_module(module), attribute)

    def get(self, value: Any, attribute: str) -> Any:
        return getattr(value, self.names["attributes"].get(attribute, attribute))

    def file(self, folder: str, name: str) -> Path:
        return Path(folder) / self.names["files"].get(name, name)

    def run(self, line: str, *sets: str) -> list[Any]:
        """Run one command and return the JSON values that it prints, one per line."""
        words = line.split()
        words[0] = self.names["commands"].get(words[0], words[0])
        words = [self.names["options"].get(word, word) for word in words]
        for key, _, value in (each.partition("=") for each in sets):
            words += ["--set", f"{renamed(key, self.names['settings'])}={value}"]
        importlib.import_module("torch").manual_seed(0)  # independent of the sections recorded before
        out, log = io.StringIO(), io.StringIO()
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(log):
                self.load("app")(words, standalone_mode=False)
        except (Exception, SystemExit) as error:
            print(log.getvalue()[-3000:], file=sys.stderr)
            raise RuntimeError(f"golden: crossling {' '.join(words)}: {type(error).__name__}: {error}") from error
        return [json.loads(text) for text in out.getvalue().splitlines() if text[:1] in ("{", "[")]


def renamed(key: str, table: dict[str, str]) -> str:
    """Return the new name of a key: see `RENAMED`."""
    for old, new in table.items():
        match = re.fullmatch(re.escape(old).replace(r"\*", "(.*)"), key)
        if match:
            texts = iter(match.groups())
            return re.sub(r"\*", lambda _: next(texts), new)  # noqa: B023
    return key


def without(value: Any, dropped: set[str]) -> Any:
    if isinstance(value, dict):
        return {key: without(each, dropped) for key, each in value.items() if key not in dropped}
    return [without(each, dropped) for each in value] if isinstance(value, list | tuple) else value


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:24]


def hashes(folder: str | Path, *patterns: str) -> dict[str, str]:
    """Return the hash of each file's content, decompressed, by relative path."""
    files = sorted({file for pattern in patterns for file in Path(folder).rglob(pattern) if file.is_file()})
    read = {file: gzip.open if file.suffix == ".gz" else open for file in files}
    return {file.relative_to(folder).as_posix(): digest(read[file](file, "rb").read()) for file in files}


def array(values: Any) -> dict[str, Any]:
    """Describe a tensor by type, shape, hash and its first values."""
    data = values.contiguous().flatten()
    shape = {"type": str(values.dtype), "shape": list(values.shape), "first": data[:8].tolist()}
    return shape | {"hash": digest(data.view(importlib.import_module("torch").uint8).numpy().tobytes())}


class Recorder:
    """The sections, and the runs that several sections share. Each run is made once, in the current folder."""

    def __init__(self, tree: Tree) -> None:
        self.tree, self.run = tree, tree.run
        self.data, self.trained = cache(self._data), cache(self._trained)

    def _data(self) -> dict[str, Any]:
        """Make synthetic languages, vocabularies and shards. Hash them before training adds caches to the shards."""
        noise = "--wrong 0.05 --copies 0.05 --near-duplicates 0.05 --many-to-one 0.05"
        card = self.run(f"babel -o synth --languages 4 --sentences 300 --lemmas 300 {noise} --json")
        other = self.run("babel -o science --languages 2 --sentences 50 --lemmas 300 --domain science --seed 3 --json")
        sources = {"vocab": "synth/corpora --size 600", "vocap": "synth/corpora --size 500 --allocate vocap"}
        sources["trimmed"] = "science/corpora --from vocab --trim"
        reports = {out: self.run(f"vocab {each} -o {out} --workers 1 --json") for out, each in sources.items()}
        manifest = self.run("encode synth/corpora --vocab vocab -o shards --json")
        files = {name: hashes(name, "tokenizer.json", "*.model") for name in reports}
        languages = {"cards": [card, other], **{name: hashes(name, "*/**/*") for name in ("synth", "science")}}
        shards = {"manifest": without(manifest, DERIVED), "files": hashes("shards", "*.npy")}
        vocabulary = {"reports": without(reports, DERIVED | {"format"}), "files": files}
        return {"synthetic": languages, "vocabulary": vocabulary, "shards": shards}

    def _trained(self, name: str, out: str, *sets: str, init: str = "") -> str:
        """Pre-train a recipe for a few steps and return the folder of the run."""
        self.data()
        size, tokens, length = ("tiny", 512, 64) if self.tree.device == "cpu" else ("small", 8192, 128)
        objectives = RECIPES[name].split()
        small = [f"{each}.length={length}" for each in objectives]
        small += [f"{each}.tokens={tokens}" for each in objectives if each != "xlco"]
        small += [f"xlco.pairs={tokens // 32}"] if "xlco" in objectives else []
        small += [f"xlco.queue={tokens // 8}"] if name == "infoxlm" else []
        small += ["optimizer.warmup=5", "log_every=1", f"checkpoint_every={STEPS}", f"steps={STEPS}"]
        shape = f"--init {init}" if init else f"--size {size}"
        self.run(f"pretrain {name} --shards shards -o {out} {shape} --workers 0", *small, *sets)
        return out

    def metrics(self, run: str) -> dict[str, Any]:
        cost = json.loads(self.tree.file(run, "cost.json").read_text(encoding="utf-8"))
        lines = self.tree.file(run, "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        return {"steps": without([json.loads(line) for line in lines], TIMED), "cost": without(cost, TIMED)}

    def predictions(self, folder: str) -> dict[str, Any]:
        found = {}
        for file in sorted(Path(folder).rglob("predictions/**/*.jsonl")):
            rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
            pairs = [[row["id"], row["prediction"]] for row in rows]
            found[file.relative_to(folder).as_posix()] = [digest(json.dumps(pairs).encode()), pairs[:2]]
        return found

    def recipes(self) -> dict[str, Any]:
        found = {name: self.metrics(self.trained(name, f"runs/{name}")) for name in RECIPES}
        if self.tree.device == "cpu":
            muon = self.trained("rosetta", "runs/muon", "optimizer.matrices=muon", "micro_tokens=256", "recompute=true")
            begun = self.trained("infoxlm", "runs/continued", "steps=8", init="runs/xlm")
            dro = self.trained("xlm", "runs/dro", "steps=8", "dro=on", "dro.times=2")
            found |= {run: self.metrics(run) for run in (muon, begun, dro)}
        return found

    def settings(self) -> dict[str, Any]:
        named, get = self.tree.load("named"), self.tree.get
        return {f"{name} {size}": dict(get(named(name, size), "settings")()) for name in RECIPES for size in SIZES}

    def checkpoint(self) -> dict[str, Any]:
        from safetensors.torch import load_file

        runs = {name: Path(self.trained(name, f"runs/{name}"), "checkpoints") for name in RECIPES}
        folders = {name: max(folder.iterdir()) for name, folder in runs.items()}
        self.run("export runs/xlm_e -o exported/xlm_e")
        self.run("export runs/rosetta -o exported/rosetta --precision int8 --layers 2")
        folders |= {f"exported {name}": Path("exported", name) for name in ("xlm_e", "rosetta")}
        files = {name: sorted(folder.glob("*.safetensors")) for name, folder in folders.items()}
        stored = {name: [item for file in found for item in load_file(file).items()] for name, found in files.items()}
        return {name: {key: array(tensor) for key, tensor in items} for name, items in stored.items()}

    def batches(self) -> dict[str, Any]:
        get, found = self.tree.get, {}
        for name in RECIPES:
            stored = self.tree.file(self.trained(name, f"runs/{name}"), "recipe.json")
            recipe, shards = self.tree.load("named")(str(stored)), self.tree.load("Shards").open(Path("shards"))
            fields = [get(recipe, each) for each in ("objectives", "sampling")]
            given = {each: get(recipe, each) for each in ("seed", "alternate")}
            size = "processes" if self.tree.name == "before" else "world_size"
            for label, micro_tokens, rank, processes in (("whole", 65_536, 0, 1), ("rank 1 of 2", 128, 1, 2)):
                given |= {"micro_tokens": micro_tokens, "rank": rank, size: processes}
                batches = self.tree.load("Batches")(shards, *fields, **given)
                works = {step: batches[step] for step in (0, 1, STEPS)}
                found[f"{name} {label}"] = {f"step {step}": self._work(work) for step, work in works.items()}
        return found

    def _work(self, work: Any) -> dict[str, Any]:
        micro = self.tree.get(work, "micro")
        parts = [{"objective": name} | {key: array(tensor) for key, tensor in batch.items()} for name, batch in micro]
        return {"micro": parts} | {each: self.tree.get(work, each) for each in ("counts", "tokens", "seeds")}

    def finetune(self) -> dict[str, Any]:
        model = self.trained("xlm", "runs/xlm")
        return {task: self._tuned(f"{model} --task {task}", f"tuned/{task}", "batch=8") for task in FINE_TUNED}

    def _tuned(self, what: str, out: str, *sets: str) -> dict[str, Any]:
        usual = ("steps=10", "lr=1e-3", "log_every=1", "checkpoint_every=5")
        rows = self.run(f"finetune {what} --data synth/data -o {out} --json", *usual, *sets)
        return {"rows": without(rows, DERIVED), **self.metrics(out), "predictions": self.predictions(out)}

    def translation(self) -> dict[str, Any]:
        model = self.trained("veco", "runs/veco")
        what = f"{model} --task translation --pairs qaa-qab,qab-qaa"
        found = self._tuned(what, "mt", "tokens=256", "dev_rows=4", "beam=2")
        return found | {"lines": self.run("translate mt synth/data/translation/test.qaa --to qab --beam 2 --json")}

    def scores(self) -> dict[str, Any]:
        rosetta, veco = self.trained("rosetta", "runs/rosetta"), self.trained("veco", "runs/veco")
        tasks = "tatoeba,word-alignment,bucc2018 --method ot,argmax,itermax"
        rows = self.run(f"evaluate {rosetta} --task {tasks} --data synth/data -o scored --json")
        rows += self.run(f"evaluate {veco} --task tatoeba --plug-in --languages qab --data synth/data --json")
        rows += self.run("evaluate --task tatoeba --languages qab --data synth/data --json")  # the bundled model
        for name, text in (("pairs.txt", PAIRS), ("english.txt", ENGLISH), ("german.txt", GERMAN)):
            Path(name).write_text(text, encoding="utf-8")
        self.run("embed english.txt -o vectors.npy --json")
        methods, margins = ("ot", "argmax", "itermax"), ("ratio", "distance", "absolute")
        return {
            "rows": rows,
            "predictions": self.predictions("scored"),
            "embedding": hashes(".", "vectors.npy"),
            "alignment": {each: self.run(f"align pairs.txt --method {each} --json") for each in methods},
            "mining": {each: self.run(f"mine english.txt german.txt --margin {each} --json") for each in margins},
        }

    def plan(self) -> dict[str, Any]:
        self.data()
        plans = [f"{name} --size {size}" for name in RECIPES for size in ("tiny", "base")]
        found = {each: self.run(f"inspect {each} --shards shards --gpu h200 --json") for each in plans}
        found["budget"] = self.run("inspect xlm_e --shards shards --hours 2 --gpus 2 --gpu a100 --json")
        return without(found, DERIVED)

    def cleaning(self) -> dict[str, Any]:
        self.data()
        for name, lines in messy(Path("synth/data/tatoeba/v1/tatoeba.qaa-qab.qaa")).items():
            Path("messy", name).parent.mkdir(parents=True, exist_ok=True)
            Path("messy", name).write_text("\n".join(lines) + "\n", encoding="utf-8")
        found = {
            "check": self.run("check messy --against synth/data --json"),
            "check synthetic": self.run("check synth/corpora --against synth/data --json"),
            "clean": self.run("clean messy --all --against synth/data -o cleaned --json"),
            "clean some": self.run("clean synth/corpora --copies --duplicates --min-pairs 150 -o some --json"),
        }
        run = self.trained("xlm", "runs/dro", "steps=8", "dro=on", "dro.times=2")
        files = {folder: hashes(folder, "text/*", "pairs/*", "multi/**/*") for folder in ("cleaned", "some")}
        return without(found, DERIVED) | {"files": files, "audit": self.run(f"audit {run} --shards shards --json")}


def messy(benchmark: Path) -> dict[str, list[str]]:
    """Return the lines of a small corpus in which every cleaning rule finds something, by file name."""
    who = {"captain": "capitaine", "teacher": "professeur", "farmer": "fermier", "doctor": "médecin", "king": "roi"}
    what = {"an old map": "une vieille carte", "the blue door": "la porte bleue", "a small boat": "un petit bateau",
            "the last letter": "la dernière lettre", "two white horses": "deux chevaux blancs"}  # fmt: skip
    said = [(f"The {a} found {b} near the harbour before the winter storms came.",
             f"Le {x} a trouvé {y} près du port avant les tempêtes de l'hiver.")
            for a, x in who.items() for b, y in what.items()]  # fmt: skip
    english, french = [a for a, _ in said], [b for _, b in said]
    edited = [line.replace("harbour", "harbours") for line in english[:4]]
    pairs = [*said, *said[:3], (english[5], english[5]), (english[6], english[6].replace("found", "finds"))]
    pairs += [(line, french[0]) for line in english[8:18]] + [(english[7], "Le " * 150), ("x", "y")]
    held_out = benchmark.read_text(encoding="utf-8").splitlines()[:6]
    return {
        "text/en.txt": [*english, *english[:5], *edited, "x", "word " * 3000, *french[:3], "12 000 - 34"],
        "text/fr.txt": [*french, *french[:2], *english[:2]],
        "text/qaa.txt": [*held_out, *(f"{line} {line}" for line in held_out[:2])],
        "pairs/web.en-fr.tsv": ["\t".join(pair) for pair in pairs],
    }


FIRST = ("synthetic", "vocabulary", "shards")
NEXT = ("settings", "plan", "recipes", "checkpoint", "batches", "finetune", "translation", "scores", "cleaning")
SECTIONS = (*FIRST, *NEXT)


def record(out: Path, device: str, only: list[str]) -> None:
    """Record the sections into one JSON file."""
    out, tree, found = out.resolve(), Tree(device), {}
    torch, package = importlib.import_module("torch"), importlib.import_module("crossling")
    made = {"tree": tree.name, "source": package.__file__, "torch": torch.__version__, "device": device}
    print(f"golden: {made}", file=sys.stderr)
    folder, start = tempfile.mkdtemp(prefix="golden-"), Path.cwd()
    try:
        os.chdir(folder)  # every path in the record is relative to it
        recorder = Recorder(tree)
        for name in only or SECTIONS:
            began = time.perf_counter()
            found[name] = recorder.data()[name] if name in FIRST else getattr(recorder, name)()
            print(f"golden: {name}: {time.perf_counter() - began:.1f} s", file=sys.stderr, flush=True)
    finally:
        os.chdir(start)
        shutil.rmtree(folder, ignore_errors=True)
    out.write_text(json.dumps({"made": made, "sections": found}, ensure_ascii=False, indent=1), encoding="utf-8")


Renames = dict[str, dict[str, str]]


def leaves(value: Any, keys: dict[str, str], values: Renames, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Yield every plain value of a record with its path, both renamed."""
    if isinstance(value, dict | list) and value:
        for key, each in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(each, keys, values, (*path, renamed(str(key), keys)))
    else:
        key = next((each for each in reversed(path) if not each.isdigit()), "")  # of a list: the key of the list
        yield " > ".join(path), renamed(value, values.get(key, {})) if isinstance(value, str) else value


def differences(before: dict[str, Any], after: dict[str, Any], tolerance: float) -> Iterator[str]:
    for path in dict.fromkeys([*before, *after]):
        old, new = before.get(path, "(missing)"), after.get(path, "(missing)")
        close = isinstance(old, float) and isinstance(new, float) and math.isclose(old, new, rel_tol=tolerance)
        if repr(old) != repr(new) and not (close and tolerance):
            yield f"{path}: before {old!r}, after {new!r}"


def compare(before: Path, after: Path, only: list[str], tolerance: float, shown: int) -> int:
    """Print one line for each section, and return 1 if any section differs."""
    first, second = (json.loads(file.read_text(encoding="utf-8")) for file in (before, after))
    for key in ("torch", "device"):
        if first["made"][key] != second["made"][key]:
            print(f"note: {key} differs: {first['made'][key]}, {second['made'][key]}")
    status, old, new = 0, first["sections"], second["sections"]
    for name in only or dict.fromkeys([*old, *new]):
        found, count = [f"recorded before: {name in old}, after: {name in new}"], 1
        if name in old and name in new:
            own = RENAMED.get(name, {})
            keys = {**own, **RENAMED["*"], **own}  # those of the section first
            values = dict(leaves(old[name], keys, RENAMED_VALUES))
            found, count = [*differences(values, dict(leaves(new[name], {}, {})), tolerance)], len(values)
        status |= bool(found)
        print(f"{name}: differs ({len(found)} of {count}): {found[0]}" if found else f"{name}: equal ({count} values)")
        print("".join(f"    {each}\n" for each in found[1:shown]), end="")
    return status


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("record", "compare"))
    parser.add_argument("files", type=Path, nargs="+", metavar="FILE", help="record: OUT; compare: BEFORE AFTER.")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="record: device. [default: cpu]")
    parser.add_argument("--only", default="", metavar="SECTION,...", help=f"Of {', '.join(SECTIONS)}. [default: all]")
    parser.add_argument("--tolerance", type=float, default=0.0, help="compare: relative, of floats. [default: 0]")
    parser.add_argument("--show", type=int, default=1, help="compare: differences per section. [default: 1]")
    chosen = parser.parse_args()
    only = chosen.only.split(",") if chosen.only else ["recipes"] if chosen.device == "cuda" else []
    if not {*only} <= ({"recipes"} if chosen.device == "cuda" else {*SECTIONS}):
        parser.error(f"--only {chosen.only}: expected sections of {', '.join(SECTIONS)}. With cuda: recipes alone.")
    if len(chosen.files) != (1 if chosen.command == "record" else 2):
        parser.error(f"{chosen.command}: {len(chosen.files)} files given. Use record OUT, or compare BEFORE AFTER.")
    if chosen.command == "record":
        record(chosen.files[0], chosen.device, only)
        return 0
    return compare(chosen.files[0], chosen.files[1], only, chosen.tolerance, chosen.show)


if __name__ == "__main__":
    sys.exit(main())
