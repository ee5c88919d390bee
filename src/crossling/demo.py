"""The whole pipeline on synthetic languages, then a real language: two models, an adapted one, scores, a report page.

The two models train for the same number of steps and tokens: XLM-E with contrastive learning, and the same without
bitext. Then the bundled model is adapted to Icelandic, which it does not know. Everything follows from the seed.
Finished parts are not repeated.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from crossling import bundled, recipes
from crossling.adapt.adapt import Adaptation, adapt
from crossling.adapt.held_out_scores import KEPT, NEW, RETRIEVAL, mean_change
from crossling.adapt.replay_sample import read_icelandic
from crossling.core.errors import BadInput
from crossling.core.files import write_json
from crossling.core.locks import output_lock
from crossling.core.resumable import check_output_folder
from crossling.corpora.corpus import Corpora
from crossling.data.shards import Shards
from crossling.data.tokenize import tokenize
from crossling.evaluate import probes
from crossling.evaluate.evaluate import evaluate
from crossling.evaluate.retrieval_pairs import read_tatoeba
from crossling.inference.load import load
from crossling.objectives import XLCo
from crossling.recipes.network import make_batches
from crossling.recipes.pretrain import pretrain
from crossling.recipes.recipe import Recipe
from crossling.report.report import report
from crossling.report.showcase import showcase_examples
from crossling.synthetic import synth
from crossling.tasks import scores
from crossling.tasks.scores import ScoreRow
from crossling.train.trainer import Probe
from crossling.vocabulary.build_vocabulary import vocab
from crossling.vocabulary.open_vocabulary import open_vocabulary

SENTENCES = 20_000  # of the largest language
VOCABULARY_SIZE = 4000
STEPS = 200
WITH, WITHOUT = "with-bitext", "without-bitext"
ADAPTED, ADAPT_STEPS = "adapted-to-icelandic", 60  # 80 took 247 s of CPU time, with all scores
SHOWN_PAIR = "qaa", "qac"  # unrelated languages in the same script, readable on every screen


def demo(
    out: str | os.PathLike[str], seed: int = 0, steps: int = STEPS, adapt_steps: int = ADAPT_STEPS
) -> list[ScoreRow]:
    """Run the whole pipeline on six synthetic languages, then adapt the bundled model to Icelandic.

    Args:
        out: Folder to write. It ends with `report.html` and `scores.jsonl`.
        seed: Seed of the languages and of training.
        steps: Training steps of each model.
        adapt_steps: Training steps of the adaptation.

    Returns:
        The score rows of both models.

    Raises:
        BadInput: If `out` holds a demo with another seed.

    Example:
        >>> rows = demo("demo", steps=2)  # doctest: +SKIP
    """
    started, out = time.monotonic(), Path(out)
    check_output_folder(out, holds=["synth"], command="crossling demo")
    with output_lock(out):
        shards = _prepare_shards(out, seed)
        data = out / "synth" / "data"
        probe = _retrieval_probe(shards, data)
        rows: list[ScoreRow] = []
        for name, recipe in demo_recipes(shards, seed, steps).items():
            pretrain(recipe, shards, out / name, probe=probe, probe_every=20)
            rows += evaluate(load(out / name), ["tatoeba", "word-alignment"], data, out / name)
        scores.add_scores(out / "scores.jsonl", rows)
        adaptation = adapt_bundled(out, seed, adapt_steps)
        minutes = (time.monotonic() - started) / 60
        page = _page_text(shards, out, seed, minutes) | showcase_examples(out / WITH, data, SHOWN_PAIR)
        if adaptation is not None:
            page["facts"] = {**page["facts"], **_adaptation_facts(adaptation)}
        write_json(out / "showcase.json", page)
        report([out, *([out / ADAPTED] if adaptation else [])], out / "report.html")
    return rows


def demo_recipes(shards: Shards, seed: int = 0, steps: int = STEPS) -> dict[str, Recipe]:
    """Return XLM-E with contrastive learning at a size for two CPU cores, and the same on text alone.

    It differs from the paper: pre-norm, a higher learning rate, lambda 5 and a dominant contrastive loss. In this time
    the generator hardly leaves the unigram plateau, so RTD has little to learn from. docs/research/log.md has other
    variants.
    """
    tiny = recipes.xlm_e("tiny")
    assert tiny.mrtd is not None
    assert tiny.trtd is not None
    with_bitext = tiny.replace(
        model=replace(tiny.model, norm="pre", dropout=0.0, max_length=128, universal_layer=3),
        mrtd=replace(tiny.mrtd, tokens=768, lambda_=5.0),
        trtd=replace(tiny.trtd, tokens=1024, lambda_=5.0),
        xlco=XLCo(
            pairs=160,
            layer=3,
            queue=0,
            momentum=0.0,
            mixup=False,
            keep=0.0,
            random=0.0,
            temperature=0.05,
            normalize=True,
            symmetric=True,
            pooling="mean",
            weight=10.0,
            length=128,
        ),
        lr=3e-3,
        steps=steps,
        seed=seed,
        log_every=10,
        checkpoint_every=50,
    )
    batches = make_batches(with_bitext, shards)
    tokens = round(float(np.mean([batches[step].tokens for step in range(20)])))
    assert with_bitext.mrtd is not None
    return {
        WITH: with_bitext,
        WITHOUT: with_bitext.replace(mrtd=replace(with_bitext.mrtd, tokens=tokens), trtd=None, xlco=None),
    }


def adapt_bundled(out: Path, seed: int, steps: int) -> Adaptation | None:
    """Adapt the bundled model to Icelandic, by the pairs in the package. None without a bundled model."""
    if not (bundled.FOLDER / "config.json").is_file():
        return None
    file = out / "files" / "tatoeba.en-is.tsv"
    if not file.is_file():
        file.parent.mkdir(exist_ok=True)
        text = "".join(f"{english}\t{icelandic}\n" for english, icelandic in read_icelandic())
        file.write_text(text, encoding="utf-8", newline="\n")
    return adapt(bundled.NAME, out / ADAPTED, pairs=file, seed=seed, set=[f"steps={steps}"])


def _adaptation_facts(adaptation: Adaptation) -> dict[str, str]:
    """Return lines for the page: retrieval before and after, of Icelandic and of the other languages."""
    facts = {}
    for role, name in ((NEW, "Icelandic"), (KEPT, "other languages")):
        change = mean_change(adaptation.changes, RETRIEVAL, role)
        if change is not None:
            facts[f"bundled model adapted to Icelandic, retrieval in {name}"] = (
                f"{change.before:.1f}% before, {change.after:.1f}% after, on {change.examples:,} held-out pairs"
            )
    return facts


def _prepare_shards(out: Path, seed: int) -> Shards:
    """Generate six languages and make their vocabulary and shards, unless they exist."""
    card = out / "synth" / "synthetic.json"
    if card.is_file():
        other = json.loads(card.read_text(encoding="utf-8"))["seed"]
        if other != seed:
            raise BadInput(f"{out}: holds a demo with seed {other}, not {seed}. Give another folder.")
        if (out / "shards" / "manifest.json").is_file():
            return Shards.open(out / "shards")
    synth(out / "synth", sentences=SENTENCES, seed=seed)
    corpora = Corpora(out / "synth" / "corpora")
    vocab(corpora, out / "vocab", size=VOCABULARY_SIZE, seed=seed)
    return tokenize(corpora, out / "vocab", out / "shards")


def _retrieval_probe(shards: Shards, data: Path) -> Probe:
    """Return a probe of one figure, since a chart for each language pair would crowd the page."""
    retrieval = probes.make_retrieval_probe(data, open_vocabulary(shards.vocabulary_path), sentences=100)
    return lambda net: {"retrieval among 100 sentences": retrieval(net)["retrieval"]}


def _page_text(shards: Shards, out: Path, seed: int, minutes: float) -> dict[str, Any]:
    languages = ", ".join(shards.manifest["text"])
    last = json.loads((out / WITH / "metrics.jsonl").read_text(encoding="utf-8").splitlines()[-1])
    sentences = len(read_tatoeba(out / "synth" / "data")[0].first.sentences)
    return {
        "title": "Cross-lingual pre-training on six synthetic languages",
        "subtitle": (
            f"Two models were trained on {languages} for the same number of steps and tokens: XLM-E with contrastive"
            " learning on bitext, and the same model on text alone. Scores are on held-out sentences."
        ),
        "command": f"crossling demo -o {out} --seed {seed}",
        "facts": {
            "seed": str(seed),
            "time": f"{minutes:.1f} minutes in total",
            "training": f"{last['step']} steps, {last['tokens']:,} tokens for each model",
            "held out": f"{sentences} sentences in each language; none of their meanings is in the training text",
        },
        "chance": 100 / sentences,
    }
