"""The documents as a site: every page is found from the index, every link leads somewhere, nothing is foreign."""

import posixpath
import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest
from scripts.site import INDEX, NAV, Site, page_of, slug

from rules.tree import ROOT, files, shown


class Page(HTMLParser):
    """What of a page leads elsewhere, and where one can lead into it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.ids: list[str] = []
        self.tags: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.tags.append(tag)
        if given.get("id"):
            self.ids.append(str(given["id"]))
        if tag == "a":
            self.links.append(str(given.get("href")))
        if tag in ("link", "img", "script", "iframe"):
            self.loads.append(str(given.get("href") or given.get("src")))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the site once."""
    out = tmp_path_factory.mktemp("site")
    Site().write(out)
    return out


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[str, Page]:
    """Read every page of it, by its path."""
    return {path.relative_to(site).as_posix(): Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}


def leads(page: str, link: str) -> tuple[str, str]:
    """Return the file and the anchor that a link of a page leads to."""
    path, _, anchor = link.partition("#")
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), unquote(path))) if path else page, anchor


def is_outside(link: str) -> bool:
    """Tell whether a link leads out of the site."""
    return re.match(r"[a-z][a-z0-9+.-]*:|//", link) is not None


def test_no_link_is_dead(site: Path, pages: dict[str, Page]) -> None:
    """Each leads to a page, to a heading that is there, or to a file that was copied."""
    dead: list[str] = []
    for name, page in pages.items():
        for link in [*page.links, *page.loads]:
            if is_outside(link):
                continue
            path, anchor = leads(name, link)
            if not (site / path).is_file() or (anchor and path in pages and anchor not in pages[path].ids):
                dead.append(f"{name}: {link}")
    assert dead == []


def test_every_page_is_reached_from_the_index_by_its_text(pages: dict[str, Page]) -> None:
    """Also without the list at the side, which files on disk do not have."""
    beside = {page_of(path) for _, entries in NAV for _, path in entries}
    names = Site().documents
    linked = {page_of(name): {page_of(each) for each in _links_of(name) if each in names} for name in names}
    seen, waiting = {"index.html"}, ["index.html"]
    while waiting:
        for each in linked[waiting.pop()] - seen:
            seen.add(each)
            waiting.append(each)
    assert sorted(set(pages) - seen) == []
    assert sorted(beside - set(pages)) == []


def _links_of(name: str) -> list[str]:
    text = re.sub(r"^```.*?^```", "", (ROOT / name).read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    targets = re.findall(r"\]\(([^)\s#]+)(?:#[^)]*)?\)", text)
    return [posixpath.normpath(posixpath.join(posixpath.dirname(name), each)) for each in targets]


def test_a_page_loads_nothing_from_elsewhere_and_runs_nothing(pages: dict[str, Page]) -> None:
    """It can be read from a disk, without a network, and tells nobody who reads it."""
    assert [(name, load) for name, page in pages.items() for load in page.loads if is_outside(load)] == []
    assert [name for name, page in pages.items() if {"script", "iframe", "form", "object"} & set(page.tags)] == []


def test_a_page_can_be_read_by_everybody(site: Path, pages: dict[str, Page]) -> None:
    """One main heading, a language, a title, ids that are there once; pictures with words."""
    for name, page in pages.items():
        text = (site / name).read_text(encoding="utf-8")
        assert page.tags.count("h1") == 1, name
        assert sorted({each for each in page.ids if page.ids.count(each) > 1}) == [], name
        assert '<html lang="en">' in text
        assert "<title></title>" not in text
        assert re.findall(r'<img[^>]*alt=""', text) == []


def test_two_builds_are_the_same(site: Path, tmp_path: Path) -> None:
    """So that a change of the site is a change of the documents."""
    Site().write(tmp_path)
    first, second = (
        {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}
        for root in (site, tmp_path)
    )
    assert first.keys() == second.keys()
    assert [name for name in first if first[name] != second[name]] == []


def test_every_document_has_a_page() -> None:
    """A new document is a new page, without being named anywhere but in a link."""
    wanted = [shown(path) for path in files() if path.suffix == ".md" and shown(path).startswith("docs/")]
    assert sorted(set(wanted) - set(Site().documents)) == []
    assert INDEX in wanted


@pytest.mark.parametrize(
    ("text", "anchor"),
    [
        ("Every key, with its default", "every-key-with-its-default"),
        ("`treadle`", "treadle"),
        ("A/B tests?", "ab-tests"),
    ],
)
def test_an_anchor_is_what_github_makes_of_a_heading(text: str, anchor: str) -> None:
    """The same link works in the files and on the site."""
    assert slug(text) == anchor


def test_code_and_markup_in_a_document_stay_text(tmp_path: Path) -> None:
    """What stands in a fence is shown, never obeyed."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "README.md").write_text("# A\n\n```text\n<script>alert(1)</script>\n```\n\n`<b>`\n")
    page = Site(tmp_path).page(INDEX)
    assert "&lt;script&gt;" in page
    assert "<script" not in page
    assert "<b>" not in page


def test_a_link_to_what_is_not_there_stops_the_build(tmp_path: Path) -> None:
    """A site with a hole is not written silently."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "README.md").write_text("# A\n\n[b](b.md)\n")
    with pytest.raises(FileNotFoundError):
        Site(tmp_path).write(tmp_path / "out")
