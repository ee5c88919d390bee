from __future__ import annotations

import gzip
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from crossling.errors import BadInput
from crossling.evaluate import embedding
from crossling.evaluate.embedding import embed, read_vectors
from crossling.evaluate.encode import Encoder
from crossling.evaluate.sentences import Sentences

Write = Callable[[Path, str], Path]
LINES = ["the white house", "a", "zebra\u2028quilt", "a b c d e f g", "the white house", "über ß"]


@pytest.fixture
def file(tmp_path: Path, write: Write) -> Path:
    return write(tmp_path / "in" / "text.txt", "\n".join(LINES))


def stop_after(monkeypatch: pytest.MonkeyPatch, calls: int) -> list[list[str]]:
    """Interrupts the work before this many windows are done, and tells what was asked."""
    seen: list[list[str]] = []
    plain = Encoder.embed

    def embed_some(self: Encoder, sentences: Sequence[str], layer: int | None, pooling: str) -> np.ndarray:
        if len(seen) == calls:
            raise KeyboardInterrupt
        seen.append(list(sentences))
        return plain(self, sentences, layer, pooling)

    monkeypatch.setattr(Encoder, "embed", embed_some)
    return seen


@pytest.mark.parametrize("window", [2, 100])
def test_rows_are_the_vectors_of_the_lines(
    tmp_path: Path, file: Path, encoder: Encoder, window: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedding, "WINDOW", window)
    written = embed(encoder, file, tmp_path / "out" / "x.npy", layer=1, pooling="cls")
    found = np.load(written)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, encoder.embed(LINES, 1, "cls"), atol=1e-5)
    assert [path.name for path in written.parent.iterdir()] == ["x.npy"]
    half = np.load(embed(encoder, file, tmp_path / "half.npy", half=True))
    assert half.dtype == np.float16
    np.testing.assert_allclose(half, encoder.embed(LINES), atol=2e-3)


def test_what_was_stopped_is_gone_on_with(
    tmp_path: Path, file: Path, encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedding, "WINDOW", 2)
    out = tmp_path / "x.npy"
    with monkeypatch.context() as patch:
        stop_after(patch, 2)
        with pytest.raises(KeyboardInterrupt):
            embed(encoder, file, out)
    assert not out.exists()
    with monkeypatch.context() as patch:
        seen = stop_after(patch, 9)
        embed(encoder, file, out)
    assert seen == [LINES[4:]]
    np.testing.assert_allclose(np.load(out), encoder.embed(LINES), atol=1e-5)
    assert [path.name for path in tmp_path.glob(".*")] == []


@pytest.mark.parametrize("change", ["layer", "weights", "text", "precision"])
def test_other_work_begins_anew(
    tmp_path: Path, file: Path, encoder: Encoder, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedding, "WINDOW", 2)
    out = tmp_path / "x.npy"
    with monkeypatch.context() as patch:
        stop_after(patch, 2)
        with pytest.raises(KeyboardInterrupt):
            embed(encoder, file, out, layer=2)
    lines, layer, half = list(LINES), 2, change == "precision"
    if change == "layer":
        layer = 1
    elif change == "weights":
        encoder.model.embeddings.LayerNorm.weight.data *= 2
    elif change == "text":
        lines[0] = "another"
        file.write_text("\n".join(lines), encoding="utf-8")
    embed(encoder, file, out, layer=layer, half=half)
    np.testing.assert_allclose(np.load(out), encoder.embed(lines, layer), atol=2e-2 if half else 1e-5)


def test_sentences_are_read_from_disk(tmp_path: Path, file: Path) -> None:
    found = Sentences(file)
    assert len(found) == 6
    assert [found[row] for row in range(6)] == LINES
    assert found.read(1, 4) == LINES[1:4]
    assert list(found.windows(4, 1)) == [(1, LINES[1:5]), (5, LINES[5:])]
    assert found.distinct().tolist() == [0, 1, 2, 3, 5]
    packed = tmp_path / "text.txt.gz"
    packed.write_bytes(gzip.compress(file.read_bytes()))
    assert Sentences(packed).digest() == found.digest()
    file.write_text("\n".join(LINES[::-1]), encoding="utf-8")
    assert Sentences(file).digest() != found.digest()


def test_bad_input(tmp_path: Path, file: Path, write: Write, encoder: Encoder) -> None:
    with pytest.raises(BadInput, match="give a name that ends so"):
        embed(encoder, file, tmp_path / "x.txt")
    (tmp_path / "folder.npy").mkdir()
    with pytest.raises(BadInput, match="this is a folder"):
        embed(encoder, file, tmp_path / "folder.npy")
    with pytest.raises(BadInput, match="layer 4 does not exist"):
        embed(encoder, file, tmp_path / "x.npy", layer=4)
    with pytest.raises(BadInput, match="pooling 'man'"):
        embed(encoder, file, tmp_path / "x.npy", pooling="man")
    with pytest.raises(BadInput, match="no such file"):
        embed(encoder, tmp_path / "nowhere", tmp_path / "x.npy")
    with pytest.raises(BadInput, match=r"text\.txt: line 2 is empty"):
        embed(encoder, write(tmp_path / "text.txt", "a\n \nb\n"), tmp_path / "x.npy")
    with pytest.raises(BadInput, match=r"text\.txt: the file is empty"):
        embed(encoder, write(tmp_path / "text.txt", ""), tmp_path / "x.npy")
    (tmp_path / "text.txt").write_bytes(b"a\n\xff\n")
    with pytest.raises(BadInput, match=r"line 2 cannot be read \(malformed utf-8\)"):
        embed(encoder, tmp_path / "text.txt", tmp_path / "x.npy")
    np.save(tmp_path / "y.npy", np.zeros(3, dtype=np.float32))
    with pytest.raises(BadInput, match=r"expected an array \[sentences, width\]"):
        read_vectors(tmp_path / "y.npy")
    assert not (tmp_path / "x.npy").exists()
