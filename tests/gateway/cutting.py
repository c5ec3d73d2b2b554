"""A proxy before a server that cuts the first event stream in the middle."""

import contextlib
import socket
import threading
from types import TracebackType
from typing import Self

PIECE = 512


class CuttingProxy:
    """Passes everything on, but ends the first stream of a run's events after so many bytes."""

    def __init__(self, port: int, *, cut_after: int) -> None:
        self._port = port
        self._cut_after = cut_after
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.seen = b""
        self.cuts = 0

    @property
    def url(self) -> str:
        """Return where to connect."""
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._port))
                asked = threading.Event()
                threading.Thread(target=self._ask, args=(client, server, asked), daemon=True).start()
                threading.Thread(target=self._answer, args=(client, server, asked), daemon=True).start()

    def _ask(self, client: socket.socket, server: socket.socket, asked: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(65536):
                self.seen += data
                if b"/events?" in data:
                    asked.set()
                server.sendall(data)
            server.shutdown(socket.SHUT_WR)

    def _answer(self, client: socket.socket, server: socket.socket, asked: threading.Event) -> None:
        passed = 0
        with contextlib.suppress(OSError):
            while data := server.recv(PIECE):
                client.sendall(data)
                passed += len(data) if asked.is_set() else 0
                if passed > self._cut_after and not self.cuts:
                    self.cuts += 1
                    break
        for end in (client, server):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
