"""Records: all that is kept of a sample, one JSON line each, in the schema of lm-evaluation-harness's sample files.

A line's `filter` is the method (a harness task with several filters has a line for each, too), and what the harness has
no place for stands in the `softbench` block. A RecordFile grows by whole chunks, so that a killed run can go on.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from softbench.errors import OutputError
from softbench.files import unwritable, write_atomic
from softbench.record_reading import iter_records
from softbench.types import Record, Status
from softbench.untrusted import check_is_file

_CHOICE = "choice_accuracy_"


class RecordFile:
    """A file of records that is written a chunk of samples at a time and can be picked up where it stopped."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._doc_ids: set[int] = set()
        try:
            self._size = _drop_half_a_line(path)
            with path.open("rb") as file:
                self._doc_ids |= {record.doc_id for _, record in iter_records(file, str(path))}
        except FileNotFoundError:
            self._size = 0
            write_atomic(path, b"")
        except OSError as error:
            raise unwritable(path, error) from error

    def has(self, doc_ids: Iterable[int]) -> bool:
        """Whether all of these samples are there."""
        return self._doc_ids.issuperset(doc_ids)

    def append(self, records: Sequence[Record], stop: Sequence[str], max_new_tokens: int) -> None:
        """Add a chunk's records; those that an interrupted run left of it stay as they are.

        Raises OutputError where the file can't be written, is gone, or is not as this process left it.
        """
        new = [record for record in records if record.doc_id not in self._doc_ids]
        lines = "".join(record_to_line(record, stop, max_new_tokens) for record in new).encode()
        try:
            with self._path.open("r+b") as file:  # unlike "ab", it makes no new file where the old one is gone
                size = file.seek(0, os.SEEK_END)
                if size == self._size:
                    file.write(lines)
                    file.flush()
                    os.fsync(file.fileno())
        except OSError as error:
            raise unwritable(self._path, error) from error
        if size != self._size:
            raise OutputError(
                f"{str(self._path)!r} was changed by another process while softbench wrote there; see that one run at "
                "a time writes there, and run the same command again"
            )
        self._size += len(lines)
        self._doc_ids |= {record.doc_id for record in new}


def _drop_half_a_line(path: Path) -> int:
    """Cut off what a killed run may have left behind the last whole line; the file's size in bytes after that."""
    check_is_file(path)
    with path.open("rb") as file:
        whole = sum(len(line) for line in file if line.endswith(b"\n"))
    if whole != path.stat().st_size:
        os.truncate(path, whole)
    return whole


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


def _as_number(value: bool | None) -> float | None:
    return None if value is None else float(value)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
