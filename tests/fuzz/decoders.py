"""Coverage-guided fuzzing of everything that reads foreign bytes, by atheris. `make fuzz` runs it where it installs.

No input may make a decoder raise, hang, or end in anything but exactly one terminal event; and no body may make a
reader of requests raise anything but what it documents.
"""

import sys
from contextlib import suppress

import atheris

with atheris.instrument_imports(include=["treadle"]):
    from treadle.core.errors import TreadleError
    from treadle.core.events import Failed, Finished
    from treadle.core.ids import CountingIds
    from treadle.protocols.protocol_registry import PROTOCOLS

DECODERS = [PROTOCOLS[name].codec.decoder for name in sorted(PROTOCOLS)]
READERS = [PROTOCOLS[name].codec.read_request for name in sorted(PROTOCOLS)]


def fuzz_one(data: bytes) -> None:
    """Feed one input to one decoder in cut pieces, and to one reader whole."""
    source = atheris.FuzzedDataProvider(data)
    make = DECODERS[source.ConsumeIntInRange(0, len(DECODERS) - 1)]
    read = READERS[source.ConsumeIntInRange(0, len(READERS) - 1)]
    size = source.ConsumeIntInRange(1, 64)
    text = source.ConsumeBytes(source.remaining_bytes())
    decoder = make(CountingIds())
    events = [event for start in range(0, len(text), size) for event in decoder.feed(text[start : start + size])]
    events += decoder.finish()
    terminals = [event for event in events if isinstance(event, Finished | Failed)]
    assert len(terminals) == 1, terminals
    assert events[-1] is terminals[0]
    with suppress(TreadleError):
        read(text)


def main() -> None:
    """Run until told to stop; arguments are libFuzzer's."""
    atheris.Setup(sys.argv, fuzz_one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
