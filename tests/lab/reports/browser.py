"""A headless Chromium with the report open in it."""

import shutil
from contextlib import contextmanager
from dataclasses import dataclass, field

ARGUMENTS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
)
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def executable():
    return next(filter(None, map(shutil.which, NAMES)), None)


@dataclass
class Opened:
    """The page, and what went wrong in it."""

    page: object
    complaints: list = field(default_factory=list)
    requests: list = field(default_factory=list)

    def evaluate(self, script, argument=None):
        return self.page.evaluate(script, argument)

    def texts(self, selector):
        return self.page.locator(selector).all_text_contents()


@contextmanager
def opened(browser, path, width=1280, height=900, scheme="light"):
    """The page of a report; it must not have complained at the end."""
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
    found = Opened(context.new_page())
    found.page.on("console", lambda message: found.complaints.append(f"{message.type}: {message.text}"))
    found.page.on("pageerror", lambda error: found.complaints.append(str(error)))
    found.page.on("request", lambda request: found.requests.append(request.url))
    found.page.goto(path.as_uri())
    found.page.wait_for_selector("html[data-ready]", timeout=120_000)
    try:
        yield found
        assert found.complaints == []
    finally:
        context.close()
