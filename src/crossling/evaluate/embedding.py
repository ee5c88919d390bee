"""Files of sentences to files of vectors, in bounded memory; what was begun is gone on with."""
# N sentences, D width

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from crossling.disk import write_json
from crossling.errors import BadInput
from crossling.evaluate.asked import check_pooling
from crossling.evaluate.encode import Encoder
from crossling.evaluate.sentences import Sentences
from crossling.progress import Progress
from crossling.transfer.cuts import gathered

WINDOW = 32_768  # sentences tokenised and sorted by length together; also how often the work so far is made safe


def embed(
    encoder: Encoder,
    file: Path | str,
    out: Path | str,
    *,
    layer: int | None = None,
    pooling: str = "mean",
    half: bool = False,  # float16: half the room
) -> Path:
    """Writes the vectors of a file of sentences, row i of line i, as `out`.npy [N, D]; one that was stopped before is
    gone on with."""
    out = _npy(Path(out))
    chosen = encoder.layer(layer)
    check_pooling(pooling)
    sentences = Sentences(Path(file))
    return write_vectors(encoder, sentences, out, chosen, pooling, np.float16 if half else np.float32)


def write_vectors(
    encoder: Encoder, sentences: Sentences, out: Path, layer: int, pooling: str, dtype: type[np.floating]
) -> Path:
    work = _Work(
        out,
        {
            "model": encoder.fingerprint(),
            "text": sentences.digest(),
            "sentences": len(sentences),
            "width": encoder.width,
            "dtype": np.dtype(dtype).name,
            "layer": layer,
            "pooling": pooling,
        },
    )
    done = work.done()
    vectors_ND = work.vectors() if done else work.begin((len(sentences), encoder.width), np.dtype(dtype))
    name = sentences.file.name
    with gathered(name), Progress(f"embed {name}", len(sentences), done) as progress:
        for start, window in sentences.windows(WINDOW, done):
            vectors_ND[start : start + len(window)] = encoder.embed(window, layer, pooling)
            work.keep(vectors_ND, start + len(window))
            progress.update(start + len(window), "sentences")
    work.finish()
    return out


def read_vectors(path: Path) -> np.ndarray:
    """Mapped from disk, [N, D]."""
    try:
        found = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError):
        raise BadInput(f"{path}: no .npy file of vectors; write it with crossling embed") from None
    if not isinstance(found, np.ndarray) or found.ndim != 2 or found.dtype not in (np.float16, np.float32):
        raise BadInput(f"{path}: expected an array [sentences, width] of float16 or float32; write it again")
    return found


class _Work:
    """Vectors in the making, beside where they will be: the array, and how far it is right and for what."""

    def __init__(self, out: Path, what: dict[str, object]) -> None:
        self.out, self.what = out, what
        self.array = out.with_name(f".{out.name}.part")
        self.state = out.with_name(f".{out.name}.json")

    def done(self) -> int:
        """Sentences whose vectors are there already."""
        try:
            state = json.loads(self.state.read_text(encoding="utf-8"))
            return int(state["done"]) if state["what"] == self.what and self.array.is_file() else 0
        except (OSError, ValueError, KeyError, TypeError):
            return 0

    def vectors(self) -> np.memmap:
        return np.lib.format.open_memmap(self.array, mode="r+")

    def begin(self, shape: tuple[int, int], dtype: np.dtype) -> np.memmap:
        self.out.parent.mkdir(parents=True, exist_ok=True)
        self.state.unlink(missing_ok=True)
        return np.lib.format.open_memmap(self.array, mode="w+", dtype=dtype, shape=shape)

    def keep(self, vectors_ND: np.memmap, done: int) -> None:
        vectors_ND.flush()
        write_json(self.state, {"what": self.what, "done": done})

    def finish(self) -> None:
        self.array.replace(self.out)
        self.state.unlink(missing_ok=True)


def _npy(out: Path) -> Path:
    if out.suffix != ".npy":
        raise BadInput(f"{out}: vectors are written as .npy; give a name that ends so")
    if out.is_dir():
        raise BadInput(f"{out}: this is a folder; give a name for the file")
    return out
