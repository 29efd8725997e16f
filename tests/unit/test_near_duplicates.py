from hypothesis import given
from hypothesis import strategies as st

from softbench.tasks.near_duplicates import count_near_duplicates, runs_of_words
from softbench.types import Sample

texts = st.lists(st.sampled_from(["the", "cat", "sat", "on", "a", "mat", "dog"]), max_size=9).map(" ".join)


def sample(text: str, choices: tuple[str, ...] = ()) -> Sample:
    return Sample(text, {"question": text}, ("x",), choices)


@given(
    st.lists(texts, min_size=1, max_size=6), st.lists(texts, min_size=1, max_size=6), st.sampled_from([0.3, 0.5, 0.8])
)
def test_the_count_is_that_of_comparing_every_pair(test: list[str], tune: list[str], threshold: float) -> None:
    def alike(one: str, other: str) -> bool:
        left, right = set(runs_of_words(sample(one))), set(runs_of_words(sample(other)))
        return len(left & right) >= threshold * len(left | right)

    slow = sum(any(alike(one, other) for other in tune) for one in test)
    assert count_near_duplicates([sample(one) for one in test], [sample(one) for one in tune], threshold) == slow


def test_options_count_in_any_order_and_case_and_punctuation_do_not() -> None:
    asked = sample("Which of these is a plant, then?", ("oak tree", "red fox"))
    again = sample("which of these is a plant then", ("red fox", "Oak Tree!"))
    assert count_near_duplicates([asked], [again]) == 1
    assert count_near_duplicates([asked], [sample("Who came first, and why was that?")]) == 0


def test_nothing_resembles_nothing() -> None:
    assert count_near_duplicates([], [sample("a")]) == 0
    assert count_near_duplicates([sample("a")], []) == 0
