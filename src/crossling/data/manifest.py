"""The one file that says what shards hold."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import xxhash

from crossling.corpora.corpus import Corpora
from crossling.data.shards import FORMAT, Sentences, count
from crossling.disk import write_json
from crossling.errors import BadInput
from crossling.vocabulary.vocabulary import Vocabulary

LEFT_OUT = "left-out.json"  # pairs of a multi-way set that another collection has, by the priority asked for
KINDS = ("text", "pairs", "multi")


def write_manifest(out: Path, vocabulary: Vocabulary, places: Sequence[str], corpora: Corpora) -> None:
    manifest: dict[str, Any] = {
        "format": FORMAT,
        "vocabulary": {"size": vocabulary.size, "fingerprint": vocabulary.fingerprint},
        **{kind: {} for kind in KINDS},
    }
    for place in sorted(set(places)):
        kind, name, *language = place.split("/")
        entry = json.loads((out / place / "entry.json").read_text(encoding="utf-8"))
        if language:
            manifest[kind].setdefault(name, {"languages": {}})["languages"][language[0]] = entry
        else:
            manifest[kind][name] = entry
    for given in corpora.multi:  # kept beside the set, for when something is appended without it
        if given.pairs_left_out:
            write_json(out / "multi" / given.name / LEFT_OUT, sorted(given.pairs_left_out))
        else:
            (out / "multi" / given.name / LEFT_OUT).unlink(missing_ok=True)
    for name, multi in manifest["multi"].items():
        rows = {language: entry["rows"] for language, entry in multi["languages"].items()}
        if len(set(rows.values())) > 1:
            listed = ", ".join(f"{language} has {n}" for language, n in rows.items())
            raise BadInput(f"multi/{name}: translations need the same number of lines, but {listed}: align them again")
        sides = {language: Sentences.open(out / "multi" / name / language) for language in rows}
        file = out / "multi" / name / LEFT_OUT
        left_out = {tuple(pair) for pair in json.loads(file.read_text(encoding="utf-8"))} if file.is_file() else set()
        multi["rows"] = next(iter(rows.values()))
        multi["pairs"] = [
            [a, b, shared]
            for a, b in combinations(sides, 2)
            if (a, b) not in left_out and (shared := count(sides[a], sides[b]))
        ]
    manifest["fingerprint"] = xxhash.xxh3_128_hexdigest(json.dumps(manifest, sort_keys=True).encode())
    write_json(out / "manifest.json", manifest)
