import csv
import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softbench.report.plain import plain
from softbench.report.sheets import Sheet, printed, to_csv, to_latex, to_markdown
from softbench.types import Estimate

SHARE = Estimate(0.7667, 0.677, 0.838, 103)
SHEET = Sheet(
    {"model": "model", "score": "score %", "seconds": "s"},
    [
        {"model": "gemma_3 & co", "score": SHARE, "seconds": 12.34},
        {"model": "other|one", "score": Estimate(None, None, None, 0), "seconds": None},
    ],
)


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        (SHARE, "76.7 [67.7, 83.8]"),
        (Estimate(0.5, None, None, 1), "50.0"),
        (Estimate(None, None, None, 0), "-"),
        (None, "-"),
        (12345, "12,345"),
        (0.0000238, "2.38e-05"),
        (12345.6, "12,346"),
        ("text", "text"),
    ],
)
def test_a_cell_is_printed_for_people(cell: object, text: str) -> None:
    assert printed(cell) == text  # type: ignore[arg-type]  # every kind of cell


def test_csv_has_all_digits_and_the_ends_of_intervals() -> None:
    rows = list(csv.DictReader(io.StringIO(to_csv(SHEET))))
    assert rows[0] == {
        "model": "gemma_3 & co", "score": "0.7667", "score_low": "0.677", "score_high": "0.838", "score_n": "103",
        "seconds": "12.34",
    }  # fmt: skip
    assert rows[1]["score"] == ""
    assert rows[1]["score_n"] == "0"


@pytest.mark.parametrize("text", ["=1+1", "+x", "-x", "@x", "\tx"])
def test_no_text_in_a_csv_is_a_formula(text: str) -> None:
    assert f"'{text}" in to_csv(Sheet({"model": "model"}, [{"model": text}]))


def test_markdown_keeps_its_columns_whatever_the_names() -> None:
    lines = to_markdown(SHEET).splitlines()
    assert lines[1] == "| --- | ---: | ---: |"
    assert lines[2] == r"| gemma\_3 & co | 76.7 [67.7, 83.8] | 12.3 |"
    assert [len(re.findall(r"(?<!\\)\|", line)) for line in lines] == [4] * 4


def test_latex_escapes_what_is_special() -> None:
    text = to_latex(SHEET, "50 % of $x_1$", "score")
    assert r"gemma\_3 \& co & 76.7 {[}67.7, 83.8{]} & 12.3 \\" in text
    assert r"\caption{50 \% of \$x\_1\$}" in text
    assert r"\begin{tabular}{lrr}" in text


@given(st.lists(st.text(max_size=20), min_size=1, max_size=5))
def test_csv_comes_back_as_it_was_seen(texts: list[str]) -> None:
    read = list(csv.reader(io.StringIO(to_csv(Sheet({"a": "a"}, [{"a": text} for text in texts])), newline="")))
    inert = ["'" + plain(text) if text[:1] in tuple("=+-@\t") else plain(text) for text in texts]
    assert [row[0] if row else "" for row in read[1:]] == inert


@given(st.text())
def test_plain_text_turns_nothing_around_and_hides_nothing(text: str) -> None:
    assert not re.search(r"[\x00-\x08\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff]", plain(text))


def test_plain_text_shows_what_was_hidden_and_keeps_the_rest() -> None:
    assert plain("a\u202eb\x07\n\tc\ud800 – é 漢") == "a\\u202eb\\u0007\n\tc\\ud800 – é 漢"
