"""Tests of memory: it does not grow with the size of a file or of a line.

The memory of the whole process counts, since the parsers of XML, Parquet and zst allocate outside of Python.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from .sample_files import COMPRESS, jsonl, parquet, put, tmx

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc of Linux")

MIB = 1 << 20
# Reads the corpora of one folder, then of another, and prints the additional memory of the second in MiB.
READ = """
import sys
from crossling.corpora.corpus import Corpora

def read(folder):
    corpora = Corpora(folder)
    for reads in ([one.documents() for one in corpora.text], [one.rows() for one in corpora.pairs],
                  [one.lines(language) for one in corpora.multi for language in one.languages]):
        for rows in reads:
            for _ in rows:
                pass
    # Not ru_maxrss, which includes the memory of the parent process.
    [peak] = [line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM:")]
    return int(peak)

first = read(sys.argv[1])
print((read(sys.argv[2]) - first) // 1024)
"""


def memory_growth(first: Path, second: Path) -> int:
    return int(subprocess.check_output([sys.executable, "-c", READ, str(first), str(second)], text=True))


def lines(number: int) -> list[str]:
    rng = Random(0)
    return [rng.randbytes(50).hex() for _ in range(number)]


# All rows are in one group, which must not be read at once. Pages are always read whole and are small here.
ONE_GROUP = {"compression": "none", "use_dictionary": False, "data_page_size": 1 << 16, "row_group_size": 1 << 24}
MANY: dict[str, Callable[[int], bytes]] = {  # files of about `size` bytes
    "text/en.txt": lambda size: "\n\n".join(lines(size // 102)).encode(),
    "text/en.jsonl": lambda size: jsonl([{"text": line} for line in lines(size // 113)]),
    "text/en.parquet": lambda size: parquet([{"text": line} for line in lines(size // 104)], **ONE_GROUP),
    "pairs/en-fr.tsv": lambda size: "\n".join(f"{line}\t{line}" for line in lines(size // 202)).encode(),
    "pairs/en-fr.tmx": lambda size: tmx([[("en", line), ("fr", line)] for line in lines(size // 322)]),
    "pairs/en-fr.parquet": lambda size: parquet([{"en": a, "fr": a} for a in lines(size // 208)], **ONE_GROUP),
}


@pytest.mark.parametrize("name", MANY)
def test_ten_times_the_rows_take_no_more_memory(tmp_path: Path, name: str) -> None:
    small, large = MANY[name](MIB), MANY[name](10 * MIB)
    assert 0.9 < len(small) / MIB < 1.1
    put(tmp_path, {f"small/{name}": small, f"large/{name}": large})
    assert memory_growth(tmp_path / "small", tmp_path / "large") < 5


def long_line(root: Path, name: str, before: str, after: str) -> Path:
    """Write a file whose first line is short and whose second has 100 million characters."""
    raw = (before % "short" + after + "\n" + before % ("a" * 100_000_000) + after + "\n").encode()
    if name.endswith(".xz"):
        import lzma

        file = put(root, {name: b""}) / name
        file.write_bytes(lzma.compress(raw, preset=0))
        return root
    return put(root, {name: raw})


@pytest.mark.parametrize("suffix", COMPRESS)
def test_a_long_line_takes_no_memory(tmp_path: Path, suffix: str) -> None:
    name = f"text/en.txt{suffix}"
    long_line(tmp_path / "long", name, "%s", "")
    put(tmp_path / "short", {name: "short\n" + "x" * (MIB - 1)})
    assert memory_growth(tmp_path / "short", tmp_path / "long") < 8


@pytest.mark.parametrize(
    ("name", "before", "after", "most"),
    [
        ("pairs/en-fr.tsv", "%s\t", "b", 8),
        ("pairs/n.en-fr.en", "%s", "", 8),
        ("multi/n/en.txt", "%s", "", 8),
        ("text/en.jsonl", '{"text": "%s', '"}', 64),  # a row may have 16 MiB
        (
            "pairs/en-fr.tmx",
            "<tu><tuv xml:lang='en'><seg>%s</seg></tuv>",
            "<tuv xml:lang='fr'><seg>b</seg></tuv></tu>",
            8,
        ),
    ],
)
def test_a_long_row_takes_little_memory(tmp_path: Path, name: str, before: str, after: str, most: int) -> None:
    short = (before % "short" + after + "\n") * 2
    put(tmp_path, {f"short/{name}": short})
    long_line(tmp_path / "long", name, before, after)
    for folder in (tmp_path / "short", tmp_path / "long"):
        if name.endswith(".tmx"):
            file = folder / name
            file.write_bytes(b"<tmx>" + file.read_bytes() + b"</tmx>")
        elif name == "pairs/n.en-fr.en":
            put(folder, {"pairs/n.en-fr.fr": "b\nb\n"})
        elif name == "multi/n/en.txt":
            put(folder, {"multi/n/fr.txt": "b\nb\n"})
    assert memory_growth(tmp_path / "short", tmp_path / "long") < most


def test_the_measurement_detects_large_allocations(tmp_path: Path) -> None:
    """A cell of Parquet is read whole."""
    put(tmp_path, {"short/text/en.parquet": parquet([{"text": "a"}])})
    put(tmp_path, {"long/text/en.parquet": parquet([{"text": "a"}, {"text": "b" * 50_000_000}])})
    assert memory_growth(tmp_path / "short", tmp_path / "long") > 40
