import pytest

from softbench.answer_formats import AnswerFormat
from softbench.answer_kinds import LETTER
from softbench.scoring.parse import parse_completion
from softbench.types import Completion, FinishReason, ParsedAnswer, Status

FORMAT = AnswerFormat("sentence_letter", "The answer is ({answer}).", LETTER)
OPTIONS = ("one", "two", "three")


@pytest.mark.parametrize(
    ("text", "finish_reason", "status", "answer"),
    [
        (" The answer is (B).", "eos", Status.OK, "B"),
        (" The answer is (B).", "stop", Status.OK, "B"),
        (" The answer is (B).", "length", Status.TRUNCATED, None),
        (" The answer is", "length", Status.TRUNCATED, None),
        (" The answer is (A). The answer is (B).", "eos", Status.AMBIGUOUS, None),
        (" The answer is (A). The answer is (B).", "length", Status.AMBIGUOUS, None),
        (" The answer is (B). The answer is (B).", "eos", Status.NO_ANSWER, None),
        (" B", "eos", Status.NO_ANSWER, None),
        ("", "eos", Status.NO_ANSWER, None),
        (" Let's see", "eos", Status.NO_ANSWER, None),
        ("", "length", Status.TRUNCATED, None),
        (" The answer is (D).", "eos", Status.NO_ANSWER, None),
    ],
)
def test_a_status_says_what_became_of_a_completion(
    text: str, finish_reason: FinishReason, status: Status, answer: str | None
) -> None:
    completion = Completion(text, finish_reason, num_prompt_tokens=5, num_tokens=5)
    assert parse_completion(completion, FORMAT, OPTIONS) == ParsedAnswer(status, answer)
