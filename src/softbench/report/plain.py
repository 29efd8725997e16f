"""Text from models and data, made harmless to look at."""

import re

# Controls but tab and line feed, what turns the direction of writing, what has no width, and lone surrogates.
UNSEEN = r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff]"


def plain(text: str) -> str:
    r"""`text` with characters that can't be seen, or that would turn its neighbours around, as `\u202e`."""
    return re.sub(UNSEEN, lambda match: f"\\u{ord(match[0]):04x}", text)
