"""The command as a user types it: what it prints, and one line with exit code 2 for bad input."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import softbench

FAKE = ["--model", "fake", "--engine", "fake"]
CAPITALS = ["--tasks", "capitals"]


def softbench_run(*arguments: str | Path, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if name not in ("SOFTBENCH_DATA", "COLUMNS")}
    return subprocess.run(
        [sys.executable, "-m", "softbench", *map(str, arguments)],
        cwd=cwd,
        env=clean | {"HF_HUB_OFFLINE": "1"} | environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_version_is_printed(tmp_path: Path) -> None:
    assert softbench_run("--version", cwd=tmp_path).stdout == f"softbench {softbench.__version__}\n"


def test_tasks_are_listed(tmp_path: Path) -> None:
    lines = softbench_run("tasks", cwd=tmp_path, COLUMNS="160").stdout.splitlines()
    names = [line.split()[0] for line in lines[1:]]
    assert names[:3] == ["capitals", "elements", "arithmetic"]
    assert names[3:] == sorted(names[3:])
    assert len(names) == 18
    assert "mcf, generation, cf" in next(line for line in lines if line.startswith("arc_easy"))


def test_a_task_is_shown_as_a_model_reads_it(tmp_path: Path, data_dir: Path) -> None:
    shown = softbench_run(
        "tasks", "show", "arc_easy:json", "--num-fewshot", "1", "--data-dir", data_dir, cwd=tmp_path
    ).stdout
    assert 'Reply in exactly this form: {"answer": "LETTER"}\n\nQuestion: Which factor will' in shown
    assert re.search(r"""^'{"answer": "A"}' +OK +A +A *$""", shown, re.MULTILINE)
    assert re.search(r"^'\*\*Answer:\*\* A' +NO_ANSWER +- +A *$", shown, re.MULTILINE)
    assert re.search(r"^tune .* 9 left out, as a later split has them +2242$", shown, re.MULTILINE)
    assert "5 test samples resemble a tuning sample" in shown


QUIZ = "task: quiz\ndata: quiz.csv\nquestion: 'Question: {{ q }}'\nanswers: a\n"


def test_tasks_of_ones_own_are_checked_and_run(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "quiz.csv").write_text("q,a\n" + "".join(f"What is {n}?,it is {n}\n" for n in range(20)))
    (tmp_path / "mine" / "quiz.yaml").write_text(QUIZ)
    for path in ("mine", "mine/quiz.yaml"):
        checked = softbench_run("tasks", "check", path, cwd=tmp_path)
        assert checked.returncode == 0, checked.stderr
        assert "ok: quiz" in checked.stdout
    listed = softbench_run("tasks", "--include-path", "mine", cwd=tmp_path).stdout
    assert listed.splitlines()[1].startswith("quiz ")
    for arguments in (["quiz", "--include-path", "mine"], ["mine/quiz.yaml"]):
        done = softbench_run("run", *FAKE, "--tasks", *arguments, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert [line.split()[1] for line in done.stdout.splitlines()[1:4]] == ["quiz"] * 3
    (tmp_path / "mine" / "quiz.csv").write_text("q,a\nWhat?,\n")
    broken = softbench_run("tasks", "check", "mine", cwd=tmp_path)
    assert broken.returncode == 2
    assert "an answer is missing or empty" in broken.stderr


def test_formats_of_one_task_stand_in_one_table(tmp_path: Path) -> None:
    done = softbench_run("run", *FAKE, "--tasks", "capitals,capitals:json,capitals:boxed", "--limit", "5", cwd=tmp_path)
    names = [line.split()[1] for line in done.stdout.splitlines()[1:10]]
    assert names == ["capitals"] * 3 + ["capitals:json"] * 3 + ["capitals:boxed"] * 3


def test_a_run_ends_with_the_table(tmp_path: Path) -> None:
    done = softbench_run("run", *FAKE, "--tasks", "capitals,elements", "--limit", "20", cwd=tmp_path)
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert re.split(r"\s{2,}", lines[0].strip()) == [
        "model", "task", "method", "format-following", "accuracy", "accuracy|format", "choice acc.", "steps", "s",
    ]  # fmt: skip
    assert [line.split()[:3] for line in lines[1:7]] == [
        ["fake", task, method]
        for task in ("capitals", "elements")
        for method in ("zero_shot", "few_shot", "soft_prompt")
    ]
    share = r"\d+\.\d % \[\d+\.\d, \d+\.\d\]"
    assert len(re.findall(share, lines[3])) == 3
    [path] = re.findall(r"results: (.*)", done.stdout)
    assert (tmp_path / path).is_file()
    assert "soft_prompt: tune: 80/80" in done.stderr


def test_a_narrow_terminal_gets_narrow_tables(tmp_path: Path) -> None:
    done = softbench_run("run", *FAKE, *CAPITALS, "--limit", "20", cwd=tmp_path, COLUMNS="80")
    table = done.stdout.partition("note:")[0].partition("results:")[0]
    assert "soft_prompt" in table
    assert "few_shot (5)" in table
    assert max(len(line.rstrip()) for line in table.splitlines()) <= 80


def test_completions_without_form_are_shown(tmp_path: Path) -> None:
    done = softbench_run("run", *FAKE, "--tasks", "elements", "--methods", "zero_shot", "--limit", "9", cwd=tmp_path)
    assert "note: fake, elements, zero_shot: 0.0 % of completions have the form '<< {answer} >>'" in done.stdout
    assert done.stdout.count("' I would say it depends'") == 3


def test_a_spec_file_says_the_same_as_flags(tmp_path: Path) -> None:
    (tmp_path / "spec.yaml").write_text("models: [fake]\ntasks: [capitals]\nengine: fake\nlimit: 50\n")
    from_file = softbench_run("run", "spec.yaml", "--limit", "10", cwd=tmp_path)
    from_flags = softbench_run("run", *FAKE, *CAPITALS, "--limit", "10", cwd=tmp_path)
    assert from_file.stdout.partition("results:")[0] == from_flags.stdout.partition("results:")[0] != ""


def test_a_terminal_without_unicode_gets_the_table_all_the_same(tmp_path: Path) -> None:
    done = softbench_run("run", *FAKE, *CAPITALS, "--limit", "20", cwd=tmp_path, PYTHONIOENCODING="ascii")
    assert done.returncode == 0
    assert "soft_prompt" in done.stdout


CASES: dict[str, tuple[list[str], str]] = {
    "a format that does not fit": (
        [*FAKE, *CAPITALS, "--answer-format", "letter"],
        "answer format 'letter' is not for an answer of kind ANSWER; those are: json, boxed, short_text",
    ),
    "an unknown formulation": ([*FAKE, *CAPITALS, "--formulation", "mfc"], "'formulation' can't be 'mfc'"),
    "a formulation that a task does not have": (
        [*FAKE, *CAPITALS, "--formulation", "cf"],
        "task 'capitals' has no formulation 'cf'; it has 'generation'",
    ),
    "an include path that is not there": (
        [*FAKE, *CAPITALS, "--include-path", "nowhere"],
        "include path 'nowhere' is no folder",
    ),
    "a task file that is not there": ([*FAKE, "--tasks", "nowhere.yaml"], "task file 'nowhere.yaml' can't be read"),
    "a chat setting without a chat": (
        [*FAKE, *CAPITALS, "--system-instruction", "Be brief."],
        "'system_instruction' is given without 'apply_chat_template'; add it (--apply-chat-template)",
    ),
    "a model without a chat template": (
        ["--model", "tiny", *CAPITALS, "--apply-chat-template"],
        "model 'tiny' has no chat template; drop --apply-chat-template",
    ),
    "an unknown way to draw shots": (
        [*FAKE, *CAPITALS, "--fewshot-sampling", "ranodm"],
        "'methods.1.sampling' can't be 'ranodm'",
    ),
    "unknown task": ([*FAKE, "--tasks", "capitols"], "task 'capitols' is unknown; did you mean 'capitals'?"),
    "unknown method": (
        [*FAKE, *CAPITALS, "--methods", "zero_shots"],
        "method 'zero_shots' is unknown; did you mean 'zero_shot'?",
    ),
    "missing model folder": (
        ["--model", "./no/such/folder", *CAPITALS],
        "model './no/such/folder' is neither a folder, a .gguf file nor a hub id",
    ),
    "hub id without a hub": (
        ["--model", "nobody/nothing", *CAPITALS],
        "model 'nobody/nothing' is no folder",
    ),
    "model folder without config": (
        ["--model", "empty", *CAPITALS],
        "model folder 'empty' has no config",
    ),
    "a file that is no model": (["--model", "a_file", *CAPITALS], "is a file but not a .gguf"),
    "a damaged gguf": (["--model", "bad.gguf", *CAPITALS], "'bad.gguf' can't be converted"),
    "negative steps": ([*FAKE, *CAPITALS, "--steps", "-1"], "steps' can't be -1"),
    "zero limit": ([*FAKE, *CAPITALS, "--limit", "0"], "'limit' can't be 0"),
    "a seed of letters": ([*FAKE, *CAPITALS, "--seed", "x"], "--seed can't be 'x'"),
    "a misspelt key": (["misspelt.yaml"], "key 'taks' is unknown; did you mean 'tasks'?"),
    "a spec that is not there": (["none.yaml"], "spec file 'none.yaml' does not exist"),
    "no model": ([*CAPITALS], "'models' is missing"),
    "no tasks": ([*FAKE], "'tasks' is missing"),
    "output that is a file": (
        [*FAKE, *CAPITALS, "--output-path", "a_file"],
        "output path 'a_file' is",
    ),
    "no data": ([*FAKE, "--tasks", "arc_easy"], "give --data-dir DIR (or set SOFTBENCH_DATA)"),
    "data that are not there": (
        [*FAKE, "--tasks", "arc_easy", "--data-dir", "nowhere"],
        "no file 'nowhere/arc_easy",
    ),
    "too many shots": ([*FAKE, *CAPITALS, "--num-fewshot", "500"], "num_fewshot is 500"),
    "an unknown device": (
        ["--model", "tiny", *CAPITALS, "--device", "abacus"],
        "device 'abacus' is unknown",
    ),
    "an unknown dtype": ([*FAKE, *CAPITALS, "--dtype", "int3"], "'dtype' can't be 'int3'"),
    "cuda where there is none": (
        ["--model", "tiny", *CAPITALS, "--device", "cuda:77"],
        "can't be put on device 'cuda:77'",
    ),
    "a name that no hub takes": (["--model", "my--model", *CAPITALS], "model 'my--model' is no folder here"),
    "an output path with a tab": (
        [*FAKE, *CAPITALS, "--output-path", "a\tb"],
        "holds characters that can't be printed",
    ),
    "a model of another kind": (["--model", "bert", *CAPITALS], "is not causal: later tokens change earlier ones"),
    "an encoder-decoder": (["--model", "t5", *CAPITALS], "is of type 't5'; a decoder-only language model is wanted"),
    "damaged weights": (["--model", "damaged", *CAPITALS], "model 'damaged' can't be read"),
    "pickled weights": (["--model", "pickled", *CAPITALS], "has no *.safetensors"),
    "a flag for no method": (
        [*FAKE, *CAPITALS, "--methods", "zero_shot", "--steps", "5"],
        "--steps is given, but no method of this run uses it",
    ),
    "a prompt longer than the context": (
        ["--model", "tiny", *CAPITALS, "--methods", "few_shot", "--num-fewshot", "60"],
        "and tiny takes 512; use fewer shots",
    ),
    "an option that is not there": ([*FAKE, "--task", "capitals"], "No such option: --task"),
}


@pytest.mark.parametrize("case", CASES)
def test_bad_input_is_one_clear_line_and_exit_code_2(
    case: str, tmp_path: Path, tiny_folder: Callable[[str], Path]
) -> None:
    arguments, message = CASES[case]
    (tmp_path / "a_file").write_text("mine")
    (tmp_path / "bad.gguf").write_bytes(b"GGUF" + bytes(60))
    (tmp_path / "empty").mkdir()
    (tmp_path / "tiny").symlink_to(tiny_folder("gpt2"))
    for name in ("bert", "t5"):
        (tmp_path / name).symlink_to(tiny_folder(name))
    shutil.copytree(tiny_folder("gpt2"), tmp_path / "damaged")
    weights = tmp_path / "damaged" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    shutil.copytree(tiny_folder("gpt2"), tmp_path / "pickled")
    (tmp_path / "pickled" / "model.safetensors").rename(tmp_path / "pickled" / "pytorch_model.bin")
    (tmp_path / "misspelt.yaml").write_text("models: [fake]\ntaks: [capitals]\n")
    done = softbench_run("run", *arguments, cwd=tmp_path, SOFTBENCH_CACHE=str(tmp_path / "cache"), COLUMNS="400")
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert message in done.stderr
    if case != "an option that is not there":  # typer's own message has a frame
        assert [line for line in done.stderr.splitlines() if "error: " in line] == done.stderr.splitlines()[-1:]
    assert (tmp_path / "a_file").read_text() == "mine"
    assert done.stdout == ""
