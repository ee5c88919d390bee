"""Checks of a run while it trains: skipped steps, collapsed discriminators, and networks that learn nothing.

GradientNormGuard skips steps whose gradient is not finite or far above its running mean. DiscriminatorGuard ends a run
whose discriminator has lost what it had learned. CollapseMonitor warns, in every run, of these signs:

not finite A loss term, or their weighted sum, is not finite. It is reported at once.
diverged   A loss is more than 1.1 times that of equal scores for all answers. That is the logarithm of the vocabulary
           size, of the number of candidates, or of 2 for a discriminator. Where a run ends, twice that is reported at
           once. An untrained contrastive loss may be between the two.

chance     2,000 steps after the warm-up a prediction is hardly better than the most frequent token, which a healthy
           network leaves behind within some hundred steps. The limit is 1.25 times as often correct, because the
           frequency is estimated on a sample. For contrastive learning: the bound on mutual information, log |N| - L,
           is below 1% of log |N|. Accuracy would not do: with identical keys it is arbitrary.
lost       The bound is less than half of the best one since the warm-up. It is in nats and 0 without knowledge, so half
           of it means the same for any vocabulary and queue. Bounds of healthy runs vary by tenths of a nat. A diverged
           network still knows the token frequencies, which is less than half.
guessing   A discriminator that was better than guessing has the loss of guessing. Where a run was initialized from a
           model, the guard ends it. A run from scratch may distinguish early nonsense better than later samples.
copies     Fewer than 1 in 200 tokens are replaced. At a masking rate of 15% the generator is then correct 29 times of
           30, which no text allows.

The other signs must show in three consecutive rows and for 500 steps. Each is reported once in a run. Not detected:
contrastive learning that distinguishes new keys from old ones by the drift of the encoder, which reads as perfect.

The loss of guessing: where a fraction r of the tokens is replaced, the best constant answer costs the entropy
H(r) = -(r ln r + (1-r) ln(1-r)) per token. A collapsed discriminator first costs more and then settles within 0.5% of
H(r). Knowing only that special tokens are never replaced gives 0.96 H(r) at a masking rate of 15%. So below 0.95
something was learned, and at 0.99 all of it is lost. H uses the r of the same row, so the ratio has little noise: that
of a constant answer to n tokens varies by about 1 / n.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from crossling.core.errors import Failed
from crossling.data.packing import Batch
from crossling.model.kernels.prediction import IGNORE_INDEX
from crossling.objectives.mlm import gather_targets
from crossling.train import checkpoint

MAX_NORM_RATIO = 20.0  # a gradient norm above so many times its running mean is skipped
WARMUP_STEPS = 100  # before the running mean is used
MIN_WEIGHT = 0.01  # of one norm in the running mean, which becomes a mean of about 100 steps
MAX_CONSECUTIVE_SKIPS = 5
RECENT_WEIGHT, MAX_RECENT_SKIPS = 0.02, 0.5  # weight of one step in the recent fraction of skipped steps; its maximum

LEARNED, LOST = 0.95, 0.99  # fractions of the loss of guessing
ROWS, STEPS = 3, 500  # consecutive rows of metrics, and steps, that a sign must last

MAX_CHANCE_RATIO, MAX_LAST_RATIO = 1.1, 2.0  # loss relative to that of equal scores for all answers; in the last row
CHANCE_STEPS = 2000  # after the warm-up
CHANCE_RATIO = 1.25  # accuracy relative to the most frequent token
MIN_BOUND = 0.01  # fraction of the largest possible bound
LOST_BOUND, MIN_BEST_BOUND = 0.5, 1.0  # fraction of the best bound; nats that the best one must have had
MIN_REPLACED = 0.005  # fraction of all tokens
_LOWER_LR = "Start again with a lower lr, a longer optimizer.warmup or a lower optimizer.clip."
FREQUENCY_SAMPLE = 20_000  # positions from which the frequency of the most frequent token is estimated


class GradientNormGuard:
    """Decides which steps are skipped. It stays on the device and is updated in place, so no step has to synchronize.

    All processes see the same norm and make the same decision.
    """

    def __init__(self, device: torch.device) -> None:
        self.mean_norm = torch.zeros((), device=device)
        self.steps = torch.zeros((), device=device)  # in the mean
        self.skipped = torch.zeros((), device=device)
        self.consecutive = torch.zeros((), device=device)  # skipped steps until now
        self.max_consecutive = torch.zeros((), device=device)
        self.recent = torch.zeros((), device=device)  # fraction of recent steps that were skipped
        self.max_recent = torch.zeros((), device=device)

    def update(self, norm: Tensor, max_ratio: float = MAX_NORM_RATIO) -> Tensor:
        """Return 1 if the step must be skipped, else 0, and update the running mean of the gradient norm."""
        exploded = (self.steps >= WARMUP_STEPS) & (norm > max_ratio * self.mean_norm)
        skip = (exploded | ~norm.isfinite()).float()
        self.steps += 1 - skip
        weight = (1 / self.steps.clamp(min=1)).clamp(min=MIN_WEIGHT)
        self.mean_norm += weight * (torch.where(skip > 0, self.mean_norm, norm) - self.mean_norm)
        self.skipped += skip
        self.consecutive.add_(1).mul_(skip)
        torch.maximum(self.max_consecutive, self.consecutive, out=self.max_consecutive)
        self.recent += RECENT_WEIGHT * (skip - self.recent)
        torch.maximum(self.max_recent, self.recent, out=self.max_recent)
        return skip

    def reset_mean(self) -> None:
        """Reset the running mean, because other parameters are trained from now on."""
        self.mean_norm.zero_()
        self.steps.zero_()

    def check(self, step: int, checkpoint_note: str) -> None:
        """End a run that skips too many steps. Synchronizes with the device."""
        if self.max_consecutive >= MAX_CONSECUTIVE_SKIPS or self.max_recent > MAX_RECENT_SKIPS:
            consecutive = self.max_consecutive >= MAX_CONSECUTIVE_SKIPS
            count = f"{MAX_CONSECUTIVE_SKIPS} consecutive steps" if consecutive else "most of the last steps"
            raise Failed(
                f"step {step}: {count} were skipped, because their gradients were not finite or more than"
                f" {MAX_NORM_RATIO:g} times their running mean; {checkpoint_note}. Train again in a new folder,"
                " initialized from the last good checkpoint. Set a lower lr, a longer optimizer.warmup or a lower"
                " optimizer.clip."
            )

    def state_dict(self) -> dict[str, float]:
        """Return the state for a checkpoint."""
        return {name: float(value) for name, value in vars(self).items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state of a checkpoint."""
        for name, value in state.items():
            getattr(self, name).fill_(value)


@dataclass
class _LastGoodRow:
    """The last row of metrics in which a discriminator was better than guessing."""

    step: int
    loss: float
    bad_rows: int = 0  # since then


class DiscriminatorGuard:
    """Ends the run when a discriminator has lost what it had learned.

    Replaced token detection collapses when it is continued at its original peak learning rate (XY-LENT, Limitations).
    """

    def __init__(self, checkpoints: Path, lr: float) -> None:
        self.checkpoints, self.lr = checkpoints, lr
        self.last_good: dict[str, _LastGoodRow] = {}

    @property
    def is_suspect(self) -> bool:
        """True if the network may be collapsing. Then it must not replace a good checkpoint."""
        return any(row.bad_rows for row in self.last_good.values())

    def check(self, row: Mapping[str, float]) -> None:
        """Read one row of metrics. Raise Failed if a discriminator has collapsed."""
        for name, replaced in row.items():
            term = name.removesuffix("_replaced")
            if term == name or not 0 < replaced < 1:  # nothing to detect
                continue
            loss, guessing = row[term], guessing_loss(replaced)
            if loss < (LOST if term in self.last_good else LEARNED) * guessing:
                self.last_good[term] = _LastGoodRow(int(row["step"]), loss)
            elif term in self.last_good:
                self.last_good[term].bad_rows += 1
                if self.last_good[term].bad_rows >= ROWS:
                    raise Failed(self._message(term, row, guessing))

    def _message(self, term: str, row: Mapping[str, float], guessing: float) -> str:
        good = self.last_good[term]
        saved = [path for path in checkpoint.list_checkpoints(self.checkpoints) if int(path.name) <= good.step]
        return (
            f"step {int(row['step'])}: {term} has diverged. Its loss is {row[term]:.4g}, guessing costs {guessing:.4g};"
            f" at step {good.step} it was {good.loss:.4g};"
            f" {f'the last good checkpoint is {saved[-1]}' if saved else 'no checkpoint from before is left'}."
            " Replaced token detection that continues at its original peak learning rate is known to diverge"
            f" (XY-LENT, Limitations). Train again in a new folder. Set lr={self.lr / 5:.3g}, a fifth."
        )

    def state_dict(self) -> dict[str, Any]:
        """Return the state for a checkpoint: a resumed run ends at the same step."""
        return {term: asdict(row) for term, row in self.last_good.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state of a checkpoint."""
        self.last_good = {term: _LastGoodRow(**row) for term, row in state.items()}


def guessing_loss(replaced: float) -> float:
    """Return the mean loss, in nats, of always predicting the fraction of replaced tokens."""
    return -(replaced * math.log(replaced) + (1 - replaced) * math.log(1 - replaced))


class CollapseMonitor:
    """Warns of a network that learns nothing, or no longer, from the rows of metrics."""

    def __init__(
        self, loss_weights: Mapping[str, float], warmup: int, token_frequency: Callable[[str], float | None]
    ) -> None:
        """Create a monitor.

        Args:
            loss_weights: Weight of each loss term. Terms of weight 0 are not checked.
            warmup: Steps before the first check.
            token_frequency: Returns the frequency of the most frequent token among the targets of a term, or None if
                it predicts no tokens. Called late, and once per term.
        """
        self.terms = [term for term, weight in loss_weights.items() if weight]
        self.warmup, self.token_frequency = warmup, cache(token_frequency)
        self.best_bounds: dict[str, float] = {}
        self.learned: list[str] = []  # discriminators that were better than guessing
        self.signs: dict[str, list[int]] = {}  # first step of each sign, and the number of rows since
        self.warned: list[str] = []
        self.has_diverged = False  # in the last row

    def check(self, row: Mapping[str, float], *, is_last: bool = False) -> None:
        """Read one row of metrics, and warn of signs that last, or that end the run."""
        step = int(row["step"])
        terms = [term for term in self.terms if term in row]
        self.has_diverged = bool(self.terms) and not terms  # every step was skipped
        if is_last and self.has_diverged:
            self._warn("skipped", step, f"the last steps were all skipped for their gradients. {_LOWER_LR}")
        for term in (*terms, "loss"):
            if not math.isfinite(row.get(term, 0.0)):
                self.has_diverged = True
                self._warn(f"{term} finite", step, f"{term} is {row[term]}. {_LOWER_LR}")
        for term in terms:
            found = {f"{term} {sign}": message for sign, message in self._find_signs(term, row, step)}
            for sign in [sign for sign in self.signs if sign.startswith(f"{term} ") and sign not in found]:
                del self.signs[sign]
            for sign, message in found.items():
                history = self.signs.setdefault(sign, [step, 0])
                history[1] += 1
                lasts = history[1] >= ROWS and step - history[0] >= STEPS
                if sign == f"{term} diverged":
                    is_settled = history[1] >= ROWS or step > self.warmup
                    lasts |= is_last and is_settled and row[term] > MAX_LAST_RATIO * (_chance_loss(term, row) or 0.0)
                    self.has_diverged |= lasts
                if lasts:
                    self._warn(sign, step, message)

    def _warn(self, sign: str, step: int, message: str) -> None:
        if sign not in self.warned:
            self.warned.append(sign)
            warnings.warn(f"step {step}: {message}", stacklevel=3)

    def _find_signs(self, term: str, row: Mapping[str, float], step: int) -> Iterator[tuple[str, str]]:
        """Yield the signs in a row, each with its message."""
        yield from self._check_divergence(term, row)
        if step <= self.warmup:
            return
        if f"{term}_bound" in row:
            yield from self._check_bound(term, row[f"{term}_bound"])
            if step > self.warmup + CHANCE_STEPS:
                yield from self._check_chance(term, row)
        if row.get(f"{term}_replaced", 1.0) < 1:
            yield from self._check_discriminator(term, row[term], row[f"{term}_replaced"])

    def _check_divergence(self, term: str, row: Mapping[str, float]) -> Iterator[tuple[str, str]]:
        chance = _chance_loss(term, row)
        if chance is not None and row[term] > MAX_CHANCE_RATIO * chance:
            yield (
                "diverged",
                f"{term} has diverged or not started to learn. Its loss is {row[term]:.4g}, guessing costs"
                f" {chance:.4g}. {_LOWER_LR}",
            )

    def _check_bound(self, term: str, bound: float) -> Iterator[tuple[str, str]]:
        best = self.best_bounds[term] = max(bound, self.best_bounds.get(term, bound))
        if best >= MIN_BEST_BOUND and bound < LOST_BOUND * best:
            yield (
                "lost",
                f"{term} has lost more than half of what it had learned: {bound:.2f} nats, at best {best:.2f}. It may"
                " have diverged. Start again with a lower lr, a longer optimizer.warmup or a lower optimizer.clip.",
            )

    def _check_chance(self, term: str, row: Mapping[str, float]) -> Iterator[tuple[str, str]]:
        frequency, bound, accuracy = self.token_frequency(term), row[f"{term}_bound"], row[f"{term}_accuracy"]
        max_bound = row[term] + bound  # log |N|
        if frequency is None and bound < MIN_BOUND * max_bound:
            yield (
                "chance",
                f"{term} does not distinguish translations from other sentences. Its bound on mutual information is"
                f" {bound:.2f} nats, by chance 0, at most {max_bound:.2f}. All keys may be alike. Try a lower lr, or"
                f" {term}.normalize=true with {term}.temperature=0.05 and {term}.pooling=mean.",
            )
        if frequency is not None and accuracy < CHANCE_RATIO * frequency:
            yield (
                "chance",
                f"{term} has learned nothing from context. Its accuracy is {accuracy:.1%}, that of the most frequent"
                f" token {frequency:.1%}. Try a lower lr or a longer optimizer.warmup.",
            )

    def _check_discriminator(self, term: str, loss: float, replaced: float) -> Iterator[tuple[str, str]]:
        if replaced < MIN_REPLACED:
            yield (
                "copies",
                f"the generator of {term} is nearly always correct: only {replaced:.2%} of the tokens are replaced,"
                f" which leaves little to detect. Try fewer model.generator_layers or a higher"
                f" masking rate, {term}.rate.",
            )
            return
        guessing = guessing_loss(replaced)
        if loss < LEARNED * guessing and term not in self.learned:
            self.learned.append(term)
        elif loss >= LOST * guessing and term in self.learned:
            yield (
                "guessing",
                f"{term} is back to guessing which tokens are replaced: its loss is {loss:.4g}, the best constant"
                f" answer costs {guessing:.4g}. If that lasts, start again with a lower lr or fewer"
                " model.generator_layers.",
            )

    def state_dict(self) -> dict[str, Any]:
        """Return the state for a checkpoint: a resumed run repeats no warning."""
        state = {"best_bounds": self.best_bounds, "learned": self.learned, "signs": self.signs, "warned": self.warned}
        return state | {"has_diverged": self.has_diverged}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state of a checkpoint."""
        self.best_bounds, self.learned = {**state["best_bounds"]}, [*state["learned"]]
        self.signs = {sign: [*history] for sign, history in state["signs"].items()}
        self.warned = [*state["warned"]]
        self.has_diverged = state.get("has_diverged", False)  # absent in checkpoints of version 0.1


def _chance_loss(term: str, row: Mapping[str, float]) -> float | None:
    """Return the loss of equal scores for all answers. None for a term that chooses among no answers."""
    if f"{term}_bound" in row:
        return row[term] + row[f"{term}_bound"]  # log |V| or log |N|
    return math.log(2) if f"{term}_replaced" in row else None


def most_frequent_token_share(batches: Iterable[Batch]) -> float | None:
    """Return the frequency of the most frequent token among the targets. None if the batches have no targets."""
    targets = torch.zeros(0, dtype=torch.long)
    for batch in batches:
        positions = [values for key, values in batch.items() if key.endswith("masked_at")]
        targets = torch.cat([targets, *(gather_targets(batch["targets"], position_M) for position_M in positions)])
        targets = targets[targets != IGNORE_INDEX]
        if not positions or len(targets) >= FREQUENCY_SAMPLE:
            break
    return float(targets.bincount().max() / len(targets)) if len(targets) else None
