"""Reads a benchmark's rows from a local data root: one folder a benchmark, one JSONL file a split."""

import json
from pathlib import Path
from typing import Any

from softbench.errors import DataError


def read_rows(data_dir: Path | None, benchmark: str, split: str) -> list[dict[str, Any]]:
    """The rows of `data_dir/benchmark/split.jsonl`. Raises DataError where they are missing or not JSON objects."""
    if data_dir is None:
        raise DataError(
            f"task {benchmark!r} reads its rows from a local folder, and none was named; give --data-dir DIR or set "
            f"SOFTBENCH_DATA, where DIR holds {benchmark}/{split}.jsonl"
        )
    path = data_dir / benchmark / f"{split}.jsonl"
    try:
        # Not splitlines(): it would also split at U+2028, which may stand inside a JSON string.
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except (FileNotFoundError, NotADirectoryError):
        raise DataError(
            f"no file {str(path)!r}; --data-dir (or SOFTBENCH_DATA) must hold one folder a benchmark"
        ) from None
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8: {error}") from error
    except OSError as error:
        raise DataError(f"{path} can't be read: {error.strerror}") from error
    return [_parse(path, number, line) for number, line in enumerate(lines, start=1) if line.strip()]


def _parse(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
        json.dumps(row, ensure_ascii=False).encode()  # half a surrogate pair is no text
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}, line {number}: not JSON ({error})") from error
    if not isinstance(row, dict):
        raise DataError(f"{path}, line {number}: a JSON object was wanted, not {type(row).__name__}")
    return row
