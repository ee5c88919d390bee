"""HTML entities in text: `&amp;`, `&#233;`, `&eacute;`."""

from __future__ import annotations

import re
from html import unescape

MAX_ROUNDS = 3  # text that was escaped twice has `&amp;eacute;`
# Only with a semicolon. HTML also knows names without it, and would read `&notify` as `¬ify`.
ENTITY = re.compile(r"&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")


def decode_entities(text: str) -> str:
    """Replace HTML entities by their characters. Unknown names stay.

    Args:
        text: Any text.

    Example:
        >>> decode_entities("Tom &amp;amp; Jerry, AT&T")
        'Tom & Jerry, AT&T'
    """
    for _ in range(MAX_ROUNDS):
        if "&" not in text:
            break
        decoded = ENTITY.sub(lambda found: unescape(found[0]), text)
        if decoded == text:
            break
        text = decoded
    return text
