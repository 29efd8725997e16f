"""Files that are whole or not there: written beside their place, then moved into it; and a lock on a run's folder."""

import errno
import functools
import json
import os
import platform
import re
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from softbench.errors import OutputError

try:
    import fcntl
except ImportError:  # Windows has no such lock: there, nothing keeps two runs apart
    fcntl = None  # type: ignore[assignment]

LOCK, PARTIAL = ".lock", ".partial"
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
"""What file systems answer that know no locks."""


def write_atomic(path: Path, data: bytes | Iterable[bytes]) -> None:
    """Write `data`, whole or in pieces, to `path` so that a reader sees the old file or the new one.

    Raises OutputError where it can't.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, partial = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=PARTIAL)
        try:
            with os.fdopen(handle, "wb") as file:
                file.writelines([data] if isinstance(data, bytes) else data)
                file.flush()
                os.fsync(file.fileno())
            Path(partial).chmod(0o644)
            Path(partial).replace(path)
        except BaseException:
            Path(partial).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise unwritable(path, error) from error


def write_json(path: Path, value: Any) -> None:
    """Write `value` as indented JSON, atomically. NaN and infinities are refused: unknown is null."""
    write_atomic(path, (json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode())


def unwritable(path: Path, error: OSError) -> OutputError:
    """The error that says that `path` can't be written, why, and what helps."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        advice = "make room, and run the same command again"
    elif error.errno == errno.ENOENT:
        advice = "its folder was removed while softbench wrote there; run the same command again"
    else:
        advice = "make it writable, or give another --output-path"
    return OutputError(f"{str(path)!r} can't be written: {error.strerror or error}; {advice}")


def safe_name(name: str) -> str:
    """`name` as one component of a path: letters, digits, `_`, `-` and `.`, the last not in front; 100 at most."""
    return re.sub(r"[^\w.-]+", "_", name).lstrip(".")[:100] or "_"


@contextmanager
def locked(folder: Path) -> Iterator[Callable[[], None]]:
    """Hold `folder`, made if need be, so that no other run writes there; yields a check that it is still the same one.

    The lock is the system's (flock) and ends with the process, however that ends. Files that a killed run left half
    written are removed. Raises OutputError where another process holds the folder, or links lead out of it, and the
    check where the folder was removed or replaced.
    """
    path = folder / LOCK
    _check_links(folder)
    try:
        handle = _take(path)
    except OutputError:
        raise
    except OSError as error:
        raise unwritable(path, error) from error
    try:
        for partial in folder.rglob(f".*{PARTIAL}"):
            with suppress(OSError):
                partial.unlink()
        yield functools.partial(_check, handle, path)
    finally:
        if _is_at(handle, path):
            with suppress(OSError):
                path.unlink()
        os.close(handle)


def _check_links(folder: Path) -> None:
    """Raise OutputError where `folder` is, or holds, a link out of the folder that it lies in: writes would follow."""
    whole = folder.parent.resolve()
    for path in (folder, *folder.rglob("*")):
        if path.is_symlink():
            try:
                inside = path.resolve().is_relative_to(whole)
            except (OSError, RuntimeError):  # it leads in a circle
                inside = False
            if not inside:
                raise OutputError(
                    f"{str(path)!r} is a link out of {str(folder.parent)!r}, and softbench writes there alone; remove "
                    "it, or give another --output-path"
                )


def _take(path: Path) -> int:
    """An open handle on the locked file at `path`."""
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | _NO_LINK, 0o644)
        try:
            _lock(handle, path)
            if _is_at(handle, path):
                since = time.strftime("%Y-%m-%d %H:%M:%S")
                os.truncate(handle, 0)
                os.write(handle, f"process {os.getpid()} on {platform.node()}, since {since}\n".encode())
                return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)  # whoever held it removed it a moment ago


def _lock(handle: int, path: Path) -> None:
    """Lock the open file, where the system can. Raises OutputError where another process holds it."""
    try:
        if fcntl is not None:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.read(handle, 200).decode(errors="replace").strip() or "another process"
        raise OutputError(
            f"another run writes to {str(path.parent)!r} ({holder}); wait for it or end it, or give another "
            "--output-path"
        ) from None
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise


def _is_at(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except OSError:
        return False


def _check(handle: int, path: Path) -> None:
    if not _is_at(handle, path):
        raise OutputError(
            f"{str(path.parent)!r} was removed or replaced while softbench wrote there; run the same command again"
        )
