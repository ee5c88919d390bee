"""One translator: from its start to the folder of a seed, by way of a run of the engine."""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from crossling.disk import new_folder
from crossling.distributed import first_one_then_all, processes, rank, speaks, summed
from crossling.errors import BadInput
from crossling.finetune import unit
from crossling.finetune.translation.feed import TERM, BitextFeed
from crossling.finetune.translation.objective import Translating
from crossling.finetune.translation.plan import MAY_CHANGE, Plan
from crossling.finetune.translation.start import Start
from crossling.metrics.translation import SACREBLEU
from crossling.model.translator import CrosslingForConditionalGeneration
from crossling.objectives.objective import Network
from crossling.recipe.pretrain import machine
from crossling.train import checkpoint
from crossling.train.account import Account
from crossling.train.optimizer import Adam
from crossling.train.run import Run
from crossling.train.step import Schedule
from crossling.train.trainer import Trainer
from crossling.translation.directions import Direction
from crossling.translation.parallel import Parallel
from crossling.translation.translator import Facts, Translator, facts, is_translator, tags_of, write_facts

PARTS = 10  # of a run: after each a state is scored, if not said otherwise
DEV = "dev"
SCORE = f"probe/{DEV}"  # as the engine names what a probe tells


@dataclass(frozen=True)
class Job:
    """All translators of one MT folder: what they begin as and learn from."""

    start: Start
    directions: tuple[Direction, ...]
    text: Parallel

    def check(self, folder: Path, plan: Plan) -> None:
        """Whether a finished translator is the one that is asked for."""
        known = facts(folder)
        made = {"model": known.model, "start": known.start, "pairs": known.pairs, **known.hyper}
        asked = {"model": self.start.name, "start": self.start.kind, "pairs": [*map(str, self.directions)]}
        same_data = known.data == self.text.fingerprint
        unit.check(folder, made, asked | plan.hyper, same_data, "this translator was trained")


def train(job: Job, plan: Plan, out: Path, work: Path) -> Facts:
    """The translator of plan.seed in the folder `out`, trained in `work`; what is finished is not made again."""
    if is_translator(out):
        job.check(out, plan)
        return facts(out)
    return unit.made(lambda device: _Training(job, plan, device), plan.micro_tokens, out, work)


class _Training:
    """In every process of the run."""

    def __init__(self, job: Job, plan: Plan, device: torch.device) -> None:
        self.job, self.plan, self.device = job, plan, device
        self.model = job.start.make(plan)
        self.translator = self._translator(self.model)
        self.dev = [(direction, rows[: plan.dev_rows]) for direction, rows in job.text.dev.items()]

    def fit(self, work: Path) -> int:
        """Trains to the end, or goes on; says of how many steps."""
        plan = self.plan
        feed = self._feed()
        steps = plan.steps or max(1, round(plan.epochs * feed.steps_of_epoch))
        every = plan.checkpoint_every or -(-steps // PARTS)
        with first_one_then_all():
            run = Run(work, self._described(), shards="", may_change=MAY_CHANGE)
        layers = sum(p.numel() for name, p in self.model.named_parameters() if "embeddings" not in name)
        account = Account(dict.fromkeys(("full", "paper"), 6.0 * layers), machine(self.device))
        trainer = Trainer(
            Network(self.model, {}),  # type: ignore[arg-type]  # an encoder with all that stands on it
            {TERM: Translating(plan.label_smoothing)},
            feed,
            Adam(warmup=plan.warmup, beta2=0.98, epsilon=1e-8, decay=plan.weight_decay, clip=plan.clip),
            # A network that knows all but a few sentences has gradients of any size.
            Schedule(steps, plan.lr, plan.seed, plan.log_every, every, every if self.dev else 0, exploded=float("inf")),
            run,
            self.device,
            account,
            probe=(lambda _: self._measured(self.translator)) if self.dev else None,
            scores=[SCORE],
            keep=max(plan.average, 2),
            patience=plan.patience,
        )
        trainer.fit()
        if speaks():
            run.write_cost(account.bill(trainer.step))
        return trainer.step

    def keep(self, out: Path, work: Path, steps: int) -> Facts:
        """Writes the mean of the last states, or the best one, whichever is better on dev."""
        saved = checkpoint.all_steps(work / "checkpoints")
        choices = [checkpoint.due(saved)[-self.plan.average :]]
        if self.dev:
            choices.append([checkpoint.best(saved)[SCORE]])
        states, found, dev = choices[0], None, dict[str, float]()
        for choice in choices:
            translator = self._translator(self._mean(choice))
            scores = self._measured(translator)
            if found is None or scores[DEV] > dev[DEV]:
                states, found, dev = choice, translator, scores
        assert found is not None
        curve = self._curve(work / "metrics.jsonl")
        known = Facts(
            pairs=[*map(str, self.job.directions)],
            tags=tags_of(self.job.directions) if self.job.start.with_tags else {},
            model=self.job.start.name,
            start=self.job.start.kind,
            seed=self.plan.seed,
            hyper=self.plan.hyper,
            steps=steps,
            states=[int(state.name) for state in states],
            rows={str(direction): len(rows) for direction, rows in self.job.text.train.items()},
            data=self.job.text.fingerprint,
            dev={name.removeprefix(f"{DEV}/"): value for name, value in dev.items() if name != DEV},
            curve=curve,
        )
        with new_folder(out) if speaks() else nullcontext() as new:  # all score, one writes
            if new is not None:
                found.save(new)
                write_facts(new, known)
                for name in ("metrics.jsonl", "cost.json"):
                    shutil.copy(work / name, new / name)
        return known

    def _feed(self) -> BitextFeed:
        """Pairs with a sentence that is too long are left out, and told of."""
        plan, config = self.plan, self.model.config
        longest = min(plan.length, self.translator.longest)
        rows = [(*row, d.target) for d, own in self.job.text.train.items() for row in own]
        pieces = self.translator.pieces
        sources, targets = pieces.pairs([row[0] for row in rows], [row[2] for row in rows], [row[1] for row in rows])
        kept = [n for n in range(len(rows)) if len(sources[n]) <= longest and len(targets[n]) <= longest]
        if not kept:
            raise BadInput(f"--set length={plan.length}: all pairs of sentences are longer; set a larger one")
        if len(kept) < len(rows) and speaks():
            told = f"{len(rows) - len(kept):,} of {len(rows):,} pairs of sentences are longer than {longest} tokens"
            warnings.warn(f"{told}; not trained on", stacklevel=4)
        return BitextFeed(
            [sources[n] for n in kept],
            [targets[n] for n in kept],
            plan.tokens,
            plan.seed,
            plan.micro_tokens,
            int(config.decoder_start_token_id),
            int(config.pad_token_id),
            self.translator.longest,
            rank(),
            processes(),
        )

    def _translator(self, model: CrosslingForConditionalGeneration) -> Translator:
        start = self.job.start
        model.to(self.device)  # type: ignore[arg-type]
        return Translator(model, start.tokenizer, self.job.directions, start.with_tags, start.name)

    def _measured(self, translator: Translator) -> dict[str, float]:
        """sacreBLEU of every direction, and their mean; all directions are decoded together. Of several processes each
        decodes all, as the network may lie in shards, and what the first one finds counts: devices may differ in a bit,
        and all must end at the same step."""
        if not self.dev:
            return {DEV: float("-inf")}
        said = iter(
            translator.translate(
                [source for _, rows in self.dev for source, _ in rows],
                [direction.target for direction, rows in self.dev for _ in rows],
                self.plan.dev_beam,
                self.plan.length_penalty,
            )
        )
        own = [
            SACREBLEU.score([target for _, target in rows], [next(said) for _ in rows], direction.target)
            for direction, rows in self.dev
        ]
        found = summed(torch.tensor(own if speaks() else [0.0] * len(own), dtype=torch.float64)).tolist()
        scores = {f"{DEV}/{direction}": value for (direction, _), value in zip(self.dev, found, strict=True)}
        return {DEV: fmean(found), **scores}

    def _mean(self, states: Sequence[Path]) -> CrosslingForConditionalGeneration:
        """Whole in this process, however the engine held them."""
        model = self.job.start.make(self.plan)
        total: dict[str, Tensor] = {}
        for state in states:
            checkpoint.load_weights(state, Network(model, {}))  # type: ignore[arg-type]
            for name, values in model.named_parameters():
                total[name] = total[name] + values.detach().double() if name in total else values.detach().double()
        with torch.no_grad():
            for name, values in model.named_parameters():
                values.copy_(total[name] / len(states))
        return model

    def _curve(self, metrics: Path) -> list[dict[str, float]]:
        """The looks at dev, with the seconds of training before them."""
        rows: list[dict[str, Any]] = [json.loads(line) for line in metrics.read_text(encoding="utf-8").splitlines()]
        return [
            {"step": row["step"], "seconds": row.get("seconds", 0.0), "bleu": row[SCORE]}
            for row in rows
            if SCORE in row
        ]

    def _described(self) -> dict[str, object]:
        job = self.job
        told = {"name": "translation", "model": job.start.name, "start": job.start.kind}
        return {**told, "pairs": [*map(str, job.directions)], "data": job.text.fingerprint, **asdict(self.plan)}
