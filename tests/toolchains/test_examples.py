"""The guest in C among the examples is what its source makes, and does what its README says."""

import json
import shutil
from pathlib import Path

from toolchains.conftest import Treadle

EXAMPLE = Path(__file__).parents[2] / "examples" / "wasm_tools"


def test_the_guest_that_is_checked_in_is_built_from_its_source(treadle: Treadle, home: Path) -> None:
    """The same compiler gives the same bytes; what is called is what was just built."""
    for name in ("iban.c", "iban.wasm.json"):
        shutil.copy(EXAMPLE / name, home / name)
    treadle("wasm", "build", "iban.c")
    assert (home / "iban.wasm").read_bytes() == (EXAMPLE / "iban.wasm").read_bytes()
    called = treadle("wasm", "call", "iban.wasm", "check_iban", '{"iban": "GB82WEST12345698765432"}')
    assert json.loads(called.stdout) == {"valid": True}
