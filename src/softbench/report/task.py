"""What a task looks like: a prompt, its target, what its parser makes of answers, its splits; and the list of tasks."""

from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from softbench.errors import SpecError
from softbench.report.grid import facts, grid
from softbench.report.plain import plain
from softbench.scoring.parse import parse_completion
from softbench.tasks import Task, TaskData, formulations, get_task, render_prompt, samples_hash, task_names
from softbench.types import Completion, Sample


def tasks_list(include_path: Path | None) -> list[dict[str, Any]]:
    """Every task at hand, for machines."""
    found = []
    for name in task_names(include_path):
        task = get_task(name, include_path=include_path)
        found.append(
            {
                "task": name,
                "formulations": formulations(name, include_path),
                "answer_format": task.answer_format.template,
                "source": task.source,
                "licence": task.licence,
            }
        )
    return found


def tasks_table(include_path: Path | None) -> Table:
    """A row a task."""
    table = grid("", ("task", "formulations", "answer format", "source"), ())
    for one in tasks_list(include_path):
        cells = one["task"], ", ".join(one["formulations"]), one["answer_format"], one["source"].split(", ")[0]
        table.add_row(*map(Text, cells))
    return table


def describe_task(task: Task, data: TaskData, num_fewshot: int) -> dict[str, Any]:
    """The first test sample as a model reads it, what the task makes of answers to it, and its splits."""
    sample = data.test[0]
    if task.write_prompts is not None:
        [prompt] = task.write_prompts([sample], num_fewshot, 0)
    else:
        pool = [one for one in (data.shots or data.tune) if one.group == sample.group]
        if len(pool) < num_fewshot:
            raise SpecError(f"{num_fewshot} worked examples are asked for, and {len(pool)} are there; take fewer")
        prompt = render_prompt(task, sample, pool[:num_fewshot])
    described: dict[str, Any] = {
        "task": task.name,
        "formulation": task.formulation,
        "source": task.source,
        "licence": task.licence,
        "sample": sample.id,
        "prompt": prompt.text,
        "target": prompt.target,
        "continuations": prompt.continuations,
    }
    if task.generates:
        described |= {
            "answer_format": {"name": task.answer_format.name, "instruction": task.answer_format.instruction()},
            "examples": [_example(task, sample, text) for text in example_answers(task, sample)],
            "stop": task.stop,
            "max_new_tokens": task.max_new_tokens,
        }
    splits = {"tune": data.tune, "validation": data.validation, "shots": data.shots, "test": data.test}
    return described | {
        "splits": {
            name: {
                "samples": len(split),
                "hash": samples_hash(split),
                "dropped": data.dropped.get(name, 0),  # type: ignore[call-overload]  # the names are those of Split
            }
            for name, split in splits.items()
        },
        "tune_from": data.tune_from,
        "near_duplicates": data.near_duplicates,
    }


def _example(task: Task, sample: Sample, text: str) -> dict[str, Any]:
    parsed = parse_completion(Completion(text, "stop", 0, 0), task.answer_format, sample.choices)
    lenient = task.answer_format.find(text, sample.choices)
    return {"text": text, "status": parsed.status, "strict": parsed.answer, "lenient": lenient}


def task_page(described: dict[str, Any]) -> list[Table | Text]:
    """The same for a terminal: what was read of the task in tables, the prompt as it is."""
    about = facts(described["task"], [(name, described[name]) for name in ("formulation", "source", "licence")])
    prompt = Text.assemble(("prompt", "bold"), f" (sample {described['sample']})\n{plain(described['prompt'])}")
    prompt.append(plain(described["target"]), "green")
    return [
        about,
        prompt,
        *(_answers(described) if "answer_format" in described else [_options(described)]),
        _splits(described),
    ]


def _answers(described: dict[str, Any]) -> list[Table | Text]:
    form = described["answer_format"]
    stops = " or ".join(repr(stop) for stop in described["stop"])
    ends = f"at {stops}, or after {described['max_new_tokens']} tokens"
    asked = facts("answer format", [("name", form["name"]), ("instruction", form["instruction"]), ("ends", ends)])
    table = grid("what its parsers make of answers", ("answer", "status", "strict", "lenient"), ())
    for one in described["examples"]:
        read = [Text("-" if answer is None else answer) for answer in (one["strict"], one["lenient"])]
        table.add_row(Text(repr(one["text"])), str(one["status"]), *read)
    return [asked, table]


def _options(described: dict[str, Any]) -> Table:
    return facts("options, each scored as a continuation", [("", repr(one)) for one in described["continuations"]])


def _splits(described: dict[str, Any]) -> Table:
    """Sizes and hashes, then what is to be known of them."""
    table = grid("splits", ("split", "hash", ""), ("samples",))
    for name, split in described["splits"].items():
        left_out = f"{split['dropped']} left out, as a later split has them" if split["dropped"] else ""
        table.add_row(name, split["hash"], left_out, str(split["samples"]))
    notes = [f"{described['near_duplicates']} test samples resemble a tuning sample"]
    if described["tune_from"] != "tune":
        notes.append(f"tuned on {described['tune_from']}, as there is no split to tune on")
    table.caption = Text("\n".join(notes))
    table.caption_justify = "left"
    table.caption_style = ""
    return table


def example_answers(task: Task, sample: Sample) -> list[str]:
    """Five ways in which a model may give the right answer of `sample`: in form, bare, loose, run on, and none."""
    answer = sample.answers[0]
    form = task.answer_format.render(answer, sample.reasoning)
    loose = f"**Answer:** {answer}"
    return [form, answer, loose, f"{form} Next question: what is", "I would say it depends"]
