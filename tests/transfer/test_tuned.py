from __future__ import annotations

from typing import Any

import pytest
import torch

from crossling.benchmarks.examples import Classified
from crossling.transfer import tuned
from crossling.transfer.family import Form
from crossling.transfer.heads import with_head
from crossling.transfer.tuned import Tuned

from .toys import make_model, make_tokenizer

FORM = Form("classification", ("no", "yes", "maybe"), length=16)
PAIRS = [("red", "the dog runs"), ("the old cat sleeps", "blue"), ("what", "the red bird sings"), ("dog", "cat")]


@pytest.mark.parametrize(("kind", "typed"), [("bert", True), ("xlmr", False), ("crossling", False)])
@pytest.mark.parametrize("budget", [1, 20, 16_384])
def test_models_that_tell_two_texts_apart_are_told_which_is_which(
    kind: str, typed: bool, budget: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = make_tokenizer()
    model = with_head(make_model(kind), FORM, "tiny", seed=1)
    shown: list[dict[str, Any]] = []
    model.register_forward_pre_hook(lambda _, __, given: shown.append(given), with_kwargs=True)  # type: ignore[arg-type]
    monkeypatch.setattr(tuned, "TOKENS_PER_BATCH", budget)
    said = Tuned(model, tokenizer, FORM).predict([Classified(str(row), pair, None) for row, pair in enumerate(PAIRS)])
    assert all(("token_type_ids" in given) == typed for given in shown)
    read = [(ids, types) for given in shown for ids, types in _rows(given)]
    alone = [tokenizer(*pair, return_token_type_ids=True) for pair in PAIRS]
    theirs = [(each["input_ids"], each["token_type_ids"] if typed else None) for each in alone]
    assert sorted(read) == sorted(theirs)
    assert all(not typed or 1 in types for _, types in read)
    for pair, label in zip(PAIRS, said, strict=True):
        given = tokenizer(*pair, return_tensors="pt", return_token_type_ids=typed)
        with torch.no_grad():
            assert label == FORM.labels[int(model(**given).logits.argmax())]


def _rows(given: dict[str, Any]) -> list[tuple[list[int], list[int] | None]]:
    """Ids and types without padding."""
    seen = given["attention_mask"] == 1
    ids, types = given["input_ids"], given.get("token_type_ids")
    return [
        (ids[row][seen[row]].tolist(), None if types is None else types[row][seen[row]].tolist())
        for row in range(len(ids))
    ]
