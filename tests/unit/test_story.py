from dataclasses import replace

import numpy as np
import pytest

from softbench.errors import SpecError
from softbench.report.story import Section, Story, tell
from softbench.runs import FinishedJob
from softbench.stats.compare import mean_difference
from tests.runs import METHODS, finished_job, finished_runs


def section(story: Story, name: str) -> Section:
    return next(one for one in story.sections if one.name == name)


def test_the_questions_come_in_order() -> None:
    story = tell(finished_runs(["small", "big"], ["quiz", "exam"]))
    assert [one.name for one in story.sections] == ["standing", "hidden", "learning", "ranking", "cost"]
    assert (story.models, story.tasks, story.methods) == (["small", "big"], ["quiz", "exam"], list(METHODS))


def test_the_best_model_is_named_with_its_lead() -> None:
    best, lead = section(tell(finished_runs(["small", "big"], ["quiz", "exam"], count=200)), "standing").answer
    assert best.startswith("By soft_prompt, big scores ")
    assert best.endswith(" on average over 2 tasks.")
    assert lead.startswith("small comes next, ")
    assert lead.endswith("a difference that these samples can show.")


def test_a_lead_that_samples_do_not_show_is_called_so() -> None:
    one = finished_job("one", "quiz", "soft_prompt", 1.0, 0.5)
    other = replace(one, model="other")
    assert "too close for these samples to tell" in section(tell([[one], [other]]), "standing").answer[1]


def test_models_are_set_side_by_side_by_a_method_that_all_have() -> None:
    one, other = finished_runs(["one", "other"], ["quiz"])
    without = [job for job in other if job.label != "soft_prompt"]
    assert section(tell([one, without]), "standing").answer[0].startswith("By few_shot, ")
    apart = [replace(job, task="exam") for job in other]
    assert "can't be ranked" in section(tell([one, apart]), "standing").answer[0]


def test_models_asked_other_samples_are_not_compared() -> None:
    one = finished_job("one", "quiz", "soft_prompt", 1.0, 0.9, count=40)
    other = finished_job("other", "quiz", "soft_prompt", 1.0, 0.1, count=50)
    assert "was asked other samples" in section(tell([[one], [other]]), "standing").answer[1]


def test_a_control_is_no_method_by_which_models_are_set_side_by_side() -> None:
    labels = ("few_shot", "soft_prompt:labels=shuffled", "majority")
    runs = [[finished_job(model, "quiz", label, 0.9, 0.5) for label in labels] for model in ("one", "other")]
    assert section(tell(runs), "standing").answer[0].startswith("By few_shot, ")
    controls = [[job for job in run if job.label == "majority"] for run in runs]
    assert section(tell(controls), "standing").answer[0].startswith("By majority, ")


def test_what_the_form_hid_is_said_of_each_method_but_controls() -> None:
    labels = ("zero_shot", "soft_prompt", "majority", "soft_prompt:labels=shuffled")
    jobs = [
        finished_job("one", task, label, 0.0 if label == "zero_shot" else 1.0, 0.5, 100)
        for task in ("quiz", "exam")
        for label in labels
    ]
    story = tell([jobs])
    hidden, none = section(story, "hidden").answer
    assert hidden.startswith("zero_shot: ")
    assert "; most on " in hidden
    # Two tasks of 100, as if 1 of 102: 1.96 x sqrt(2 x (1 / 102) x (101 / 102) / 100) / 2.
    assert none == "soft_prompt: none of 200 answers was right in another form (interval up to 1.4 %)."
    assert [line.partition(":")[0] for line in section(story, "cost").answer] == ["zero_shot", "soft_prompt"]


def test_bars_split_what_a_sample_shows_into_parts_that_do_not_overlap() -> None:
    [figure] = section(tell(finished_runs(["one"], ["quiz"], count=100)), "hidden").figures
    job = finished_runs(["one"], ["quiz"], count=100)[0][0]
    row = next(row for row in figure.sheet.rows if row["method"] == "zero_shot")
    right = sum(bool(record.correct) for record in job.records)
    lenient = sum(bool(record.lenient_correct) for record in job.records)
    assert row["right, in the form"].value == right / 100  # type: ignore[union-attr]
    assert row["right, out of form"].value == pytest.approx((lenient - right) / 100)  # type: ignore[union-attr]
    assert row["likeliest option right"].value == 0.0  # type: ignore[union-attr]  # all of these were read leniently


def test_checkpoints_become_curves_and_are_not_counted_as_methods() -> None:
    jobs = [
        finished_job("one", "quiz", f"soft_prompt:step={step}", following, 0.5, 200, checkpoint=step)
        for step, following in ((0, 0.0), (10, 0.4), (40, 1.0))
    ]
    jobs.append(finished_job("one", "quiz", "soft_prompt", 1.0, 0.5, 200))
    story = tell([jobs])
    assert story.methods == ["soft_prompt"]
    found = section(story, "learning")
    assert found.answer[0] == "Format-following had saturated by step 40 of 80."
    [one] = found.figures
    assert {row["metric"] for row in one.panels[0].rows} == {"format-following", "accuracy", "choice accuracy"}
    assert [row["step"] for row in found.figures[0].sheet.rows] == [0, 10, 40, 80]


def test_curves_that_still_change_at_the_last_step_are_not_called_saturated() -> None:
    def tuning(task: str, *following: float) -> list[FinishedJob]:
        steps = [(step, rate, f"soft_prompt:step={step}") for step, rate in zip((0, 20), following, strict=False)]
        along = [finished_job("one", task, label, rate, 0.5, 200, checkpoint=step) for step, rate, label in steps]
        return [*along, finished_job("one", task, "soft_prompt", following[2], 0.5, 200)]

    quick, slow, slower = tuning("quiz", 0.0, 1.0, 1.0), tuning("exam", 0.0, 0.2, 1.0), tuning("test", 0.0, 0.2, 1.0)

    def said(*jobs: list[FinishedJob]) -> str:
        return section(tell([[job for of_task in jobs for job in of_task]]), "learning").answer[0]

    assert said(slow) == "Format-following was still changing before the last step, 80."
    assert (
        said(quick, [replace(job, task="essay") for job in quick])
        == "Format-following had saturated by step 20 of 80 on all 2 curves."
    )
    assert said(quick, slow).endswith("by step 20 of 80 on 1 of 2 curves; on exam from one it was still changing.")
    assert said(quick, slow, slower).endswith("1 of 3 curves; on exam from one and 1 more it was still changing.")


def test_post_trained_runs_are_ranked_by_base_scores() -> None:
    names = ["a", "b", "c", "d"]
    found = section(tell(finished_runs(names, ["quiz"], 400), finished_runs(names, ["quiz"], 400)), "ranking")
    assert found.answer[0].startswith("Kendall's tau over 4 pairs of models: zero_shot ")
    assert [panel.title.partition(":")[0] for panel in found.figures[0].panels] == list(METHODS)


def test_costs_are_added_up_by_method() -> None:
    lines = section(tell(finished_runs(["one", "other"], ["quiz", "exam"])), "cost").answer
    assert lines[2] == "soft_prompt: 36 s of tuning and 8 s of evaluation in all, with prompts of 12 tokens."


def test_two_runs_of_one_model_are_refused() -> None:
    [run] = finished_runs(["one"], ["quiz"])
    with pytest.raises(SpecError, match="two runs are of a model named 'one'"):
        tell([run, run])


def test_a_mean_difference_weighs_tasks_alike_and_holds_its_interval() -> None:
    gained, level = [(False, True)] * 30 + [(True, True)] * 70, [(False, False)] * 1000
    found = mean_difference([gained, level], np.random.default_rng(0))
    assert found.value == pytest.approx(0.15)
    # A share of 0.3 of 100, halved: 1.96 x sqrt(0.3 x 0.7 / 100) / 2 to each side.
    assert (found.low, found.high) == pytest.approx((0.15 - 0.0449, 0.15 + 0.0449), abs=0.005)
    assert mean_difference([gained, []], np.random.default_rng(0)).value is None
    assert mean_difference([], np.random.default_rng(0)).value is None
