"""Choose the settings of an adaptation from what there is: the model, the text, the device and the time."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain

from crossling.adapt.adapt_request import AdaptRequest
from crossling.adapt.adapt_settings import AdaptSettings, Choices
from crossling.adapt.model_facts import ModelFacts
from crossling.adapt.prepare_text import PreparedText
from crossling.adapt.streams import SAMPLE_LINES, Streams, measure_streams
from crossling.core.errors import BadInput
from crossling.corpora.corpus import Corpora
from crossling.corpora.languages import parse_pair
from crossling.data.batches import LENGTH_MULTIPLE
from crossling.vocabulary.build_vocabulary import describe_languages

PIVOT = "en"
GOOD_COVERAGE, GOOD_FERTILITY = 0.99, 2.2  # part of known tokens, and tokens per word
WORDS_PER_ENTRY = 25  # of the new text, at least, for each new vocabulary entry
MAX_ENTRIES, MAX_ENTRY_PART, MIN_ENTRIES = 8000, 0.25, 100
MAX_EPOCHS, MAX_STEPS = 10.0, 20_000
STEPS_PER_EPOCH = 20  # at least, if the batch can be so small
WARMUP = 0.1
# Learning rates to continue training, by width up to which they apply.
ADAM_LR = {512: 2e-4, 800: 5e-5, 1 << 30: 2e-5}
MUON_LR = 1e-3
LORA_LR_FACTOR = 10


def choose_settings(
    request: AdaptRequest, given: Mapping[str, str], facts: ModelFacts, new: PreparedText, replay: PreparedText | None
) -> tuple[Choices, Streams]:
    """Return all choices but the number of steps that a time limit allows, each with its reason, and the streams.

    Raises:
        BadInput: A value of the user is not valid.
    """
    choices = Choices(dict(given))
    focus = _choose_focus(choices, new)
    choices.choose("architecture", "native" if facts.is_native else "crossling", facts.reason)
    choices.given.pop("architecture", None)  # the model was loaded accordingly
    _choose_lora(choices, request, facts)
    _choose_entries(choices, facts, new, focus)
    objectives = _choose_objectives(choices, facts, new, replay, focus)
    choices.choose("replay", 0.3 if replay else 0.0, _replay_reason(replay, objectives))
    streams = measure_streams(
        facts.vocabulary,
        new,
        focus,
        is_extended=bool(choices.values["entries"]),
        replay=replay,
        replayed=float(str(choices.values["replay"])),
    )
    _choose_length(choices, facts, new, focus)
    _choose_batch(choices, facts, streams, objectives)
    _choose_optimizer(choices, facts)
    _choose_steps(choices, streams, objectives)
    _limit_passes(choices, streams)
    return choices, streams


def _choose_focus(choices: Choices, new: PreparedText) -> list[str]:
    languages = new.languages
    counts = Counter(code for pair in new.pairs for code in parse_pair(pair))
    common = [code for code, count in counts.items() if count == len(new.pairs) > 1]
    pivot = common[:1] or [code for code in counts if code == PIVOT and len(new.pairs) == 1]
    focus = [
        code for code in languages if code not in pivot or (code in new.lines and len(languages) == 1)
    ] or languages
    reason = (
        f"the languages of the files but {pivot[0]}, the other side of the pairs" if pivot else "those of the files"
    )
    choices.choose("focus", ",".join(focus), reason)
    chosen = str(choices.values["focus"]).split(",")
    for language in chosen:
        if language not in languages:
            raise BadInput(f"focus={','.join(chosen)}: no text in {language}, only in {', '.join(languages)}.")
    return chosen


def _choose_lora(choices: Choices, request: AdaptRequest, facts: ModelFacts) -> None:
    if request.lora and not facts.is_native:
        raise BadInput(
            f"lora={request.lora}: {facts.name} is trained in crossling's architecture, which has no LoRA."
            " Omit lora, or set architecture=native for a Hugging Face model."
        )
    reason = "as requested; other weights but new embeddings and heads are frozen" if request.lora else "not requested"
    choices.choose("lora", request.lora or 0, reason)


def focus_lines(new: PreparedText, focus: Sequence[str], limit: int = SAMPLE_LINES) -> dict[str, list[str]]:
    """Return the first training lines of each language in focus, from text and pairs."""
    lines: dict[str, list[str]] = {language: [] for language in focus}
    corpora = Corpora(new.train)
    for text in corpora.text:
        if text.language in lines:
            lines[text.language] += (line for _, line in zip(range(limit), filter(None, text.lines()), strict=False))
    for pairs in corpora.pairs:
        for side, language in enumerate(pairs.languages):
            if language in lines:
                lines[language] += (row[side] for _, row in zip(range(limit), pairs.rows(), strict=False))
    for multi in corpora.multi:
        for language in set(multi.languages) & lines.keys():
            lines[language] += (
                line for _, line in zip(range(limit), filter(None, multi.lines(language)), strict=False)
            )
    return lines


def _choose_entries(choices: Choices, facts: ModelFacts, new: PreparedText, focus: Sequence[str]) -> None:
    lines = focus_lines(new, focus, limit=1 << 40)
    described = describe_languages(facts.vocabulary, {code: each[:SAMPLE_LINES] for code, each in lines.items()})
    words = sum(len(line.split()) for line in chain.from_iterable(lines.values()))
    coverage = min(row["coverage"] for row in described.values())
    fertility = max(row["fertility"] for row in described.values())
    now = f"now {fertility:.2f} tokens per word, {coverage:.1%} known"
    if not facts.can_extend:
        choices.choose("entries", 0, f"its tokenizer is not a unigram vocabulary, so it is kept ({now})")
        if choices.values["entries"]:
            raise BadInput(
                f"entries={choices.values['entries']}: {facts.name} has another tokenizer than unigram, which"
                " cannot be extended. Omit it."
            )
        return
    if coverage >= GOOD_COVERAGE and fertility <= GOOD_FERTILITY:
        choices.choose("entries", 0, f"{now}: good enough")
        return
    number = min(MAX_ENTRIES, words // WORDS_PER_ENTRY, int(MAX_ENTRY_PART * facts.vocabulary.size)) // 100 * 100
    if number < MIN_ENTRIES:
        choices.choose("entries", 0, f"{now}, but {words:,} words are too few to learn new embeddings")
        return
    choices.choose("entries", number, f"{now}; one entry for {WORDS_PER_ENTRY} words of text or more")


def _choose_objectives(
    choices: Choices, facts: ModelFacts, new: PreparedText, replay: PreparedText | None, focus: Sequence[str]
) -> list[str]:
    has_pairs = any(count for pair, count in new.pairs.items() if {*parse_pair(pair)} & {*focus})
    has_text = any(new.lines.get(code) for code in focus)
    objectives, reasons = [], []
    if has_text and (facts.has_lm_head or not has_pairs):
        objectives.append("mlm")
        reasons.append("MLM for the text")
    if has_pairs and facts.has_lm_head:
        objectives.append("tlm")
    if has_pairs:
        objectives.append("xlco")
        reasons.append("contrastive learning" + (" and TLM" if facts.has_lm_head else "") + " for the pairs")
    if not facts.has_lm_head and has_pairs:
        reasons.append("no MLM, since the model has no language model head")
    if replay is None and PIVOT not in focus:
        objectives.append("distillation")
        reasons.append("self-distillation on the shipped sample against forgetting")
    elif replay is None:
        reasons.append("no self-distillation, since English is a language to learn")
    choices.choose("objectives", ",".join(objectives), "; ".join(reasons))
    chosen = str(choices.values["objectives"]).split(",")
    needs = {"tlm": has_pairs, "xlco": has_pairs, "mlm": has_text}
    for name, is_there in needs.items():
        if name in chosen and not is_there:
            raise BadInput(
                f"objectives={','.join(chosen)}: {name} needs {'text' if name == 'mlm' else 'pairs'} of"
                f" {', '.join(focus)}, and there is none. Omit it."
            )
    return chosen


def _replay_reason(replay: PreparedText | None, objectives: Sequence[str]) -> str:
    if replay is not None:
        return "of all examples are of the languages to keep, as named"
    return (
        "the shipped sample is distilled, not learned" if "distillation" in objectives else "no text to keep is named"
    )


def _choose_length(choices: Choices, facts: ModelFacts, new: PreparedText, focus: Sequence[str]) -> None:
    sample = facts.vocabulary.encode(list(chain.from_iterable(focus_lines(new, focus, 500).values())))
    lengths = sorted(map(len, sample)) or [LENGTH_MULTIPLE]
    usual = lengths[int(0.99 * (len(lengths) - 1))]
    wanted = max(64, 2 * usual + 3)
    length = min(wanted, 256, facts.max_length) // LENGTH_MULTIPLE * LENGTH_MULTIPLE
    choices.choose(
        "length", length, f"99% of the sentences have up to {usual} tokens, the model reads {facts.max_length:,}"
    )


def _choose_batch(choices: Choices, facts: ModelFacts, streams: Streams, objectives: Sequence[str]) -> None:
    limit = 64 if facts.device == "cpu" else 512
    pairs = max(8, min(limit, 2 ** int(math.log2(max(8, streams.pairs / STEPS_PER_EPOCH)))))
    choices.choose("pairs", pairs, f"a batch for {facts.device}, and at least {STEPS_PER_EPOCH} steps an epoch")
    tokens = 2048 if facts.device == "cpu" else 32_768
    reason = f"a batch for {facts.device}"
    small = max(_number(choices, "length"), int(streams.text_tokens / STEPS_PER_EPOCH))
    if not {"xlco", "tlm"} & {*objectives} and small < tokens:
        tokens, reason = small, f"{STEPS_PER_EPOCH} steps an epoch, or one block of text in a step"
    choices.choose("tokens", tokens, reason)
    is_given = "tokens" in choices.given and "tlm_tokens" not in choices.given
    choices.choose("tlm_tokens", choices.values["tokens"], "as `tokens`" if is_given else reason)


def _number(choices: Choices, name: str) -> int:
    return int(str(choices.values[name]))


def _choose_optimizer(choices: Choices, facts: ModelFacts) -> None:
    is_muon = not facts.is_native and facts.width <= 512
    matrices = "muon" if is_muon else "adam"
    choices.choose("matrices", matrices, "as small models were pre-trained" if is_muon else "as the family was")
    if choices.values["matrices"] == "muon":
        choices.choose("lr", MUON_LR, "a third of that from scratch, for Muon")
        return
    lr = next(lr for width, lr in ADAM_LR.items() if facts.width <= width)
    factor = LORA_LR_FACTOR if choices.values["lora"] else 1
    reason = f"to continue a model of width {facts.width}" + (", ten times for LoRA" if factor > 1 else "")
    choices.choose("lr", factor * lr, reason)


def _choose_steps(choices: Choices, streams: Streams, objectives: Sequence[str]) -> None:
    if {"xlco", "tlm"} & {*objectives}:
        per_epoch = streams.pairs / _number(choices, "pairs")
    else:
        per_epoch = streams.text_tokens / _number(choices, "tokens")
    per_epoch = max(per_epoch, 1 / MAX_EPOCHS)  # without new text, or with a batch that is larger than it
    choices.choose("epochs", MAX_EPOCHS, "enough for a small corpus; more overfits")
    epochs = float(str(choices.values["epochs"]))
    steps = max(1, min(MAX_STEPS, round(epochs * per_epoch)))
    bound = f", at most {MAX_STEPS:,}" if steps == MAX_STEPS else ""
    choices.choose("steps", steps, f"{epochs:g} epochs of {per_epoch:,.3g} steps{bound}")
    if "steps" in choices.given:
        choices.values["epochs"], choices.reasons["epochs"] = (
            round(_number(choices, "steps") / per_epoch, 2),
            "from the steps",
        )


def _limit_passes(choices: Choices, streams: Streams) -> None:
    """Lower the tokens of MLM and TLM, so that neither reads its text more often than the limit, or drop it."""
    epochs = float(str(choices.values["epochs"])) if "steps" not in choices.given else MAX_EPOCHS
    steps = _number(choices, "steps")
    one_pair = streams.pair_tokens / max(1.0, streams.pairs)
    for name, key, whole, least in (
        ("mlm", "tokens", streams.text_tokens, min(_number(choices, "length"), streams.text_tokens)),
        ("tlm", "tlm_tokens", streams.pair_tokens, one_pair),
    ):
        objectives = str(choices.values["objectives"]).split(",")
        allowed = int(epochs * whole / steps)
        if name not in objectives or {key, "tokens"} & {*choices.given} or _number(choices, key) <= allowed:
            continue
        if allowed >= least or len(objectives) == 1 or "objectives" in choices.given:
            choices.choose(
                key, max(1, allowed, math.ceil(least)), f"so that {whole:,.0f} tokens are read {epochs:g} times"
            )
            continue
        kept = ",".join(each for each in objectives if each != name)
        reason = f"no {name.upper()}, since {steps:,} steps would read its {whole:,.0f} tokens over {epochs:g} times"
        choices.choose("objectives", kept, f"{choices.reasons['objectives']}; {reason}")


def limit_steps(settings: AdaptSettings, seconds_per_step: float, minutes: float) -> int:
    """Return the steps that fit into a time, at least one."""
    return max(1, min(settings.steps, int(60 * minutes / seconds_per_step)))
