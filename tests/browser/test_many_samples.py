"""A page that can't hold all samples says so, and how many there are."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import softbench.report.samples as samples
from softbench.report.page import write_page
from softbench.report.story import tell
from tests.runs import finished_runs


@pytest.mark.parametrize(
    ("most", "said"), [(180, "60 of 60 samples"), (60, "20 of 20 samples, 1 in 3 of the 60 that were asked")]
)
def test_a_page_says_how_many_of_the_samples_it_holds(
    most: int, said: str, visit: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(samples, "MOST_RECORDS", most)
    runs = finished_runs(["one"], ["quiz"], count=60)
    (tmp_path / "report.html").write_bytes(write_page(tell(runs), runs[0]))
    seen = visit(tmp_path / "report.html")
    seen.page.wait_for_function("document.getElementById('count').textContent.includes('samples')")
    assert seen.page.locator("#count").inner_text() == said
    assert seen.faults == []
