"""The strict parser: a completion becomes a status and an answer."""

from collections.abc import Sequence

from softbench.answer_formats import AnswerForm
from softbench.types import Completion, ParsedAnswer, Status


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
