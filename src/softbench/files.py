"""Files that are whole or not there: written beside their place, then moved into it."""

import json
import os
import re
import tempfile
from pathlib import Path
from typing import Any

from softbench.errors import OutputError


def write_atomic(path: Path, data: bytes) -> None:
    """Write `data` to `path` so that a reader sees the old file or the new one. Raises OutputError where it can't."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, partial = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            Path(partial).chmod(0o644)
            Path(partial).replace(path)
        except BaseException:
            Path(partial).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise OutputError(f"{str(path)!r} can't be written: {error.strerror or error}") from error


def write_json(path: Path, value: Any) -> None:
    """Write `value` as indented JSON, atomically. NaN and infinities are refused: unknown is null."""
    write_atomic(path, (json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode())


def safe_name(name: str) -> str:
    """`name` as one component of a path: letters, digits, `_`, `-` and `.`, the last not in front; 100 at most."""
    return re.sub(r"[^\w.-]+", "_", name).lstrip(".")[:100] or "_"
