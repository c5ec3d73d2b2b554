"""Bounds the total size of request bodies that the process holds at once."""

from treadle.server.http_exchange import HttpError

RETRY_AFTER_S = 1.0


class BodiesInFlight:
    """Counts bytes of bodies from their arrival until their requests are answered.

    A body that came in one read is not counted: connections are bounded, and so is one read.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0

    def add(self, size: int) -> None:
        """Count a further piece of a body.

        Raises: HttpError when all bodies together would be too large.
        """
        if self._bytes + size > self._bytes_max:
            raise HttpError(
                503,
                "too_many_bytes_in_flight",
                f"The server is reading {self._bytes_max} bytes of other requests, which is as much as it may hold.",
                hint="Try again shortly; server.bodies_bytes_max raises the limit.",
                headers=((b"connection", b"close"),),
                retry_after_s=RETRY_AFTER_S,
            )
        self._bytes += size

    def release(self, size: int) -> None:
        """Stop counting a body whose request was answered."""
        self._bytes -= size
