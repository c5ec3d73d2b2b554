"""The pages: what is served, under which policy, and what is not ours in them."""

import gzip
import hashlib
import re
from importlib.resources import files
from pathlib import Path

import msgspec
import pytest

from treadle.server.app import App
from unit.server.visit import LOCAL, Visit

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
        ("app.js", "text/javascript; charset=utf-8"),
        ("vendor/preact.js", "text/javascript; charset=utf-8"),
        ("style.css", "text/css; charset=utf-8"),
        ("icon.svg", "image/svg+xml"),
    ],
)
async def test_files_have_their_own_types(app: App, name: str, kind: str) -> None:
    """Under nosniff a wrong type would not run."""
    visit = await Visit(app, "GET", f"/web/{name}").run()
    assert (visit.status, visit.headers["content-type"]) == (200, kind)
    assert visit.body == (WEB / name).read_bytes()


async def test_an_unchanged_file_is_not_sent_again(app: App) -> None:
    """The tag is of the content; the browser asks every time and downloads once."""
    first = await Visit(app, "GET", "/web/app.js").run()
    assert first.headers["cache-control"] == "no-cache"
    for seen in (first.headers["etag"], f'"other", W/{first.headers["etag"]}'):
        again = await Visit(app, "GET", "/web/app.js", headers=[LOCAL, ("if-none-match", seen)]).run()
        assert (again.status, again.body, again.headers["etag"]) == (304, b"", first.headers["etag"])


@pytest.mark.parametrize(
    "name",
    ["../app.py", "%2e%2e/app.py", "..", "/etc/passwd", "vendor/../app.js", "vendor", "app.js\x00.css", "nothing.js"],
)
async def test_only_listed_files_are_served(app: App, name: str) -> None:
    """A path is looked up in a table and never reaches the file system."""
    visit = await Visit(app, "GET", f"/web/{name}").run()
    assert (visit.status, visit.json()["error"]["code"]) == (404, "not_found")


async def test_a_person_at_a_wrong_address_gets_a_page(app: App) -> None:
    """Browsers get a page with the way back, programs an error."""
    visit = await Visit(app, "GET", "/console", headers=[LOCAL, ("accept", "text/html,*/*")]).run()
    assert (visit.status, visit.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert b'href="/"' in visit.body
    assert (await Visit(app, "GET", "/console").run()).headers["content-type"] == "application/json"


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
            assert target.startswith("./"), f"{script.name} imports {target}"
            assert (script.parent / target).is_file(), f"{script.name} imports {target}"


def test_own_scripts_never_parse_html() -> None:
    """Text of a model reaches the page as text nodes only."""
    sinks = re.compile(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|dangerouslySet|\beval\(|new Function")
    for script in WEB.glob("*.js"):
        assert sinks.search(script.read_text()) is None, script.name


def test_the_page_stays_small() -> None:
    """All scripts together, compressed, stay within 60 kB, and the colours of code, fetched on need, within 25 kB."""
    highlighter = {WEB / "highlight.js", *(WEB / "vendor/highlight").glob("*.js")}
    assert _compressed(set(WEB.rglob("*.js")) - highlighter) < 60_000
    assert _compressed(highlighter) < 25_000


def test_the_highlighter_is_fetched_on_need_only() -> None:
    """No module of the page imports it outright, and the page does not preload it."""
    assert "highlight" not in (WEB / "index.html").read_text()
    for script in set(WEB.glob("*.js")) - {WEB / "highlight.js"}:
        assert re.search(r"""from\s*["'][^"']*highlight""", script.read_text()) is None, script.name


def test_every_grammar_is_there_and_used() -> None:
    """The table of languages names a file for each grammar, and no grammar is shipped without a name."""
    table = re.findall(r'\.\.\.named\("(\w+)"', (WEB / "highlight.js").read_text())
    shipped = {path.stem for path in (WEB / "vendor/highlight").glob("*.js")} - {"core"}
    assert (sorted(table), len(table)) == (sorted(shipped), len(shipped))


def _compressed(scripts: set[Path]) -> int:
    return sum(len(gzip.compress(script.read_bytes(), 9)) for script in scripts)
