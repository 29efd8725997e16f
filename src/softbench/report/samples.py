"""The samples of a report, packed: a block for each task, opened by the page when somebody looks at it.

Prompts that several methods or models share are stored once, and columns rather than rows, so that a task's samples
stay within a few megabytes. Of a task with more than a page can hold, one in so many is there.
"""

import base64
import gzip
import json
from collections.abc import Collection, Sequence
from typing import Any

from softbench.runs import FinishedJob
from softbench.stats.estimate import right
from softbench.types import Sample

MOST_RECORDS = 30_000
"""Records of a task that the page holds, all jobs together: browsers open some hundred megabytes of text."""


def pack(jobs: Sequence[FinishedJob]) -> dict[str, str]:
    """Each task's samples under all its jobs: base64 of gzipped JSON (see `block`)."""
    by_task: dict[str, list[FinishedJob]] = {}
    for job in jobs:
        by_task.setdefault(job.task, []).append(job)
    return {task: _packed(block(of_task)) for task, of_task in by_task.items()}


def block(jobs: Sequence[FinishedJob]) -> dict[str, Any]:
    """What the page reads: texts by number, samples by id, and for each job columns in the order of `samples`.

    A sample that a job was not asked is null in all of the job's columns. Of all samples that were `asked`, one in
    `oneIn` is there.
    """
    texts: dict[str, int] = {}

    def numbered(text: str | None) -> int | None:
        return None if text is None else texts.setdefault(text, len(texts))

    asked: dict[str, Sample] = {}
    for job in jobs:
        for record in job.outcomes:
            asked.setdefault(record.sample.id, record.sample)
    one_in = max(1, -(-len(asked) * len(jobs) // MOST_RECORDS))
    samples = {key: asked[key] for key in list(asked)[::one_in]}
    return {
        "samples": [
            {"id": key, "answers": one.answers, "choices": one.choices, "gold": one.gold}
            for key, one in samples.items()
        ],
        "asked": len(asked),
        "oneIn": one_in,
        "jobs": [_columns(job, samples, numbered) for job in jobs],
        "texts": list(texts),
    }


def _columns(job: FinishedJob, samples: Collection[str], numbered: Any) -> dict[str, Any]:
    by_id = {record.sample.id: record for record in job.records if record.sample.id in samples}
    records = [by_id.get(key) for key in samples]

    def column(of: Any) -> list[Any]:
        return [None if record is None else of(record) for record in records]

    return {
        "model": job.model,
        "method": job.label,
        "prompt": column(lambda record: numbered(record.prompt.text)),
        "completion": column(lambda record: record.completion and numbered(record.completion.text)),
        "finish": column(lambda record: record.completion and record.completion.finish_reason),
        "status": column(lambda record: record.status),
        "answer": column(lambda record: record.answer),
        "lenient": column(lambda record: record.lenient_answer),
        "lenientRight": column(lambda record: record.lenient_correct),
        "right": column(right),
        # As many digits as anyone can read, which also pack well.
        "logprobs": column(lambda record: [round(score.logprob, 2) for score in record.choice_scores]),
        # A question's own options, where a control has put them into another order.
        "options": column(lambda record: record.sample.choices) if "options=shuffled" in job.label else None,
    }


def _packed(value: Any) -> str:
    # Lone surrogates, which a tokenizer may leave, survive as escapes.
    data = json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False).encode()
    return base64.b64encode(gzip.compress(data, 9, mtime=0)).decode()
