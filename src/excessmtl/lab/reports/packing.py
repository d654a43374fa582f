"""Large things in a small page: compressed text that the page's script unpacks."""

import base64
import gzip
import json
from typing import Any


def packed(text: str) -> str:
    """Gzip in base64: nothing in it can end a script element, and equal text gives equal output."""
    return base64.b64encode(gzip.compress(text.encode(), compresslevel=9, mtime=0)).decode()


def packed_json(value: Any) -> str:
    """`packed` JSON; refuses NaN, which browsers cannot read."""
    return packed(json.dumps(value, separators=(",", ":"), allow_nan=False))
