"""What a task looks like: a prompt, its target, what its parser makes of answers, its splits."""

from rich.text import Text

from softbench.errors import SpecError
from softbench.scoring.parse import parse_completion
from softbench.tasks import Task, TaskData, render_prompt, samples_hash
from softbench.types import Completion, Sample


def describe_task(task: Task, data: TaskData, num_fewshot: int) -> Text:
    """The first test sample as a model reads it, and the task's answer format and splits, for a terminal."""
    sample = data.test[0]
    if task.write_prompts is not None:
        [prompt] = task.write_prompts([sample], num_fewshot, 0)
    else:
        pool = [one for one in (data.shots or data.tune) if one.group == sample.group]
        if len(pool) < num_fewshot:
            raise SpecError(f"{num_fewshot} worked examples are asked for, and {len(pool)} are there; take fewer")
        prompt = render_prompt(task, sample, pool[:num_fewshot])
    lines = Text()
    lines.append(f"{task.name}", "bold")
    lines.append(f"  {task.formulation}; {task.source}; licence: {task.licence}\n\n")
    lines.append("prompt", "bold")
    lines.append(f" (sample {sample.id})\n{prompt.text}")
    lines.append(f"{prompt.target}\n\n", "green")
    if not task.generates:
        lines.append("options, each scored as a continuation", "bold")
        lines.append("\n" + "\n".join(repr(one) for one in prompt.continuations) + "\n\n")
    else:
        lines.append("answer format", "bold")
        lines.append(f" {task.answer_format.name}: {task.answer_format.instruction()}\n")
        for text in example_answers(task, sample):
            parsed = parse_completion(Completion(text, "stop", 0, 0), task.answer_format, sample.choices)
            lenient = task.answer_format.find(text, sample.choices)
            lines.append(f"  {text!r}: {parsed.status}, strict {parsed.answer!r}, lenient {lenient!r}\n")
        stops = ", ".join(repr(stop) for stop in task.stop)
        lines.append(f"  ends at {stops} or after {task.max_new_tokens} tokens\n\n")
    lines.append("splits\n", "bold")
    for name, split in (
        ("tune", data.tune),
        ("validation", data.validation),
        ("shots", data.shots),
        ("test", data.test),
    ):
        dropped = data.dropped.get(name, 0)  # type: ignore[call-overload]  # the names are those of Split
        left_out = f", {dropped} left out as a later split has them" if dropped else ""
        lines.append(f"  {name}: {len(split)} samples, hash {samples_hash(split)}{left_out}\n")
    if data.tune_from != "tune":
        lines.append(f"  tuned on {data.tune_from}, as there is no split to tune on\n")
    lines.append(f"  {data.near_duplicates} test samples resemble a tuning sample\n")
    return lines


def example_answers(task: Task, sample: Sample) -> list[str]:
    """Five ways in which a model may give the right answer of `sample`: in form, bare, loose, run on, and none."""
    answer = sample.answers[0]
    form = task.answer_format.render(answer, sample.reasoning)
    loose = f"**Answer:** {answer}"
    return [form, answer, loose, f"{form} Next question: what is", "I would say it depends"]
