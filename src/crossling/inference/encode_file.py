"""Write the vectors of a file of sentences, in bounded memory. An interrupted call resumes."""
# N sentences, D width

from __future__ import annotations

import os
import tempfile
from array import array
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import xxhash

from crossling.core.errors import BadInput
from crossling.core.locks import output_lock
from crossling.core.progress import Progress, count_truncations
from crossling.core.resumable import PartialOutput
from crossling.corpora.text_files import SkipReason, read_lines
from crossling.inference.pooling import check_pooling

if TYPE_CHECKING:
    from crossling.inference.sentence_encoder import Encoder


class SentenceFile:
    """The lines of a file, plain or compressed, each a sentence.

    The file is read and checked once, then kept on disk uncompressed. Memory holds 16 bytes per line: its start and its
    hash.
    """

    def __init__(self, file: Path) -> None:
        if not file.is_file():
            raise BadInput(f"{file}: no such file. Give a file with one sentence per line.")
        self.file = file
        self._text = tempfile.TemporaryFile()  # noqa: SIM115  open as long as the object exists
        starts, hashes = array("q", [0]), array("Q")
        for number, line in enumerate(read_lines(file), start=1):
            if isinstance(line, SkipReason):
                raise BadInput(f"{file}: line {number}: cannot be read ({line.value}). Fix or remove the line.")
            sentence = line.strip()
            if not sentence:
                raise BadInput(f"{file}: line {number}: empty, expected a sentence. Remove empty lines.")
            data = sentence.encode()
            self._text.write(data)
            starts.append(starts[-1] + len(data))
            hashes.append(xxhash.xxh3_64_intdigest(data))
        if not hashes:
            raise BadInput(f"{file}: the file is empty. Give a file with one sentence per line.")
        self._starts = np.frombuffer(starts, dtype=np.int64)
        self._hashes = np.frombuffer(hashes, dtype=np.uint64)

    def __len__(self) -> int:
        return len(self._hashes)

    def __getitem__(self, row: int) -> str:
        return self.read(row, row + 1)[0]

    def read(self, start: int, stop: int) -> list[str]:
        """Return the sentences of some rows. The last row may lie behind the end of the file."""
        starts = self._starts[start : stop + 1].tolist()
        self._text.seek(starts[0])
        data = self._text.read(starts[-1] - starts[0])
        return [data[a - starts[0] : b - starts[0]].decode() for a, b in pairwise(starts)]

    def distinct(self) -> np.ndarray:
        """Return the rows of distinct sentences in order: the first of equal ones.

        Sentences with the same 64-bit hash count as equal. Among ten million different sentences, two have the same
        hash with a probability of 1 in 400,000.
        """
        return np.sort(np.unique(self._hashes, return_index=True)[1])

    def digest(self) -> str:
        """Return a hash of all sentences."""
        return xxhash.xxh3_64_hexdigest(self._hashes.tobytes())


SENTENCES_PER_BLOCK = 32_768  # sorted by length together, and saved together


def encode_file(
    model: Encoder | str | os.PathLike[str],
    file: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    layer: int | None = None,
    pooling: str = "auto",
    half: bool = False,
) -> Path:
    """Write the sentence vectors of a file, row i for line i. An interrupted call resumes when it is repeated.

    The command is `crossling embed`, since `crossling encode` would read like the encoding of text as tokens.

    Args:
        model: Encoder, or a name that `load` takes.
        file: One sentence per line, plain or compressed.
        out: File to write, with the suffix .npy.
        layer: Layer of the vectors. [default: the universal layer of the model]
        pooling: "auto", "mean" or "cls", as in `Encoder.encode`.
        half: Write float16 in place of float32.

    Returns:
        The path of the file, an array [N, D].

    Raises:
        BadInput: If a path, a line, the layer or the pooling is invalid.

    Example:
        >>> encode_file("runs/xlm_e", "sentences.txt", "vectors.npy")
        PosixPath('vectors.npy')
    """
    path = Path(out)
    if path.suffix != ".npy":
        raise BadInput(f"{path}: vectors are written as .npy. Give a file name with this suffix.")
    if path.is_dir():
        raise BadInput(f"{path}: this is a folder. Give a file name.")
    check_pooling(pooling)
    from crossling.inference.load_network import as_encoder  # imports this module

    encoder, sentences = as_encoder(model), SentenceFile(Path(file))
    dtype = np.float16 if half else np.float32
    with output_lock(path):
        write_vectors(encoder, sentences, path, *encoder.resolve_pooling(pooling, layer), dtype)
    return path


def write_vectors(
    model: Encoder, sentences: SentenceFile, out: Path, pooling: str, layer: int, dtype: type[np.floating]
) -> None:
    """Write the vectors of all sentences to `out`, or resume."""
    # Without the key, files that an earlier version began in float32 still resume.
    precision = {} if model.precision == "float32" else {"precision": model.precision}
    partial = PartialOutput(
        out,
        {
            "model": model.fingerprint(),
            "text": sentences.digest(),
            "sentences": len(sentences),
            "width": model.vector_width(pooling),
            "dtype": np.dtype(dtype).name,
            "layer": layer,
            "pooling": pooling,
            **precision,
        },
    )
    array = partial.folder / "vectors.npy"
    done = int(partial.done("sentences") or 0) if array.is_file() else 0  # sentences whose vectors are written
    shape = len(sentences), model.vector_width(pooling)
    vectors_ND = np.lib.format.open_memmap(array, mode="r+" if done else "w+", dtype=dtype, shape=shape)
    name = sentences.file.name
    with count_truncations(name), Progress(f"embed {name}", len(sentences), done) as progress:
        for start in range(done, len(sentences), SENTENCES_PER_BLOCK):
            block = sentences.read(start, start + SENTENCES_PER_BLOCK)
            [vectors_ND[start : start + len(block)]] = model.encode_layers(block, pooling, [layer])
            vectors_ND.flush()
            partial.record("sentences", start + len(block))
            progress.update(start + len(block), "sentences")
    partial.publish(array)


def read_vectors(path: Path) -> np.ndarray:
    """Return the vectors of a file, [N, D], memory-mapped."""
    try:
        vectors_ND: np.ndarray = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError):
        raise BadInput(f"{path}: not a .npy file of vectors. Write it with crossling embed.") from None
    is_array = isinstance(vectors_ND, np.ndarray) and vectors_ND.ndim == 2
    if not is_array or vectors_ND.dtype not in (np.float16, np.float32):
        raise BadInput(f"{path}: expected an array [sentences, width] of float16 or float32. Encode the file again.")
    return vectors_ND
