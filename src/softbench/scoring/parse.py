"""From a completion to a status, an answer, and a verdict."""

from collections.abc import Sequence

from softbench.answer_formats import AnswerForm
from softbench.types import Completion, ParsedAnswer, Sample, Status, Verdict


def judge(completion: Completion, answer_format: AnswerForm, sample: Sample) -> Verdict:
    """Read a completion strictly and leniently and compare with what `sample` accepts."""
    parsed = parse_completion(completion, answer_format, sample.choices)
    correct = answer_format.is_right(parsed.answer, sample.answers)
    lenient = answer_format.find(completion.text, sample.choices)
    return Verdict(
        status=parsed.status,
        answer=parsed.answer,
        correct=correct,
        lenient_answer=lenient,
        lenient_correct=answer_format.is_right(lenient, sample.answers)
        or (correct and answer_format.lenient_includes_strict),
    )


def parse_completion(completion: Completion, answer_format: AnswerForm, choices: Sequence[str]) -> ParsedAnswer:
    """Judge the whole of `completion`: it must have the format's form and have ended by itself.

    OK: the form, then an end token or stop string. TRUNCATED: the token limit came first. AMBIGUOUS: several different
    answers in the right form. NO_ANSWER: all else.
    """
    answer = answer_format.parse(completion.text, choices)
    if answer is not None and (completion.finish_reason != "length" or answer_format.reads_cut_text):
        return ParsedAnswer(Status.OK, answer)
    if len({answer_format.normalize(found) for found in answer_format.find_all(completion.text, choices)}) > 1:
        return ParsedAnswer(Status.AMBIGUOUS, None)
    if completion.finish_reason == "length":
        return ParsedAnswer(Status.TRUNCATED, None)
    return ParsedAnswer(Status.NO_ANSWER, None)
