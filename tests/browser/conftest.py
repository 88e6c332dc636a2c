"""A real Chromium, in which nothing may go wrong unseen."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("no Chromium on PATH")
    with api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


class Watched:
    """A page with all that it asked for and complained of."""

    def __init__(self, page: Any) -> None:
        self.page, self.requests, self.complaints = page, list[str](), list[str]()
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("console", lambda line: self.complaints.append(f"{line.type}: {line.text}"))

    def open(self, address: str | Path) -> Any:
        """Load a file or an address, until the table stands."""
        self.page.goto(address.absolute().as_uri() if isinstance(address, Path) else address)
        self.page.wait_for_selector("#table-body .rows .line")
        return self.page

    @property
    def asked(self) -> list[str]:
        """Requests but those for data that is in the page."""
        return [url for url in self.requests if not url.startswith(("data:", "blob:"))]


@pytest.fixture
def watched(browser: Any) -> Iterator[Watched]:
    """No console message of any kind is let through."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, reduced_motion="reduce")
    page = Watched(context.new_page())
    page.page.set_default_timeout(10_000)
    yield page
    context.close()
    assert page.complaints == []
