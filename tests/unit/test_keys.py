"""What colours, shapes and lines of a report's drawings stand for."""

from dataclasses import replace

from softbench.report.keys import Key, keys_of
from softbench.report.story import Figure, Panel, tell
from tests.runs import finished_job

CONTROLS = ("majority", "random_model", "lora", "loaded_prompt", "soft_prompt:labels=shuffled", "few_shot:seed=1")


def accuracy_keys(*labels: str) -> list[Key]:
    story = tell([[finished_job("one", "quiz", label, 0.9, 0.5) for label in labels]])
    return keys_of(story.sections[0].figures[0])


def curves() -> Figure:
    steps = {0: "soft_prompt:step=0", 10: "soft_prompt:step=10", None: "soft_prompt"}
    story = tell([[finished_job("one", "quiz", label, 0.9, 0.5, checkpoint=step) for step, label in steps.items()]])
    return next(figure for section in story.sections for figure in section.figures if figure.kind == "curves")


def test_every_method_has_a_shape_and_colour_of_its_own() -> None:
    labels = ["zero_shot", "few_shot", "soft_prompt", *CONTROLS, *(f"lora:rank={n}" for n in range(16))]
    keys = accuracy_keys(*labels)
    assert [key.name for key in keys] == labels
    assert len({(key.colour, key.shape) for key in keys}) == len(labels)


def test_the_usual_methods_look_alike_in_every_report() -> None:
    one, other = accuracy_keys("majority", "soft_prompt"), accuracy_keys("soft_prompt", "lora", "zero_shot")
    assert one[1] == other[0]
    assert len({key.colour for key in (*one, *other)}) == 3  # the two others of the first free colour, both


def test_kinds_of_line_are_named_where_they_occur() -> None:
    figure = curves()
    keys = keys_of(figure)
    assert [key.name for key in keys] == ["one", "format-following", "accuracy", "choice accuracy"]
    assert len({key.dash for key in keys}) == 4
    [panel] = figure.panels
    cloze = [row for row in panel.rows if row["metric"] == "choice accuracy"]
    assert [key.name for key in keys_of(replace(figure, panels=[Panel("", cloze)]))] == ["one", "choice accuracy"]
