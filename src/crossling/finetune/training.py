"""One model: from an encoder to the folder of a seed, by way of a run of the engine."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean

import torch
from transformers import PreTrainedModel

from crossling.disk import new_folder
from crossling.distributed import first_one_then_all, processes, rank, speaks
from crossling.evaluate.encode import Encoder
from crossling.finetune import selection as rules
from crossling.finetune import unit
from crossling.finetune.feed import FeatureFeed
from crossling.finetune.links import linked
from crossling.finetune.material import Material, Setting
from crossling.finetune.objective import Tuning
from crossling.finetune.plan import Plan
from crossling.finetune.selection import Selection
from crossling.metrics import METRICS
from crossling.objectives.objective import Network
from crossling.progress import Progress
from crossling.recipe.pretrain import machine
from crossling.train import checkpoint
from crossling.train.account import Account
from crossling.train.optimizer import Adam
from crossling.train.run import Run
from crossling.train.step import Schedule
from crossling.train.trainer import Trainer
from crossling.transfer import cuts
from crossling.transfer.family import Feature, Form
from crossling.transfer.heads import with_head
from crossling.transfer.tuned import LANGUAGES, Facts, Tuned, facts, family, is_tuned, write_facts

PROBE = "probe/"  # how the engine names what a probe tells
PARTS = 10  # of a run: after each a state is scored, if not said otherwise


@dataclass(frozen=True)
class Job:
    """All models of one TUNED folder: what they begin as and learn from."""

    encoder: Encoder
    material: Material
    setting: Setting
    selection: Selection

    def form(self, plan: Plan) -> Form:
        longest = self.encoder.longest
        if plan.length > longest:
            warnings.warn(f"{self.encoder.name} reads {longest} tokens at most, not {plan.length}", stacklevel=4)
        return Form(
            kind=self.material.kind,
            labels=self.material.data_set.labels,
            length=min(plan.length, longest),
            stride=plan.stride,
            query=plan.query,
            answer=plan.answer,
            n_best=plan.n_best,
            null=self.material.null,
            plug_in=self.material.plug_in,
        )

    @cached_property
    def fingerprint(self) -> str:
        return self.material.fingerprint

    def check(self, folder: Path, plan: Plan) -> None:
        """Whether a finished model is the one that is asked for."""
        known = facts(folder)
        made = {"task": known.task, "model": known.model, "setting": known.setting, "selection": known.selection}
        made |= {"plug_in": str(known.form.plug_in)}
        asked = {"task": self.material.data_set.name, "model": self.encoder.name, "setting": self.setting}
        asked |= {"selection": self.selection, "plug_in": str(self.material.plug_in), **plan.hyper}
        same_data = known.data == self.fingerprint
        unit.check(folder, made | known.hyper, asked, same_data, "this model was fine-tuned")


def train(job: Job, plan: Plan, out: Path, work: Path) -> Facts:
    """The model of plan.seed in the folder `out`, trained in `work`; what is finished is not made again."""
    if is_tuned(out):
        job.check(out, plan)
        return facts(out)
    return unit.made(lambda device: _Training(job, plan, device), plan.micro_tokens, out, work)


class _Training:
    """In every process of the run."""

    def __init__(self, job: Job, plan: Plan, device: torch.device) -> None:
        self.job, self.plan, self.device = job, plan, device
        self.form = job.form(plan)
        self.model = self._fresh()
        self.tuned = Tuned(self.model, job.encoder.tokenizer, self.form)
        self.family = family(self.model, job.encoder.tokenizer, self.form)
        self.metric = METRICS[job.material.data_set.metrics[0]]
        self.views: dict[str, list[Feature]] = {}  # of the dev parts, made once

    def fit(self, work: Path) -> int:
        """Trains to the end, or goes on; says of how many steps."""
        plan, material = self.plan, self.job.material
        with cuts.gathered(f"{material.trained_on}, training part"):
            features = self.family.features(material.train, True, material.train_translations)
        steps = plan.steps_of(len(features))
        every = plan.checkpoint_every or -(-steps // PARTS)
        watched = rules.watched(self.job.selection, [*material.dev])
        feed = FeatureFeed(self.family, features, plan.batch, plan.seed, plan.micro_tokens, rank(), processes())
        with first_one_then_all():
            run = Run(work, self._described(), shards="")
        layers = sum(p.numel() for name, p in self.model.named_parameters() if "embeddings" not in name)
        account = Account(dict.fromkeys(("full", "paper"), 6.0 * layers), machine(self.device))
        schedule = Schedule(
            steps,
            plan.lr,
            plan.seed,
            plan.log_every,
            every,
            every if watched else 0,
            # A network that knows all but a few examples has gradients of any size.
            exploded=float("inf"),
        )
        Trainer(
            Network(self.model, {}),  # type: ignore[arg-type]  # an encoder with its head
            {self.family.term: Tuning(self.family)},
            feed,
            self._adam(steps),
            schedule,
            run,
            self.device,
            account,
            probe=(lambda _: rules.measured(self._dev(self.tuned, watched))) if watched else None,
            scores=[f"{PROBE}{name}" for name in rules.kept(self.job.selection, watched)],
        ).fit()
        if speaks():
            run.write_cost(account.bill(steps))
        return steps

    def keep(self, out: Path, work: Path, steps: int) -> Facts:
        """Writes the state that is chosen, with its scores on every dev part."""
        saved = checkpoint.all_steps(work / "checkpoints")
        best = {name.removeprefix(PROBE): path for name, path in checkpoint.best(saved).items()}
        root = saved[-1] if self.job.selection == "last" else best[rules.MEAN]
        own = {
            language: best[f"{rules.MEAN}/{language}"]
            for language in (self.job.material.dev if self.job.selection == "each-dev" else ())
        }
        by_state: dict[Path, list[str]] = {root: []}
        for language in self.job.material.dev:
            by_state.setdefault(own.get(language, root), []).append(language)
        dev: dict[str, float] = {}
        self._read_dev([*self.job.material.dev])
        name = f"dev {self.job.material.data_set.name} {out.name}"
        with (
            new_folder(out) if speaks() else nullcontext() as new,  # all score, one writes
            Progress(name, len(self.job.material.dev), shown=speaks()) as progress,
        ):
            for state, languages in by_state.items():
                tuned = self._at(state)
                for language in languages:
                    dev |= self._dev(tuned, [language])
                    progress.update(len(dev), language)
                if new is not None:
                    _save(tuned, [new] if state == root else [new / LANGUAGES / language for language in languages])
            known = self._facts(steps, int(root.name), dev)
            if new is not None:
                write_facts(new, known)
                for name in ("metrics.jsonl", "cost.json"):
                    shutil.copy(work / name, new / name)
        return known

    def _fresh(self) -> PreTrainedModel:
        return with_head(self.job.encoder.model, self.form, self.job.encoder.name, self.plan.seed)

    def _at(self, state: Path) -> Tuned:
        """Whole in this process, however the engine held it."""
        model = self._fresh()
        checkpoint.load_weights(state, Network(model, {}))  # type: ignore[arg-type]
        return Tuned(model.to(self.device), self.job.encoder.tokenizer, self.form)  # type: ignore[arg-type]

    def _dev(self, tuned: Tuned, languages: Sequence[str]) -> dict[str, float]:
        found, dev = {}, self.job.material.dev
        self._read_dev(languages)
        for language in languages:
            said = tuned.predict(dev[language], self.views[language])
            gold = self.job.material.data_set.golds(dev[language], "dev", language)
            found[language] = self.metric.score(gold, said, language)
        return found

    def _read_dev(self, languages: Sequence[str]) -> None:
        material = self.job.material
        with cuts.gathered(f"{material.data_set.name}, dev part") as told:
            for language in languages:
                if language not in self.views:
                    told.part = language
                    read_with = material.dev_translations.get(language)
                    self.views[language] = self.family.features(material.dev[language], False, read_with)

    def _adam(self, steps: int) -> Adam:
        """XTREME's. A warm-up made for longer runs would never end in a short one."""
        warmup = self.plan.warmup
        if round(warmup) >= steps > 1:
            warnings.warn(f"a warm-up of {warmup:g} steps in {steps}: one of a tenth of them is taken", stacklevel=4)
            warmup = 0.1
        return Adam(warmup=warmup, beta2=0.999, epsilon=1e-8, decay=self.plan.weight_decay, clip=1.0)

    def _described(self) -> dict[str, object]:
        job = self.job
        task = {"task": job.material.data_set.name, "setting": job.setting, "selection": job.selection}
        return {"name": "finetune", "model": job.encoder.name, **task, "data": job.fingerprint, **asdict(self.plan)}

    def _facts(self, steps: int, step: int, dev: Mapping[str, float]) -> Facts:
        job, material = self.job, self.job.material
        return Facts(
            task=material.data_set.name,
            model=job.encoder.name,
            setting=job.setting,
            trained_on=material.trained_on,
            selection=job.selection,
            seed=self.plan.seed,
            form=self.form,
            hyper=self.plan.hyper,
            pivot=material.pivot,
            data=job.fingerprint,
            steps=steps,
            step=step,
            examples=len(material.train),
            dev={
                "english-dev": dev.get(material.pivot),
                "all-dev": fmean(dev.values()) if dev else None,
                **{f"{rules.MEAN}/{language}": value for language, value in dev.items()},
            },
        )


def _save(tuned: Tuned, folders: Sequence[Path]) -> None:
    """In the first; in the others the same files once more."""
    folders[0].mkdir(parents=True, exist_ok=True)
    tuned.save(folders[0])
    for folder in folders[1:]:
        linked(folders[0], folder)
