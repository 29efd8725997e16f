import pytest
from hypothesis import given
from hypothesis import strategies as st

from softbench.stats.curve import curve, saturation
from softbench.stats.estimate import UNKNOWN, wilson


def test_saturation_is_the_first_step_whose_interval_holds_the_last_value() -> None:
    estimates = [wilson(successes, 100) for successes in (0, 60, 93, 97, 98)]
    assert saturation([0, 10, 20, 40, 80], estimates) == 40
    assert saturation([0, 10], [wilson(5, 100), wilson(7, 100)]) == 0  # flat from the start
    assert saturation([0, 10], [wilson(5, 100), UNKNOWN]) is None
    assert saturation([], []) is None


@given(st.lists(st.integers(0, 50), min_size=1, max_size=8))
def test_the_last_step_is_always_saturated(successes: list[int]) -> None:
    steps = list(range(len(successes)))
    found = saturation(steps, [wilson(one, 50) for one in successes])
    assert found is not None
    assert 0 <= found <= steps[-1]


def test_a_curve_orders_its_points_by_step() -> None:
    made = curve(
        [(80, 640, {"a": wilson(9, 10)}), (0, 0, {"a": wilson(0, 10)}), (20, 160, {"a": wilson(8, 10)})], ["a"]
    )
    assert made.steps == (0, 20, 80)
    assert made.samples == (0, 160, 640)
    assert [one.value for one in made.metrics["a"]] == [0.0, 0.8, 0.9]
    assert made.saturation == {"a": 20}
    with pytest.raises(ValueError, match="steps must differ"):
        curve([(1, 8, {}), (1, 8, {})], [])
