"""Frames: keys of their content, and JSON."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from crossling.synthetic.documents import documents
from crossling.synthetic.frames import Frame
from crossling.synthetic.world import World


@pytest.fixture(scope="module")
def events() -> list[Frame]:
    return [frame for document in documents(World(400, seed=3), 3, "test", 600) for frame in document]


def test_key_ignores_grammar(events: list[Frame]) -> None:
    frame = events[0]
    inflected = replace(frame, tense="future", negated=not frame.negated, agent=replace(frame.agent, plural=True))
    assert inflected.key() == frame.key()
    assert replace(frame, verb="other").key() != frame.key()


def test_frames_survive_json(events: list[Frame]) -> None:
    assert any(frame.clause for frame in events)
    assert [Frame.from_json(json.loads(json.dumps(frame.to_json()))) for frame in events] == events
