"""Exports a run as JUnit XML for CI: one test case for each model and scenario; unplayed ones are skipped."""

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence

from treadle.evals.results.sample_rows import SampleRow, by

_NOT_XML = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def write_junit_rows(rows: Sequence[SampleRow], skipped: Sequence[str] = ()) -> str:
    """Write a case for each model and scenario: one failed sample fails it, a broken one is an error."""
    cases = by(rows, lambda row: f"{row.arm}\n{row.scenario}")
    kinds = [_kind(group) for group in cases.values()]
    suite = ElementTree.Element(
        "testsuite",
        name="treadle.evals",
        tests=str(len(cases) + len(skipped)),
        failures=str(kinds.count("failure")),
        errors=str(kinds.count("error")),
        skipped=str(len(skipped)),
        time=f"{sum(row.duration_s for row in rows):.3f}",
    )
    for group, kind in zip(cases.values(), kinds, strict=True):
        first = group[0]
        case = ElementTree.SubElement(
            suite,
            "testcase",
            classname=_xml(first.arm),
            name=_xml(first.scenario),
            time=f"{sum(row.duration_s for row in group):.3f}",
        )
        bad = [row for row in group if row.outcome != "pass"]
        if kind:
            told = ElementTree.SubElement(case, kind, message=f"{len(bad)} of {len(group)} samples did not pass")
            told.text = _xml("\n".join(f"{row.key}: {row.reason}" for row in bad))
    for name in skipped:
        case = ElementTree.SubElement(suite, "testcase", classname="live", name=_xml(name), time="0.000")
        ElementTree.SubElement(case, "skipped", message="needs --live")
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def _kind(rows: Sequence[SampleRow]) -> str:
    outcomes = {row.outcome for row in rows}
    return "failure" if "fail" in outcomes else "error" if "broken" in outcomes else ""


def _xml(text: str) -> str:
    """Leave out what XML 1.0 cannot hold."""
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)
