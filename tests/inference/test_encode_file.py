from __future__ import annotations

import gzip
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crossling.core.errors import BadInput
from crossling.inference import encode_file as module
from crossling.inference.encode_file import SentenceFile, encode_file, read_vectors
from crossling.inference.sentence_encoder import Encoder

Write = Callable[[Path, str], Path]
LINES = ["the white house", "a", "zebra\u2028quilt", "a b c d e f g", "the white house", "über ß"]


@pytest.fixture
def file(tmp_path: Path, write: Write) -> Path:
    return write(tmp_path / "in" / "text.txt", "\n".join(LINES))


def stop_after(monkeypatch: pytest.MonkeyPatch, calls: int) -> list[list[str]]:
    """Interrupt the encoding after this many blocks, and return the blocks that were encoded."""
    blocks: list[list[str]] = []
    encode = Encoder.encode_layers

    def encode_some(self: Encoder, sentences: Sequence[str], *options: Any) -> np.ndarray:
        if len(blocks) == calls:
            raise KeyboardInterrupt
        blocks.append(list(sentences))
        return encode(self, sentences, *options)

    monkeypatch.setattr(Encoder, "encode_layers", encode_some)
    return blocks


@pytest.mark.parametrize("block", [2, 100])
def test_rows_are_the_vectors_of_the_lines(
    tmp_path: Path, file: Path, encoder: Encoder, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SENTENCES_PER_BLOCK", block)
    written = encode_file(encoder, str(file), tmp_path / "out" / "x.npy", layer=1, pooling="cls")
    found = np.load(written)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, encoder.encode(LINES, layer=1, pooling="cls"), atol=1e-5)
    assert [path.name for path in written.parent.iterdir()] == ["x.npy"]
    half = np.load(encode_file(encoder, file, tmp_path / "half.npy", half=True))
    assert half.dtype == np.float16
    np.testing.assert_allclose(half, encoder.encode(LINES), atol=2e-3)


def test_an_interrupted_file_is_resumed(
    tmp_path: Path, file: Path, encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SENTENCES_PER_BLOCK", 2)
    out = tmp_path / "x.npy"
    with monkeypatch.context() as patch:
        stop_after(patch, 2)
        with pytest.raises(KeyboardInterrupt):
            encode_file(encoder, file, out)
    assert not out.exists()
    with monkeypatch.context() as patch:
        blocks = stop_after(patch, 9)
        encode_file(encoder, file, out)
    assert blocks == [LINES[4:]]
    np.testing.assert_allclose(np.load(out), encoder.encode(LINES), atol=1e-5)
    assert [path.name for path in tmp_path.glob(".*")] == []


@pytest.mark.parametrize("change", ["layer", "weights", "text", "precision"])
def test_other_inputs_start_from_scratch(
    tmp_path: Path, file: Path, encoder: Encoder, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SENTENCES_PER_BLOCK", 2)
    out = tmp_path / "x.npy"
    with monkeypatch.context() as patch:
        stop_after(patch, 2)
        with pytest.raises(KeyboardInterrupt):
            encode_file(encoder, file, out, layer=2)
    lines, layer, half = list(LINES), 2, change == "precision"
    if change == "layer":
        layer = 1
    elif change == "weights":
        encoder.model.embeddings.LayerNorm.weight.data *= 2
    elif change == "text":
        lines[0] = "another"
        file.write_text("\n".join(lines), encoding="utf-8")
    encode_file(encoder, file, out, layer=layer, half=half)
    np.testing.assert_allclose(np.load(out), encoder.encode(lines, layer=layer), atol=2e-2 if half else 1e-5)


def test_sentence_file_reads_rows(tmp_path: Path, file: Path) -> None:
    found = SentenceFile(file)
    assert len(found) == 6
    assert [found[row] for row in range(6)] == LINES
    assert found.read(1, 4) == LINES[1:4]
    assert found.read(5, 9) == LINES[5:]
    assert found.distinct().tolist() == [0, 1, 2, 3, 5]
    packed = tmp_path / "text.txt.gz"
    packed.write_bytes(gzip.compress(file.read_bytes()))
    assert SentenceFile(packed).digest() == found.digest()
    file.write_text("\n".join(LINES[::-1]), encoding="utf-8")
    assert SentenceFile(file).digest() != found.digest()


def test_invalid_inputs_are_refused(tmp_path: Path, file: Path, write: Write, encoder: Encoder) -> None:
    with pytest.raises(BadInput, match="Give a file name with this suffix"):
        encode_file(encoder, file, tmp_path / "x.txt")
    (tmp_path / "folder.npy").mkdir()
    with pytest.raises(BadInput, match="this is a folder"):
        encode_file(encoder, file, tmp_path / "folder.npy")
    with pytest.raises(BadInput, match="layer 4 does not exist"):
        encode_file(encoder, file, tmp_path / "x.npy", layer=4)
    with pytest.raises(BadInput, match="pooling=man"):
        encode_file(encoder, file, tmp_path / "x.npy", pooling="man")
    with pytest.raises(BadInput, match="no such file"):
        encode_file(encoder, tmp_path / "nowhere", tmp_path / "x.npy")
    with pytest.raises(BadInput, match=r"text\.txt: line 2: empty"):
        encode_file(encoder, write(tmp_path / "text.txt", "a\n \nb\n"), tmp_path / "x.npy")
    with pytest.raises(BadInput, match=r"text\.txt: the file is empty"):
        encode_file(encoder, write(tmp_path / "text.txt", ""), tmp_path / "x.npy")
    (tmp_path / "text.txt").write_bytes(b"a\n\xff\n")
    with pytest.raises(BadInput, match=r"line 2: cannot be read \(malformed utf-8\)"):
        encode_file(encoder, tmp_path / "text.txt", tmp_path / "x.npy")
    np.save(tmp_path / "y.npy", np.zeros(3, dtype=np.float32))
    with pytest.raises(BadInput, match=r"expected an array \[sentences, width\]"):
        read_vectors(tmp_path / "y.npy")
    assert not (tmp_path / "x.npy").exists()
