"""`softbench track` and `softbench power` on runs whose scores are made."""

import json

import pytest
from typer.testing import CliRunner

from softbench.cli import app
from softbench.errors import SpecError
from softbench.report.track import track_tables, tracks, tracks_dict
from softbench.stats import chance, samples_needed
from tests.unit.test_ranking import made_run

RISING = {100: 0.1, 200: 0.3, 400: 0.5, 800: 0.7}


def test_checkpoints_are_ordered_by_run_and_step() -> None:
    a = [made_run(f"recipe-a-step{step}", {"soft": rate}) for step, rate in RISING.items()]
    b = [made_run(f"recipe-b-step{step}", {"soft": rate - 0.05}) for step, rate in RISING.items()]
    found = tracks([*a[::-1], *b])
    assert [(one.task, one.method) for one in found] == [("t", "soft"), ("u", "soft")]
    assert list(found[0].runs) == ["recipe-a", "recipe-b"]
    one = found[0].runs["recipe-a"]
    assert one.steps == (100, 200, 400, 800)
    assert [score.value for score in one.scores] == pytest.approx(list(RISING.values()), abs=0.08)
    assert one.monotonicity == pytest.approx(1.0)
    assert one.chance is None
    assert found[0].early_decisions == dict.fromkeys(RISING, 1.0)
    assert found[0].signal_to_noise is not None
    assert [table.row_count for table in track_tables(found[0])] == [4 + 4]
    assert json.dumps(tracks_dict(found[0]))


def test_many_runs_stand_in_several_tables_and_what_all_say_in_the_last() -> None:
    found = tracks([made_run(f"r{run}-{step}", {"soft": rate}) for run in range(5) for step, rate in RISING.items()])
    first, last = track_tables(found[0])
    assert [str(column.header) for column in first.columns] == ["step", "r0", "r1", "r2"]
    assert [str(column.header) for column in last.columns] == ["step", "r3", "r4", "decides as the\nlast"]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["final"], "model 'final' has no step in its name; name checkpoints like recipe-step1000"),
        (["a-step1", "a_1"], "two checkpoints are step 1 of 'a'"),
    ],
)
def test_checkpoints_that_can_not_be_ordered_are_refused(names: list[str], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        tracks([made_run(name, {"soft": 0.5}) for name in names])


@pytest.mark.parametrize(("name", "run"), [("1000", "run"), ("a-checkpoint-50", "a"), ("m7b_step0", "m7b")])
def test_steps_are_read_off_names(name: str, run: str) -> None:
    assert list(tracks([made_run(name, {"soft": 0.5})])[0].runs) == [run]


def test_open_questions_have_no_chance() -> None:
    assert chance(made_run("a-1", {"soft": 0.5})[0].records) is None


def test_power_says_how_many_samples_are_needed() -> None:
    assert CliRunner().invoke(app, ["power", "0.05", "0.2"]).output == f"{samples_needed(0.05, 0.2)}\n"
    for arguments in (["0.3", "0.2"], ["0.1", "0.2", "--power", "2"]):
        assert isinstance(CliRunner().invoke(app, ["power", *arguments]).exception, SpecError)
