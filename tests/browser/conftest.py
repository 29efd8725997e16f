"""A headless Chromium, the system's own; where there is none, these tests skip and say so."""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

sync_api = pytest.importorskip(
    "playwright.sync_api", reason="playwright is not installed: pip install 'softbench[dev]'"
)


@dataclass
class Visit:
    """An open page, and all that went wrong or went out since it was opened."""

    page: Any
    faults: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """One browser for all tests."""
    path = next(
        (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
    )
    if path is None:
        pytest.skip("no Chromium on this machine: apt-get install chromium")
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def visit(browser: Any) -> Iterator[Callable[..., Visit]]:
    """Opens a file; `settings` are a browser context's, such as `color_scheme` or `viewport`."""
    contexts = []

    def open_file(path: Path, **settings: Any) -> Visit:
        context = browser.new_context(**settings)
        contexts.append(context)
        seen = Visit(context.new_page())

        def refuse(dialog: Any) -> None:
            seen.faults.append(f"dialog: {dialog.message}")
            dialog.dismiss()

        seen.page.set_default_timeout(20_000)
        seen.page.on("console", lambda message: seen.faults.append(f"{message.type}: {message.text}"))
        seen.page.on("pageerror", lambda error: seen.faults.append(str(error)))
        seen.page.on("dialog", refuse)
        seen.page.on("request", lambda request: seen.requests.append(request.url))
        seen.page.goto(path.as_uri())
        return seen

    yield open_file
    for context in contexts:
        context.close()
