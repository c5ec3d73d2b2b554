"""Markdown that grows: however it was cut on its way, the page ends as if it had come at once."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from browser.conftest import Watched, new_context
from browser.host import hosted

pytestmark = [pytest.mark.browser, pytest.mark.slow]

DOCUMENTS = {
    "paragraphs": "One *two* three.\n\nFour **five** six\nseven.\n\n\n\nEight.",
    "code": "Before\n\n```python\ndef f():\n    return 1\n\n# more\n```\n\nAfter\n\n~~~\nother\n~~~\n",
    "open code": "Text\n\n```js\nlet a = 1;\nlet b = `x`;\n\n",
    "long fence": "````md\n```\ninner\n```\n````\nend",
    "fence look-alikes": "```\na ``` b\n  ```x\n````\nafter",
    "loose list": "1. one\n\n2. two\n\n   more of two\n\n3. three\n\nText",
    "bullets": "- a\n\n- b\n  - c\n    - d\n\n- [x] done\n- [ ] open",
    "table": "| a | b |\n|---|:-:|\n| 1 | 2 |\n| 3 | 4 |\n\nafter",
    "late address": "See [this][r] and ![that][r].\n\nMore.\n\n[r]: https://example.org/x",
    "setext": "Title\n=====\n\nUnder\n-----\n\ntext",
    "quote": "> one\n> two\n\n> three\nlazy\n\nout",
    "html": "<div>\n\n*x*\n\n</div>\n\n<b>y</b> z",
    "entities": "a &amp; b &#65; &lt;i&gt; \\*no\\*",
    "returns": "one\r\ntwo\r\n\r\n```\r\ncode\r\n```\r\n",
    "faces": "😀 **😀😀**\n\n```\n😀\n```\n",
}
SHOW = """async ([text, size]) => {
  const { MarkdownView } = await import('/web/shared/markdown.js');
  const [piecewise, whole] = [document.createElement('div'), document.createElement('div')];
  const grown = new MarkdownView(piecewise);
  for (let n = size; n < text.length; n += size) grown.update(text.slice(0, n));
  grown.update(text);
  grown.finish();
  const once = new MarkdownView(whole);
  once.update(text);
  once.finish();
  return [piecewise.outerHTML, whole.outerHTML];
}"""
KEPT = """async (text) => {
  const { MarkdownView } = await import('/web/shared/markdown.js');
  const root = document.createElement('div');
  const view = new MarkdownView(root);
  let built = 0;
  const made = Document.prototype.createElement;
  Document.prototype.createElement = function (...all) { built++; return made.apply(this, all); };
  for (let n = 4; n < text.length + 4; n += 4) view.update(text.slice(0, n));
  const growing = built;
  built = 0;
  new MarkdownView(made.call(document, 'div')).update(text);
  Document.prototype.createElement = made;
  return [growing, built];
}"""


@pytest.fixture(scope="module")
def page(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """A page whose scripts are there; nothing may have complained in it."""
    with hosted(tmp_path_factory.mktemp("markdown")) as server:
        context = new_context(browser)
        seen = Watched(context.new_page(), server)
        opened = seen.open()
        expect(opened.get_by_role("main")).to_be_visible()
        yield opened
        context.close()
        assert (seen.complaints, seen.strays) == ([], [])


@pytest.mark.parametrize("size", [1, 3, 7, 64])
def test_however_it_is_cut_it_ends_the_same(page: Page, size: int) -> None:
    """Every document in pieces of every size, against the same in one piece."""
    different: dict[str, list[str]] = {}
    for name, text in DOCUMENTS.items():
        piecewise, whole = page.evaluate(SHOW, [text, size])
        if piecewise != whole:
            different[name] = [piecewise, whole]
    assert different == {}


def test_finished_blocks_and_code_lines_are_built_once(page: Page) -> None:
    """Ten times the text costs about ten times the elements, also for one long piece of code."""
    block = "Some **words** here.\n\n"
    code = "```\n" + "x = 1\n" * 1_000
    for text in (block * 200, code):
        growing, at_once = page.evaluate(KEPT, text)
        assert growing < at_once * 8
