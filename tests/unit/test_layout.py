from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softbench.report.layout import LINE, Name, beside, lines, shortened

COORDINATE = st.floats(0, 300)


def test_a_name_that_is_too_long_loses_its_middle() -> None:
    assert shortened("short", 5) == "short"
    assert shortened("a-long-run-step-100000", 12) == "a-long…00000"
    assert len(shortened("x" * 100, 40)) == 40


def test_a_models_methods_stand_under_its_name() -> None:
    pairs = [("one", "zero_shot"), ("one", "soft_prompt"), ("other", "zero_shot")]
    placed = lines(pairs)
    order = [
        placed.models["one"],
        placed.methods["one", "zero_shot"],
        placed.methods["one", "soft_prompt"],
        placed.models["other"],
        placed.methods["other", "zero_shot"],
    ]
    assert order == sorted(order)
    assert all(after - before >= LINE for before, after in pairwise(order))
    assert placed.height > order[-1]


def test_a_lone_model_takes_no_line_for_its_name() -> None:
    assert lines([("one", "zero_shot")]).models == {}


@given(st.lists(st.tuples(COORDINATE, COORDINATE, st.floats(1, 200)), max_size=18))
def test_names_lie_on_no_other_name_and_keep_the_order_of_their_points(given: list[tuple[float, float, float]]) -> None:
    points = [(x, y) for x, y, _ in given]
    names = beside([width for _, _, width in given], points, points, (300, 240))
    assert len({name.y for name in names}) == len(names)
    by_height = sorted(range(len(points)), key=lambda one: points[one][1])
    assert [names[one].y for one in by_height] == sorted(name.y for name in names)
    assert all(0 < name.y < max(240, LINE * len(names)) for name in names)
    assert all(name.right < x or name.left > x for name, (x, _) in zip(names, points, strict=True))


def test_a_name_goes_off_a_point_that_it_would_hide() -> None:
    [free] = beside([100], [(290, 110.5)], [(290, 110.5)], (300, 240))
    assert free == Name(110.5, 176, 276)
    [moved] = beside([100], [(290, 110.5)], [(290, 110.5), (200, 110)], (300, 240))
    assert moved.y == pytest.approx(110.5 + LINE, abs=2 * LINE)
    assert moved.y != free.y
