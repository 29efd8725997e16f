"""Reads records back from their lines; softbench.records writes them.

A line is taken for what it says only where it is whole: of the right types, its numbers finite, its parts in accord.
What softbench does not read of it may be anything, as the harness and others may add to it.
"""

from collections.abc import Iterator
from typing import IO, Annotated

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from softbench.errors import DataError
from softbench.types import ChoiceNorm, ChoiceScore, Completion, FinishReason, Prompt, Record, Sample, Status
from softbench.untrusted import check_keys, complaint


def iter_records(file: IO[bytes], name: str) -> Iterator[tuple[int, Record]]:
    """The records of a file's lines, one after another, each with the byte at which its line begins.

    Raises DataError, naming the line, at one that is no record, contradicts itself or speaks of a sample again.
    """
    seen: set[int] = set()
    end = 0
    for number, line in enumerate(file, start=1):
        begin, end = end, end + len(line)
        if line == b"\n":
            continue
        try:
            record = line_to_record(line)
            check_keys(line)
        except ValueError as error:
            raise _no_record(name, number, complaint(error)) from error
        if record.doc_id in seen:
            raise _no_record(name, number, f"sample {record.doc_id} was there before")
        seen.add(record.doc_id)
        yield begin, record


def line_to_record(line: bytes) -> Record:
    """The record that a line says. Raises ValueError where it is none, or contradicts itself."""
    record = _record(_Line.model_validate_json(line))
    _check(record)
    return record


def _no_record(name: str, number: int, why: str) -> DataError:
    return DataError(f"{name}, line {number} is not a softbench record ({why}); move the file away to make it anew")


class _Part(BaseModel):
    model_config = ConfigDict(strict=True, allow_inf_nan=False)


class _Doc(_Part):
    id: str
    fields: dict[str, JsonValue]
    answers: Annotated[list[str], Field(min_length=1)]
    choices: list[str]
    gold: int | None
    reasoning: str
    group: str
    cluster: str = ""


class _Request(_Part):
    arg_0: str
    arg_1: str | dict[str, JsonValue]


class _Block(_Part):
    seed: int | None
    status: Status | None
    answer: str | None
    lenient_answer: str | None
    prompt_target: str
    finish_reason: FinishReason | None
    num_prompt_tokens: int | None
    num_tokens: int | None
    choice_num_tokens: list[int]
    choice_premise_logprobs: list[float | None]
    answer_mass: float | None
    top_token: str | None
    top_options: list[int]


class _Line(_Part):
    doc_id: Annotated[int, Field(ge=0)]
    doc: _Doc
    arguments: Annotated[dict[str, _Request], Field(min_length=1)]
    resps: list[tuple[str | tuple[float, bool]]]
    filter: str
    accuracy: float | None
    lenient_accuracy: float | None
    choice_accuracy_raw: float | None = None
    choice_accuracy_per_char: float | None = None
    choice_accuracy_per_byte: float | None = None
    choice_accuracy_per_token: float | None = None
    choice_accuracy_pmi: float | None = None
    softbench: _Block


def _record(line: _Line) -> Record:
    doc, block = line.doc, line.softbench
    responses = [response for (response,) in line.resps]
    requests = list(line.arguments.values())
    text = requests[0].arg_0
    completion = None
    if block.finish_reason is not None:
        said, num_prompt_tokens, num_tokens = responses[:1], block.num_prompt_tokens, block.num_tokens
        if not said or not isinstance(said[0], str) or num_prompt_tokens is None or num_tokens is None:
            raise ValueError("a completion lacks its text or its numbers of tokens")
        completion = Completion(said[0], block.finish_reason, num_prompt_tokens, num_tokens)
        responses, requests = responses[1:], requests[1:]
    sample = Sample(
        doc.id,
        doc.fields,
        tuple(doc.answers),
        tuple(doc.choices),
        doc.gold,
        doc.reasoning,
        doc.group,
        doc.cluster,
    )
    continuations = tuple(one.arg_1 for one in requests if isinstance(one.arg_1, str))
    scores = [response for response in responses if not isinstance(response, str)]
    return Record(
        doc_id=line.doc_id,
        sample=sample,
        method=line.filter,
        seed=block.seed,
        prompt=Prompt(sample.id, text, block.prompt_target, continuations),
        completion=completion,
        status=block.status,
        answer=block.answer,
        correct=_as_bool(line.accuracy),
        lenient_answer=block.lenient_answer,
        lenient_correct=_as_bool(line.lenient_accuracy),
        choice_scores=tuple(
            ChoiceScore(logprob, num_tokens, is_greedy, premise)
            for (logprob, is_greedy), num_tokens, premise in zip(
                scores, block.choice_num_tokens, block.choice_premise_logprobs, strict=True
            )
        ),
        choice_correct=_choice_correct(line),
        answer_mass=block.answer_mass,
        top_token=block.top_token,
        top_options=tuple(block.top_options),
    )


def _choice_correct(line: _Line) -> dict[ChoiceNorm, bool]:
    found: dict[ChoiceNorm, float | None] = {
        "raw": line.choice_accuracy_raw,
        "per_char": line.choice_accuracy_per_char,
        "per_byte": line.choice_accuracy_per_byte,
        "per_token": line.choice_accuracy_per_token,
        "pmi": line.choice_accuracy_pmi,
    }
    return {norm: bool(right) for norm, right in found.items() if right is not None}


def _check(record: Record) -> None:
    """Raise ValueError where parts of a record contradict each other."""
    verdict = (record.status, record.correct, record.lenient_correct)
    if any((part is None) != (record.completion is None) for part in verdict):
        raise ValueError("a completion and a verdict on it go together")
    num_choices = len(record.sample.choices)
    if record.sample.gold is not None and not 0 <= record.sample.gold < num_choices:
        raise ValueError(f"gold {record.sample.gold} is none of {num_choices} options")
    if record.choice_scores and not len(record.choice_scores) == len(record.prompt.continuations) == num_choices:
        raise ValueError(f"{len(record.choice_scores)} log-likelihoods of {num_choices} options")


def _as_bool(value: float | None) -> bool | None:
    return None if value is None else bool(value)
