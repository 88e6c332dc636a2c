"""Take the screenshot of the demo's report, after `graphclean demo`: python docs/screenshot.py."""

import io
import shutil
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

REPORT = Path("runs/demo/report.html")
IMAGE = Path(__file__).parent / "images" / "report.png"
WIDTH, HEIGHT = 1280, 1640


def main() -> None:
    """Capture the top of the page, with few colors: it is mostly uniform."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light")
        page.goto(REPORT.absolute().as_uri())
        page.wait_for_selector("#table-body .rows .line")
        picture = Image.open(io.BytesIO(page.screenshot()))
        browser.close()
    few = picture.convert("RGB").quantize(256, method=Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
    few.save(IMAGE, optimize=True)
    print(IMAGE)


if __name__ == "__main__":
    main()
