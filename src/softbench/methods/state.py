"""The state of a tuning on disk, so that one that was cut off goes on from there instead of from its start.

One safetensors file holds it all, so that it is whole or not there: arrays as tensors, and in the header's metadata the
other values as JSON, with a hash over both.
"""

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray

from softbench.errors import OutputError
from softbench.files import write_atomic
from softbench.types import TuningState
from softbench.untrusted import load_json, load_tensors, read_bytes

STATE = "state.safetensors"
# The seconds between two writes, at least, and the share of a tuning's time that writes may take.
SECONDS, SHARE = 5.0, 0.01


@contextmanager
def state_in(folder: Path, note: Callable[[str], None]) -> Iterator["StateFile"]:
    """A keeper for the tuning whose result goes to `folder`. Whatever ends it early, its last step is on disk then; the
    state is removed when this ends well."""
    keeper = StateFile(folder / STATE, note)
    try:
        yield keeper
    except BaseException:
        with suppress(OutputError):  # what ended the tuning is what is told
            keeper.flush()
        raise
    remove_state(folder)


def remove_state(folder: Path) -> None:
    """Remove what was kept of a tuning that is done, and the folder where nothing else is in it."""
    with suppress(OSError):  # it does no harm where it is
        (folder / STATE).unlink(missing_ok=True)
        folder.rmdir()


class StateFile:
    """A Keeper that writes to one file, so seldom that it costs less than a hundredth of the tuning's time."""

    def __init__(self, path: Path, note: Callable[[str], None]) -> None:
        self._path = path
        self._latest: TuningState | None = None
        self._next = time.perf_counter() + SECONDS
        self.note = note
        """Tells the user something."""

    @property
    def due(self) -> bool:
        """Whether it is time for a write."""
        return time.perf_counter() >= self._next

    def keep(self, state: TuningState) -> None:
        """Hold the state after a step, and write it if it is time. Raises OutputError where it can't be written."""
        self._latest = state
        if self.due:
            self.flush()

    def flush(self) -> None:
        """Write the state that is held, unless it is written already."""
        if self._latest is None:
            return
        started = time.perf_counter()
        write_atomic(self._path, to_bytes(self._latest))
        self._latest = None
        now = time.perf_counter()
        self._next = now + max(SECONDS, (now - started) / SHARE)

    def find(self, identity: str) -> TuningState | None:
        """What an earlier process left of the tuning that `identity` names; None, with a note where there is something
        else, if nothing."""
        try:
            data = read_bytes(self._path)
        except FileNotFoundError:
            return None
        except OSError as error:
            self.note(f"{str(self._path)!r} can't be read ({error.strerror}); tuning starts anew")
            return None
        try:
            state = from_bytes(data)
        except ValueError as error:
            self.note(f"{str(self._path)!r} is no whole state of a tuning ({error}); tuning starts anew")
            return None
        if state.values.get("identity") != identity:
            self.note(f"{str(self._path)!r} is the state of another tuning; tuning starts anew")
            return None
        return state


def to_bytes(state: TuningState) -> bytes:
    """The file's content."""
    values = json.dumps(state.values, allow_nan=False)
    return safetensors.numpy.save(
        dict(state.arrays), metadata={"values": values, "sha256": _hash(values, state.arrays)}
    )


def from_bytes(data: bytes) -> TuningState:
    """The state in a file's content. Raises ValueError where it is damaged."""
    try:
        arrays = load_tensors(data)
        # safetensors has read the header, so that its length is that of the JSON behind it.
        metadata = load_json(data[8 : 8 + int.from_bytes(data[:8], "little")])["__metadata__"]
        text, digest = metadata["values"], metadata["sha256"]
        values = load_json(text)
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(str(error) or type(error).__name__) from error
    if digest != _hash(text, arrays) or not isinstance(values, dict):
        raise ValueError("its hash does not match")
    return TuningState(arrays, values)


def _hash(values: str, arrays: Mapping[str, NDArray[Any]]) -> str:
    digest = hashlib.sha256(values.encode())
    for name in sorted(arrays):
        one = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {one.dtype} {one.shape} ".encode())
        digest.update(one.tobytes())
    return digest.hexdigest()
