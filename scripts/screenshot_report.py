"""Take a picture of a report page: python scripts/screenshot_report.py PAGE OUT.png."""

import argparse
import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright


def screenshot(page_path: Path, picture: Path, width: int, height: int | None, theme: str) -> None:
    """Open a page from its file and write what a screen of this size shows, all of the page without a height."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": width, "height": height or 900}, color_scheme=theme)
        page.goto(page_path.resolve().as_uri())
        page.wait_for_selector("body[data-ready]")
        page.screenshot(path=picture, full_page=height is None)
        browser.close()


def main() -> int:
    """Read the arguments and take the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("page", type=Path, help="the report.html that `clare report` wrote")
    parser.add_argument("picture", type=Path, help="PNG file to write")
    parser.add_argument("--width", type=int, default=1280, help="width of the screen")
    parser.add_argument("--height", type=int, default=1600, help="height of the screen")
    parser.add_argument("--dark", action="store_true", help="the dark colours")
    parser.add_argument("--whole", action="store_true", help="the whole page, however long")
    given = parser.parse_args()
    height = None if given.whole else given.height
    screenshot(given.page, given.picture, given.width, height, "dark" if given.dark else "light")
    return 0


if __name__ == "__main__":
    sys.exit(main())
