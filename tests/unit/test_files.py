"""Files that are whole or not there, and a folder that one run at a time holds."""

import errno
import fcntl
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from softbench.errors import OutputError
from softbench.files import LOCK, locked, unwritable, write_atomic, write_json


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.json"
    write_json(path, {"a": 1})
    before = path.read_bytes()

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OutputError, match=r"a.json' can't be written: No space left on device; make room, and run"):
        write_json(path, {"a": 2})
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (errno.ENOSPC, "make room, and run the same command again"),
        (errno.EDQUOT, "make room, and run the same command again"),
        (errno.EFBIG, "make room, and run the same command again"),
        (errno.ENOENT, "its folder was removed while softbench wrote there; run the same command again"),
        (errno.EROFS, "make it writable, or give another --output-path"),
        (errno.EACCES, "make it writable, or give another --output-path"),
    ],
)
def test_the_error_says_what_helps(number: int, advice: str) -> None:
    error = unwritable(Path("out/a"), OSError(number, os.strerror(number)))
    assert str(error) == f"'out/a' can't be written: {os.strerror(number)}; {advice}"


HOLD = """
import sys
from pathlib import Path
from softbench.files import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def holder(folder: Path) -> subprocess.Popen[str]:
    """Another process that holds the folder until its input ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_a_folder_is_held_by_one_process_at_a_time(tmp_path: Path) -> None:
    folder = tmp_path / "out" / "model"
    with holder(folder) as other:
        name = re.escape(str(folder))
        said = rf"^another run writes to '{name}' \(process {other.pid} on .*, since 20.*\); wait for it"
        with pytest.raises(OutputError, match=said), locked(folder):
            pytest.fail("held twice")
    assert other.returncode == 0
    with locked(folder):
        pass


def test_a_process_that_is_killed_holds_nothing(tmp_path: Path) -> None:
    with holder(tmp_path) as other:
        other.kill()
    assert (tmp_path / LOCK).exists()
    with locked(tmp_path):
        pass


def test_the_lock_leaves_no_file(tmp_path: Path) -> None:
    with locked(tmp_path / "model"):
        assert (tmp_path / "model" / LOCK).exists()
    assert list((tmp_path / "model").iterdir()) == []


def test_a_folder_is_not_held_twice_by_one_process(tmp_path: Path) -> None:
    with locked(tmp_path), pytest.raises(OutputError, match="another run writes to"), locked(tmp_path):
        pytest.fail("held twice")


def test_a_folder_that_was_removed_or_replaced_is_noticed(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    with locked(folder) as check:
        check()
        shutil.rmtree(folder)
        with pytest.raises(OutputError, match=r"model' was removed or replaced while softbench wrote there; run"):
            check()
        with locked(folder) as check_of_other:
            with pytest.raises(OutputError, match="was removed or replaced"):
                check()
            check_of_other()
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("place", ["out/model", "out/model/.lock", "out/model/jobs", "out/model/tuned/a/b.json"])
def test_nothing_is_written_through_a_link_that_leads_out(place: str, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").write_text("mine")
    link = tmp_path / place
    link.parent.mkdir(parents=True)
    link.symlink_to(tmp_path / "mine" / ("file" if link.suffix or link.name == LOCK else ""))
    with (
        pytest.raises(OutputError, match=f"'{link}' is a link out of '{tmp_path}/out'"),
        locked(tmp_path / "out/model"),
    ):
        pass
    assert [(path.name, path.read_text()) for path in (tmp_path / "mine").iterdir()] == [("file", "mine")]


def test_links_within_a_run_are_no_matter(tmp_path: Path) -> None:
    (tmp_path / "out" / "model" / "jobs").mkdir(parents=True)
    (tmp_path / "out" / "model" / "again").symlink_to("jobs")
    with locked(tmp_path / "out" / "model") as check:
        check()
    (tmp_path / "out" / "model" / "round").symlink_to("round")
    with pytest.raises(OutputError, match="is a link out of"), locked(tmp_path / "out" / "model"):
        pass


def test_what_a_killed_run_left_half_written_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", lambda *_, **__: None)
        patch.setattr(os, "fsync", lambda handle: (_ for _ in ()).throw(OSError(errno.EIO, "killed")))
        with pytest.raises(OutputError):
            write_atomic(tmp_path / "jobs" / "a" / "cost.json", b"half")
    write_atomic(tmp_path / "jobs" / "a" / "mine.partial", b"a user's own")
    assert len(list((tmp_path / "jobs" / "a").iterdir())) == 2
    with locked(tmp_path):
        assert [path.name for path in (tmp_path / "jobs" / "a").iterdir()] == ["mine.partial"]


def test_file_systems_without_locks_do_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(handle: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", unknown)
    with locked(tmp_path) as check:
        check()


@pytest.mark.parametrize("platform", [{"fcntl": None}, {"fcntl": None, "resource": None}])
def test_what_only_unix_has_is_not_needed_to_import(platform: dict[str, Any]) -> None:
    code = (
        f"import sys; sys.modules.update({platform!r}); import softbench.pipeline, tempfile, pathlib\n"
        "with softbench.files.locked(pathlib.Path(tempfile.mkdtemp())): print(softbench.pipeline.peak_memory() >= 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"
