"""Reads a benchmark's rows: from a file, from a local data root with one folder a benchmark, or from the hub."""

import csv
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

from softbench.errors import DataError, first_line
from softbench.untrusted import check_depth, check_is_file, load_json

Row = dict[str, Any]
MOST_ROWS = 10_000_000


def read_folder(data_dir: Path | None, benchmark: str, split: str) -> list[Row]:
    """The rows of `data_dir/benchmark/split.*`. Raises DataError where they are missing or can't be read."""
    if data_dir is None:
        raise DataError(
            f"task {benchmark!r} reads its rows from a local folder, and none was named; give --data-dir DIR or set "
            f"SOFTBENCH_DATA, where DIR holds {benchmark}/{split}.jsonl"
        )
    if split in ("", ".", "..") or "/" in split or "\\" in split:
        raise DataError(f"task {benchmark!r}: {split!r} can't be the name of a split; it would lead to another folder")
    # Where there is none, the first kind is the one to be asked for.
    first = data_dir / benchmark / f"{split}{next(iter(_READERS))}"
    return read_file(file_in(data_dir, benchmark, split) or first)


def file_in(data_dir: Path, benchmark: str, split: str) -> Path | None:
    """The file with the rows of a benchmark's split under a local data root, if there is one."""
    paths = (data_dir / benchmark / f"{split}{suffix}" for suffix in _READERS)
    return next((path for path in paths if path.is_file()), None)


def read_file(path: Path) -> list[Row]:
    """The rows of a JSONL, JSON (a list of objects), CSV (with a header) or Parquet file, by its name's ending."""
    if path.suffix not in _READERS:
        raise DataError(f"{path}: can't tell what kind of file it is; its name must end in {', '.join(_READERS)}")
    try:
        check_is_file(path)
        return _READERS[path.suffix](path)
    except (FileNotFoundError, NotADirectoryError):
        raise DataError(
            f"no file {str(path)!r}; give one, or where it is a benchmark's, --data-dir DIR (or SOFTBENCH_DATA), where "
            "DIR holds one folder a benchmark"
        ) from None
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8: {error}") from error
    except MemoryError as error:
        raise DataError(f"{path} is too large for this machine's memory") from error
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
        with pyarrow.parquet.ParquetFile(path) as file:
            # A few bytes can stand for as many equal rows as there are numbers.
            num_rows = file.metadata.num_rows
            rows: list[Row] = file.read().to_pylist() if num_rows <= MOST_ROWS else []
        check_depth(rows)
    except (pyarrow.ArrowException, ValueError, OverflowError, TypeError, KeyError) as error:
        raise DataError(f"{path}: not Parquet ({first_line(error)})") from error
    if num_rows > MOST_ROWS:
        raise DataError(f"{path}: has {num_rows:,} rows, and {MOST_ROWS:,} are the most")
    return rows


_READERS: dict[str, Callable[[Path], list[Row]]] = {
    ".jsonl": _read_jsonl,
    ".json": _read_json,
    ".csv": _read_csv,
    ".parquet": _read_parquet,
}


def _parse(path: Path, number: int, text: str) -> Any:
    try:
        return load_json(text)
    except ValueError as error:
        raise DataError(f"{path}, line {number}: not JSON ({error})") from error


def _object(path: Path, number: int, row: Any) -> Row:
    if not isinstance(row, dict):
        raise DataError(f"{path}, line {number}: a JSON object was wanted, not {type(row).__name__}")
    return row
