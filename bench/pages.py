"""`python -m bench.pages`: what streaming 10 000 tokens costs the main thread of a browser, against reading all anew.

The real page in a real Chromium follows a real server, whose model writes Markdown at 600 tokens a second. "naive" is
the same page whose Markdown is parsed and built from its beginning with every redraw. Both in turns; ratios count.
"""

import argparse
import asyncio
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, Route, expect, sync_playwright

from treadle.config import ServerSection, Settings, StoreSection
from treadle.core.events import Finished, ItemAdded, ItemDone, ModelEvent, TextDelta
from treadle.core.items import MessageItem, TextPart
from treadle.core.plan import Plan
from treadle.runtime import Parts, Runtime
from treadle.server.server_process import serve

TOKENS = 10_000
TOKENS_PER_S = 600
ROUNDS = 3
TICK_S = 0.02
BLOCK = """## Part {n}

The **loop limit** is checked in `src/loop.py` line {n}, see [the source](https://example.org/{n}) for how it is done.
It reads the settings, counts the calls, and *stops* when there are too many of them, as the table below says.

| name | value | meaning |
|---|--:|---|
| rounds | {n} | model calls of one run |
| calls | 32 | tool calls of one run |

```python
def check(turn: int, limit: int = {n}) -> bool:
    # A limit is absolute.
    return turn < limit
```

1. first, look at the limit
2. then at the count
   - and at what was counted

"""
NAIVE = """
const grow = MarkdownView.prototype.update;
MarkdownView.prototype.update = function (text) {
  this.clear();
  grow.call(this, text);
};
"""


class PacedModel:
    """Writes so many tokens of Markdown, as fast as a quick provider does."""

    def __init__(self, tokens: int) -> None:
        self._text = "".join(BLOCK.format(n=n) for n in range(tokens // 100))[: tokens * 4]

    async def stream(self, plan: Plan, run_id: str) -> AsyncGenerator[list[ModelEvent], None]:
        """Stream the text in pieces of four characters, several of them at a time."""
        yield [ItemAdded(index=0, item=MessageItem(role="assistant"))]
        per_tick = round(TOKENS_PER_S * TICK_S) * 4
        loop = asyncio.get_running_loop()
        due = loop.time()
        for at in range(0, len(self._text), per_tick):
            pieces = [self._text[at + n : at + n + 4] for n in range(0, per_tick, 4)]
            yield [TextDelta(index=0, text=piece) for piece in pieces if piece]
            due += TICK_S
            await asyncio.sleep(max(0.0, due - loop.time()))
        whole = MessageItem(role="assistant", content=(TextPart(text=self._text),))
        yield [ItemDone(index=0, item=whole), Finished(stop="done")]


async def _serve(folder: str, tokens: int) -> None:
    settings = Settings(store=StoreSection(url=f"sqlite:///{folder}/treadle.db"), server=ServerSection(port=0))
    async with Runtime(settings, model=PacedModel(tokens), parts=Parts(env={})) as runtime:
        await serve(runtime, lambda address: print(address.url, flush=True), 0.1)


@contextmanager
def _server(tokens: int) -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="treadle-bench-") as folder:
        command = [sys.executable, "-m", "bench.pages", "--serve", folder, "--tokens", str(tokens)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.kill()
            process.communicate()


def _patch(route: Route) -> None:
    answer = route.fetch()
    route.fulfill(response=answer, body=answer.text() + NAIVE)


def _wait_for_end(url: str) -> None:
    """Wait by asking the server: whoever asks the page costs its main thread as much as the page itself."""
    deadline = time.monotonic() + 180.0
    while time.monotonic() < deadline:
        time.sleep(0.5)
        with urllib.request.urlopen(f"{url}/treadle/v1/runs?limit=1", timeout=10.0) as answer:
            runs = json.load(answer)["runs"]
        if runs and runs[0]["status"] != "running":
            return


def measure(browser: Browser, url: str, *, is_naive: bool) -> dict[str, float]:
    """Ask once and return seconds of the main thread while the answer streams."""
    context = browser.new_context(viewport={"width": 1180, "height": 800})
    page = context.new_page()
    if is_naive:
        page.route("**/web/chat.js", _patch)
    page.goto(url)
    cdp = context.new_cdp_session(page)
    cdp.send("Performance.enable")
    page.get_by_label("Your question").fill("write")
    before = {each["name"]: each["value"] for each in cdp.send("Performance.getMetrics")["metrics"]}
    page.keyboard.press("Enter")
    _wait_for_end(url)
    expect(page.locator(".foot")).to_be_visible(timeout=60_000)
    after = {each["name"]: each["value"] for each in cdp.send("Performance.getMetrics")["metrics"]}
    context.close()
    names = {"task": "TaskDuration", "script": "ScriptDuration", "layout": "LayoutDuration", "wall": "Timestamp"}
    return {name: after[key] - before[key] for name, key in names.items()}


def main() -> None:
    """Measure both in turns and print the medians."""
    parser = argparse.ArgumentParser(prog="python -m bench.pages", description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=TOKENS, help="how long the answer is")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="how often each is measured")
    parser.add_argument("--quick", action="store_true", help="one round of 1 500 tokens: to see that it works")
    parser.add_argument("--serve", metavar="FOLDER", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.quick:
        args.tokens, args.rounds = 1_500, 1
    if args.serve:
        asyncio.run(_serve(args.serve, args.tokens))
        return
    path = shutil.which(os.environ.get("TREADLE_CHROMIUM") or "chromium")
    if path is None:
        print("pages: there is no Chromium on PATH, so nothing was measured")
        return
    flags = ["--disable-dev-shm-usage", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    found: dict[str, list[dict[str, float]]] = {"blocks": [], "naive": []}
    with _server(args.tokens) as url, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=flags)
        for _ in range(args.rounds):
            for name, rounds in found.items():
                rounds.append(measure(browser, url, is_naive=name == "naive"))
        browser.close()
    show(found, args.tokens)


def show(found: dict[str, list[dict[str, float]]], tokens: int) -> None:
    """Print what was measured."""
    print(f"pages: main thread while {tokens} tokens stream (medians of {len(found['blocks'])})")
    print(f"  {'':8}{'task s':>8}{'busy':>7}{'script s':>10}{'layout s':>10}")
    middle = {name: _medians(rounds) for name, rounds in found.items()}
    for name, each in middle.items():
        busy = each["task"] / each["wall"]
        print(f"  {name:8}{each['task']:8.2f}{busy:7.0%}{each['script']:10.2f}{each['layout']:10.2f}")
    ratio = middle["naive"]["task"] / middle["blocks"]["task"]
    print(f"  reading all anew costs the main thread {ratio:.1f} times as much")


def _medians(rounds: list[dict[str, float]]) -> dict[str, float]:
    return {key: statistics.median(each[key] for each in rounds) for key in rounds[0]}


if __name__ == "__main__":
    main()
