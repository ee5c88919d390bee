from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from crossling.core.errors import BadInput
from crossling.inference.align_file import align, read_sentence_pairs
from crossling.inference.encode_file import encode_file
from crossling.inference.mining import mine
from crossling.inference.sentence_encoder import Encoder

Write = Callable[[Path, str], Path]


def test_align_gives_the_links_of_every_line(tmp_path: Path, write: Write, encoder: Encoder) -> None:
    file = write(tmp_path / "pairs", "the house ||| house the\na b ||| c\n")
    for method in ("ot", "argmax", "itermax"):
        expected = [encoder.align(*pair, layer=1, method=method) for pair in (("the house", "house the"), ("a b", "c"))]
        for path in (file, str(file)):
            assert list(align(encoder, path, layer=1, method=method)) == expected
    assert list(align(encoder, file)) == list(align(encoder, file, layer=encoder.universal_layer, method="ot"))
    with pytest.raises(BadInput, match="layer 7 does not exist"):
        align(encoder, file, layer=7)
    with pytest.raises(BadInput, match="line 2: longer than the 64 tokens"):
        list(align(encoder, write(tmp_path / "long", "a ||| b\n" + "a " * 70 + "||| b\n")))


def test_a_model_may_be_given_by_name(
    tmp_path: Path, write: Write, encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crossling.inference.load.load", {"runs/xlm_e": encoder}.get)
    file = write(tmp_path / "lines", "the house ||| house the\n")
    assert list(align("runs/xlm_e", file)) == list(align(encoder, file))
    vectors = [np.load(encode_file(model, file, tmp_path / "v.npy")) for model in ("runs/xlm_e", encoder)]
    np.testing.assert_array_equal(*vectors)
    assert list(mine("runs/xlm_e", file, file)) == list(mine(encoder, file, file))


def test_sentence_pairs_are_read(tmp_path: Path, write: Write) -> None:
    assert read_sentence_pairs(write(tmp_path / "pairs", "a b ||| c\nd ||| e f")) == [("a b", "c"), ("d", "e f")]
    with pytest.raises(BadInput, match="line 1: expected `source"):
        read_sentence_pairs(write(tmp_path / "pairs", "a b ||| "))
    with pytest.raises(BadInput, match="no such file"):
        read_sentence_pairs(Path())
