"""Every document with numbers, from committed files: `python -m research.pages` (`make pages`) fills them anew."""

from importlib import import_module

from excessmtl.lab.compare.page import Page

PAGES = (
    "research.choosing:PAGE",
    "research.diagnosis.page:PAGE",
    "research.kit.tables:PAGE",
    "research.performance:PAGE",
    "research.results:PAGE",
    "research.robustness:PAGE",
    "research.results:THEORY",
)
"""Where each `Page` is defined, as `module:name`; a test fills them all and compares with what is committed."""


def load(place: str) -> Page:
    """The page that is defined there."""
    module, name = place.split(":")
    page: Page = getattr(import_module(module), name)
    return page


def main() -> None:
    """Fill all of them and say which have changed."""
    for place in PAGES:
        page = load(place)
        print(f"{page.path}: {'written anew' if page.write() else 'as it was'}")


if __name__ == "__main__":
    main()
