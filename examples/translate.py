"""Fine-tune an encoder as a translator and translate with it.

    python examples/translate.py --model runs/veco --data multi30k --directions en-de,de-en -o mt --to de "A dog runs."

DATA holds `train.en`, `train.de`, `dev.en` and so on, one sentence a line (docs/how-to/translate.md). Fine-tuning
resumes if it is interrupted, and is skipped if the translator exists.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import crossling as xl


def translate(
    model: str, data: Path, directions: str, out: Path, sentences: list[str], *, to: str, **settings: Any
) -> list[str]:
    """Fine-tune a translator in `out`, unless it exists, and translate sentences into the language `to`."""
    rows = xl.finetune(model, "translation", data, out, directions=directions, **settings)
    for row in rows:
        if row["metric"] == "sacrebleu":
            print(f"{row['language']}: BLEU {row['value']:.1f}")
    translations = xl.translate(out, sentences, to=to)
    assert isinstance(translations, list)
    return translations


def main() -> None:
    """Fine-tune, then print the translations."""
    parser = argparse.ArgumentParser(description="Fine-tune a translator and translate sentences.")
    parser.add_argument("sentences", nargs="+", help="Sentences to translate.")
    parser.add_argument("--model", required=True, help="Encoder to start from.")
    parser.add_argument("--data", type=Path, required=True, help="Folder of parallel text.")
    parser.add_argument("--directions", required=True, help="Directions, as en-de,de-en.")
    parser.add_argument("--to", required=True, help="Target language.")
    parser.add_argument("-o", "--out", type=Path, required=True, help="Folder of the translator.")
    arguments = parser.parse_args()
    for line in translate(
        arguments.model, arguments.data, arguments.directions, arguments.out, arguments.sentences, to=arguments.to
    ):
        print(line)


if __name__ == "__main__":
    main()
