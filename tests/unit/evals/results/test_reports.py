"""The table, the page, JUnit, the history and Inspect's logs: each says what the rows say, and no more."""

import json
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser
from pathlib import Path

import pytest

from treadle.core.errors import ConfigError
from treadle.evals.results.html_report import write_page
from treadle.evals.results.inspect_log import write_logs
from treadle.evals.results.junit import write_junit_rows
from treadle.evals.results.sample_rows import Attempt
from treadle.evals.results.terminal_table import summarise, write_summary
from treadle.evals.results.trend import append_history, read_history, write_history
from unit.evals.results.samples import EVIDENCE, SCENARIO, folder, info, row

ROWS = [
    row("a.add", input_tokens=900, output_tokens=100, cost_usd=0.01, duration_s=1.0, calls=2),
    row("a.add", "fail", 2, input_tokens=900, output_tokens=100, cost_usd=0.01, duration_s=3.0, quirks={"no_index": 2}),
    row("b.sub", "pass", 1, duration_s=2.0),
    row("b.sub", "pass", 2, duration_s=2.0),
]


def test_a_summary_counts_what_it_says() -> None:
    """Rates with intervals over what was judged; cost and tokens for each sample that passed."""
    (each,) = summarise(ROWS)
    assert (each.arm, each.scenarios, each.judged, each.passed, each.broken) == ("m", 2, 4, 3, 0)
    assert (each.rate, each.mean, each.pass_k, each.pass_hat) == (0.75, 0.75, 2, 0.5)
    assert each.usd_per_pass == pytest.approx(0.02 / 3)
    assert each.tokens_per_pass == pytest.approx(2000 / 3)
    assert (each.seconds_p50, each.seconds_p95, each.quirks) == (2.0, 3.0, {"no_index": 2})
    assert each.is_valid


def test_the_table_never_shows_a_rate_without_its_interval_and_number() -> None:
    """And says what so few runs can tell."""
    text = write_summary(ROWS)
    assert ".750 [.301,.954]" in text
    assert "no_index 2" in text
    assert "4 runs cannot detect any drop" in text
    assert write_summary([]) == "nothing was run\n"


def test_a_run_with_too_much_broken_says_nothing() -> None:
    """More than two percent; each strategy is an arm of its own."""
    rows = [*ROWS, row("a.add", "broken", 3), row("a.add", "pass", 1, strategy="bare")]
    bare, full = summarise(rows)
    assert (full.is_valid, bare.arm, bare.is_valid) == (False, "m (bare)", True)
    assert "INVALID: 1 of 5 samples are broken" in write_summary(rows)
    assert "no failure in 1: the failure rate is below 95.0%" in write_summary(rows)


class Tags(HTMLParser):
    """Collects the tags and links of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


def test_the_page_is_one_file_that_loads_and_runs_nothing() -> None:
    """No script, nothing from elsewhere, a policy that forbids both; every link leads to a sample on it."""
    rows = [row("a.add", "fail", 1, reason="<script>alert(1)</script>", attempts=(Attempt(ended="x", error="<b>"),))]
    page = write_page(info(SCENARIO, name="<run>"), [*rows, *ROWS[2:]], lambda key: EVIDENCE)
    parser = Tags()
    parser.feed(page)
    names = [tag for tag, _ in parser.tags]
    assert not {"script", "link", "img", "iframe", "object", "b"} & set(names)
    assert "default-src 'none'" in page
    assert not any(name in ("src", "onclick") or (name == "href" and not (value or "").startswith("#")) for _, attrs in parser.tags for name, value in attrs.items())  # fmt: skip # noqa: E501
    ids = {attrs["id"] for _, attrs in parser.tags if "id" in attrs}
    links = {(attrs["href"] or "")[1:] for tag, attrs in parser.tags if tag == "a"}
    assert links
    assert links <= ids
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page


def test_the_page_shows_the_transcript_and_the_world(tmp_path: Path) -> None:
    """What was said, called and given; a sample without a transcript is still there."""
    page = write_page(info(SCENARIO), [row("a.add", "fail"), row("b.sub", "broken")], lambda key: EVIDENCE)
    assert "It is 3." in page
    assert "add(a=1, b=2)" in page
    assert write_page(info(SCENARIO), [row("b.sub", "broken")], lambda key: None).count("<details") == 1


def test_junit_has_a_case_for_each_model_and_scenario() -> None:
    """One failed sample fails it, a broken one is an error, what was not played is skipped."""
    rows = [*ROWS, row("c.x", "broken", reason="503 \x00")]
    suite = ElementTree.fromstring(write_junit_rows(rows, ["d.gated"]))
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors"), suite.get("skipped")) == (
        "4",
        "1",
        "1",
        "1",
    )
    kinds = {case.get("name"): [child.tag for child in case] for case in suite}
    assert kinds == {"a.add": ["failure"], "b.sub": [], "c.x": ["error"], "d.gated": ["skipped"]}


def test_the_history_marks_where_runs_stop_being_comparable(tmp_path: Path) -> None:
    """A trend for each model; another grader begins anew."""
    append_history(tmp_path, info(SCENARIO, name="one"), ROWS)
    append_history(tmp_path, info(SCENARIO, name="two"), ROWS[2:])
    append_history(tmp_path, info(SCENARIO, name="three", fingerprints={"graders": "other"}), ROWS)
    points = read_history(tmp_path)
    assert [(point.run, point.passed, point.judged) for point in points] == [
        ("one", 3, 4),
        ("two", 2, 2),
        ("three", 3, 4),
    ]
    text = write_history(points)
    assert text.splitlines()[0] == "m  ▇█▇"
    assert [line[:9] for line in text.splitlines()[1:4]] == ["    1970-", "    1970-", "  * 1970-"]
    assert [line.split()[-4] for line in text.splitlines()[1:4]] == ["one", "two", "three"]
    assert "  1970-01-01 00:00  one  3/4" in text
    append_history(tmp_path, info(SCENARIO, name="two"), ROWS)
    assert [(point.run, point.judged) for point in read_history(tmp_path)] == [("one", 4), ("two", 4), ("three", 4)]
    assert "not comparable" in text
    assert write_history([]) == "there is no run yet\n"


def test_a_history_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    """Neither a missing one nor a broken one looks like no run."""
    with pytest.raises(ConfigError, match="cannot be read"):
        read_history(tmp_path)
    (tmp_path / "history.jsonl").write_text("{\n")
    with pytest.raises(ConfigError, match=r"history\.jsonl"):
        read_history(tmp_path)


def test_inspect_gets_a_log_for_each_model(tmp_path: Path) -> None:
    """With its version, the messages of each sample, a score for each grader, and an error for what was broken."""
    made = folder(tmp_path / "run", row("a.add"), row("a.add", "broken", 2, reason="503"))
    logs = write_logs(made.info(), made.rows(), made.evidence)
    log = json.loads(logs["m"])
    assert (log["version"], log["status"], log["eval"]["model"]) == (2, "success", "treadle/m")
    good, bad = log["samples"]
    assert [message["role"] for message in good["messages"]] == ["assistant", "tool", "assistant"]
    assert good["messages"][0]["tool_calls"] == [
        {"id": "c1", "function": "add", "arguments": {"a": 1, "b": 2}, "type": "function"}
    ]
    assert (good["scores"]["treadle"]["value"], good["scores"]["text"]["value"]) == ("C", "C")
    assert (bad["error"]["message"], "scores" in bad) == ("503", False)
    assert log["results"]["scores"][0]["metrics"]["accuracy"]["value"] == 1.0
