"""Every document with numbers, from committed files: `python -m research.pages` (`make pages`) fills them anew."""

from research import choosing, performance, readme, results, robustness
from research.diagnosis import page as diagnosis
from research.kit import tables as kit

PAGES = (choosing.PAGE, diagnosis.PAGE, kit.PAGE, performance.PAGE, *readme.PAGES, results.PAGE, *robustness.PAGES)

if __name__ == "__main__":
    for page in PAGES:
        print(f"{page.path}: {'written anew' if page.write() else 'as it was'}")
