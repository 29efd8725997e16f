import pytest

from softbench.scoring.choices import choices_correct, chosen_option
from softbench.types import ChoiceNorm, ChoiceScore

CONTINUATIONS = (" hm", " a longer one", " für")
SCORES = (ChoiceScore(-2.0, 1, False), ChoiceScore(-6.0, 3, False), ChoiceScore(-2.5, 2, False))


@pytest.mark.parametrize(
    ("norm", "best"),
    [
        ("raw", 0),  # -2, -6, -2.5
        ("per_char", 1),  # -2/2, -6/12, -2.5/3
        ("per_byte", 1),  # -2/2, -6/12, -2.5/4
        ("per_token", 2),  # -2/1, -6/3, -2.5/2
    ],
)
def test_each_norm_divides_by_its_length(norm: ChoiceNorm, best: int) -> None:
    assert chosen_option(SCORES, CONTINUATIONS, norm) == best


def test_the_space_before_a_continuation_has_no_length() -> None:
    scores = (ChoiceScore(-1.0, 1, False), ChoiceScore(-1.9, 1, False))
    assert chosen_option(scores, (" a", " bc"), "per_char") == 1  # with the space, -1/2 would win over -1.9/3


def test_the_first_of_equals_is_chosen() -> None:
    equal = (ChoiceScore(-1.0, 1, False),) * 3
    assert chosen_option(equal, (" a", " b", " c"), "raw") == 0


def test_an_empty_continuation_does_not_divide_by_nothing() -> None:
    assert chosen_option((ChoiceScore(0.0, 0, True), ChoiceScore(-1.0, 1, False)), ("", " b"), "per_char") == 0


def test_pmi_takes_off_what_an_option_has_without_the_question() -> None:
    scores = (ChoiceScore(-2.0, 1, False, -1.0), ChoiceScore(-6.0, 3, False, -5.5), ChoiceScore(-2.5, 2, False, -1.9))
    assert chosen_option(scores, CONTINUATIONS, "pmi") == 1  # -1, -0.5, -0.6
    assert choices_correct(scores, CONTINUATIONS, 1)["pmi"] is True
    assert "pmi" not in choices_correct((*scores[:2], SCORES[2]), CONTINUATIONS, 1)


def test_without_choices_nothing_is_right_or_wrong() -> None:
    assert choices_correct((), (), None) == {}
    assert choices_correct(SCORES, CONTINUATIONS, 1) == {
        "raw": False,
        "per_char": True,
        "per_byte": True,
        "per_token": False,
    }
