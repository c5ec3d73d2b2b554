"""How the network fails; none of these shows anything of a request.

OSError
  NoAddress        the name of the host is not known
  NoConnection     nobody answers there
  NoTls            somebody does, but cannot be trusted
  BrokenOff        the connection ended before the answer did, or what came was not HTTP
    BadPacking     the body is packed in a way that is not understood, or not as it says
    TooLarge       the body is larger than it may be
TimeoutError
  ConnectTimeout   no connection within its time: nobody answered
    NoTurn         nobody was asked: all connections were in use

Silence in an answer is a plain TimeoutError.
"""

import os
import ssl


class NoAddress(OSError):
    """The host's name has no address."""


class NoConnection(OSError):
    """No address of the host takes a connection."""


class NoTls(OSError):
    """The host does not speak TLS, or its certificate is not to be trusted."""


class BrokenOff(OSError):
    """The connection ended too early, or broke HTTP."""


class BadPacking(BrokenOff):
    """The body can not be unpacked."""


class TooLarge(BrokenOff):
    """The body is larger than it may be."""


class ConnectTimeout(TimeoutError):
    """There was no connection in time."""


class NoTurn(ConnectTimeout):
    """All connections were in use."""


def reason_of(error: OSError) -> str:
    """Say in a few words why a connection could not be made."""
    if isinstance(error, ssl.SSLError):
        return str(getattr(error, "verify_message", "") or error.reason or "no TLS").replace("_", " ").lower()
    return os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or type(error).__name__
