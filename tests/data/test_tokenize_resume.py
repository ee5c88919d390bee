"""Changed sources, appended corpora and interruptions end in the bytes of one complete call."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from crossling.core.errors import BadInput
from crossling.core.jobs import Share
from crossling.corpora import source_parts
from crossling.corpora.corpus import Corpora
from crossling.data import tokenize as module
from crossling.data.shards import ArrayWriter, Shards
from crossling.data.tokenize import tokenize
from crossling.vocabulary.vocabulary import Vocabulary

from .small_corpora import (
    FILES,
    Interruption,
    decode,
    fail_after,
    file_states,
    line,
    lines,
    read_files,
    record_calls,
    unfinished_files,
    write_files,
)

# ---- changed sources -------------------------------------------------------------------------------------


def changed_folders(shards: Path, before: dict[str, tuple[int, int]]) -> set[str]:
    after = file_states(shards)
    return {str(Path(name).parent) for name in after if after[name] != before.get(name)} - {".", "vocab"}


def test_finished_parts_are_not_written_again(source: Path, vocab: Path, tmp_path: Path) -> None:
    first = tokenize(Corpora(source), vocab, tmp_path / "shards")
    before = file_states(tmp_path / "shards")
    again = tokenize(Corpora(source), vocab, tmp_path / "shards")
    assert changed_folders(tmp_path / "shards", before) == set()
    assert again.manifest == first.manifest


@pytest.mark.parametrize("slice_bytes", [120, 1 << 30])
@pytest.mark.parametrize(
    ("changed", "folder"),
    [("text/sw.txt", "text/sw"), ("pairs/news.en-sw.sw", "pairs/news.en-sw"), ("multi/bible/de.txt", "multi/bible/de")],
)
def test_only_changed_sources_are_tokenized_again(
    source: Path,
    vocab: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    changed: str,
    folder: str,
    slice_bytes: int,
) -> None:
    monkeypatch.setattr(source_parts, "SLICE_BYTES", slice_bytes)
    first = tokenize(Corpora(source), vocab, tmp_path / "shards")
    before = file_states(tmp_path / "shards")
    write_files(source, {changed: [*FILES[changed][:-1], line(9999)]})
    again = tokenize(Corpora(source), vocab, tmp_path / "shards")
    assert changed_folders(tmp_path / "shards", before) == {folder}
    assert again.fingerprint != first.fingerprint
    assert read_files(again.path) == read_files(tokenize(Corpora(source), vocab, tmp_path / "fresh").path)


@pytest.mark.parametrize("slice_bytes", [120, 1 << 30])
def test_shares_tokenize_changed_sources_again(
    source: Path, vocab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slice_bytes: int
) -> None:
    """A share is not the last one while some folders are of older sources."""
    monkeypatch.setattr(source_parts, "SLICE_BYTES", slice_bytes)
    out = tmp_path / "shards"
    tokenize(Corpora(source), vocab, out)
    for name in ("text/sw.txt", "multi/bible/de.txt"):
        write_files(source, {name: [*reversed(FILES[name])]})
    found = [tokenize(Corpora(source), vocab, out, share=Share(number, 5)) for number in range(1, 6)]
    assert found[0] is None
    assert found[-1] is not None
    assert read_files(out) == read_files(tokenize(Corpora(source), vocab, tmp_path / "fresh").path)


@pytest.mark.usefixtures("sliced")
def test_slices_of_older_sources_are_not_joined(
    small_shards: Shards, source: Path, vocab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Interrupted with all slices of a change that is then reverted."""
    out = tmp_path / "shards"
    tokenize(Corpora(source), vocab, out)
    write_files(source, {"text/sw.txt": [*reversed(FILES["text/sw.txt"])]})
    with monkeypatch.context() as patch:
        patch.setattr(module, "join_slices", fail_after(module.join_slices, 0, Interruption()))
        with pytest.raises(Interruption):
            tokenize(Corpora(source), vocab, out)
    assert (out / ".partial/text/sw").exists()
    write_files(source, {"text/sw.txt": FILES["text/sw.txt"]})
    assert read_files(tokenize(Corpora(source), vocab, out).path) == read_files(small_shards.path)


@pytest.mark.usefixtures("sliced")
def test_sources_that_change_during_tokenization_are_refused(
    source: Path, vocab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "shards"
    change = {"text/sw.txt": [*reversed(FILES["text/sw.txt"])]}
    join = module.join_slices
    with monkeypatch.context() as patch:
        patch.setattr(module, "join_slices", lambda *arguments: (write_files(source, change), join(*arguments)))
        with pytest.raises(
            BadInput, match=r"^text/sw: the sources changed during tokenization\. Run crossling tokenize"
        ):
            tokenize(Corpora(source), vocab, out)
    again = tokenize(Corpora(source), vocab, out)
    assert decode(again.text["sw"], vocab) == change["text/sw.txt"]
    assert unfinished_files(out) == []


def test_a_line_moved_to_the_other_language_is_noticed(tmp_path: Path, vocab: Path) -> None:
    source = write_files(
        tmp_path / "corpora", {"multi/set/de.txt": ["ba", "", "de"], "multi/set/en.txt": ["", "gi", "ko"]}
    )
    tokenize(Corpora(source), vocab, tmp_path / "shards")
    write_files(source, {"multi/set/de.txt": ["ba", ""], "multi/set/en.txt": ["de", "", "gi", "ko"]})
    with pytest.raises(BadInput, match="same number of lines"):
        tokenize(Corpora(source), vocab, tmp_path / "shards")


def test_a_renamed_source_is_tokenized_again(tmp_path: Path, vocab: Path) -> None:
    """The name determines the format."""
    source = write_files(tmp_path / "corpora", {"text/en.txt": ['{"text": "ba"}']})
    tokenize(Corpora(source), vocab, tmp_path / "shards")
    (source / "text/en.txt").rename(source / "text/en.jsonl")
    assert decode(tokenize(Corpora(source), vocab, tmp_path / "shards").text["en"], vocab) == ["ba"]


@pytest.mark.parametrize("append", [False, True])
def test_another_vocabulary_is_refused(
    source: Path, vocab: Path, other_vocab: Path, tmp_path: Path, append: bool
) -> None:
    out = tmp_path / "shards"
    before = read_files(tokenize(Corpora(source), vocab, out).path)
    with pytest.raises(BadInput, match="these shards have another vocabulary"):
        tokenize(Corpora(source), other_vocab, out, append=append)
    assert read_files(out) == before


def test_fingerprint_depends_on_content_alone(small_shards: Shards, source: Path, vocab: Path, tmp_path: Path) -> None:
    assert tokenize(str(source), vocab, tmp_path / "elsewhere").fingerprint == small_shards.fingerprint


@pytest.mark.parametrize("gone", ["pairs/en-sw.tsv", "text/sw.txt", "multi/bible/zu.txt"])
def test_removed_corpora_are_refused_without_append(source: Path, vocab: Path, tmp_path: Path, gone: str) -> None:
    tokenize(Corpora(source), vocab, tmp_path / "shards")
    before = read_files(tmp_path / "shards")
    (source / gone).unlink()
    place = gone.rpartition(".")[0]
    with pytest.raises(BadInput, match=f"have {place}, which is not in the corpora. Set append=true to keep it"):
        tokenize(Corpora(source), vocab, tmp_path / "shards")
    assert read_files(tmp_path / "shards") == before
    for file in (tmp_path / "shards" / place).iterdir():
        file.unlink()
    (tmp_path / "shards" / place).rmdir()  # as the message proposes
    again = tokenize(Corpora(source), vocab, tmp_path / "shards")
    assert read_files(again.path) == read_files(tokenize(Corpora(source), vocab, tmp_path / "fresh").path)


def test_truncated_or_missing_arrays_are_written_again(source: Path, vocab: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    whole = read_files(tokenize(Corpora(source), vocab, out).path)
    tokens = sorted(out.rglob("*tokens.npy"))
    tokens[0].write_bytes(tokens[0].read_bytes()[:-5])
    tokens[-1].unlink()
    assert read_files(tokenize(Corpora(source), vocab, out).path) == whole


# ---- appending -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("added", "beside"),
    [
        (["text/sw.txt"], []),
        (["pairs/en-sw.tsv"], []),
        (["pairs/news.en-sw.en", "pairs/news.en-sw.sw"], []),
        (["multi/bible/zu.txt"], ["multi/bible/de.txt"]),
        (["multi/bible/de.txt"], ["multi/bible/en.txt", "multi/bible/sw.txt", "multi/bible/zu.txt"]),
        ([name for name in FILES if name.startswith("multi")], []),
    ],
)
@pytest.mark.parametrize("slice_bytes", [120, 1 << 30])
def test_appending_keeps_other_files_and_gives_the_same_bytes(
    small_shards: Shards,
    vocab: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    added: list[str],
    beside: list[str],
    slice_bytes: int,
) -> None:
    """Append text, a bitext, one language of a multi-way corpus (which needs two) or all of its languages."""
    monkeypatch.setattr(source_parts, "SLICE_BYTES", slice_bytes)
    out = tmp_path / "shards"
    first = {name: rows for name, rows in FILES.items() if name not in added}
    tokenize(Corpora(write_files(tmp_path / "first", first)), vocab, out)
    before = file_states(out)
    second = write_files(tmp_path / "second", {name: FILES[name] for name in [*added, *beside]})
    again = tokenize(Corpora(second), vocab, out, append=True)
    after = file_states(out)
    untouched = [name for name in before if name != "manifest.json" and not name.startswith("vocab/")]
    assert {name: after[name] for name in untouched} == {name: before[name] for name in untouched}
    assert again.manifest == small_shards.manifest
    assert again.fingerprint == small_shards.fingerprint
    assert read_files(out) == read_files(small_shards.path)


def test_appending_in_shares(small_shards: Shards, vocab: Path, tmp_path: Path) -> None:
    out, corpora = tmp_path / "shards", {}
    for kind in ("text", "multi"):
        corpora[kind] = write_files(
            tmp_path / kind, {name: rows for name, rows in FILES.items() if name.startswith(kind)}
        )
    pairs = write_files(tmp_path / "pairs", {name: rows for name, rows in FILES.items() if name.startswith("pairs")})
    tokenize(Corpora(pairs), vocab, out)
    for source in corpora.values():
        found = [tokenize(Corpora(source), vocab, out, share=Share(i, 2), append=True) for i in (2, 1)]
        assert [shards is not None for shards in found] == [False, True]
    assert read_files(out) == read_files(small_shards.path)


def test_appending_a_changed_corpus_replaces_it(source: Path, vocab: Path, tmp_path: Path) -> None:
    out = tmp_path / "shards"
    tokenize(Corpora(source), vocab, out)
    change = write_files(tmp_path / "change", {"text/sw.txt": lines(700, 4)})
    again = tokenize(Corpora(change), vocab, out, append=True)
    assert decode(again.text["sw"], vocab) == lines(700, 4)
    assert decode(again.text["en"], vocab) == lines(0, 10)
    write_files(source, {"text/sw.txt": lines(700, 4)})
    assert read_files(out) == read_files(tokenize(Corpora(source), vocab, tmp_path / "fresh").path)


def test_appending_with_another_vocabulary_is_refused(
    source: Path, vocab: Path, other_vocab: Path, tmp_path: Path
) -> None:
    out = tmp_path / "shards"
    tokenize(Corpora(source), vocab, out)
    before = read_files(out)
    added = write_files(tmp_path / "added", {"text/de.txt": lines(0, 3)})
    with pytest.raises(BadInput, match="these shards have another vocabulary"):
        tokenize(Corpora(added), other_vocab, out, append=True)
    assert read_files(out) == before


def test_appending_a_language_with_other_line_counts_is_refused(source: Path, vocab: Path, tmp_path: Path) -> None:
    out = tmp_path / "shards"
    tokenize(Corpora(source), vocab, out)
    added = write_files(tmp_path / "added", {"multi/bible/fr.txt": lines(0, 9), "multi/bible/it.txt": lines(0, 9)})
    with pytest.raises(BadInput, match=r"same number of lines, but de has 10, .*fr has 9, it has 9, sw has 10"):
        tokenize(Corpora(added), vocab, out, append=True)


# ---- interruptions --------------------------------------------------------------------------------------


@pytest.mark.parametrize("after", range(0, 10, 3))
def test_resume_after_an_interruption_gives_the_same_bytes(
    small_shards: Shards,
    source: Path,
    vocab: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    after: int,
) -> None:
    out = tmp_path / "shards"
    with monkeypatch.context() as patch:
        patch.setattr(Vocabulary, "encode", fail_after(Vocabulary.encode, after, Interruption()))
        with pytest.raises(Interruption):
            tokenize(Corpora(source), vocab, out)
    assert unfinished_files(out) == [out / ".partial"]
    with pytest.raises(BadInput, match="no shards found"):
        Shards.open(out)
    finished = {name: stat for name, stat in file_states(out).items() if name[0] != "."}
    assert bool(finished) == (after > 0)
    tokenize(Corpora(source), vocab, out)
    assert {name: stat for name, stat in file_states(out).items() if name in finished} == finished
    assert read_files(out) == read_files(small_shards.path)


@pytest.mark.usefixtures("sliced")
@pytest.mark.parametrize("after", [0, 40, 80, 120, 160])
def test_a_full_disk_leaves_no_incomplete_folder(
    small_shards: Shards,
    source: Path,
    vocab: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    after: int,
) -> None:
    """While slices are written, or while they are joined."""
    out = tmp_path / "shards"
    with monkeypatch.context() as patch:
        patch.setattr(
            ArrayWriter, "add", fail_after(ArrayWriter.add, after, OSError(errno.ENOSPC, "No space left on device"))
        )
        with pytest.raises(OSError, match="No space left"):
            tokenize(Corpora(source), vocab, out)
    assert unfinished_files(out) in ([], [out / ".partial"])
    assert not [*(out / ".partial").rglob(".*")]
    assert not (out / "manifest.json").exists()
    tokenize(Corpora(source), vocab, out)
    assert read_files(out) == read_files(small_shards.path)


@pytest.mark.usefixtures("sliced")
@pytest.mark.parametrize("after", range(7))
def test_resume_of_joining_tokenizes_nothing_again(
    small_shards: Shards,
    source: Path,
    vocab: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    after: int,
) -> None:
    out = tmp_path / "shards"
    with monkeypatch.context() as patch:
        patch.setattr(module, "join_slices", fail_after(module.join_slices, after, Interruption()))
        with pytest.raises(Interruption):
            tokenize(Corpora(source), vocab, out)
    assert unfinished_files(out) == [out / ".partial"]
    calls = record_calls(monkeypatch, Vocabulary, "encode")
    again = tokenize(Corpora(source), vocab, out, share=Share(2, 2))  # any share can resume
    assert again is not None
    assert calls == []
    assert read_files(out) == read_files(small_shards.path)


def test_interrupted_tokenizing_leaves_no_outdated_manifest(
    source: Path, vocab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the counts of a manifest would be those of other text."""
    out = tmp_path / "shards"
    tokenize(Corpora(source), vocab, out)
    write_files(source, {"text/en.txt": lines(300, 5), "text/sw.txt": lines(700, 4)})
    with monkeypatch.context() as patch:
        patch.setattr(Vocabulary, "encode", fail_after(Vocabulary.encode, 1, Interruption()))
        with pytest.raises(Interruption):
            tokenize(Corpora(source), vocab, out)
    with pytest.raises(BadInput, match=r"no shards found .*; this is an unfinished folder of shards"):
        Shards.open(out)
    assert decode(tokenize(Corpora(source), vocab, out).text["sw"], vocab) == lines(700, 4)


@pytest.mark.usefixtures("sliced")
def test_interrupted_joining_leaves_no_outdated_manifest(
    vocab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "shards"
    first = write_files(tmp_path / "first", {name: FILES[name] for name in ("text/en.txt", "text/sw.txt")})
    tokenize(Corpora(first), vocab, out)
    write_files(first, {"text/en.txt": lines(300, 10), "text/sw.txt": lines(700, 7)})
    with monkeypatch.context() as patch:
        patch.setattr(module, "join_slices", fail_after(module.join_slices, 0, Interruption()))
        with pytest.raises(Interruption):
            tokenize(Corpora(first), vocab, out)
    assert decode(Shards.open(out).text["sw"], vocab) == lines(100, 7)  # no change so far
    with monkeypatch.context() as patch:
        patch.setattr(module, "join_slices", fail_after(module.join_slices, 1, Interruption()))
        with pytest.raises(Interruption):
            tokenize(Corpora(first), vocab, out)
    with pytest.raises(BadInput, match="no shards found"):
        Shards.open(out)
    assert decode(tokenize(Corpora(first), vocab, out).text["sw"], vocab) == lines(700, 7)


def test_an_interruption_before_any_change_keeps_the_shards(
    source: Path, vocab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "shards"
    tokenize(Corpora(source), vocab, out)
    before = read_files(out)
    write_files(source, {"text/sw.txt": lines(700, 4)})
    with monkeypatch.context() as patch:
        patch.setattr(Vocabulary, "encode", fail_after(Vocabulary.encode, 0, Interruption()))
        with pytest.raises(Interruption):
            tokenize(Corpora(source), vocab, out)
    assert {name: raw for name, raw in read_files(out).items() if not name.startswith(".partial")} == before


def test_an_unreadable_corpus_is_refused_and_finished_parts_are_kept(source: Path, vocab: Path, tmp_path: Path) -> None:
    write_files(source, {"text/sw.txt": b"\xff\n"})
    with pytest.raises(BadInput, match=r"text/sw\.txt: no usable line"):
        tokenize(Corpora(source), vocab, tmp_path / "shards")
    assert unfinished_files(tmp_path / "shards") == [tmp_path / "shards/.partial"]
    assert (tmp_path / "shards/text/en/entry.json").exists()
    assert not (tmp_path / "shards/manifest.json").exists()
