"""Mining data: two texts with few pairs of translations at random positions."""

from __future__ import annotations

from crossling.synthetic import frames

from .task_folder import CODES, TaskFolder


def test_most_sentences_have_no_translation(tasks: TaskFolder) -> None:
    for code in CODES[1:]:
        pair = f"{code}-qaa"
        for split, examples in (("dev", 48), ("test", 360)):
            other, pivot, gold = tasks.side(pair, split, code), tasks.side(pair, split, "qaa"), tasks.gold(pair, split)
            assert len(other) == len(pivot) == 4 * examples == 8 * len(gold)
            assert {source for source, _ in gold} <= other.keys()
            assert {target for _, target in gold} <= pivot.keys()
            assert len({source for source, _ in gold}) == len({target for _, target in gold}) == len(gold)
            assert not any(letter.isdigit() for sentence in (*other.values(), *pivot.values()) for letter in sentence)


def test_gold_pairs_have_equal_frames(tasks: TaskFolder) -> None:
    known_frames = list(frames(tasks.folder, "bucc2018/dev"))
    assert len({frame.key() for frame in known_frames}) == len(known_frames)
    golds = [[(one[4:], other) for one, other in tasks.gold(f"{code}-qaa", "dev")] for code in CODES[1:]]
    assert all(gold == golds[0] for gold in golds), (
        "all languages but the pivot have the same sentences in the same order"
    )
    assert len(known_frames) == 2 * 4 * 48 - len(golds[0])


def test_positions_do_not_predict_gold_pairs(tasks: TaskFolder) -> None:
    positions = [tuple(int(one[4:]) for one in row) for row in tasks.gold("qab-qaa", "test")]
    closer = sum(abs(one - other) < 200 for one, other in positions) / len(positions)
    assert closer < 0.4  # 0.26 by chance
