"""Patterns of others end in time, and completions of any length are read in time that grows as they do."""

from collections.abc import Callable, Sequence

import pytest

import softbench.patterns
from softbench.answer_formats import MOST_READ, AnswerFormat, answer_format
from softbench.answer_kinds import LETTER, NUMBER, OPTION, SHORT_TEXT, YES_NO, AnswerKind, Pattern
from softbench.errors import TaskError
from softbench.patterns import check_pattern, find_each, fullmatch

CATASTROPHES = [
    "(a+)+$",
    "(a|aa)+$",
    "(.*)(.*)(.*)(.*)(.*)(.*)[xy]",
    "(?:|a){1000,}[bc]",
    "((((a*)*)*)*)*[bc]",
    "(?:(?:(?:a|a){0,50}){0,20}){0,50}[bc]",
]


@pytest.mark.parametrize("source", CATASTROPHES)
@pytest.mark.parametrize("use", [fullmatch, find_each])
def test_a_pattern_that_tries_for_ever_ends_by_the_time_limit_and_is_named(
    source: str, use: Callable[[str, str], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(softbench.patterns, "SECONDS", 0.05)
    check_pattern(source)
    with pytest.raises(
        TaskError, match=r"takes longer than 0.05 s on a text; write one that does not try so"
    ) as caught:
        use(source, "a" * 5000 + "!")
    assert source in str(caught.value)


@pytest.mark.parametrize("source", ["a{4294967294}", "(?:a{1000}){1000}", "(?:|a){1000000,}[bc]", "a{,999999}"])
def test_a_pattern_that_would_take_all_memory_is_refused(source: str) -> None:
    with pytest.raises(ValueError, match="more than 100,000 times"):
        check_pattern(source)


@pytest.mark.parametrize("source", ["(", "[z-a]", "(?P<a>x)(?P<a>y)", "a{9999999999999}", "(?<=a+)b", "*", "\\"])
def test_what_is_no_pattern_is_refused(source: str) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        check_pattern(source)


def test_patterns_match_as_python_s_do() -> None:
    check_pattern(r"[A-Z]{3}")
    assert fullmatch(r"(?P<x>[A-Z]{3})!", "ABC!")["x"] == "ABC"  # type: ignore[index]
    assert fullmatch("a", "ab") is None
    assert [one.group() for one in find_each(r"\d+", "1 22 333")] == ["1", "22", "333"]


FORMS = [
    ("sentence_letter", LETTER, False),
    ("letter", LETTER, False),
    ("json", LETTER, False),
    ("boxed", NUMBER, False),
    ("hash_number", NUMBER, True),
    ("sentence_option", OPTION, False),
    ("option_text", OPTION, False),
    ("yes_no", YES_NO, False),
    ("short_text", SHORT_TEXT, False),
    ("short_text", SHORT_TEXT, True),
    ("Answer: {answer}", SHORT_TEXT, False),
    ("<{answer}>", SHORT_TEXT, False),
    ("{answer}, I think", SHORT_TEXT, False),
    ("Answer: {answer}.", Pattern("[A-Z]{3}"), False),
]  # fmt: skip
PIECES = [
    "a", " ", "\n", "A", "1", "1,", ",111", ".", "-", "*", "_", "(", "\\boxed{", "\\boxed ", "answer: ", "answer is ",
    "Answer: ", "The answer is (", "The answer is (A). ", "not ", "yes ", "#### ", "{", '{"answer": "', "\\", "<", ">",
    "<a>", ", I think", "four ", "fo", "the right option is: ",
    "is ", "=", "é", "\u2028", "\x00", "ﬁ", "🙂", "a\n", "'",
    "a ",
]  # fmt: skip
SOME = [" ", "a ", "1,", "answer: ", "The answer is (A). ", "\\boxed{", "<a>"]
"""What is tried always; the others where slow tests are."""


@pytest.mark.timeout(60)  # what takes time as the square of a text's length would take many minutes
@pytest.mark.parametrize(("name", "kind", "reasoning"), FORMS)
@pytest.mark.parametrize("piece", [one if one in SOME else pytest.param(one, marks=pytest.mark.slow) for one in PIECES])
def test_reading_takes_time_as_the_text_is_long(name: str, kind: AnswerKind, reasoning: bool, piece: str) -> None:
    read_all(answer_format(name, kind, reasoning), (piece * MOST_READ)[:MOST_READ], ["three", "four"])


@pytest.mark.slow
@pytest.mark.timeout(60)
@pytest.mark.parametrize(("name", "kind", "reasoning"), FORMS)
@pytest.mark.parametrize("piece", ["a", "1", "answer: ", "The answer is (A). ", "yes ", "\n"])
def test_a_completion_of_ten_million_characters_is_read(
    name: str, kind: AnswerKind, reasoning: bool, piece: str
) -> None:
    read_all(answer_format(name, kind, reasoning), (piece * 10_000_000)[:10_000_000], ["three", "four"])


def test_the_last_line_of_a_completion_without_end_is_still_read() -> None:
    form = answer_format("hash_number", NUMBER, reasoning=True)
    assert form.parse("and so on. " * 900_000 + "\n#### 7") == "7"
    assert form.find("and so on. " * 900_000 + "\n#### 7 or so") == "7"
    assert form.parse("#### " + "7" * (MOST_READ + 1)) is None


def read_all(form: AnswerFormat, text: str, choices: Sequence[str]) -> None:
    for one in (text, text + "!"):
        form.parse(one, choices)
        form.find_all(one, choices)
        form.find(one, choices)
