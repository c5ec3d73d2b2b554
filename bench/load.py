"""The load generator, in its own process: reads one job a line (JSON), makes its requests, writes one line back.

A job is a fixed number of equal requests, one after the other on one kept connection, so that the time of a request
is its latency. Every answer is checked; a wrong one ends the job with an error rather than with a fast number.
"""

import asyncio
import json
import sys
import time

import httptools
import uvloop

ANSWER_S = 20.0


class Connection(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._answer: asyncio.Future[tuple[int, bytes]] | None = None

    def ask(self, request: bytes) -> "asyncio.Future[tuple[int, bytes]]":
        self._parser = httptools.HttpResponseParser(self)
        self._pieces: list[bytes] = []
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return self._answer

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_body(self, body: bytes) -> None:
        self._pieces.append(body)

    def on_message_complete(self) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_result((self._parser.get_status_code(), b"".join(self._pieces)))

    def connection_lost(self, error: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error or ConnectionError("the connection was closed"))


def write_request(port: int, body: bytes) -> bytes:
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def work(job: dict) -> dict:
    request = write_request(job["port"], job["body"].encode())
    loop = asyncio.get_running_loop()
    transport, connection = await loop.create_connection(Connection, "127.0.0.1", job["port"])
    try:
        started = time.perf_counter()
        for _ in range(job["count"]):
            status, body = await asyncio.wait_for(connection.ask(request), ANSWER_S)
            if status != 200 or b"bench-done" not in body or body.count(b"data: ") < job["events_min"]:
                return {"error": f"status {status}: {body[-400:].decode(errors='replace')}"}
        return {"wall_s": time.perf_counter() - started}
    except (OSError, TimeoutError, httptools.HttpParserError) as error:
        return {"error": f"{type(error).__name__}: {error}"}
    finally:
        transport.close()


async def main() -> None:
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        print(json.dumps(await work(json.loads(line))), flush=True)


if __name__ == "__main__":
    uvloop.run(main())
