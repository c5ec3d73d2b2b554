"""Writes a software bill of materials (CycloneDX 1.6, JSON): the packages Treadle runs with, and the pages' modules.

`python -m scripts.sbom [--extra NAME]... [-o FILE]` tells of the environment it runs in: name, version, licence, who
needs whom. The same environment gives the same bytes; SOURCE_DATE_EPOCH is the time in it.
"""

import argparse
import json
import os
import re
import sys
import uuid
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]
VENDOR = ROOT / "src" / "treadle" / "server" / "web" / "vendor"
NAMESPACE = uuid.UUID("6f0f6a1e-6a55-5b1b-9b57-0f3f6a6d7a11")
"""Of Treadle's bills, so that the same content has the same serial number."""

DEVELOPMENT = frozenset({"dev", "clients"})
"""Extras that no user of Treadle installs."""

Component = dict[str, Any]


def bill(extras: Iterable[str], epoch: int) -> dict[str, Any]:
    """Return the whole bill of an installation with these extras.

    Raises: PackageNotFoundError, when Treadle itself is not installed.
    """
    found = dict(closure("treadle", frozenset(extras)))
    root = component(found["treadle"][0])
    parts = [component(dist) for name, (dist, _) in sorted(found.items()) if name != "treadle"]
    content = {
        "components": [*parts, *vendored()],
        "dependencies": [
            {"ref": purl(dist), "dependsOn": sorted(purl(found[each][0]) for each in needs if each in found)}
            for _, (dist, needs) in sorted(found.items())
        ],
    }
    serial = uuid.uuid5(NAMESPACE, json.dumps([root, content], sort_keys=True))
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": {**root, "type": "application"},
        },
        **content,
    }


def closure(name: str, extras: frozenset[str]) -> Iterator[tuple[str, tuple[Distribution, set[str]]]]:
    """Yield a package and all that it needs here, each with the names of what it needs itself."""
    waiting, seen = [(name, extras)], dict[str, frozenset[str]]()
    kept: dict[str, tuple[Distribution, set[str]]] = {}
    while waiting:
        name, extras = waiting.pop()
        if extras <= seen.get(name, frozenset()) and name in kept:
            continue
        seen[name] = seen.get(name, frozenset()) | extras
        dist = distribution(name)
        needs = dict(needed(dist, seen[name]))
        kept[name] = (dist, set(needs))
        waiting += needs.items()
    yield from kept.items()


def needed(dist: Distribution, extras: frozenset[str]) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield what a package needs here, with the extras it asks for; what is not installed is left out."""
    for text in dist.requires or []:
        requirement = Requirement(text)
        if not _holds(requirement, extras):
            continue
        name = normal(requirement.name)
        try:
            distribution(name)
        except PackageNotFoundError:
            continue
        yield name, frozenset(requirement.extras)


def _holds(requirement: Requirement, extras: frozenset[str]) -> bool:
    marker = requirement.marker
    return marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras))


def component(dist: Distribution) -> Component:
    """Return the entry of a package."""
    metadata = dist.metadata
    entry: Component = {
        "type": "library",
        "bom-ref": purl(dist),
        "name": metadata["Name"],
        "version": dist.version,
        "purl": purl(dist),
    }
    if metadata["Summary"]:
        entry["description"] = metadata["Summary"]
    if licence := licence_of(dist):
        entry["licenses"] = [licence]
    return entry


def licence_of(dist: Distribution) -> Component | None:
    """Return a licence as CycloneDX writes it: the expression if there is one, else the name that was given."""
    metadata = dist.metadata
    if metadata["License-Expression"]:
        return {"expression": metadata["License-Expression"]}
    classified = [
        each.rpartition(" :: ")[2] for each in metadata.get_all("Classifier") or [] if each.startswith("License ::")
    ]
    named = classified[0] if classified else (metadata["License"] or "").strip().split("\n")[0]
    return {"license": {"name": named}} if named else None


def vendored() -> list[Component]:
    """Return the modules of others that the pages load, from the manifest beside them."""
    manifest = json.loads((VENDOR / "manifest.json").read_text(encoding="utf-8"))
    packages: dict[tuple[str, str, str], list[Component]] = {}
    for file in manifest["files"]:
        entry = {
            "type": "file",
            "name": f"treadle/server/web/vendor/{file['file']}",
            "hashes": [{"alg": "SHA-256", "content": file["sha256"]}],
        }
        packages.setdefault((file["package"], file["version"], file["licence"]), []).append(entry)
    return [
        {
            "type": "library",
            "bom-ref": f"pkg:npm/{name.replace('@', '%40')}@{version}",
            "name": name,
            "version": version,
            "purl": f"pkg:npm/{name.replace('@', '%40')}@{version}",
            "licenses": [{"expression": licence}],
            "components": files,
        }
        for (name, version, licence), files in sorted(packages.items())
    ]


def purl(dist: Distribution) -> str:
    """Return the package's address."""
    return f"pkg:pypi/{normal(dist.metadata['Name'])}@{dist.version}"


def normal(name: str) -> str:
    """Return a package's name as indexes spell it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def user_extras() -> list[str]:
    """Return the extras that users install."""
    return sorted(set(distribution("treadle").metadata.get_all("Provides-Extra") or []) - DEVELOPMENT)


def main() -> int:
    """Write the bill."""
    parser = argparse.ArgumentParser(prog="python -m scripts.sbom", description=main.__doc__)
    parser.add_argument(
        "--extra", action="append", metavar="NAME", help="an extra to count in (default: all of a user's)"
    )
    parser.add_argument("-o", "--output", type=Path, help="the file to write (default: stdout)")
    options = parser.parse_args()
    epoch = int(os.environ.get("SOURCE_DATE_EPOCH") or datetime.now(UTC).timestamp())
    text = json.dumps(bill(options.extra or user_extras(), epoch), indent=2) + "\n"
    if options.output is None:
        sys.stdout.write(text)
    else:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
