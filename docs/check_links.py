"""Check the links of the built site: python docs/check_links.py [FOLDER].

Every relative link must lead to a file, and its anchor to an element in it. External links are only checked
for their form. Pages may not load anything external.
"""

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

SITE = Path(__file__).parents[1] / "build" / "docs"
ELSEWHERE = re.compile(r"https://[a-z0-9-]+(\.[a-z0-9-]+)+(/\S*)?")
LOADED = {("img", "src"), ("script", "src"), ("iframe", "src"), ("link", "href"), ("source", "srcset")}


class Page(HTMLParser):
    """The anchors of a page, its links, and what it loads."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect the anchors, links and loaded files of an element."""
        for name, value in attrs:
            if value is None:
                continue
            if name == "id" or (tag, name) == ("a", "name"):
                self.anchors.add(value)
            if (tag, name) in LOADED:
                self.loaded.append(value)
            elif (tag, name) == ("a", "href"):
                self.links.append(value)


def check_site(site: Path) -> list[str]:
    """All problems, one per line."""
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    wrong = [] if pages else [f"{site}: no pages; run `make docs`"]
    for path, page in pages.items():
        if path.name == "404.html":  # its links are relative to a server's root
            continue
        where = path.relative_to(site)
        wrong += [f"{where}: loads {link}" for link in page.loaded if not _is_local(link)]
        for link in page.links + [link for link in page.loaded if _is_local(link)]:
            reason = _check_link(link, path, pages)
            if reason:
                wrong.append(f"{where}: {link}: {reason}")
    return wrong


def _is_local(link: str) -> bool:
    parts = urlsplit(link)
    return parts.scheme in ("", "data") and not parts.netloc


def _check_link(link: str, page: Path, pages: dict[Path, Page]) -> str | None:
    parts = urlsplit(link)
    if parts.scheme == "data":
        return None
    if not _is_local(link):
        return None if ELSEWHERE.fullmatch(link) else "not a whole https address"
    target = page if not parts.path else (page.parent / unquote(parts.path)).resolve()
    if target.is_dir():
        target = target / "index.html"
    if not target.is_file():
        return "no such file"
    if parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors:
        return "no such anchor"
    return None


if __name__ == "__main__":
    found = check_site(Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else SITE)
    print("\n".join(found) if found else "links: all lead somewhere, and nothing is loaded from elsewhere")
    sys.exit(bool(found))
