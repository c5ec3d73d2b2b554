"""Writes the documents as a static site: `python -m scripts.site -o build/docs`.

The tree stays as it is, so that a link that works in the files works here: a document becomes a page, another file
that a document links to is copied. No script, nothing from elsewhere, the same bytes each time.
"""

import argparse
import html
import os
import posixpath
import re
import shutil
import sys
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token
from pygments import highlight
from pygments.formatters.html import HtmlFormatter
from pygments.lexers import get_lexer_by_name
from pygments.util import ClassNotFound

ROOT = Path(__file__).resolve().parents[1]
INDEX = "docs/README.md"
SOURCES = ("*.md", "docs/**/*.md", "examples/**/README.md", "deploy/**/*.md")
NAV: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = (
    ("Begin", (("Start", "docs/start.md"), ("Examples", "examples/README.md"), ("Trouble", "docs/troubleshooting.md"))),
    (
        "Guides",
        (
            ("SDK scripts", "docs/guides/sdk.md"),
            ("Agents, local models", "docs/guides/agents.md"),
            ("Safe tools", "docs/guides/application.md"),
            ("WASM tools", "docs/guides/wasm.md"),
            ("Evaluating", "docs/guides/evaluating.md"),
            ("Operating", "docs/guides/operating.md"),
            ("Contributing", "CONTRIBUTING.md"),
        ),
    ),
    (
        "Concepts",
        (
            ("The loop", "docs/concepts/loop.md"),
            ("The journal", "docs/concepts/journal.md"),
            ("Approvals", "docs/concepts/approvals.md"),
            ("Dialects", "docs/concepts/dialects.md"),
            ("Sandbox levels", "docs/concepts/sandbox.md"),
        ),
    ),
    (
        "Reference",
        (
            ("HTTP", "docs/http.md"),
            ("Endpoints", "docs/reference/endpoints.md"),
            ("Configuration", "docs/configuration.md"),
            ("Commands", "docs/commands.md"),
            ("Flags", "docs/reference/cli.md"),
            ("Events", "docs/reference/events.md"),
            ("Library", "docs/library.md"),
            ("Host calls", "docs/wasm.md"),
            ("Security", "docs/security.md"),
        ),
    ),
    ("About", (("Comparison", "docs/comparison.md"), ("Versions", "VERSIONING.md"), ("Changes", "CHANGELOG.md"))),
)
"""What stands beside every page; the index has the rest."""

_OUTSIDE = re.compile(r"[a-z][a-z0-9+.-]*:|//")
_POLICY = "default-src 'none'; img-src 'self'; style-src 'self'"


class Site:
    """The documents by their path in the tree, and what becomes of each."""

    def __init__(self, root: Path = ROOT) -> None:
        self.root = root
        self.documents = sorted({_shown(path, root) for pattern in SOURCES for path in root.glob(pattern)})
        self.copied: set[str] = set()
        self._markdown = MarkdownIt("commonmark", {"html": True}).enable("table")

    def write(self, out: Path) -> int:
        """Write every page and what it needs; return how many pages there are."""
        pages = {page_of(name): self.page(name) for name in self.documents}
        for name, text in pages.items():
            target = out / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
        for name in sorted(self.copied):
            target = out / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(self.root / name, target)
        (out / "site.css").write_text(_styles(), encoding="utf-8")
        return len(pages)

    def page(self, name: str) -> str:
        """Return one document as a page."""
        tokens = self._markdown.parse((self.root / name).read_text(encoding="utf-8"))
        headings = _name_headings(tokens)
        for token in _flat(tokens):
            self._lead(token, name)
        body = _render(self._markdown, tokens)
        title = headings[0][1] if headings else name
        return _TEMPLATE.format(
            policy=_POLICY,
            title=html.escape(title if name == INDEX else f"{title} · Treadle"),
            css=_relative("site.css", name),
            home=_relative("index.html", name),
            nav=self._nav(name),
            contents=_contents(headings),
            body=body,
            source=html.escape(name),
        )

    def _lead(self, token: Token, name: str) -> None:
        """Make the link or picture of a token lead to the page, or to the copy, of what it names in the tree."""
        attribute = {"link_open": "href", "image": "src"}.get(token.type)
        target = str(token.attrGet(attribute) or "") if attribute else ""
        if not attribute or not target or _OUTSIDE.match(target):
            return
        path, _, anchor = target.partition("#")
        found = posixpath.normpath(posixpath.join(posixpath.dirname(name), path)) if path else name
        if found not in self.documents:
            self.copied.add(found)
        href = "" if found == name else _relative(page_of(found) if found in self.documents else found, name)
        token.attrSet(attribute, f"{href}#{anchor}" if anchor else href or "#")

    def _nav(self, name: str) -> str:
        parts: list[str] = []
        for heading, entries in NAV:
            there = [(title, path) for title, path in entries if path in self.documents]
            parts += [f"<h2>{heading}</h2><ul>"]
            for title, path in there:
                here = ' aria-current="page"' if path == name else ""
                parts.append(f'<li><a href="{_relative(page_of(path), name)}"{here}>{html.escape(title)}</a></li>')
            parts.append("</ul>")
        return "\n".join(parts)


def page_of(name: str) -> str:
    """Return the page of a document: the index of the documents is that of the site."""
    return "index.html" if name == INDEX else f"{name.removesuffix('.md')}.html"


def slug(text: str) -> str:
    """Return the anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", text.lower()).strip().replace(" ", "-")


def _name_headings(tokens: list[Token]) -> list[tuple[str, str, int]]:
    """Give every heading its anchor and return (anchor, text, level) of each."""
    found: list[tuple[str, str, int]] = []
    seen: dict[str, int] = {}
    for token, inline in pairwise(tokens):
        if token.type != "heading_open":
            continue
        text = "".join(child.content for child in inline.children or [] if child.type in ("text", "code_inline"))
        anchor = slug(text)
        count = seen[anchor] = seen.get(anchor, -1) + 1
        anchor = f"{anchor}-{count}" if count else anchor
        token.attrSet("id", anchor)
        found.append((anchor, text, int(token.tag[1])))
        if token.tag != "h1":
            mark = Token(
                "html_inline", "", 0, content=f'<a class="anchor" href="#{anchor}" aria-label="link here">#</a>'
            )
            (inline.children or []).append(mark)
    return found


def _flat(tokens: Iterable[Token]) -> Iterable[Token]:
    for token in tokens:
        yield token
        yield from _flat(token.children or [])


def _render(markdown: MarkdownIt, tokens: list[Token]) -> str:
    """Render with code in colours, and tables that scroll by themselves."""
    for token in tokens:
        if token.type == "fence":
            token.type, token.content = "html_block", _code(token.content, token.info.split(" ")[0])
    text = markdown.renderer.render(tokens, markdown.options, {})
    return text.replace("<table>", '<div class="wide" role="region" tabindex="0" aria-label="table"><table>').replace(
        "</table>", "</table></div>"
    )


def _code(text: str, language: str) -> str:
    try:
        lexer = get_lexer_by_name({"": "sh", "wat": "scheme"}.get(language, language))
    except ClassNotFound:
        return f'<pre tabindex="0"><code>{html.escape(text)}</code></pre>\n'
    coloured = highlight(text, lexer, HtmlFormatter(nowrap=True))
    return f'<pre class="highlight" tabindex="0"><code>{coloured}</code></pre>\n'


def _contents(headings: list[tuple[str, str, int]]) -> str:
    entries = [(anchor, text) for anchor, text, level in headings if level == 2]
    if len(entries) < 3:
        return ""
    links = " · ".join(f'<a href="#{anchor}">{html.escape(text)}</a>' for anchor, text in entries)
    return f'<details class="contents"><summary>On this page</summary>{links}</details>'


def _relative(target: str, name: str) -> str:
    """Return the way from the page of a document to a file of the site."""
    return posixpath.relpath(target, posixpath.dirname(page_of(name)) or ".")


def _styles() -> str:
    """Return the style sheet: ours, and the colours of code by day and by night."""
    own = Path(__file__).with_name("site.css").read_text(encoding="utf-8")
    day = HtmlFormatter(style="friendly").get_style_defs(".highlight")
    night = HtmlFormatter(style="native").get_style_defs(".highlight")
    kept = [re.sub(r"^\.highlight \{[^}]*\}\n", "", each, flags=re.MULTILINE) for each in (day, night)]
    return f"{own}\n{kept[0]}\n@media (prefers-color-scheme: dark) {{\n{kept[1]}\n}}\n"


def _shown(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix()


_TEMPLATE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="content-security-policy" content="{policy}">
<title>{title}</title>
<link rel="stylesheet" href="{css}">
</head>
<body>
<a class="skip" href="#content">To the text</a>
<div class="frame">
<nav class="site" aria-label="Documents">
<a class="name" href="{home}">Treadle</a>
{nav}
</nav>
<main id="content">
{contents}
{body}
<footer>{source}</footer>
</main>
</div>
</body>
</html>
"""


def main() -> int:
    """Write the site."""
    parser = argparse.ArgumentParser(prog="python -m scripts.site", description=main.__doc__)
    parser.add_argument("-o", "--output", type=Path, required=True, help="the folder to write")
    out = parser.parse_args().output
    shutil.rmtree(out, ignore_errors=True)
    count = Site().write(out)
    sys.stdout.write(f"{count} pages: {os.path.relpath(out / 'index.html')}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
