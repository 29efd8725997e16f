"""What goes wrong around a run: it is killed, stopped, shut out, or has no room; what was done is kept, and it goes on.

"The same" means the same bytes of records and vectors, and the same results but for times, costs and dates.
"""

import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from softbench.files import LOCK, PARTIAL
from softbench.methods.state import STATE
from tests.e2e.test_cli import CAPITALS, FAKE, softbench_run

ROOT = Path(__file__).resolve().parents[2]
MakeFolder = Callable[[str], Path]

SETTINGS = [
    "--tasks", "capitals,arithmetic", "--methods", "zero_shot,few_shot,soft_prompt", "--num-fewshot", "1",
    "--limit", "8", "--steps", "24", "--batch-size", "2", "--checkpoints", "0,9", "--dtype", "float32",
    "--device", "cpu",
]  # fmt: skip
WAYS = {
    "alone": [],
    "together": ["--tune-together", "--seed", "0,1"],
}


def command(model: Path, out: Path, *more: str) -> list[str]:
    return ["run", "--model", str(model), "--output-path", str(out), *SETTINGS, *more]


def attempts(argv: list[str], log: Path, *planned: dict[str, Any], **kills: Any) -> list[dict[str, Any]]:
    """What became of each planned attempt at the command, random kills before them; see tests.killing."""
    plan = {"argv": argv, "log": str(log), "attempts": planned} | ({"kills": kills} if kills else {})
    done = subprocess.run(
        [sys.executable, "-m", "tests.killing"],
        cwd=ROOT,
        input=json.dumps(plan),
        env=os.environ | {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"},
        capture_output=True,
        text=True,
        check=False,
        timeout=590,
    )
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def kept(out: Path) -> dict[str, bytes]:
    """All records and tuned tensors, by path."""
    found = [*out.rglob("records.jsonl"), *out.rglob("*.safetensors")]
    return {str(path.relative_to(out)): path.read_bytes() for path in found}


def results(out: Path) -> Any:
    """The newest results file and the samples beside it, without times, costs and dates."""
    path = max(out.rglob("results_*.json"))
    value = json.loads(path.read_text())
    for name in ("date", "start_time", "end_time", "total_evaluation_time_seconds"):
        del value[name]
    for job in value["softbench"]["jobs"]:
        job["cost"] = {name: one for name, one in job["cost"].items() if "tuning" in name and "seconds" not in name}
    stamp = path.stem.removeprefix("results_")
    samples = {path.name.split(f"_{stamp}")[0]: path.read_bytes() for path in out.rglob(f"samples_*_{stamp}.jsonl")}
    return value, samples


def leftovers(out: Path) -> list[Path]:
    """What no run that ended well leaves behind."""
    return [path for path in out.rglob("*") if path.name in (STATE, LOCK) or path.name.endswith(PARTIAL)]


def assert_same(out: Path, whole: Path) -> None:
    assert kept(out) == kept(whole)
    assert results(out) == results(whole)
    assert leftovers(out) == []


@pytest.fixture(scope="module", params=WAYS)
def undisturbed(
    request: pytest.FixtureRequest, tiny_folder: MakeFolder, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, list[str], dict[str, Any]]:
    """A run that nothing disturbed: its folder, the flags that it had more, and its report."""
    folder = tmp_path_factory.mktemp(request.param)
    more = WAYS[request.param]
    [report] = attempts(command(tiny_folder("llama"), folder / "out", *more), folder / "log", {})
    assert report["code"] == 0, report["said"]
    return folder / "out", more, report


def many_kills(
    count: int, seed: int, undisturbed: tuple[Path, list[str], dict[str, Any]], model: Path, folder: Path
) -> None:
    """Kill a run at so many moments, drawn over all the time that it takes, let it end, and compare all that ended."""
    whole, more, report = undisturbed
    out = folder / "out"
    found = attempts(
        command(model, out, *more), folder / "log", {}, count=count, seed=seed, seconds=report["seconds"], out=str(out)
    )
    assert sum(one["code"] == -signal.SIGKILL for one in found) == count
    assert found[-1]["code"] == 0, found[-1]["said"]
    for ended in folder.glob("out*"):
        assert_same(ended, whole)


def test_a_run_killed_at_random_moments_ends_as_one_that_was_not(
    undisturbed: tuple[Path, list[str], dict[str, Any]], tiny_folder: MakeFolder, tmp_path: Path
) -> None:
    many_kills(5, 0, undisturbed, tiny_folder("llama"), tmp_path)


@pytest.mark.slow
def test_a_run_killed_at_20_random_moments_ends_as_one_that_was_not(
    undisturbed: tuple[Path, list[str], dict[str, Any]], tiny_folder: MakeFolder, tmp_path: Path
) -> None:
    many_kills(20, 1, undisturbed, tiny_folder("llama"), tmp_path)


def killed_at_writes(
    stride: int, undisturbed: tuple[Path, list[str], dict[str, Any]], model: Path, folder: Path
) -> None:
    """Kill a run before and behind one write after another, each time a few writes further on, and compare."""
    whole, more, report = undisturbed
    writes = [1 + number * stride % 13 for number in range(2 * report["writes"] // (6 * stride) + 4)]
    argv = command(model, folder / "out", *more)
    *killed, last = attempts(argv, folder / "log", *({"write": one} for one in writes), {})
    assert sum(one["code"] == -signal.SIGKILL for one in killed) > len(killed) // 2
    assert last["code"] == 0, last["said"]
    assert_same(folder / "out", whole)


def test_a_run_killed_at_some_writes_ends_as_one_that_was_not(
    undisturbed: tuple[Path, list[str], dict[str, Any]], tiny_folder: MakeFolder, tmp_path: Path
) -> None:
    killed_at_writes(5, undisturbed, tiny_folder("llama"), tmp_path)


@pytest.mark.slow
def test_a_run_killed_at_many_writes_ends_as_one_that_was_not(
    undisturbed: tuple[Path, list[str], dict[str, Any]], tiny_folder: MakeFolder, tmp_path: Path
) -> None:
    killed_at_writes(2, undisturbed, tiny_folder("llama"), tmp_path)


def test_a_lora_tuning_that_is_killed_goes_on_to_the_same_bits(tiny_folder: MakeFolder, tmp_path: Path) -> None:
    pytest.importorskip("peft")
    argv = [
        [*command(tiny_folder("llama"), tmp_path / name), "--methods", "lora", "--checkpoints", ""]
        for name in ("whole", "killed")
    ]
    argv = [[one for one in of_run if one not in ("--checkpoints", "0,9", "")] for of_run in argv]
    argv = [[one for one in of_run if one not in ("--num-fewshot", "1")] for of_run in argv]
    [report] = attempts(argv[0], tmp_path / "log", {})
    assert report["code"] == 0, report["said"]
    *killed, last = attempts(argv[1], tmp_path / "log", {"write": 6}, {"write": 9}, {"write": 20}, {})
    assert [one["code"] for one in killed] == [-signal.SIGKILL] * 3
    assert last["code"] == 0, last["said"]
    assert_same(tmp_path / "killed", tmp_path / "whole")


def test_a_command_killed_while_it_starts_goes_on(tiny_folder: MakeFolder, tmp_path: Path) -> None:
    argv: list[str | Path] = [
        "--model",
        tiny_folder("llama"),
        "--tasks",
        "capitals",
        "--methods",
        "zero_shot",
        "--limit",
        "4",
    ]
    generator = random.Random(0)
    for _ in range(3):
        process = subprocess.Popen(
            [sys.executable, "-m", "softbench", "run", *map(str, argv), "--output-path", str(tmp_path)],
            env=os.environ | {"HF_HUB_OFFLINE": "1"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        time.sleep(generator.uniform(0, 5))
        process.kill()
        process.wait()
    done = softbench_run("run", *argv, "--output-path", tmp_path, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert leftovers(tmp_path) == []


LINES = {
    signal.SIGINT: "interrupted; the same command goes on where this one stopped",
    signal.SIGTERM: "terminated; the same command goes on where this one stopped",
}


@pytest.mark.parametrize("number", LINES)
def test_a_run_that_is_stopped_says_so_and_goes_on(
    number: signal.Signals,
    undisturbed: tuple[Path, list[str], dict[str, Any]],
    tiny_folder: MakeFolder,
    tmp_path: Path,
) -> None:
    whole, more, report = undisturbed
    argv = command(tiny_folder("llama"), tmp_path / "out", *more)
    generator = random.Random(number)
    writes = [{"write": one} for one in (2, 7, 12, 21)]  # of some hundred in all: the run can't be over by then
    moments = [{"seconds": generator.uniform(0.1, 0.9) * report["seconds"]} for _ in range(3)]
    *stopped, last = attempts(argv, tmp_path / "log", *({**one, "number": number} for one in writes + moments), {})
    assert [one["code"] for one in stopped[: len(writes)]] == [128 + number] * len(writes)
    for one in stopped:
        assert one["code"] in (0, 128 + number), one["said"]
        assert "Traceback" not in one["said"]
        if one["code"]:
            assert one["said"].splitlines()[-1] == LINES[number]
    assert last["code"] == 0, last["said"]
    assert_same(tmp_path / "out", whole)


def test_two_runs_never_write_to_one_folder(tiny_folder: MakeFolder, tmp_path: Path) -> None:
    argv = command(tiny_folder("llama"), tmp_path / "out")
    environment = os.environ | {"HF_HUB_OFFLINE": "1"}
    with subprocess.Popen(
        [sys.executable, "-m", "softbench", *argv],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as first:
        lock = tmp_path / "out" / "llama" / LOCK
        while not lock.exists():
            assert first.poll() is None
            time.sleep(0.01)
        first.send_signal(signal.SIGSTOP)
        second = softbench_run(*argv, cwd=tmp_path)
        by_ray = softbench_run(*argv, "--executor", "ray", cwd=tmp_path)
        first.send_signal(signal.SIGCONT)
        _, said = first.communicate()
    assert first.returncode == 0, said
    for refused in (second, by_ray):
        assert_one_line(refused, "another run writes to ", f"(process {first.pid} on ")
    again = softbench_run(*argv, cwd=tmp_path)
    assert again.returncode == 0
    assert leftovers(tmp_path) == []


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Callable[[str], None]]:
    """A file system of `size` at `folder`, and how to change its options; skips where none can be mounted."""
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("no file system can be mounted here")

    def change(options: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{options}", str(folder)], check=True)

    try:
        yield change
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fake_run(out: Path, *more: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    return softbench_run("run", *FAKE, *CAPITALS, "--output-path", out, *more, cwd=cwd)


@pytest.fixture(scope="module")
def fake_whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run over the stand-in engine that nothing disturbed."""
    folder = tmp_path_factory.mktemp("fake")
    assert fake_run(folder / "out", cwd=folder).returncode == 0
    return folder / "out"


def assert_one_line(done: subprocess.CompletedProcess[str], *parts: str) -> None:
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    [line] = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert line == done.stderr.splitlines()[-1]
    for part in parts:
        assert part in line


def test_a_full_disk_is_one_line_and_the_run_goes_on_when_there_is_room(fake_whole: Path, tmp_path: Path) -> None:
    out = tmp_path / "disk"
    before: dict[str, bytes] = {}
    with small_disk(out, "8k") as change:
        for size in ("8k", "64k", "128k", "256k", "512k"):
            change(f"size={size}")
            done = fake_run(out, cwd=tmp_path)
            assert_one_line(done, "can't be written: No space left on device; make room, and run the same command")
            now = kept(out)
            assert all(now[name].startswith(one) for name, one in before.items())
            before = now
        assert before
        change("size=50m")
        assert fake_run(out, cwd=tmp_path).returncode == 0
        assert_same(out, fake_whole)


def test_a_disk_that_can_not_be_written_is_one_line(fake_whole: Path, tmp_path: Path) -> None:
    out = tmp_path / "disk"
    with small_disk(out, "50m") as change:
        change("ro")
        assert_one_line(fake_run(out, cwd=tmp_path), "output path ", "can't be written to: Read-only file system")
        change("rw")
        assert fake_run(out, cwd=tmp_path).returncode == 0
        change("ro")
        assert_one_line(fake_run(out, cwd=tmp_path), "can't be written to: Read-only file system")
        assert kept(out) == kept(fake_whole)


def test_a_folder_without_permission_is_one_line(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may write anywhere")
    (tmp_path / "shut").mkdir(mode=0o500)
    assert_one_line(fake_run(tmp_path / "shut" / "out", cwd=tmp_path), "can't be written to: Permission denied")
    assert fake_run(tmp_path / "out", cwd=tmp_path).returncode == 0
    [path] = (tmp_path / "out").rglob("jobs/*zero_shot*/records.jsonl")
    path.chmod(0o000)
    assert_one_line(fake_run(tmp_path / "out", cwd=tmp_path), "can't be written: Permission denied; make it writable")
    path.chmod(0o600)
    assert fake_run(tmp_path / "out", cwd=tmp_path).returncode == 0


def test_a_limit_on_the_size_of_files_is_one_line(fake_whole: Path, tmp_path: Path) -> None:
    code = "import resource, softbench.cli; resource.setrlimit(resource.RLIMIT_FSIZE, (90_000, 90_000)); "
    argv = ["softbench", "run", *FAKE, *CAPITALS, "--output-path", str(tmp_path / "out")]
    done = subprocess.run(
        [sys.executable, "-c", f"{code}import sys; sys.argv = {argv!r}; softbench.cli.main()"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert_one_line(done, "records.jsonl' can't be written: File too large; make room, and run the same command again")
    assert kept(tmp_path / "out")
    assert fake_run(tmp_path / "out", cwd=tmp_path).returncode == 0
    assert_same(tmp_path / "out", fake_whole)
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY
