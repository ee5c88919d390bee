"""Text to token shards (see shards.py), by independent tasks.

Each unit (see unit.py) is written whole or not at all, and is not written again when its sources have not changed: that
is how encoding goes on after an interruption, and how a language is added. A large unit is encoded in slices, so that
several machines can share one file, each reading all of it (which is cheap) and encoding its part (which is not). The
manifest comes last.
"""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from glob import escape
from pathlib import Path

from crossling.corpora.corpus import Corpora
from crossling.data.manifest import LEFT_OUT, write_manifest
from crossling.data.shards import Shards
from crossling.data.unit import Unit, is_damaged, is_done, join, key_of, kind_of, slice_folder, write
from crossling.disk import new_folder
from crossling.errors import BadInput
from crossling.tasks import Share, Task, run
from crossling.vocabulary.vocabulary import Vocabulary, check_place, copy_vocabulary

SLICE_BYTES = 256 << 20  # of source files, as they lie on disk
MOST_SLICES = 32  # beyond it, reading everything in every slice would cost more than encoding


def encode(corpora: Corpora, vocabulary: Path, out: Path, workers: int = 1, append: bool = False) -> Shards:
    """Text to token shards; goes on where it was interrupted. With `append`, what the shards hold already stays."""
    shards = encode_share(corpora, vocabulary, out, None, workers, append)
    assert shards is not None
    return shards


def encode_share(
    corpora: Corpora, vocabulary: Path, out: Path, share: Share | None, workers: int = 1, append: bool = False
) -> Shards | None:
    """One share of the tasks, as one of several machines would do it. Whoever finds that all are done puts the slices
    together, writes the manifest and returns the shards; the others return None."""
    vocab, out = Vocabulary.load(vocabulary), Path(out)
    units = [
        *(Unit(f"text/{text.language}", text) for text in corpora.text),
        *(Unit(f"pairs/{pairs.label}", pairs) for pairs in corpora.pairs),
        *(Unit(f"multi/{m.name}/{language}", m, language) for m in corpora.multi for language in m.languages),
    ]
    kept = _check_place(out, units, vocab, append)
    out.mkdir(parents=True, exist_ok=True)
    slices = {unit.place: _slices(unit) for unit in units}
    tasks = [
        Task(
            f"{unit.place} {part + 1}/{parts}" if parts > 1 else unit.place, partial(_do, out, unit, vocab, part, parts)
        )
        for unit in units
        for parts in [slices[unit.place]]
        for part in range(parts)
    ]
    run("encode", tasks, workers, share)
    if share and not _all_ready(out, units, vocab, slices):
        return None
    with _alone(out) as alone:
        if not alone:
            return None
        joins = [
            Task(unit.place, partial(join, out, unit, vocab, slices[unit.place]))
            for unit in units
            if slices[unit.place] > 1
        ]
        if joins:
            run("join", joins, workers)
        _sweep(out, units)
        copy_vocabulary(Path(vocabulary), out / "vocab")
        write_manifest(out, vocab, [*kept, *(unit.place for unit in units)], corpora)
    return Shards.open(out)


def _slices(unit: Unit) -> int:
    """A function of the sources alone, so that it does not matter who asks."""
    size = sum(source.size() for source in unit.sources)
    return max(1, min(MOST_SLICES, -(-size // SLICE_BYTES)))


def _do(out: Path, unit: Unit, vocabulary: Vocabulary, part: int, parts: int) -> None:
    """One slice of a unit, unless it is there already, or the unit as a whole is."""
    key = key_of(unit, vocabulary)
    folder = out / unit.place if parts == 1 else slice_folder(out, unit, part, parts)
    if any(is_done(place, key) and not is_damaged(place) for place in (out / unit.place, folder)):
        return
    with new_folder(folder) as new:
        write(unit, vocabulary, new, part, parts, key)
        if parts == 1:
            (out / "manifest.json").unlink(missing_ok=True)  # an older one would describe the new shards wrongly


def _all_ready(out: Path, units: Sequence[Unit], vocabulary: Vocabulary, slices: dict[str, int]) -> bool:
    """Whether all shares are done. The sources are looked at only if it seems so: by the last one, not by all."""

    def ready(unit: Unit, key: str) -> bool:
        parts = slices[unit.place]
        whole, cut = [out / unit.place], [slice_folder(out, unit, part, parts) for part in range(parts)]
        return any(all(is_done(folder, key) for folder in folders) for folders in (whole, cut))

    return all(ready(unit, kind_of(vocabulary)) for unit in units) and all(
        ready(unit, key_of(unit, vocabulary)) for unit in units
    )


def _sweep(out: Path, units: Sequence[Unit]) -> None:
    """Slices that are joined, and what processes that were killed left behind."""
    shutil.rmtree(out / ".parts", ignore_errors=True)
    for place in (out / unit.place for unit in units):
        for left in place.parent.glob(f".{escape(place.name)}.*"):
            shutil.rmtree(left, ignore_errors=True)


@contextmanager
def _alone(out: Path) -> Iterator[bool]:
    """Two shares that end at the same moment must not both put the slices together."""
    with (out / ".joining").open("w") as lock:
        try:
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # let go when its holder ends, killed or not
        except OSError:
            yield False
            return
        try:
            yield True
        finally:
            Path(lock.name).unlink(missing_ok=True)


def _check_place(out: Path, units: Sequence[Unit], vocabulary: Vocabulary, append: bool) -> list[str]:
    """Refuses to write shards over anything but shards; the places of what they hold beside these units."""
    if out.exists() and not out.is_dir():
        raise BadInput(f"{out}: this is a file; give a folder for the shards")
    there = [place for kind in ("text", "pairs") for place in (out / kind).glob("[!.]*")]
    there += [
        place for name in (out / "multi").glob("[!.]*") for place in (name.glob("[!.]*") if name.is_dir() else [name])
    ]
    there = [place for place in there if place.name != LEFT_OUT]
    foreign = [place for place in there if not (place / "entry.json").is_file()]
    if foreign:
        raise BadInput(f"{out}: {min(foreign)} is no part of any shards; give another -o folder")
    check_place(out / "vocab")
    others = sorted({str(place.relative_to(out)) for place in there} - {unit.place for unit in units})
    if others and not append:
        raise BadInput(
            f"{out}: these shards hold {others[0]}, which is not in the corpora; give --append to keep it beside them,"
            " remove that folder, or give another -o folder"
        )
    unlike = [place for place in others if not is_done(out / place, kind_of(vocabulary))]
    if unlike:
        raise BadInput(f"{out}: {unlike[0]} was encoded with another vocabulary; give that one, or another -o folder")
    return others
