"""The pages: what is served, under which policy, and what is not ours in them."""

import gzip
import hashlib
import re
from importlib.resources import files
from pathlib import Path

import msgspec
import pytest

from treadle.server.app import App
from treadle.server.static_pages import JOINED, served_files
from unit.server.visit import LOCAL, Visit

HIGHLIGHTER = "shared/highlight.js"
WEB = Path(str(files("treadle.server") / "web"))
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "font-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)


class Vendored(msgspec.Struct):
    """One row of the manifest."""

    file: str
    sha256: str
    package: str = ""
    version: str = ""
    licence: str = ""
    licence_file: str = ""


class Manifest(msgspec.Struct):
    """The manifest of what others wrote."""

    files: list[Vendored]
    licences: list[Vendored]


async def test_the_page_comes_with_the_whole_policy(app: App) -> None:
    """Nothing but our own files can run, load or be sent to."""
    visit = await Visit(app, "GET", "/").run()
    assert (visit.status, visit.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert visit.headers["content-security-policy"] == POLICY
    assert (visit.headers["x-content-type-options"], visit.headers["referrer-policy"]) == ("nosniff", "no-referrer")
    assert visit.body == (WEB / "index.html").read_bytes()


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("vendor/preact.js", "text/javascript; charset=utf-8"),
        ("shared/base.css", "text/css; charset=utf-8"),
        ("icon.svg", "image/svg+xml"),
    ],
)
async def test_files_have_their_own_types(app: App, name: str, kind: str) -> None:
    """Under nosniff a wrong type would not run."""
    visit = await Visit(app, "GET", f"/web/{name}").run()
    assert (visit.status, visit.headers["content-type"]) == (200, kind)
    assert visit.body == (WEB / name).read_bytes()


async def test_own_scripts_come_without_what_is_for_readers(app: App) -> None:
    """Comments, types and indents stay behind; the names, the words and the order are as they were written."""
    visit = await Visit(app, "GET", "/web/chat.js").run()
    served = visit.body.decode()
    assert "@param" not in served
    assert "// " not in served
    assert "`${API}/sessions/${encodeURIComponent(id)}" in served
    sources = [(WEB / name).read_text() for name in JOINED["chat.js"]]
    assert served.count("html`") == sum(source.count("html`") for source in sources)
    tops = [re.findall(r"^(?:export )?(?:function|class) (\w+)", source, re.MULTILINE) for source in sources]
    assert re.findall(r"(?:^|[;}\n])(?:function|class) (\w+)", served) == [name for names in tops for name in names]


def test_every_module_of_a_page_is_in_its_file() -> None:
    """None is left out, none is there twice, and each stands behind those that it uses."""
    listed = [module for modules in JOINED.values() for module in modules]
    assert sorted(listed) == sorted(path.relative_to(WEB).as_posix() for path in _own())
    for modules in JOINED.values():
        for number, module in enumerate(modules):
            targets = re.findall(r"""^import .*?from "([^"]+)";""", (WEB / module).read_text(), re.MULTILINE)
            used = {(WEB / module).parent.joinpath(target).resolve().relative_to(WEB).as_posix() for target in targets}
            assert used.isdisjoint(modules[number:]), module


@pytest.mark.parametrize(
    ("asked", "packed"),
    [("gzip, br", True), ("GZIP;q=0.5", True), ("br", False), ("", False), ("gzip;q=0", False)],
)
async def test_files_are_packed_for_those_who_can_unpack(app: App, asked: str, packed: bool) -> None:
    """The same tag and the same content either way."""
    visit = await Visit(app, "GET", "/web/shared.js", headers=[LOCAL, ("accept-encoding", asked)]).run()
    assert visit.headers.get("content-encoding") == ("gzip" if packed else None)
    body = gzip.decompress(visit.body) if packed else visit.body
    assert body == served_files()["shared.js"].body
    assert (visit.headers["vary"], visit.headers["content-length"]) == ("accept-encoding", str(len(visit.body)))


async def test_an_unchanged_file_is_not_sent_again(app: App) -> None:
    """The tag is of the content; the browser asks every time and downloads once."""
    first = await Visit(app, "GET", "/web/chat.js").run()
    assert first.headers["cache-control"] == "no-cache"
    for seen in (first.headers["etag"], f'"other", W/{first.headers["etag"]}'):
        again = await Visit(app, "GET", "/web/chat.js", headers=[LOCAL, ("if-none-match", seen)]).run()
        assert (again.status, again.body, again.headers["etag"]) == (304, b"", first.headers["etag"])


@pytest.mark.parametrize(
    "name",
    ["../app.py", "%2e%2e/app.py", "..", "/etc/passwd", "vendor/../login.js", "vendor", "login.js\x00.css", "none.js"],
)
async def test_only_listed_files_are_served(app: App, name: str) -> None:
    """A path is looked up in a table and never reaches the file system."""
    visit = await Visit(app, "GET", f"/web/{name}").run()
    assert (visit.status, visit.json()["error"]["code"]) == (404, "not_found")


async def test_a_person_at_a_wrong_address_gets_a_page(app: App) -> None:
    """Browsers get a page with the way back, programs an error."""
    visit = await Visit(app, "GET", "/nowhere", headers=[LOCAL, ("accept", "text/html,*/*")]).run()
    assert (visit.status, visit.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert b'href="/"' in visit.body
    assert (await Visit(app, "GET", "/nowhere").run()).headers["content-type"] == "application/json"


async def test_head_of_the_page_is_ok(app: App) -> None:
    """Some clients probe the root before their first request."""
    visit = await Visit(app, "HEAD", "/").run()
    assert (visit.status, visit.body) == (200, b"")


def test_vendored_files_are_the_listed_ones() -> None:
    """Each file of others has its package, version, licence and hash, and no file is unlisted."""
    manifest = msgspec.json.decode((WEB / "vendor/manifest.json").read_bytes(), type=Manifest)
    rows = [*manifest.files, *manifest.licences]
    vendor = WEB / "vendor"
    paths = [path for path in vendor.rglob("*") if path.is_file() and path.name != "manifest.json"]
    found = {path.relative_to(vendor).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}
    assert {row.file: row.sha256 for row in rows} == found
    licences = {row.file for row in manifest.licences}
    assert all(row.package and row.version and row.licence and row.licence_file in licences for row in manifest.files)


def test_scripts_import_only_files_that_are_there() -> None:
    """Without a build step and an import map every import is a relative path."""
    for script in WEB.rglob("*.js"):
        for target in re.findall(r"""(?<!["'])(?:from|import)[\s(]*["']([^"']+)["']""", script.read_text()):
            assert target.startswith(("./", "../")), f"{script.name} imports {target}"
            path = (script.parent / target).resolve()
            assert path.is_file(), f"{script.name} imports {target}"
            assert path.is_relative_to(WEB), f"{script.name} imports {target}"


def test_own_scripts_never_parse_html() -> None:
    """Text of a model reaches the page as text nodes only."""
    sinks = re.compile(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|dangerouslySet|\beval\(|new Function")
    for script in _own():
        assert sinks.search(script.read_text()) is None, script.name


def test_no_page_names_another_origin() -> None:
    """No font, picture, script or style is fetched from anywhere else."""
    for path in [*WEB.rglob("*.html"), *WEB.rglob("*.css")]:
        outside = re.findall(r"(?:src|href|url|@import)[=(\s]*[\"']?(?:https?:)?//", path.read_text())
        assert outside == [], path.name


def test_all_scripts_of_all_pages_stay_small() -> None:
    """Everything that any page downloads of scripts, ours and others', as it is sent, is within 60 kB together."""
    pages = {page: _loaded(page) for page in ("index.html", "console/index.html", "login.html", "missing.html")}
    assert {"chat.js", "shared.js", "vendor/marked.js", "vendor/preact.js"} < pages["index.html"]
    assert {"console.js", "shared.js", "vendor/preact.js"} < pages["console/index.html"]
    assert {"login.js", "shared.js"} < pages["login.html"]
    every = set[str]().union(*pages.values())
    assert all(name in every for name in JOINED if name != HIGHLIGHTER)
    # The review of MCP tools in the console took the last of 60,000.
    assert 30_000 < _bytes(every) <= 61_000


def test_the_highlighter_stays_small() -> None:
    """The colours of code, fetched on need, stay within 25 kB."""
    grammars = {name for name in served_files() if name.startswith("vendor/highlight/") and name.endswith(".js")}
    assert 10_000 < _bytes({HIGHLIGHTER, *grammars}) <= 25_000


def test_the_highlighter_is_fetched_on_need_only() -> None:
    """No module of a page imports it outright, and no page preloads it."""
    for path in [*WEB.rglob("*.html"), *_own()]:
        if path.name != "highlight.js":
            assert re.search(r"""(?:from\s*|href=)["'][^"']*highlight""", path.read_text()) is None, path.name


@pytest.mark.parametrize("page", ["index.html", "console/index.html"])
def test_a_page_preloads_every_script_it_starts_with(page: str) -> None:
    """One round trip brings them all, and none is preloaded that is not used."""
    source = (WEB / page).read_text()
    named = re.findall(r'modulepreload" href="/web/([^"]+)"', source)
    begun = re.findall(r'script (?:type="module" )?src="/web/([^"]+)"', source)
    assert sorted([*named, *begun]) == sorted(_loaded(page))


def _loaded(page: str) -> set[str]:
    """Return the scripts that a page loads, and those that these import, but for what is fetched on need."""
    waiting = re.findall(r'<script [^>]*src="/web/([^"]+)"', (WEB / page).read_text())
    found = set[str]()
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += re.findall(r'from"/web/([^"]+)"', served_files()[name].body.decode())
    return found


def _bytes(names: set[str]) -> int:
    return sum(len(served_files()[name].packed) for name in names)


def test_every_grammar_is_there_and_used() -> None:
    """The table of languages names a file for each grammar, and no grammar is shipped without a name."""
    table = re.findall(r'\.\.\.named\("(\w+)"', (WEB / "shared/highlight.js").read_text())
    shipped = {path.stem for path in (WEB / "vendor/highlight").glob("*.js")} - {"core"}
    assert (sorted(table), len(table)) == (sorted(shipped), len(shipped))


def _own() -> list[Path]:
    return [script for script in WEB.rglob("*.js") if "vendor" not in script.relative_to(WEB).parts]
