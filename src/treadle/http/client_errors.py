"""Errors of the HTTP client. No message contains anything of a request.

OSError
  NoAddress              the host name has no address
  NoConnection           no address accepts a connection
  NoTls                  no TLS, or a certificate that is not trusted
  ConnectionBroken       the connection ended before the response did, or its bytes were not HTTP
    BadContentEncoding   the body has an unknown content encoding, or is not encoded as declared
    BodyTooLarge         the body is over its bound
TimeoutError
  ConnectTimeout         no connection within the time limit
    PoolTimeout          all connections of the pool were in use, so the host was not contacted

A response that stalls is a plain TimeoutError.
"""

import os
import ssl


class NoAddress(OSError):
    """The host name has no address."""


class NoConnection(OSError):
    """No address of the host accepts a connection."""


class NoTls(OSError):
    """The host does not speak TLS, or its certificate is not trusted."""


class ConnectionBroken(OSError):
    """The connection ended too early, or its bytes were not HTTP."""


class BadContentEncoding(ConnectionBroken):
    """The body cannot be decompressed."""


class BodyTooLarge(ConnectionBroken):
    """The body is over its bound."""


class ConnectTimeout(TimeoutError):
    """No connection was made in time."""


class PoolTimeout(ConnectTimeout):
    """No connection of the pool became free in time."""


def reason_of(error: OSError) -> str:
    """Return in a few words why a connection could not be made."""
    if isinstance(error, ssl.SSLError):
        return str(getattr(error, "verify_message", "") or error.reason or "no TLS").replace("_", " ").lower()
    return os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or type(error).__name__
