"""Reads a benchmark's rows: from a file, from a local data root with one folder a benchmark, or from the hub."""

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from softbench.errors import DataError, first_line

Row = dict[str, Any]


def read_folder(data_dir: Path | None, benchmark: str, split: str) -> list[Row]:
    """The rows of `data_dir/benchmark/split.*`. Raises DataError where they are missing or can't be read."""
    if data_dir is None:
        raise DataError(
            f"task {benchmark!r} reads its rows from a local folder, and none was named; give --data-dir DIR or set "
            f"SOFTBENCH_DATA, where DIR holds {benchmark}/{split}.jsonl"
        )
    paths = [data_dir / benchmark / f"{split}{suffix}" for suffix in _READERS]
    # Where there is none, the first is the one to be asked for.
    return read_file(next((path for path in paths if path.is_file()), paths[0]))


def read_file(path: Path) -> list[Row]:
    """The rows of a JSONL, JSON (a list of objects), CSV (with a header) or Parquet file, by its name's ending."""
    if path.suffix not in _READERS:
        raise DataError(f"{path}: can't tell what kind of file it is; its name must end in {', '.join(_READERS)}")
    try:
        return _READERS[path.suffix](path)
    except (FileNotFoundError, NotADirectoryError):
        raise DataError(
            f"no file {str(path)!r}; give one, or where it is a benchmark's, --data-dir DIR (or SOFTBENCH_DATA), where "
            "DIR holds one folder a benchmark"
        ) from None
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8: {error}") from error
    except OSError as error:
        raise DataError(f"{path} can't be read: {error.strerror or error}") from error


def read_hub(path: str, config: str | None, revision: str | None, split: str, benchmark: str) -> list[Row]:
    """The rows of one split of a data set on the hub, through `datasets`; what was read before comes from its cache."""
    import datasets

    try:
        loaded = datasets.load_dataset(path, config, split=split, revision=revision)
    except Exception as error:  # datasets and its network libraries raise many kinds
        reason = first_line(error)
        raise DataError(
            f"task {benchmark!r}: the hub did not give data set {path!r}, split {split!r} ({reason}); check the "
            f"network, or give --data-dir DIR (or set SOFTBENCH_DATA), where DIR holds {benchmark}/{split}.jsonl"
        ) from error
    return [dict(row) for row in loaded]


def _read_jsonl(path: Path) -> list[Row]:
    # Not splitlines(): it would also split at U+2028, which may stand inside a JSON string.
    lines = path.read_text(encoding="utf-8-sig").split("\n")
    return [_object(path, number, _parse(path, number, line)) for number, line in enumerate(lines, 1) if line.strip()]


def _read_json(path: Path) -> list[Row]:
    rows = _parse(path, 1, path.read_text(encoding="utf-8-sig"))
    if not isinstance(rows, list):
        raise DataError(f"{path}: a list of JSON objects was wanted, not {type(rows).__name__}")
    return [_object(path, number, row) for number, row in enumerate(rows, start=1)]


def _read_csv(path: Path) -> list[Row]:
    reader = csv.DictReader(io.StringIO(path.read_text(encoding="utf-8-sig"), newline=""), strict=True)
    try:
        rows = list(reader)
    except csv.Error as error:
        raise DataError(f"{path}, line {reader.line_num}: not CSV ({error})") from error
    header = list(reader.fieldnames or ())
    if len(set(header)) < len(header):
        raise DataError(f"{path}: two columns have one name; the header is {', '.join(header)}")
    for number, row in enumerate(rows, start=1):
        if None in row or None in row.values():
            raise DataError(f"{path}, row {number}: has more or fewer cells than the header")
    return [dict(row) for row in rows]


def _read_parquet(path: Path) -> list[Row]:
    import pyarrow
    import pyarrow.parquet

    try:
        rows: list[Row] = pyarrow.parquet.read_table(path).to_pylist()
    except pyarrow.ArrowInvalid as error:
        raise DataError(f"{path}: not Parquet ({error})") from error
    return rows


_READERS: dict[str, Callable[[Path], list[Row]]] = {
    ".jsonl": _read_jsonl,
    ".json": _read_json,
    ".csv": _read_csv,
    ".parquet": _read_parquet,
}


def _parse(path: Path, number: int, text: str) -> Any:
    try:
        value = json.loads(text)
        json.dumps(value, ensure_ascii=False).encode()  # half a surrogate pair is no text
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}, line {number}: not JSON ({error})") from error
    return value


def _object(path: Path, number: int, row: Any) -> Row:
    if not isinstance(row, dict):
        raise DataError(f"{path}, line {number}: a JSON object was wanted, not {type(row).__name__}")
    return row
