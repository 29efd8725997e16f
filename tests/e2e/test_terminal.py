"""The command in a terminal, a pipe and a scheduler: exit codes, signals, colour, how much it says."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.test_cli import CAPITALS, FAKE, softbench_run

COLOUR = re.compile(r"\x1b\[(?:\d+;)*(?:3[0-7]|4[0-7]|9[0-7]|38|48)[;\d]*m")
RUN = [*FAKE, *CAPITALS, "--limit", "9"]


def with_patch(patch: str, *arguments: str) -> list[str]:
    """The command of a program in which `patch` has been run first."""
    return [sys.executable, "-c", f"{patch}\nimport sys\nfrom softbench.cli import main\nmain()", *arguments]


SLOW = (
    "import sys, time\nfrom softbench.engines.fake import FakeEngine\n"
    "def generate(*_):\n    print('at work', file=sys.stderr, flush=True)\n    time.sleep(60)\n"
    "FakeEngine.generate = generate\n"
)


@pytest.mark.parametrize(("number", "word"), [(signal.SIGINT, "interrupted"), (signal.SIGTERM, "terminated")])
def test_a_signal_ends_a_run_with_one_line_and_its_own_exit_code(
    number: signal.Signals, word: str, tmp_path: Path
) -> None:
    command = with_patch(SLOW, "run", *RUN)
    with subprocess.Popen(command, cwd=tmp_path, stdout=-1, stderr=-1, text=True) as process:
        assert process.stderr is not None
        while "at work" not in process.stderr.readline():
            pass
        process.send_signal(number)
        out, rest = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert rest == f"{word}; the same command goes on where this one stopped\n"
    assert out == ""


def power_that(does: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """`softbench power`, with an expression for its work."""
    # The package has a function of the module's name.
    patch = (
        f"import os, sys, softbench.stats\nsys.modules['softbench.stats.compare'].samples_needed = lambda *_: {does}"
    )
    return subprocess.run(
        with_patch(patch, "power", "0.02", "0.1"), cwd=cwd, capture_output=True, text=True, check=False
    )


def test_a_signal_ends_any_command_with_one_line(tmp_path: Path) -> None:
    done = power_that("os.kill(os.getpid(), 2)", tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")


def test_a_fault_in_softbench_has_a_traceback_and_exit_code_1(tmp_path: Path) -> None:
    done = power_that("1 / 0", tmp_path)
    assert done.returncode == 1
    assert done.stderr.endswith("ZeroDivisionError: division by zero\n")


def test_bad_input_leaves_stdout_empty_for_machines(tmp_path: Path) -> None:
    done = softbench_run("run", *FAKE, "--tasks", "capitols", "--json", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: task 'capitols' is unknown; did you mean 'capitals'?\n"


def test_json_of_a_run_holds_what_its_table_shows(tmp_path: Path) -> None:
    done = softbench_run("run", *FAKE, "--tasks", "elements", "--limit", "9", "--json", cwd=tmp_path)
    [model] = json.loads(done.stdout)
    assert [job["method"] for job in model["jobs"]] == ["zero_shot", "few_shot", "soft_prompt"]
    assert model["jobs"][2]["metrics"]["accuracy"]["n"] == 9
    assert model["jobs"][2]["cost"]["tuning_steps"] == 80
    assert Path(tmp_path / model["path"]).is_file()
    assert "0.0 % of completions have the form" in model["notes"][0]
    assert "soft_prompt: tune: 80/80" in done.stderr


def test_json_holds_alone_even_where_a_library_prints(tmp_path: Path) -> None:
    patch = "import softbench.executors as e\nrun = e.run\ne.run = lambda *given: print('hi') or run(*given)\n"
    done = subprocess.run(
        with_patch(patch, "run", *RUN, "--json"), cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert json.loads(done.stdout)[0]["model"] == "fake"
    assert "hi\n" in done.stderr


@pytest.mark.parametrize("before", [True, False])
def test_quiet_prints_results_alone(before: bool, tmp_path: Path) -> None:
    flags = (["-q"], []) if before else ([], ["-q"])
    done = softbench_run(*flags[0], "run", *RUN, *flags[1], cwd=tmp_path)
    assert done.stderr == ""
    assert "soft_prompt" in done.stdout
    assert "results: " in done.stdout
    assert "note: " not in done.stdout
    assert softbench_run("-q", "run", *FAKE, cwd=tmp_path).stderr.startswith("error: 'tasks' is missing")


@pytest.mark.parametrize("before", [True, False])
def test_verbose_tells_what_is_resumed(before: bool, tmp_path: Path) -> None:
    flags = (["--verbose"], []) if before else ([], ["--verbose"])
    first = softbench_run(*flags[0], "run", *RUN, *flags[1], cwd=tmp_path)
    assert "softbench: fake: fake on cpu in float32, 1000 parameters\n" in first.stderr
    assert "earlier run" not in first.stderr
    again = softbench_run(*flags[0], "run", *RUN, *flags[1], cwd=tmp_path)
    assert again.stderr.count("9 of 9 samples are there from an earlier run") == 3
    assert "taken from an earlier tuning" in again.stderr
    assert "earlier" not in softbench_run("run", *RUN, cwd=tmp_path).stderr


def test_quiet_and_verbose_exclude_each_other(tmp_path: Path) -> None:
    done = softbench_run("run", *RUN, "-q", "-v", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (2, "error: --quiet and --verbose are both given; drop one\n")


def in_terminal(*arguments: str, cwd: Path, **environment: str) -> tuple[str, int]:
    """What the command writes to a terminal of 80 columns, both streams together, and its exit code."""
    ours, theirs = pty.openpty()
    clean = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR", "TERM")}
    with subprocess.Popen(
        [sys.executable, "-m", "softbench", *arguments],
        cwd=cwd,
        env={**clean, "COLUMNS": "80", "TERM": "xterm-256color", **environment},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    ) as process:
        os.close(theirs)
        written = b""
        try:
            while part := os.read(ours, 1 << 16):
                written += part
        except OSError:  # Linux ends a terminal so
            pass
    os.close(ours)
    return written.decode(), process.returncode


def test_colour_is_for_terminals_that_want_it(tmp_path: Path) -> None:
    coloured, code = in_terminal("run", *FAKE, cwd=tmp_path)
    assert code == 2
    assert COLOUR.search(coloured)
    plain, code = in_terminal("run", *FAKE, cwd=tmp_path, NO_COLOR="1")
    assert code == 2
    assert "'tasks' is missing" in plain
    assert not COLOUR.search(plain)
    piped = softbench_run("run", *FAKE, cwd=tmp_path)
    assert "\x1b" not in piped.stdout + piped.stderr


def test_a_terminal_is_left_with_the_results_alone(tmp_path: Path) -> None:
    from tests.unit.test_progress import screen

    written, code = in_terminal("run", *RUN, cwd=tmp_path, NO_COLOR="1")
    assert code == 0
    shown = screen(re.sub(r"\x1b\[[\d;]*m", "", written))
    assert shown[0] == "fake  capitals"
    assert not [line for line in shown if "left" in line or "/80" in line]


def test_a_terminal_that_can_do_nothing_gets_lines(tmp_path: Path) -> None:
    written, code = in_terminal("run", *RUN, cwd=tmp_path, TERM="dumb")
    assert code == 0
    assert "\x1b" not in written
    assert "soft_prompt: tune: 80/80 in" in written


def test_help_tells_the_exit_codes(tmp_path: Path) -> None:
    told = " ".join(softbench_run("--help", cwd=tmp_path).stdout.split())
    for code in ("0 done", "1 a fault in softbench", "2 bad input", "130 interrupted", "143 terminated"):
        assert code in told


def test_flags_of_the_list_of_tasks_come_behind_its_commands(tmp_path: Path) -> None:
    done = softbench_run("tasks", "--json", "show", "capitals", cwd=tmp_path)
    assert done.returncode == 2
    assert "--json comes before 'show'; give it behind: softbench tasks show --json" in done.stderr


def test_what_data_hold_does_not_steer_the_terminal(tmp_path: Path) -> None:
    said = "\x1b[2J\x07\u202eevil"
    rows = [{"q": f"{said} {n}", "a": f"{said} {n}", "id": f"{said}{n}"} for n in range(20)]
    (tmp_path / "quiz.json").write_text(json.dumps(rows))
    (tmp_path / "quiz.yaml").write_text("task: quiz\ndata: quiz.json\nquestion: '{{ q }}'\nanswers: a\n")
    for command in (["tasks", "check", "quiz.yaml"], ["run", *FAKE, "--tasks", "quiz.yaml"]):
        done = softbench_run(*command, cwd=tmp_path)
        assert (done.returncode, done.stderr.count("Traceback")) == (0, 0)
        assert not re.search("[\x07\x1b\u202e]", done.stdout + done.stderr)
    assert r"\u001b[2J\u0007\u202eevil" in softbench_run("tasks", "check", "quiz.yaml", cwd=tmp_path).stdout
    (tmp_path / "quiz.yaml").write_text('"\\e[2Jtask": quiz\n')
    refused = softbench_run("tasks", "check", "quiz.yaml", cwd=tmp_path)
    assert refused.returncode == 2
    assert r"\x1b[2Jtask" in refused.stderr
