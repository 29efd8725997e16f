"""Records: all that is kept of a sample, one JSON line each, in the schema of lm-evaluation-harness's sample files.

A line's `filter` is the method (a harness task with several filters has a line for each, too), and what the harness has
no place for stands in the `softbench` block. A RecordFile grows by whole chunks, so that a killed run can go on.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, get_args

from softbench.errors import DataError, OutputError
from softbench.files import write_atomic
from softbench.types import ChoiceNorm, ChoiceScore, Completion, Prompt, Record, Sample, Status

_CHOICE = "choice_accuracy_"
NORMS: tuple[ChoiceNorm, ...] = get_args(ChoiceNorm)


class RecordFile:
    """A file of records that is written a chunk of samples at a time and can be picked up where it stopped."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._records: dict[int, Record] = {}
        whole = b""
        if path.exists():
            data = path.read_bytes()
            whole = data[: data.rfind(b"\n") + 1]  # a killed run may have left half a line
            for record in read_records(whole, str(path)):
                self._records[record.doc_id] = record
            if whole == data:
                return
        write_atomic(path, whole)

    def has(self, doc_ids: Iterable[int]) -> bool:
        """Whether all of these samples are there."""
        return all(doc_id in self._records for doc_id in doc_ids)

    def append(self, records: Sequence[Record], stop: Sequence[str], max_new_tokens: int) -> None:
        """Add a chunk's records; those that an interrupted run left of it stay as they are."""
        new = [record for record in records if record.doc_id not in self._records]
        lines = "".join(record_to_line(record, stop, max_new_tokens) for record in new)
        try:
            with self._path.open("ab") as file:
                file.write(lines.encode())
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise OutputError(f"{str(self._path)!r} can't be written: {error.strerror or error}") from error
        self._records.update((record.doc_id, record) for record in new)

    def in_order(self) -> list[Record]:
        """All records, in the order of the test split."""
        return [self._records[doc_id] for doc_id in sorted(self._records)]


def record_to_line(record: Record, stop: Sequence[str], max_new_tokens: int) -> str:
    """One JSON line. The same record gives the same bytes."""
    sample, prompt, completion = record.sample, record.prompt, record.completion
    arguments: dict[str, Any] = {}
    if completion is not None:
        settings = {"until": list(stop), "max_gen_toks": max_new_tokens, "do_sample": False, "temperature": 0.0}
        arguments["gen_args_0"] = {"arg_0": prompt.text, "arg_1": settings}
    for continuation in prompt.continuations:
        arguments[f"gen_args_{len(arguments)}"] = {"arg_0": prompt.text, "arg_1": continuation}
    doc = {
        "id": sample.id,
        "fields": dict(sample.fields),
        "answers": sample.answers,
        "choices": sample.choices,
        "gold": sample.gold,
        "reasoning": sample.reasoning,
        "group": sample.group,
        "cluster": sample.cluster,
    }
    responses: list[Any] = [] if completion is None else [[completion.text]]
    responses += [[[score.logprob, score.is_greedy]] for score in record.choice_scores]
    metrics = {
        "accuracy": _as_number(record.correct),
        "format_following": _as_number(None if record.status is None else record.status is Status.OK),
        "lenient_accuracy": _as_number(record.lenient_correct),
        **{f"{_CHOICE}{norm}": _as_number(right) for norm, right in record.choice_correct.items()},
    }
    value = {
        "doc_id": record.doc_id,
        "doc": doc,
        "target": sample.answers[0],
        "arguments": arguments,
        "resps": responses,
        "filtered_resps": [record.answer],
        "filter": record.method,
        "metrics": list(metrics),
        "doc_hash": _hash(json.dumps(doc, sort_keys=True, ensure_ascii=False)),
        "prompt_hash": _hash(prompt.text),
        "target_hash": _hash(sample.answers[0]),
        **metrics,
        "softbench": {
            "seed": record.seed,
            "status": record.status,
            "answer": record.answer,
            "lenient_answer": record.lenient_answer,
            "prompt_target": prompt.target,
            "finish_reason": completion and completion.finish_reason,
            "num_prompt_tokens": completion and completion.num_prompt_tokens,
            "num_tokens": completion and completion.num_tokens,
            "choice_num_tokens": [score.num_tokens for score in record.choice_scores],
            "choice_premise_logprobs": [score.premise_logprob for score in record.choice_scores],
            "answer_mass": record.answer_mass,
            "top_token": record.top_token,
            "top_options": record.top_options,
        },
    }
    return json.dumps(value, ensure_ascii=False, allow_nan=False) + "\n"


def read_records(data: bytes, name: str) -> list[Record]:
    """Read the lines that record_to_line wrote. Raises DataError, naming the line, where one can't be read."""
    records = []
    for number, line in enumerate(data.split(b"\n"), start=1):
        if not line:
            continue
        try:
            records.append(_record(json.loads(line.decode("utf-8"))))
        except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
            raise DataError(
                f"{name}, line {number} is not a softbench record ({error!r}); move the file away to make it anew"
            ) from error
    return records


def _record(line: dict[str, Any]) -> Record:
    doc, block = line["doc"], line["softbench"]
    responses = [one[0] for one in line["resps"]]
    arguments = list(line["arguments"].values())
    completion = None
    if block["finish_reason"] is not None:
        text = responses.pop(0)
        arguments_of_choices = arguments[1:]
        completion = Completion(text, block["finish_reason"], block["num_prompt_tokens"], block["num_tokens"])
    else:
        arguments_of_choices = arguments
    sample = Sample(
        doc["id"],
        doc["fields"],
        tuple(doc["answers"]),
        tuple(doc["choices"]),
        doc["gold"],
        doc["reasoning"],
        doc["group"],
        doc.get("cluster", ""),
    )
    continuations = tuple(argument["arg_1"] for argument in arguments_of_choices)
    return Record(
        doc_id=line["doc_id"],
        sample=sample,
        method=line["filter"],
        seed=block["seed"],
        prompt=Prompt(sample.id, arguments[0]["arg_0"], block["prompt_target"], continuations),
        completion=completion,
        status=None if block["status"] is None else Status(block["status"]),
        answer=block["answer"],
        correct=_as_bool(line["accuracy"]),
        lenient_answer=block["lenient_answer"],
        lenient_correct=_as_bool(line["lenient_accuracy"]),
        choice_scores=tuple(
            ChoiceScore(logprob, num_tokens, is_greedy, premise)
            for (logprob, is_greedy), num_tokens, premise in zip(
                responses, block["choice_num_tokens"], block["choice_premise_logprobs"], strict=True
            )
        ),
        choice_correct={norm: bool(line[f"{_CHOICE}{norm}"]) for norm in NORMS if f"{_CHOICE}{norm}" in line},
        answer_mass=block["answer_mass"],
        top_token=block["top_token"],
        top_options=tuple(block["top_options"]),
    )


def _as_number(value: bool | None) -> float | None:
    return None if value is None else float(value)


def _as_bool(value: float | None) -> bool | None:
    return None if value is None else bool(value)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
