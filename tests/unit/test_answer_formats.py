import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softbench.answer_formats import ANSWER_FORMATS, AnswerFormat, answer_format, fitting_formats
from softbench.answer_kinds import LETTER, LETTERS, NUMBER, OPTION, SHORT_TEXT, YES_NO, AnswerKind, Pattern
from softbench.errors import TaskError

SENTENCE = AnswerFormat("sentence_letter", "The answer is ({answer}).", LETTER)
BARE_LETTER = AnswerFormat("letter", "{answer}", LETTER)
COPIED = AnswerFormat("sentence_option", 'The answer is "{answer}".', OPTION)
HASHES = AnswerFormat("hash_number", "#### {answer}", NUMBER)
ARROWS = AnswerFormat("arrows", "-> {answer} <-", SHORT_TEXT)
OPTIONS = ("a dry palm", "a wet palm", "four", "a wet palm and more")

texts = st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]), min_size=1, max_size=30)
words = texts.map(lambda text: " ".join(text.split())).filter(bool)
numbers = st.decimals(allow_nan=False, allow_infinity=False, places=2, min_value=-(10**9), max_value=10**9)


KINDS: dict[AnswerKind, st.SearchStrategy[str]] = {
    LETTER: st.sampled_from("ABCD"),
    OPTION: st.sampled_from(OPTIONS),
    NUMBER: numbers.map(str).map(NUMBER.write),
    SHORT_TEXT: words,
    YES_NO: st.sampled_from(["yes", "no"]),
}
EVERY = [
    answer_format(name, kind, reasoning)
    for kind in KINDS
    for name in fitting_formats(kind)
    for reasoning in (False, True)
]
reasonings = st.lists(words, max_size=3).map("\n".join)


def name_of(one: AnswerFormat) -> str:
    return f"{one.name} {one.kind.placeholder}{' after reasoning' if one.reasoning else ''}"


def test_every_format_fits_some_kind() -> None:
    assert {one.name for one in EVERY} == set(ANSWER_FORMATS)
    assert len(EVERY) == 2 * (7 + 2 * len(KINDS))  # seven for one kind each, json and boxed for all


@pytest.mark.parametrize("form", EVERY, ids=name_of)
@given(data=st.data())
def test_what_a_format_renders_comes_back(form: AnswerFormat, data: st.DataObject) -> None:
    answer = data.draw(KINDS[form.kind])
    reasoning = data.draw(reasonings) if form.reasoning else ""
    # Reasoning that holds an answer in form makes two of them, and text after text can't be told from one.
    if reasoning and form.find_all(reasoning, OPTIONS):
        return
    text = form.render(answer, reasoning)
    assert form.parse(text, OPTIONS) == answer
    assert form.parse(f"  {text}\n", OPTIONS) == answer
    # A bare text may look like a sentence around another: there the strict reading counts as the lenient one, too.
    if form.name != "short_text" or form.reasoning:
        assert form.is_right(form.find(text, OPTIONS), (answer,))


@pytest.mark.parametrize("form", EVERY, ids=name_of)
@given(text=st.one_of(st.text(max_size=40), words, st.from_regex(r"(#### |\\boxed\{|\{\"answer\": \")?\w+[\"}]{0,2}")))
def test_the_strict_parser_takes_only_what_it_would_write(form: AnswerFormat, text: str) -> None:
    answer = form.parse(text, OPTIONS)
    if answer is not None:
        last_line = text.strip().rpartition("\n")[2].strip() if form.reasoning else text.strip()
        assert form.render(answer) == last_line


@pytest.mark.parametrize("form", EVERY, ids=name_of)
@given(data=st.data(), after=words)
def test_nothing_may_follow_a_closed_form(form: AnswerFormat, data: st.DataObject, after: str) -> None:
    answer = data.draw(KINDS[form.kind])
    parsed = form.parse(f"{form.render(answer)}\n{after}", OPTIONS)
    if form.reasoning:
        assert parsed is None or form.render(parsed) == after
    else:
        assert parsed is None


def test_json_is_escaped_as_json() -> None:
    form = answer_format("json", SHORT_TEXT)
    assert form.render('the "A" \\ team') == r'{"answer": "the \"A\" \\ team"}'
    assert form.parse(r'{"answer": "the \"A\" \\ team"}') == 'the "A" \\ team'
    assert form.parse('{"answer": "a", "other": "b"}') is None
    assert form.parse('{"answer": "a\\"}') is None
    assert form.find('So: {"answer": "a"} I think') == "a"
    assert answer_format("json", LETTER).find('"answer": "B"', OPTIONS) == "B"


def test_reasoning_may_come_before_a_last_line_of_the_form() -> None:
    form = answer_format("hash_number", NUMBER, reasoning=True)
    assert form.parse("2 + 2 = 4\n#### 4") == "4"
    assert form.parse("#### 4") == "4"
    assert form.parse("2 + 2 = 4 #### 4") is None
    assert form.parse("#### 3\nNo:\n#### 4") is None
    assert form.parse("2 + 2 = 4\n#### 4\nQuestion") is None
    assert form.find("The answer: 3? No.\n#### 4") == "4"
    assert form.find("#### 3 is wrong, so\n#### 4") == "4"
    assert form.instruction().startswith("Reason step by step, then end with a line of exactly this form: #### NUMBER")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("yes", "yes"),
        ("No, because yes would be wrong", "no"),
        ("Yes.", "yes"),
        ("True", "yes"),
        ("I think that is false", "no"),
        ("Answer: no (not yes)", "no"),
        ("**Answer:** Yes", "yes"),
        ("That is not true.", "no"),
        ("not false", "yes"),
        ("nobody knows", None),
        ("yesterday", None),
    ],
)
def test_yes_and_no_are_found(text: str, said: str | None) -> None:
    assert answer_format("yes_no", YES_NO).find(text) == said


def test_gold_values_of_data_are_written_as_answers() -> None:
    assert [YES_NO.write(value) for value in (True, False, "True", "yes")] == ["yes", "no", "yes", "yes"]
    assert [NUMBER.write(value) for value in (1.0, 2.50, 1e-7, 1e22, 3, " 1,234 ")] == [
        "1", "2.5", "0.0000001", "10000000000000000000000", "3", "1234",
    ]  # fmt: skip
    assert SHORT_TEXT.write(" two\nlines ") == "two lines"


def test_a_pattern_of_ones_own_is_an_answer() -> None:
    form = AnswerFormat("code", "Code: {answer}!", Pattern("([A-Z])(-|_)[0-9]+", "CODE"))
    assert form.parse("Code: A-12!") == "A-12"
    assert form.parse("Code: a-12!") is None
    assert form.find("I say A-1, or B_2") == "B_2"


def test_a_template_of_ones_own_is_a_format() -> None:
    form = answer_format("Final: {answer}", NUMBER)
    assert form.parse("Final: 3") == "3"
    assert form.name.startswith("custom-")
    assert form.name != answer_format("Last: {answer}", NUMBER).name


def test_a_bare_text_is_read_leniently_all_the_same() -> None:
    form = answer_format("short_text", SHORT_TEXT)
    for text in ("Answer: Paris", "The capital is Paris.", "**Paris**", "Paris"):
        assert form.find(text) == "Paris"
    assert answer_format("Answer: {answer}", SHORT_TEXT).find("I think.\nAnswer: New York City") == "New York City"
    assert answer_format("Answer: {answer}", LETTER).find("Answer: B because", OPTIONS) == "B"


def test_options_that_differ_in_a_mark_alone_are_told_apart() -> None:
    form = answer_format("sentence_letter", LETTER)
    assert form.find("The answer is 15.", ("-15", "15", "30", "45")) == "B"
    assert form.find("The answer is: -15", ("-15", "15", "30", "45")) == "A"
    assert OPTION.find("5", ("-5", "5")) == "5"
    assert OPTION.find("-", ("+", "-")) == "-"
    assert OPTION.find("maybe +", ("+", "-")) is None


def test_a_rejected_option_is_not_the_answer() -> None:
    form = answer_format("sentence_letter", LETTER)
    assert form.find("The correct answer is C because option A is too hot.", OPTIONS) == "C"
    assert form.find("C. Option A is wrong because it is hot.", OPTIONS) == "C"
    assert form.find("I take option B", OPTIONS) == "B"


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [("C#", "C++", False), ("C++", "c++", True), ("5", "-5", False), ("1.5", "1:5", False), ("+", "?", False),
     ("10-5", "10 5", True), ("mid-1990s", "mid 1990s", True), ("U.S.", "us", False), ("it's", "it s", True)],
)  # fmt: skip
def test_marks_that_tell_answers_apart_count(one: str, other: str, same: bool) -> None:
    assert ARROWS.is_right(one, (other,)) is same


@pytest.mark.parametrize("value", ["1/2", "1e3", "2,5", "1 000", "10:30", "3-4", "50 - 20", "none", "", None])
def test_a_gold_that_is_no_number_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="is no decimal number"):
        NUMBER.write(value)


def test_numbers_are_written_by_value() -> None:
    written = {
        ".5": "0.5",
        "-.5": "-0.5",
        "$18": "18",
        "-$5": "-5",
        "20%": "20",
        "7.": "7",
        "−3": "-3",
        "1,234.50": "1234.5",
    }
    assert {text: NUMBER.write(text) for text in written} == written
    assert HASHES.find("Answer: .5") == "0.5"


def test_groups_and_classes_of_a_users_pattern_are_left_alone() -> None:
    odd = AnswerFormat("odd", "Code: {answer}!", Pattern("[(]a[)]"))
    assert odd.parse("Code: (a)!") == "(a)"
    assert odd.parse("Code: ?a)!") is None
    named = AnswerFormat("year", "Answer: {answer}", Pattern(r"(?P<y>\d{4})-\d\d"))
    assert named.find_all("Answer: 1999-01 and Answer: 2000-02") == ["1999-01", "2000-02"]


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("jsn", LETTER, "answer format 'jsn' is unknown; did you mean 'json'?"),
        ("hash_number", LETTER, "'hash_number' is not for an answer of kind LETTER; those are: sentence_letter, lett"),
    ],
)
def test_a_format_that_does_not_fit_is_refused(name: str, kind: AnswerKind, message: str) -> None:
    with pytest.raises(TaskError, match=re.escape(message)):
        answer_format(name, kind)


@given(st.sampled_from("ABCD"))
def test_a_rendered_letter_comes_back(letter: str) -> None:
    for form in (SENTENCE, BARE_LETTER):
        assert form.parse(form.render(letter), OPTIONS) == letter
        assert form.find(form.render(letter), OPTIONS) == letter


@given(st.sampled_from(OPTIONS))
def test_a_rendered_option_comes_back(option: str) -> None:
    assert COPIED.parse(COPIED.render(option), OPTIONS) == option
    assert COPIED.find(COPIED.render(option), OPTIONS) == option


@given(numbers)
def test_a_rendered_number_comes_back(number: object) -> None:
    parsed = HASHES.parse(HASHES.render(str(number)))
    assert parsed is not None
    assert HASHES.is_right(parsed, (str(number),))
    assert HASHES.is_right(HASHES.find(HASHES.render(str(number))), (str(number),))


@given(words.filter(lambda text: "->" not in text and "<-" not in text))
def test_a_rendered_text_comes_back(text: str) -> None:
    parsed = ARROWS.parse(ARROWS.render(text))
    assert parsed == text
    assert ARROWS.is_right(parsed, (text,))


@given(words, words)
def test_the_strict_parser_takes_nothing_before_or_after_the_form(before: str, after: str) -> None:
    assert SENTENCE.parse(f"{before} The answer is (B).", OPTIONS) is None
    assert SENTENCE.parse(f"The answer is (B). {after}", OPTIONS) is None


@given(st.text(max_size=60))
def test_no_text_breaks_a_parser(text: str) -> None:
    for form in (SENTENCE, BARE_LETTER, COPIED, HASHES, ARROWS):
        parsed = form.parse(text, OPTIONS)
        found = form.find(text, OPTIONS)
        if parsed is not None:
            assert found is not None
        form.is_right(found, ("A",))


@pytest.mark.parametrize(
    "text",
    [
        "(B)",
        "B",
        "The answer is B.",
        "the answer is (B).",
        "The answer is (b).",
        "The answer is (E).",
        "The answer is ().",
    ],
)
def test_the_strict_parser_wants_exactly_the_form(text: str) -> None:
    assert SENTENCE.parse(text, OPTIONS) is None


def test_white_space_around_a_completion_does_not_count() -> None:
    assert SENTENCE.parse("  The answer is (C).\n", OPTIONS) == "C"


def test_only_letters_on_offer_are_answers() -> None:
    assert SENTENCE.parse("The answer is (C).", OPTIONS[:2]) is None
    assert SENTENCE.parse("The answer is (C).", OPTIONS[:3]) == "C"


@pytest.mark.parametrize(
    "text",
    [
        "B. a wet palm",
        "**B**",
        "$B$",
        "(B)",
        r"\boxed{B}",
        "ANSWER: b",
        "Answer: (B)",
        "The answer is B",
        "The correct answer is **B**.",
        "First A seems right. But no: the answer is B.",
        "The answer is A. No, wait. The answer is B",
        "answer: a wet palm",
        "a wet palm",
        "It must be a wet palm",
        "b",
        "B)",
        "answer = B",
        "The answer is b.",
        "**Answer:** B",
        "Answer: **B**",
        "**Answer**: (B)",
        "Answer: A wet palm",
        "Answer:\nB",
        "The answer is B because palms are wet",
    ],
)
def test_the_lenient_parser_reads_what_a_reader_would(text: str) -> None:
    assert SENTENCE.parse(text, OPTIONS) is None
    assert SENTENCE.find(text, OPTIONS) == "B"


@pytest.mark.parametrize(
    "text", ["Let's think about it.", "Antwort: unklar", "A cat sat here", "Because", "", "   ", "42"]
)
def test_a_letter_inside_a_word_is_no_answer(text: str) -> None:
    assert SENTENCE.find(text, (*OPTIONS, "e", "f", "g", "h", "i", "j", "k", "l")) is None


def test_the_last_well_formed_answer_counts() -> None:
    assert SENTENCE.find("The answer is (A). Or rather: The answer is (D).", OPTIONS) == "D"
    assert HASHES.find("#### 12 is wrong, so #### 13") == "13"


def test_the_form_twice_is_not_the_form() -> None:
    assert ARROWS.parse("-> Paris <- -> Rome <-") is None
    assert ARROWS.find_all("-> Paris <- -> Rome <-") == ["Paris", "Rome"]
    assert AnswerFormat("sentence", "It is {answer}.", SHORT_TEXT).parse("It is St. John's.") == "St. John's"


def test_a_form_without_an_end_takes_no_part_of_a_word() -> None:
    open_ended = AnswerFormat("open", "The right option is: {answer}", OPTION)
    assert open_ended.find_all("The right option is: fourteen", OPTIONS) == []
    assert open_ended.parse("The right option is: four", OPTIONS) == "four"
    assert BARE_LETTER.find_all("Let's see", (*OPTIONS, *"efghijkl")) == []


def test_an_option_inside_another_named_option_was_not_meant() -> None:
    assert COPIED.find("I would say a red fox, surely", ("a red fox", "a fox")) == "a red fox"
    assert COPIED.find("I would pick a wet palm and more", OPTIONS) == "a wet palm and more"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("-5", "-5"),
        ("−5", "-5"),
        ("1,234", "1234"),
        ("$18", "18"),
        ("18.00", "18"),
        ("18.", "18"),
        ("20%", "20"),
        ("so 5-3 is 2", "2"),
        ("He has 12 left, that is 3 boxes of 4. Answer: 3", "3"),
        ("answer: $1,234.50.", "1234.5"),
        ("100", "100"),
        ("**Answer:** 42 (6 x 7)", "42"),
        ("12345678901234567890123456789012.50", "12345678901234567890123456789012.5"),
        ("0", "0"),
        ("-0", "0"),
    ],
)
def test_numbers_compare_by_value(text: str, value: str) -> None:
    assert HASHES.is_right(HASHES.find(text), (value,))


def test_a_difference_is_not_a_negative_number() -> None:
    assert HASHES.find("5-3") == "3"
    assert HASHES.find("(5)-3") == "3"
    assert HASHES.find("5 -3") == "-3"


def test_a_number_that_differs_is_wrong() -> None:
    assert not HASHES.is_right("18.5", ("18",))
    assert not HASHES.is_right(None, ("18",))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (" Paris", "Paris"),
        ("The capital of France is **Paris**.", "Paris"),
        ("Answer: Paris", "Paris"),
        ('"Paris"!\nand more', "Paris"),
        ("\n\nParis\n", "Paris"),
        ("[[Paris]]", "Paris"),
        ("Capital: Paris", "Paris"),
        ("Answer:\nParis", "Paris"),
        ("**Answer:** Paris", "Paris"),
    ],
)
def test_a_short_text_is_found_under_its_decorations(text: str, said: str) -> None:
    assert ARROWS.find(text) == said


@pytest.mark.parametrize(("one", "other"), [("Bogotá", "bogota"), ("The Hague", "hague"), ("São  Tomé", "Sao Tome")])
def test_case_accents_punctuation_and_articles_do_not_count(one: str, other: str) -> None:
    assert ARROWS.is_right(one, (other,))


def test_a_text_of_articles_alone_is_still_a_text() -> None:
    assert ARROWS.is_right("The A", ("the a",))
    assert not ARROWS.is_right("The A", ("an the",))


def test_the_instruction_shows_the_form() -> None:
    assert SENTENCE.instruction() == "Reply in exactly this form: The answer is (LETTER)."
    assert COPIED.instruction().endswith('The answer is "TEXT OF THE OPTION".')


@pytest.mark.parametrize("template", ["no place", "{answer} and {answer}"])
def test_a_template_holds_its_answer_once(template: str) -> None:
    with pytest.raises(ValueError, match="exactly once"):
        AnswerFormat("broken", template, LETTER)


def test_there_are_letters_for_twenty_six_options() -> None:
    assert len(LETTERS) == 26
