"""The whole job over the fake engine and over tiny models: files, resuming, determinism."""

import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from softbench import pipeline
from softbench.engines.fake import FakeEngine
from softbench.errors import DataError, OutputError, PromptTooLong, SpecError
from softbench.files import safe_name
from softbench.methods import tune as tuning
from softbench.pipeline import Job, make_record, run, shot_pool
from softbench.record_reading import line_to_record
from softbench.records import RecordFile, record_to_line
from softbench.report.progress import LineProgress
from softbench.report.table import seed_notes
from softbench.results import JobResult, Results
from softbench.spec import Spec, ZeroShotSpec, read_spec
from softbench.tasks import get_task, load_data
from softbench.types import ChoiceScores, Completion, Prompt, Sample

QUIET = LineProgress(Console(quiet=True))
SAMPLE = Sample("s", {"question": "Which film?"}, ("Dune: Part Two",))


def spec_of(out: Path, **overrides: Any) -> Spec:
    return read_spec(
        None, {"models": ["fake"], "tasks": ["capitals"], "engine": "fake", "output_path": out} | overrides
    )


def tiny_spec(folder: Path, out: Path, **overrides: Any) -> Spec:
    small = {"models": [str(folder)], "engine": "transformers", "dtype": "float32", "device": "cpu"}
    return spec_of(out, **(small | {"limit": 6, "num_fewshot": 1, "steps": 3, "batch_size": 2} | overrides))


def records_of(results: Results) -> dict[str, bytes]:
    return {job.folder.name: (job.folder / "records.jsonl").read_bytes() for job in results.jobs}


def test_a_run_writes_what_the_harness_reads(tmp_path: Path) -> None:
    [results] = run(spec_of(tmp_path, limit=20), QUIET)
    value = json.loads(results.path.read_text())
    assert results.path.parent == tmp_path / "fake"
    assert value["n-shot"] == {"capitals": 5}
    assert value["n-samples"] == {"capitals": {"original": 103, "effective": 20}}
    of_task = value["results"]["capitals"]
    for method in ("zero_shot", "few_shot", "soft_prompt"):
        assert 0 <= of_task[f"accuracy,{method}"] <= of_task[f"format_following,{method}"] <= 1
        assert of_task[f"accuracy_stderr,{method}"] >= 0
    block = value["softbench"]
    assert [job["label"] for job in block["jobs"]] == ["zero_shot", "few_shot", "soft_prompt"]
    assert block["tasks"]["capitals"]["formulation"] == "generation"
    assert block["tasks"]["capitals"]["splits"]["tune"]["samples"] == 70
    soft = block["jobs"][2]
    assert soft["cost"]["tuning_steps"] == 80
    assert soft["cost"]["tuning_samples"] == 640
    assert soft["cost"]["trainable_parameters"] == 80
    assert soft["cost"]["evaluation_peak_memory_bytes"] > 0
    assert soft["metrics"]["choice_accuracy_raw"] == {
        "value": None, "low": None, "high": None, "n": 0, "stderr": None
    }  # fmt: skip
    assert sum(soft["statuses"].values()) == 20


def test_the_sample_file_holds_a_line_for_each_sample_and_method(tmp_path: Path) -> None:
    [results] = run(spec_of(tmp_path, limit=20), QUIET)
    [path] = (tmp_path / "fake").glob("samples_capitals_*.jsonl")
    records = [line_to_record(line) for line in path.read_bytes().splitlines()]
    assert [record.method for record in records] == ["zero_shot"] * 20 + ["few_shot"] * 20 + ["soft_prompt"] * 20
    assert [record.doc_id for record in records] == list(range(20)) * 3
    assert [tuple(job.records) for job in results.jobs] == [tuple(records[i : i + 20]) for i in (0, 20, 40)]
    assert path.stem.removeprefix("samples_capitals_") == results.path.stem.removeprefix("results_")


def test_two_runs_give_the_same_records_byte_for_byte(tiny_folder: Callable[[str], Path], tmp_path: Path) -> None:
    runs = [run(tiny_spec(tiny_folder("llama"), tmp_path / name), QUIET)[0] for name in ("a", "b")]
    assert records_of(runs[0]) == records_of(runs[1])
    samples = [next((tmp_path / name / "llama").glob("samples_*")).read_bytes() for name in ("a", "b")]
    assert samples[0] == samples[1]
    weights = [next((tmp_path / name).rglob("*.safetensors")).read_bytes() for name in ("a", "b")]
    assert weights[0] == weights[1]
    assert [job.metrics for job in runs[0].jobs] == [job.metrics for job in runs[1].jobs]


@pytest.mark.parametrize("architecture", ["llama", "gpt2", "gemma3", "qwen3"])
def test_every_architecture_runs_all_methods(
    architecture: str, tiny_folder: Callable[[str], Path], tmp_path: Path, data_dir: Path
) -> None:
    folder = tiny_folder(architecture)
    tasks = ["capitals", "arc_easy:cf"]
    short = {"tasks": tasks, "data_dir": data_dir, "limit": 2, "steps": 2, "methods": ["zero_shot", "soft_prompt"]}
    [results] = run(tiny_spec(folder, tmp_path, **short, num_fewshot=None), QUIET)
    assert [(job.task.name, job.label) for job in results.jobs] == [
        (task, method) for task in tasks for method in ("zero_shot", "soft_prompt")
    ]
    for job in results.jobs:
        generated, scored = job.metrics["format_following"], job.metrics["choice_accuracy_raw"]
        assert (generated.n, scored.n) == ((2, 0) if job.task.name == "capitals" else (0, 2))


@pytest.fixture(scope="module")
def whole_run(tiny_folder: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Results:
    """A run in chunks of two samples that nothing cut off."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipeline, "CHUNK", 2)
        [results] = run(tiny_spec(tiny_folder("llama"), tmp_path_factory.mktemp("whole")), QUIET)
    return results


def untimed(job: JobResult) -> dict[str, Any]:
    """A job's cost without what depends on the machine, or on how often the shared prefix had to be read."""
    measured = ("seconds", "memory", "evaluation_tokens", "evaluation_flops")
    return {name: value for name, value in job.cost.items() if not any(one in name for one in measured)}


@pytest.mark.parametrize("fails_at", range(1, 10))
def test_a_run_cut_off_in_a_write_goes_on_and_ends_with_the_same_bytes(
    fails_at: int,
    whole_run: Results,
    tiny_folder: Callable[[str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pipeline, "CHUNK", 2)
    spec = tiny_spec(tiny_folder("llama"), tmp_path)
    append_whole = RecordFile.append
    calls = 0

    def append(self: RecordFile, records: Any, stop: Any, max_new_tokens: int) -> None:
        nonlocal calls
        calls += 1
        if calls == fails_at:
            line = record_to_line(records[0], stop, max_new_tokens)
            with self._path.open("a", encoding="utf-8") as file:
                file.write((line * 2)[: len(line) + 30])  # one whole line and a piece of the next
            raise KeyboardInterrupt
        append_whole(self, records, stop, max_new_tokens)

    with monkeypatch.context() as patch:
        patch.setattr(RecordFile, "append", append)
        with pytest.raises(KeyboardInterrupt):
            run(spec, QUIET)
    [resumed] = run(spec, QUIET)
    assert records_of(resumed) == records_of(whole_run)
    assert [untimed(job) for job in resumed.jobs] == [untimed(job) for job in whole_run.jobs]
    assert [job.metrics for job in resumed.jobs] == [job.metrics for job in whole_run.jobs]


def test_a_finished_run_is_read_and_not_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [first] = run(spec_of(tmp_path, limit=5), QUIET)
    monkeypatch.setattr(FakeEngine, "generate", lambda *_: pytest.fail("generated again"))
    [second] = run(spec_of(tmp_path, limit=5), QUIET)
    assert [job.metrics for job in first.jobs] == [job.metrics for job in second.jobs]
    assert [job.cost for job in first.jobs] == [job.cost for job in second.jobs]
    assert [job.tuned_sha256 for job in first.jobs] == [job.tuned_sha256 for job in second.jobs]


@pytest.mark.parametrize(
    ("overrides", "redone"),
    [
        ({}, []),
        ({"seeds": [1]}, ["few_shot", "soft_prompt"]),
        ({"limit": 4}, ["zero_shot", "few_shot", "soft_prompt"]),
        ({"eval_batch_size": 2}, ["zero_shot", "few_shot", "soft_prompt"]),
        ({"models": [{"source": "other", "name": "fake"}]}, ["zero_shot", "few_shot", "soft_prompt"]),
        ({"num_fewshot": 2}, ["few_shot"]),
        ({"steps": 7}, ["soft_prompt"]),
        ({"learning_rate": 0.2}, ["soft_prompt"]),
    ],
)
def test_finished_work_counts_for_the_same_settings_alone(
    overrides: dict[str, Any], redone: list[str], tmp_path: Path
) -> None:
    [first] = run(spec_of(tmp_path, limit=5), QUIET)
    [second] = run(spec_of(tmp_path, **({"limit": 5} | overrides)), QUIET)
    before = {job.folder for job in first.jobs}
    assert [job.label for job in second.jobs if job.folder not in before] == redone


def test_a_soft_prompt_that_was_damaged_is_tuned_again(tmp_path: Path) -> None:
    [first] = run(spec_of(tmp_path, limit=5), QUIET)
    [path] = (tmp_path / first.info.name / "tuned").rglob("soft_prompt.safetensors")
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    run(spec_of(tmp_path, limit=5), QUIET)
    assert path.read_bytes() == whole


def test_records_of_a_lost_soft_prompt_are_not_taken_for_those_of_a_new_one(tmp_path: Path) -> None:
    [first] = run(spec_of(tmp_path, limit=5), QUIET)
    [lost] = (tmp_path / "fake" / "tuned").rglob("soft_prompt.safetensors")
    lost.unlink()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("softbench.engines.fake.FAKE_STEPS", 200)  # as if other hardware came to another prompt
        [second] = run(spec_of(tmp_path, limit=5), QUIET)
    assert [one.folder == other.folder for one, other in zip(first.jobs, second.jobs, strict=True)] == [
        True,
        True,
        False,
    ]


def test_methods_of_one_kind_have_rows_of_their_own(tmp_path: Path) -> None:
    methods = [{"kind": "few_shot", "num_fewshot": 1}, {"kind": "few_shot", "num_fewshot": 3}, "zero_shot", "zero_shot"]
    [results] = run(spec_of(tmp_path, methods=methods, seeds=[0, 1], limit=3), QUIET)
    labels = [f"few_shot:num_fewshot={shots}:seed={seed}" for shots in (1, 3) for seed in (0, 1)]
    assert [job.label for job in results.jobs] == [*labels, "zero_shot"]
    of_task = json.loads(results.path.read_text())["results"]["capitals"]
    assert all(f"accuracy,{label}" in of_task for label in labels)


def test_a_task_named_twice_runs_once(tmp_path: Path, data_dir: Path) -> None:
    twice = {"tasks": ["arc_easy", "arc_easy:mcf", "capitals", "capitals"], "data_dir": data_dir}
    [results] = run(spec_of(tmp_path, methods=["zero_shot"], limit=3, **twice), QUIET)
    assert [job.task.name for job in results.jobs] == ["arc_easy:mcf", "capitals"]


def test_a_seed_more_does_not_undo_the_first(tmp_path: Path) -> None:
    [first] = run(spec_of(tmp_path, limit=3), QUIET)
    [second] = run(spec_of(tmp_path, limit=3, seeds=[0, 1]), QUIET)
    assert {job.folder for job in first.jobs} < {job.folder for job in second.jobs}


def test_several_seeds_are_several_rows_but_zero_shot_is_one(tmp_path: Path) -> None:
    [results] = run(spec_of(tmp_path, seeds=[0, 1], limit=5), QUIET)
    labels = ["zero_shot", "few_shot:seed=0", "few_shot:seed=1", "soft_prompt:seed=0", "soft_prompt:seed=1"]
    assert [job.label for job in results.jobs] == labels
    assert [job.seed for job in results.jobs] == [None, 0, 1, 0, 1]


def test_shots_are_no_test_samples(tmp_path: Path) -> None:
    [results] = run(spec_of(tmp_path), QUIET)
    few_shot = results.jobs[1]
    tested = {record.sample.fields["country"] for record in few_shot.records}
    for record in few_shot.records:
        shown = {
            line.removeprefix("Country: ") for line in record.prompt.text.splitlines() if line.startswith("Country")
        }
        assert shown & tested == {record.sample.fields["country"]}


def test_a_control_with_shuffled_labels_is_named_and_tuned_on_other_answers(
    tiny_folder: Callable[[str], Path], tmp_path: Path
) -> None:
    methods = [{"kind": "soft_prompt", "labels": labels} for labels in ("gold", "shuffled")]
    spec = tiny_spec(tiny_folder("llama"), tmp_path, methods=methods, num_fewshot=None)
    [results] = run(spec, QUIET)
    assert [job.label for job in results.jobs] == ["soft_prompt", "soft_prompt:labels=shuffled"]
    assert results.jobs[0].tuned_sha256 != results.jobs[1].tuned_sha256
    [alone] = run(tiny_spec(tiny_folder("llama"), tmp_path, methods=methods[1:], num_fewshot=None), QUIET)
    assert alone.jobs[0].label == "soft_prompt:labels=shuffled"
    assert alone.jobs[0].tuned_sha256 == results.jobs[1].tuned_sha256


def test_two_tasks_of_one_name_are_refused(tmp_path: Path) -> None:
    paths = []
    for place, question in enumerate(("{{ q }}", "Q: {{ q }}")):
        (tmp_path / str(place)).mkdir()
        path = tmp_path / str(place) / "t.yaml"
        path.write_text(f"task: mine\ndata: rows.json\nquestion: '{question}'\nanswers: a\n")
        (path.parent / "rows.json").write_text(json.dumps([{"q": f"{n}?", "a": str(n)} for n in range(20)]))
        paths.append(str(path))
    with pytest.raises(SpecError, match="two tasks are called 'mine' and differ"):
        run(spec_of(tmp_path / "out", tasks=paths), QUIET)
    [results] = run(spec_of(tmp_path / "out", tasks=[paths[0], paths[0]], methods=["zero_shot"]), QUIET)
    assert len(results.jobs) == 1


def test_a_right_strict_answer_is_right_leniently_too(tmp_path: Path) -> None:
    job = Job(get_task("trivia_qa"), None, [SAMPLE], ZeroShotSpec(), None, 0, "x", None)  # type: ignore[arg-type]
    record = make_record(job, 0, Prompt("s", "", ""), Completion("Dune: Part Two", "stop", 1, 1), ChoiceScores())
    assert (record.correct, record.lenient_answer, record.lenient_correct) == (True, "Part Two", True)


def test_conversations_are_recorded_with_their_template(tmp_path: Path) -> None:
    settings = {"apply_chat_template": True, "system_instruction": "Be brief.", "fewshot_as_multiturn": True}
    [chat] = run(spec_of(tmp_path, limit=3, **settings), QUIET)
    [plain] = run(spec_of(tmp_path, limit=3), QUIET)
    assert not {job.folder for job in chat.jobs} & {job.folder for job in plain.jobs}
    block = json.loads(chat.path.read_text())["softbench"]["jobs"][1]["chat"]
    assert block == {
        "system_instruction": "Be brief.",
        "fewshot_as_multiturn": True,
        "assistant_prefix": "",
        "template_hash": "fake",
    }
    for record in chat.jobs[1].records:
        assert record.prompt.text.startswith("<system>Be brief.</system>\n<user>Name the capital")
        assert record.prompt.text.count("<assistant>") == 6
    assert json.loads(plain.path.read_text())["softbench"]["jobs"][1]["chat"] is None


def test_groups_are_scored_by_themselves_and_averaged(tmp_path: Path) -> None:
    rows = [{"q": f"{n}?", "a": str(n), "part": "ab"[n % 3 == 0]} for n in range(60)]
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    (tmp_path / "mine.yaml").write_text(
        "task: mine\ndata: rows.json\nquestion: '{{ q }}'\nanswers: a\nkind: number\ngroup: part\n"
    )
    [results] = run(spec_of(tmp_path / "out", tasks=[str(tmp_path / "mine.yaml")], num_fewshot=2), QUIET)
    for job in json.loads(results.path.read_text())["softbench"]["jobs"]:
        assert list(job["groups"]) == ["a", "b"]
        values = [group["accuracy"]["value"] for group in job["groups"].values()]
        assert job["macro_average"]["accuracy"]["value"] == pytest.approx(sum(values) / 2)
        assert sum(group["accuracy"]["n"] for group in job["groups"].values()) == 30
    for record in results.jobs[1].records:
        shown = record.prompt.text.split("\n\n")[1:3]
        groups = {rows[int(one.partition("?")[0])]["part"] for one in shown}
        assert groups == {record.sample.group}


def test_a_group_with_too_few_shots_of_its_own_is_filled_up_from_the_tuning_split(data_dir: Path) -> None:
    data = load_data(get_task("mmlu"), data_dir)
    # Five of the benchmark's own shots stand in its test split too, under another subject.
    assert min(Counter(sample.group for sample in data.shots).values()) == 2
    counts = Counter(sample.group for sample in shot_pool(data, 5))
    assert len(counts) == 57
    assert set(counts.values()) == {5}
    assert shot_pool(load_data(get_task("capitals"), None), 5)[0].id.startswith("capitals-")


def test_a_prompt_that_is_too_long_ends_the_run_at_once(tiny_folder: Callable[[str], Path], tmp_path: Path) -> None:
    spec = tiny_spec(tiny_folder("gpt2"), tmp_path, methods=["few_shot"], num_fewshot=60, steps=None, batch_size=None)
    with pytest.raises(PromptTooLong, match="takes 512; use fewer shots"):
        run(spec, QUIET)


def test_data_are_checked_before_any_model_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SOFTBENCH_DATA", raising=False)
    with pytest.raises(DataError, match="SOFTBENCH_DATA"):
        run(spec_of(tmp_path, tasks=["capitals", "arc_easy"], models=["/no/such/model"]), QUIET)


def test_an_output_path_that_is_no_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(OutputError, match="give a folder"):
            run(spec_of(path), QUIET)
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize(
    ("name", "safe"), [("../../etc", "_.._etc"), ("..", "_"), ("a/b", "a_b"), ("arc_easy:cf", "arc_easy_cf"), ("", "_")]
)
def test_a_name_can_not_leave_its_folder(name: str, safe: str) -> None:
    assert "/" not in safe_name(name)
    assert not safe_name(name).startswith(".")
    assert safe_name(name) == safe


def test_a_hostile_model_name_stays_inside(tmp_path: Path) -> None:
    models = [{"source": "fake", "name": "../../outside"}]
    [results] = run(spec_of(tmp_path / "out", models=models, limit=2), QUIET)
    assert results.path.resolve().is_relative_to(tmp_path / "out")
    shutil.rmtree(tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_seeds_are_set_beside_samples(tmp_path: Path) -> None:
    [results] = run(spec_of(tmp_path, seeds=[0, 1, 2], limit=40), QUIET)
    found = {(one["method"], one["metric"]): one["spread"] for one in softbench_block(results)["seeds"]}
    assert {method for method, _ in found} == {"few_shot", "soft_prompt"}
    spread = found["soft_prompt", "accuracy"]
    assert spread["num_seeds"] == 3
    assert spread["between_seeds"] >= 0
    assert spread["sampling"] == pytest.approx((spread["mean"] * (1 - spread["mean"]) / 40) ** 0.5)
    notes = seed_notes([results])
    assert len(notes) == 4
    assert "soft_prompt: accuracy over 3 seeds" in notes[-1]
    [alone] = run(spec_of(tmp_path / "one", limit=5), QUIET)
    assert softbench_block(alone)["seeds"] == []


def softbench_block(results: Results) -> Any:
    return json.loads(results.path.read_text(encoding="utf-8"))["softbench"]


def test_questions_on_one_passage_are_clustered(tmp_path: Path, data_dir: Path) -> None:
    [results] = run(spec_of(tmp_path, tasks=["boolq"], data_dir=data_dir, methods=["majority"], limit=2000), QUIET)
    clusters = {record.sample.cluster for record in results.jobs[0].records}
    assert 500 < len(clusters) < 2000
    errors = softbench_block(results)["jobs"][0]["clustered_stderr"]
    plain = results.jobs[0].metrics["accuracy"].stderr
    assert plain is not None
    assert errors["accuracy"] == pytest.approx(plain, rel=0.3)
    assert errors["accuracy"] != plain


def test_prompts_tuned_together_are_tuned_once_and_kept_apart_from_others(
    tmp_path: Path, tiny_folder: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: dict[str, Any] = {
        "tasks": ["capitals", "arithmetic"],
        "methods": ["zero_shot", "few_shot", "soft_prompt"],
        "seeds": [0, 1],
    }
    [apart] = run(tiny_spec(tiny_folder("llama"), tmp_path / "apart", **settings), QUIET)
    asked: list[int] = []

    def counted(model: Any, requests: Any, on_step: Any, keeper: Any) -> Any:
        asked.append(len(requests))
        return original(model, requests, on_step, keeper)

    original = tuning.tune_together
    monkeypatch.setattr(tuning, "tune_together", counted)
    spec = tiny_spec(tiny_folder("llama"), tmp_path / "together", **settings, tune_together=True)
    [together] = run(spec, QUIET)
    assert asked == [4]
    for one, other in zip(apart.jobs, together.jobs, strict=True):
        assert (one.task.name, one.label) == (other.task.name, other.label)
        assert (one.folder.name != other.folder.name) == (one.method == "soft_prompt")
        if one.method != "soft_prompt":
            continue
        cards = []
        for where, job in (("apart", one), ("together", other)):
            found = (tmp_path / where).rglob(f"{job.task.name}-soft_prompt-*/soft_prompt.json")
            cards += [card for card in (json.loads(path.read_text()) for path in found) if card["seed"] == job.seed]
        assert cards[0]["losses"] == pytest.approx(cards[1]["losses"], rel=1e-3)
        assert "tuned_together" not in cards[0]
        assert cards[1]["tuned_together"] == 4
    [again] = run(spec, QUIET)
    assert asked == [4]
    assert records_of(again) == records_of(together)
    damaged = next((tmp_path / "together").rglob("arithmetic-soft_prompt-*/soft_prompt.safetensors"))
    whole = damaged.read_bytes()
    damaged.write_bytes(whole[:-1])
    [mended] = run(spec, QUIET)
    assert asked == [4, 4]  # with the others again, so that the same is learned
    assert damaged.read_bytes() == whole
    assert records_of(mended) == records_of(together)
