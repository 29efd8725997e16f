"""Tasks of lm-evaluation-harness (extra `lm-eval`): its own code writes the prompts, draws the shots and filters.

`lm_eval/arc_easy` is a task that comes with the harness; a YAML file in its schema is one of the user's. Supported are
the kinds `multiple_choice` (as cf) and `generate_until` with exact_match. Under few_shot each sample has the shots that
the harness draws for it.
"""

import functools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from softbench.answer_formats import AnswerForm, AnswerFormat
from softbench.answer_kinds import OPTION
from softbench.errors import DataError, TaskError
from softbench.tasks.lm_eval_guard import check_task_file, guarded
from softbench.tasks.task import Splits, Task
from softbench.types import Prompt, Sample, Split
from softbench.untrusted import MOST_YAML, read_text

PREFIX = "lm_eval/"
_KEYS = re.compile(r"^(dataset_path|doc_to_text|doc_to_target|output_type|include)\s*:", re.MULTILINE)
_INVALID = "[invalid]"
_DEFAULT_MAX_NEW_TOKENS = 256  # the harness's own default


def is_lm_eval_file(path: Path) -> bool:
    """Whether a YAML file is in the harness's schema."""
    try:
        return _KEYS.search(read_text(path, MOST_YAML)) is not None
    except (OSError, ValueError):
        return False


def lm_eval_task(name: str, include_path: Path | None) -> Task:
    """The harness's task `name` (`lm_eval/NAME`, or the path of a YAML file) as a Task, its data loaded.

    Raises TaskError where the harness is not installed, does not know it, or it is of a kind that is not supported.
    """
    harness_task = _open(name, include_path)
    config = harness_task.config
    kind = config.output_type
    if kind not in ("multiple_choice", "generate_until"):
        raise TaskError(f"task {name!r} is of kind {kind!r}; supported are multiple_choice and generate_until")
    if harness_task.multiple_input:
        raise TaskError(f"task {name!r} has a context for each option, as winogrande does; that is not supported")
    if config.doc_to_image or config.doc_to_audio:
        raise TaskError(f"task {name!r} shows images or plays sound; that is not supported")
    settings = dict(config.generation_kwargs or {})
    generates = kind == "generate_until"
    if generates and "exact_match" not in harness_task._metric_fn_list:
        metrics = ", ".join(harness_task._metric_fn_list)
        raise TaskError(f"task {name!r} is scored by {metrics}; of generate_until tasks exact_match is supported")
    if settings.get("do_sample") or (config.repeats or 1) > 1:
        raise TaskError(f"task {name!r} samples its completions; softbench decodes greedily")
    until = settings.get("until") or []
    docs: dict[str, Any] = {}
    answer_form: AnswerForm = AnswerFormat("option_text", "{answer}", OPTION)
    if generates:
        answer_form = HarnessForm(f"lm_eval:{config.task}", harness_task)
    return Task(
        name=f"{PREFIX}{config.task}",
        formulation="generation" if generates else "cf",
        instruction="",
        question=json.dumps(harness_task.dump_config(), sort_keys=True, default=str),
        answer_format=answer_form,
        stop=(until,) if isinstance(until, str) else tuple(until),
        max_new_tokens=int(settings.get("max_gen_toks", _DEFAULT_MAX_NEW_TOKENS)),
        load=lambda data_dir: _load(name, harness_task, docs),
        source=f"lm-evaluation-harness task {config.task}, {config.dataset_path}",
        licence="see the data set's card",
        write_prompts=functools.partial(_write_prompts, harness_task, docs),
    )


@dataclass(frozen=True)
class HarnessForm:
    """Reads completions with the harness's filters, the first as the strict parser and the last as the lenient one, and
    compares with its exact_match, regular expressions to ignore included."""

    name: str
    task: Any = field(repr=False, compare=False)
    template: str = "(what the harness's filter takes)"
    reads_cut_text: bool = True
    lenient_includes_strict: bool = False

    def instruction(self) -> str:
        """None: the harness's prompts hold what they need."""
        return ""

    def render(self, answer: str, reasoning: str = "") -> str:
        """The target is the harness's own, as it is."""
        return answer

    def content(self, answer: str, reasoning: str = "") -> tuple[tuple[int, int], ...]:
        """All of it: the harness does not tell answer from form."""
        return ((0, len(answer)),)

    def parse(self, text: str, choices: Sequence[str] = ()) -> str | None:
        """What the first filter takes."""
        return self._filtered(0, text)

    def find_all(self, text: str, choices: Sequence[str] = ()) -> list[str]:
        """Never several: a filter decides."""
        return []

    def find(self, text: str, choices: Sequence[str] = ()) -> str | None:
        """What the last filter takes."""
        return self._filtered(-1, text)

    def _filtered(self, place: int, text: str) -> str | None:
        with guarded(self.name):
            return _filter(self.task._filters[place], text)

    def normalize(self, answer: str) -> str:
        """As it is: the harness compares."""
        return answer

    def is_right(self, answer: str | None, accepted: Sequence[str]) -> bool:
        """Whether the harness's exact_match is 1 for any of `accepted`."""
        if answer is None:
            return False
        metric, settings = self.task._metric_fn_list["exact_match"], self.task._metric_fn_kwargs["exact_match"]
        with guarded(self.name):
            scores = [metric(references=[one], predictions=[answer], **settings) for one in accepted]
        return any(float(one["exact_match"] if isinstance(one, Mapping) else one) > 0 for one in scores)


def _filter(ensemble: Any, text: str) -> str | None:
    """`text` through one of the harness's chains of filters, which work on lists of lists of completions."""
    responses: Any = [[text]]
    for make in ensemble.filters:
        responses = list(make().apply(responses, [{}]))
    taken = responses[0] if isinstance(responses[0], str) else responses[0][0]
    return None if taken == _INVALID else str(taken)


def _open(name: str, include_path: Path | None) -> Any:
    try:
        from lm_eval.tasks import TaskManager
    except ImportError:
        raise TaskError(
            f"task {name!r} is lm-evaluation-harness's, which is not installed: pip install 'softbench[lm-eval]'"
        ) from None
    is_file = not name.startswith(PREFIX)
    if is_file and not Path(name).is_file():
        raise TaskError(f"task file {name!r} does not exist")
    for path in [Path(name)] if is_file else _of_the_user(include_path):
        check_task_file(path)
    with guarded(name):
        manager = TaskManager(include_path=include_path and str(include_path), include_defaults=not is_file)
        loaded = manager.load([str(Path(name).resolve()) if is_file else name.removeprefix(PREFIX)])
    tasks = loaded["tasks"]
    if len(tasks) != 1:
        raise TaskError(f"task {name!r} is a group; name one of its tasks: {', '.join(sorted(tasks))}")
    return next(iter(tasks.values()))


def _of_the_user(include_path: Path | None) -> list[Path]:
    """The files below a folder that are in the harness's schema, which looks for tasks in all of them."""
    found = [] if include_path is None else sorted(include_path.rglob("*.yaml"))
    return [path for path in found if is_lm_eval_file(path)]


def _load(name: str, task: Any, docs: dict[str, Any]) -> Splits:
    """Samples by split; the harness scores on test, or where there is none on validation. `docs` keeps its own rows."""
    with guarded(name):
        return _splits(name, task, docs)


def _splits(name: str, task: Any, docs: dict[str, Any]) -> Splits:
    found: dict[Split, Any] = {
        "tune": task.training_docs() if task.has_training_docs() else None,
        "validation": task.validation_docs() if task.has_validation_docs() else None,
        "test": task.test_docs() if task.has_test_docs() else None,
    }
    if found["test"] is None:
        found["test"], found["validation"] = found["validation"], None
    splits: dict[Split, list[Sample]] = {}
    for split, rows in found.items():
        splits[split] = []
        for index, doc in enumerate(rows or ()):
            sample = _sample(name, task, f"{split}-{index}", doc)
            docs[sample.id] = doc
            splits[split].append(sample)
    return splits


def _sample(name: str, task: Any, sample_id: str, doc: Any) -> Sample:
    fields = {"text": task.doc_to_text(doc)}
    target = task.doc_to_target(doc)
    if task.config.doc_to_choice is None:
        answers = target if isinstance(target, list) else [target]
        if not answers:
            raise DataError(f"task {name!r}: sample {sample_id!r} has no answer: doc_to_target gives an empty list")
        return Sample(sample_id, fields, tuple(str(one) for one in answers))
    choices = [str(one) for one in task.doc_to_choice(doc)]
    if isinstance(target, str) and target in choices:
        target = choices.index(target)
    if not isinstance(target, int) or not 0 <= target < len(choices):
        raise DataError(
            f"task {name!r}, sample {sample_id!r}: the gold {target!r} is not one of {len(choices)} options"
        )
    shown = tuple(choices) if task.config.output_type == "multiple_choice" else ()
    return Sample(sample_id, fields, (choices[target],), shown, target if shown else None)


def _write_prompts(
    task: Any, docs: Mapping[str, Any], samples: Sequence[Sample], num_fewshot: int, seed: int
) -> list[Prompt]:
    """Prompts as the harness writes them; `seed` starts its draws, which go on from sample to sample."""
    task.set_fewshot_seed(seed)
    delimiter = task.config.target_delimiter
    prompts = []
    for sample in samples:
        doc = docs[sample.id]
        with guarded(task.config.task):
            text = task.fewshot_context(doc, num_fewshot, gen_prefix=task.doc_to_prefix(doc))
        continuations = tuple(f"{delimiter}{choice}" for choice in sample.choices)
        prompts.append(Prompt(sample.id, text, f"{delimiter}{sample.answers[0]}", continuations))
    return prompts
