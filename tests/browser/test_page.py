"""The report's page in a real browser: nothing from models or data runs, nothing is fetched, everything works."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from softbench.report.page import write_page
from softbench.report.story import tell
from softbench.runs import FinishedJob
from tests.runs import finished_job, finished_runs

HOSTILE = (
    "<script>window.intruder = 1</script>",
    "</script><script>window.intruder = 2</script>",
    "\"'><img src=x onerror='window.intruder = 3'>",
    "--><svg onload='window.intruder = 4'>",
    "</style><style>body{display:none}</style>",
    "{{ 7 * 7 }}{% raw %}",
    "\u202eesrever\u202c \x00\x07\x1b[31m \ud800 ]]>",
)


@pytest.fixture
def opened(visit: Callable[..., Any], tmp_path: Path) -> Callable[..., Any]:
    """Writes the page of some runs and opens it."""

    def write_and_open(runs: list[list[FinishedJob]], posts: Sequence[Any] = (), **settings: Any) -> Any:
        path, mapping = tmp_path / "report.html", None
        if posts:
            mapping = tmp_path / "posts.yaml"
            pairs = zip(runs, posts, strict=True)
            mapping.write_text("".join(f"{base[0].model}: {post[0].model}\n" for base, post in pairs))
        path.write_bytes(write_page(tell(runs, posts, mapping), [job for run in runs for job in run]))
        seen = visit(path, **settings)
        seen.page.wait_for_function("document.getElementById('count').textContent.includes('samples')")
        return seen

    return write_and_open


@pytest.mark.parametrize("said", HOSTILE)
def test_nothing_that_a_model_a_task_or_a_name_says_runs(opened: Callable[..., Any], said: str) -> None:
    runs = [
        [replace(job, model=job.model + said, task=job.task + said, label=job.label + said) for job in run]
        for run in finished_runs(["one", "other"], ["quiz"], count=12, said=said)
    ]
    seen = opened(runs)
    seen.page.locator("#list summary").first.click()
    seen.page.locator("#list .sides").first.wait_for()
    assert seen.page.evaluate("window.intruder") is None
    assert seen.page.locator("img, iframe, object, embed, link").count() == 0
    assert seen.page.locator("script").count() == 2  # the packed samples of one task, and the page's own
    assert seen.page.locator("style").count() == 1
    assert seen.page.locator("h1").is_visible()
    assert seen.faults == []
    assert len(seen.requests) == 1
    assert "49" not in seen.page.locator("h1").inner_text()
    shown = seen.page.locator("#list .sides pre").first.inner_text()
    assert not set(shown) & set("\u202e\u202c\x00\x07\x1b")
    if "<" in said:
        assert said in shown  # as text


def test_filters_find_what_they_are_asked_for(opened: Callable[..., Any]) -> None:
    runs = finished_runs(["one", "other"], ["quiz", "exam"], count=60)
    zero, _, soft = runs[0][3:6]
    seen = opened(runs)
    count = seen.page.locator("#count")

    def choose(name: str, value: str) -> None:
        seen.page.get_by_label(name, exact=True).select_option(label=value)

    def counted(*holds: bool) -> str:
        return f"{sum(holds)} of 60 samples"

    choose("Task", "exam")
    choose("Model", "one")
    choose("Method", "zero_shot")
    choose("Beside it: model", "the same")
    choose("Beside it: method", "soft_prompt")
    assert count.inner_text() == counted(*[True] * 60)
    choose("Status", "OK")
    assert count.inner_text() == counted(*(record.status == "OK" for record in zero.records))
    choose("Status", "any")
    rights = [(bool(one.correct), bool(other.correct)) for one, other in zip(zero.records, soft.records, strict=True)]
    lenient = [bool(record.lenient_correct) for record in zero.records]
    for name, wanted in {
        "right": [right for right, _ in rights],
        "right, out of form": [knows and not right for knows, (right, _) in zip(lenient, rights, strict=True)],
        "wrong": [not knows for knows in lenient],
    }.items():
        choose("Outcome", name)
        assert count.inner_text() == counted(*wanted)
        assert seen.page.locator("#list li").count() == 0 or name in seen.page.locator("#list li").first.inner_text()
    choose("Outcome", "any")
    for name, pairs in {
        "one right, one wrong": {(True, False), (False, True)},
        "only the first right": {(True, False)},
        "only the second right": {(False, True)},
        "both right": {(True, True)},
        "neither right": {(False, False)},
    }.items():
        choose("Agreement", name)
        assert count.inner_text() == counted(*(one in pairs for one in rights))
    choose("Agreement", "any")
    more = seen.page.get_by_role("button", name="Show more")
    seen.page.get_by_label("Text", exact=True).fill("question 7")
    assert count.inner_text() == "1 of 60 samples"
    assert not more.is_visible()
    seen.page.get_by_label("Text", exact=True).fill("")
    choose("Beside it: model", "nothing")
    assert seen.page.get_by_label("Agreement", exact=True).is_disabled()
    assert seen.page.get_by_label("Beside it: method", exact=True).is_disabled()
    assert seen.page.locator("#list > li").count() == 50
    more.click()
    assert seen.page.locator("#list > li").count() == 60
    assert seen.faults == []


def test_what_is_shown_follows_the_model_and_stays_where_it_can(opened: Callable[..., Any]) -> None:
    runs = finished_runs(["one", "other"], ["quiz", "exam"], count=12)
    runs[1] = [job for job in runs[1] if job.label != "few_shot"]
    seen = opened(runs)
    columns = seen.page.locator("#columns span")

    def choose(name: str, value: str) -> None:
        seen.page.get_by_label(name, exact=True).select_option(label=value)

    heading = "question, accepted answer"
    assert columns.all_inner_texts() == [heading, "one, zero_shot", "one, soft_prompt"]
    choose("Model", "other")
    assert columns.all_inner_texts() == [heading, "other, zero_shot", "other, soft_prompt"]
    choose("Beside it: model", "one")
    choose("Beside it: method", "few_shot")
    choose("Task", "exam")
    assert columns.all_inner_texts() == [heading, "other, zero_shot", "one, few_shot"]
    choose("Beside it: model", "the same")  # which has no such method
    assert columns.all_inner_texts() == [heading, "other, zero_shot", "other, soft_prompt"]
    choose("Method", "soft_prompt")  # beside itself: once
    assert columns.all_inner_texts() == [heading, "other, soft_prompt"]
    assert seen.faults == []


def test_a_row_shows_the_question_without_what_all_prompts_share(opened: Callable[..., Any]) -> None:
    [run] = finished_runs(["one"], ["quiz"], count=12, words=20)
    seen = opened([run])
    own = run[0].records[4].prompt.text.removeprefix("Question ").removesuffix("\nAnswer:")
    assert seen.page.locator("#list .head").nth(4).inner_text() == own
    seen.page.get_by_label("Method", exact=True).select_option(label="few_shot")  # examples before each question
    assert seen.page.locator("#list .head").nth(4).inner_text() == own
    seen.page.locator("#list summary").nth(4).click()
    prompt = seen.page.locator("#list .prompt").first
    prompt.wait_for()
    assert prompt.evaluate("one => one.scrollHeight > one.clientHeight")
    assert prompt.evaluate("one => Math.abs(one.scrollTop + one.clientHeight - one.scrollHeight) < 2")  # its end


def test_two_methods_stand_side_by_side_with_all_that_is_known_of_a_sample(opened: Callable[..., Any]) -> None:
    seen = opened(finished_runs(["one"], ["quiz"], count=10))
    seen.page.locator("#list summary").nth(3).focus()
    seen.page.keyboard.press("Enter")  # a keyboard is enough
    sides = seen.page.locator("#list .side")
    assert [sides.nth(place).locator("h4").inner_text() for place in (0, 1)] == ["one, zero_shot", "one, soft_prompt"]
    for words in (
        "status",
        "lenient answer",
        "accepted",
        "at a stop string",
        "Completion",
        "Prompt",
        "Question 3",
        "-1.00",
    ):
        assert words in sides.first.inner_text(), words


def test_tasks_without_completions_show_the_likeliest_option(opened: Callable[..., Any]) -> None:
    job = finished_job("one", "cloze", "zero_shot", 1.0, 0.5, count=10)
    bare = [
        replace(one, completion=None, status=None, correct=None, answer=None, lenient_answer=None)
        for one in job.records
    ]
    seen = opened([[replace(job, records=tuple(bare))]])
    assert seen.page.locator("#list .said:not(.soft)").first.inner_text() in ("yes", "no")
    assert "No task of these runs generates text." in seen.page.locator("#hidden").inner_text()
    assert seen.faults == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_in_both_themes(opened: Callable[..., Any], scheme: str) -> None:
    seen = opened(finished_runs(["one"], ["quiz"], count=10), color_scheme=scheme)
    luminance = """element => {
        const [paper, ink] = ["backgroundColor", "color"].map(name => getComputedStyle(element)[name].match(/\\d+/g)
            .slice(0, 3).map(Number).map(value => value / 255)
            .map(value => value <= .03928 ? value / 12.92 : ((value + .055) / 1.055) ** 2.4))
            .map(([r, g, b]) => .2126 * r + .7152 * g + .0722 * b);
        return [paper, ink];
    }"""
    paper, ink = seen.page.locator("body").evaluate(luminance)
    assert (paper > ink) == (scheme == "light")
    assert (max(paper, ink) + 0.05) / (min(paper, ink) + 0.05) > 7  # WCAG 2.2, level AAA
    fills = seen.page.locator(".panel svg text").first.evaluate("element => getComputedStyle(element).fill")
    assert fills == seen.page.locator("body").evaluate("element => getComputedStyle(element).color")


def test_nothing_is_wider_than_a_phone(opened: Callable[..., Any]) -> None:
    runs = finished_runs(
        ["a-model-with-a-rather-long-name-7b-step-100000", "other"], ["arc_challenge:mcf:json"], count=10
    )
    seen = opened(runs, viewport={"width": 360, "height": 740})
    seen.page.locator("#list summary").first.click()
    assert seen.page.evaluate("document.documentElement.scrollWidth") <= 360
    assert seen.page.locator(".panel svg").first.bounding_box()["width"] > 250


LONG = ("gemma-3-270m", "SmolLM2-135M-Instruct-chat-step-10000000", "SmolLM2-135M-Instruct-chat-step-20000000")
"""Names of 40 characters, which have to be there as a whole."""
MANY = ("zero_shot", "few_shot", "soft_prompt", "majority", "random_model", "soft_prompt:labels=shuffled")


def crowded(end: str = "") -> list[list[FinishedJob]]:
    """Models that all know the same, by methods that mostly follow the form; with checkpoints."""
    return [
        [finished_job(model, "quiz", method, 0.97, 0.2) for method in MANY]
        + [
            finished_job(model, "quiz", f"soft_prompt:step={step}", step / 40, 0.2, checkpoint=step)
            for step in (0, 10, 40)
        ]
        for model in (name + end for name in LONG)
    ]


@pytest.mark.parametrize("width", [360, 1200])
def test_words_in_drawings_are_whole_and_lie_neither_on_one_another_nor_outside(
    opened: Callable[..., Any], width: int
) -> None:
    seen = opened(crowded(), posts=crowded("-it"), viewport={"width": width, "height": 800})
    found = seen.page.evaluate("""() => [...document.querySelectorAll(".panel svg")].map((svg) => {
        const frame = svg.getBoundingClientRect(), width = svg.viewBox.baseVal.width;
        // A text may be there twice: the ground that it stands on, and itself.
        const texts = [...svg.querySelectorAll("text")].filter((one) => one.getAttribute("stroke") === null);
        const boxes = texts.map((one) => [one.firstChild.textContent, one.getBoundingClientRect()]);
        const outside = boxes.filter(([, box]) => box.left < frame.left - 1 || box.right > frame.right + 1);
        const crossing = boxes.flatMap(([one, box], place) => boxes.slice(place + 1).filter(([, other]) =>
            box.left < other.right - 1 && other.left < box.right - 1 && box.top < other.bottom - 3 &&
            other.top < box.bottom - 3).map(([other]) => one + " / " + other));
        return { width, outside: outside.map(([one]) => one), crossing, all: boxes.map(([one]) => one) };
    })""")
    assert [(one["outside"], one["crossing"]) for one in found] == [([], [])] * len(found)
    widths = [one["width"] for one in found]
    assert max(widths) - min(widths) < 10  # pixels of some 350: letters are of one size in all drawings
    rowed = [one["all"] for one in found if "majority" in one["all"]]
    assert len(rowed) == 3  # scores, bars, seconds
    for texts in rowed:
        assert set(LONG) | set(MANY) <= set(texts)


def test_every_method_has_a_mark_which_its_legend_shows(opened: Callable[..., Any]) -> None:
    seen = opened(crowded())
    figure = seen.page.locator("figure").first
    assert figure.locator(".legend li").all_inner_texts() == list(MANY)
    shapes = figure.locator(".legend path").evaluate_all("all => all.map(one => one.getAttribute('d'))")
    assert len(set(shapes)) == len(MANY)
    drawn = figure.locator("svg .mark-symbol path").evaluate_all(
        "all => all.map(one => [one.getAttribute('d').length > 0, one.getAttribute('fill'), one.getBBox().width > 5])"
    )
    assert len(drawn) == len(MANY) * len(LONG)
    assert all(there and fill != "transparent" and wide for there, fill, wide in drawn)


def test_a_name_that_was_cut_is_whole_on_hover(opened: Callable[..., Any]) -> None:
    name = "an-organisation-with-a-long-name/and-a-model-of-a-name-as-long-7b-step-1000000"
    seen = opened(finished_runs([name, "other"], ["quiz"], count=10))
    cut = seen.page.locator(".panel svg text[aria-label]", has_text="…").first
    assert len(cut.evaluate("one => one.firstChild.textContent")) == 40
    assert cut.locator("title").text_content() == name


def test_kinds_of_line_stand_once_beside_the_colours(opened: Callable[..., Any]) -> None:
    seen = opened(crowded())
    figure = seen.page.locator("#learning figure")
    assert figure.locator(".legend li").all_inner_texts() == [
        *LONG, "format-following", "accuracy", "choice accuracy",
    ]  # fmt: skip
    assert figure.locator(".legend svg.line").count() == 3
    assert "accuracy" not in figure.locator(".panels").inner_text()


def test_a_word_of_the_glossary_shows_its_meaning_on_hover_and_focus(opened: Callable[..., Any]) -> None:
    seen = opened(finished_runs(["one"], ["quiz"], count=10))
    term = seen.page.locator(".term").first
    meaning = term.locator("[role=tooltip]")
    assert not meaning.is_visible()
    term.hover()
    assert meaning.is_visible()
    seen.page.mouse.move(0, 0)
    term.focus()
    assert meaning.is_visible()
    assert term.get_attribute("aria-describedby") == meaning.get_attribute("id")


def test_every_control_and_drawing_has_a_name(opened: Callable[..., Any]) -> None:
    seen = opened(finished_runs(["one"], ["quiz"], count=10))
    for control in seen.page.locator("select, input").all():
        assert control.evaluate("element => element.labels.length") == 1
    drawings = seen.page.locator("[role=img]")
    assert drawings.count() == seen.page.locator(".panel svg").count() > 2
    assert all("table below" in (one.get_attribute("aria-label") or "") for one in drawings.all())
    headings = seen.page.locator("h1, h2, h3, h4").evaluate_all("all => all.map(one => Number(one.tagName[1]))")
    assert headings[0] == 1
    assert all(after - before <= 1 for before, after in pairwise(headings))
    ids = seen.page.locator("[id]").evaluate_all("all => all.map(one => one.id)")
    assert len(ids) == len(set(ids))


def test_commands_in_sentences_are_set_as_code(opened: Callable[..., Any]) -> None:
    seen = opened(finished_runs(["one"], ["quiz"], count=10))
    assert seen.page.locator("#ranking code").inner_text() == "--post OUT/<model>"
    assert "`" not in seen.page.locator("main").inner_text()


def test_it_prints_dark_on_light_and_without_the_browser_of_samples(opened: Callable[..., Any]) -> None:
    seen = opened(finished_runs(["one"], ["quiz"], count=10), color_scheme="dark")
    seen.page.emulate_media(media="print")
    assert seen.page.locator("body").evaluate("one => getComputedStyle(one).color") == "rgb(27, 31, 36)"
    assert not seen.page.locator("#samples").is_visible()
    assert seen.page.locator(".panel svg").first.is_visible()
    assert len(seen.page.pdf()) > 10_000


@pytest.mark.slow
def test_seven_models_on_seven_tasks_stay_below_five_megabytes(opened: Callable[..., Any], tmp_path: Path) -> None:
    # Questions of 60 words behind 400 shared ones, completions of 15: more than most benchmarks have.
    runs = finished_runs([f"model-{n}" for n in range(7)], [f"task-{n}" for n in range(7)], count=200, words=60)
    seen = opened(runs)
    assert (tmp_path / "report.html").stat().st_size < 5_000_000
    assert seen.page.locator("#count").inner_text() == "200 of 200 samples"
    assert seen.faults == []
