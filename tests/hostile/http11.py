"""HTTP/1.1 byte by byte: what goes over the connection, and the statuses that come back before it is closed.

Each case is one connection. Behind its bytes goes `LAST`, a plain request that asks for the connection to be closed: a
case that ends in `LAST_OK` was read to exactly its end, a case without it closed the connection, so that nothing behind
a doubtful request is ever read as another one. Sections are those of RFC 9110 and RFC 9112.
"""

from typing import NamedTuple

from hostile.table import APIS

LAST = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
LAST_OK = 200
H2C = b"connection: upgrade\r\nupgrade: h2c\r\n"
WEBSOCKET = b"connection: upgrade\r\nupgrade: websocket\r\n"
HOST = b"host: localhost\r\n"
JSON = b"content-type: application/json\r\n"
CHUNKED = b"transfer-encoding: chunked\r\n"
CHAT = APIS["chat"].body()
SMUGGLED = b"GET /smuggled HTTP/1.1\r\nhost: localhost\r\n\r\n"
"""Would be answered with 404 if it were read as a request."""


class Case(NamedTuple):
    """What is sent, and the statuses of all answers."""

    id: str
    sent: bytes
    statuses: tuple[int, ...]


def get(
    target: bytes = b"/healthz", headers: bytes = HOST, version: bytes = b"HTTP/1.1", method: bytes = b"GET"
) -> bytes:
    """Write a request without a body."""
    return b"%b %b %b\r\n%b\r\n" % (method, target, version, headers)


def post(headers: bytes, body: bytes = b"", version: bytes = b"HTTP/1.1") -> bytes:
    """Write a question to the model."""
    return b"POST /v1/chat/completions %b\r\n%b%b%b\r\n%b" % (version, HOST, JSON, headers, body)


def sized(headers: bytes = b"", body: bytes = CHAT) -> bytes:
    """Write a question with its length."""
    return post(b"content-length: %d\r\n%b" % (len(body), headers), body)


def chunks(*pieces: bytes, end: bytes = b"0\r\n\r\n") -> bytes:
    """Write a body in chunks."""
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + end


def halves() -> tuple[bytes, bytes]:
    """Return the two halves of a question."""
    return CHAT[:20], CHAT[20:]


READ = (200, LAST_OK)
"""Answered, and the next request was read where it begins."""
NOT_FOUND = (404, LAST_OK)
BAD = (400,)
"""Refused, and the connection was closed."""
BAD_HOST = (400, LAST_OK)
NOT_ALLOWED = (403, LAST_OK)

REQUEST_LINE = (
    Case("plain get", get(), READ),
    Case("two gets", get() * 2, (200, 200, LAST_OK)),
    Case("empty line before the request", b"\r\n" + get(), READ),
    Case("two empty lines before the request", b"\r\n\r\n" + get(), READ),
    Case("bare LF before the request", b"\n" + get(), READ),
    Case("white space before the method", b" " + get(), BAD),
    Case("two spaces behind the method", get().replace(b"GET ", b"GET  "), READ),
    Case("tab behind the method", get().replace(b"GET ", b"GET\t"), BAD),
    Case("two spaces before the version", get().replace(b" HTTP", b"  HTTP"), READ),
    Case("space behind the version", get(version=b"HTTP/1.1 "), BAD),
    Case("no version", get(version=b"").replace(b"healthz \r\n", b"healthz\r\n"), (505,)),
    Case("http in small letters", get(version=b"http/1.1"), BAD),
    Case("version 1.2", get(version=b"HTTP/1.2"), BAD),
    Case("version 1.10", get(version=b"HTTP/1.10"), BAD),
    Case("version 0.9", get(version=b"HTTP/0.9"), (505,)),
    Case("version 2.0", get(version=b"HTTP/2.0"), (505,)),
    Case("version 3.0", get(version=b"HTTP/3.0"), BAD),
    Case("version with a comma", get(version=b"HTTP/1,1"), BAD),
    Case("version of one digit", get(version=b"HTTP/1"), BAD),
    Case("another protocol", get(version=b"HTTQ/1.1"), BAD),
    Case("version with a sign", get(version=b"HTTP/+1.1"), BAD),
    Case("preface of HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", BAD),
    Case("TLS hello", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 64, BAD),
    Case("method in small letters", get(method=b"get"), BAD),
    Case("unknown method", get(method=b"FROB"), BAD),
    Case("empty method", get(method=b""), BAD),
    Case("method with a NUL", get(method=b"G\0T"), BAD),
    Case("method with a colon", get(method=b"GE:T"), BAD),
    Case("request line ended by LF alone", get().replace(b"HTTP/1.1\r\n", b"HTTP/1.1\n"), BAD),
    Case("request line ended by CR alone", get().replace(b"HTTP/1.1\r\n", b"HTTP/1.1\r"), BAD),
    Case("bytes of no protocol", b"\xff\xfe\xfd\xfc\r\n\r\n", BAD),
    Case("simple request of HTTP/0.9", b"GET /healthz\r\n", BAD),
    Case("trace", get(method=b"TRACE"), (405, LAST_OK)),
    Case("options on a path", get(method=b"OPTIONS"), (405, LAST_OK)),
    Case("options on everything", get(b"*", method=b"OPTIONS"), NOT_FOUND),
    Case("head has no body", get(method=b"HEAD"), READ),
)

TARGET = (
    Case("query", get(b"/healthz?a=b"), READ),
    Case("empty query", get(b"/healthz?"), READ),
    Case("two slashes", get(b"//healthz"), NOT_FOUND),
    Case("dots", get(b"/a/../healthz"), NOT_FOUND),
    Case("encoded dots", get(b"/%2e%2e/healthz"), NOT_FOUND),
    Case("encoded slash", get(b"/%2fhealthz"), NOT_FOUND),
    Case("half an escape", get(b"/healthz%2"), NOT_FOUND),
    Case("escape of no digits", get(b"/healthz%zz"), NOT_FOUND),
    Case("encoded NUL", get(b"/healthz%00"), NOT_FOUND),
    Case("encoded line break", get(b"/healthz%0d%0aset-cookie:%20a=b"), NOT_FOUND),
    Case("NUL", get(b"/healthz\0"), BAD),
    Case("backslash", get(b"\\healthz"), BAD),
    Case("no slash", get(b"healthz"), BAD),
    Case("fragment", get(b"/healthz#a"), READ),
    Case("bytes over 127", get(b"/health\xc3\xa9"), BAD),
    Case("control character", get(b"/health\x7fz"), BAD),
    Case("absolute, our host", get(b"http://localhost/healthz"), READ),
    Case("absolute, our host and port", get(b"http://localhost:8700/healthz"), READ),
    Case("absolute, no path", get(b"http://localhost"), READ),
    Case("absolute, no path but a query", get(b"http://localhost?a=b"), READ),
    Case("absolute over https", get(b"https://localhost/healthz"), READ),
    Case("absolute, foreign host, our Host", get(b"http://evil.example/healthz"), NOT_ALLOWED),
    Case("absolute, our host, foreign Host", get(b"http://localhost/healthz", b"host: evil.example\r\n"), READ),
    Case("absolute, foreign host on our name's port", get(b"http://evil.example:8700/healthz"), NOT_ALLOWED),
    Case("absolute with a user", get(b"http://localhost@evil.example/healthz"), NOT_ALLOWED),
    Case("absolute with a user before our host", get(b"http://evil.example@localhost/healthz"), NOT_ALLOWED),
    Case("absolute without Host", get(b"http://localhost/healthz", b""), BAD_HOST),
    Case("absolute with two Hosts", get(b"http://localhost/healthz", HOST * 2), BAD_HOST),
    Case("absolute, empty host", get(b"http:///healthz"), BAD),
    Case("absolute of another scheme", get(b"ftp://evil.example/healthz"), NOT_ALLOWED),
    Case("authority alone", get(b"localhost:80"), BAD),
    Case("connect", get(b"evil.example:443", method=b"CONNECT"), BAD),
    Case("connect to a path", get(b"/healthz", method=b"CONNECT"), BAD),
    Case("connect to ourselves", get(b"localhost:8700", method=b"CONNECT"), BAD),
)

HOSTS = (
    Case("no Host", get(headers=b""), BAD_HOST),
    Case("two Hosts", get(headers=HOST * 2), BAD_HOST),
    Case("two different Hosts", get(headers=HOST + b"host: evil.example\r\n"), BAD_HOST),
    Case("empty Host", get(headers=b"host:\r\n"), NOT_ALLOWED),
    Case("white space behind Host", get(headers=b"host: localhost \t \r\n"), READ),
    Case("white space before Host's value", get(headers=b"host:  \t localhost\r\n"), READ),
    Case("no white space before Host's value", get(headers=b"host:localhost\r\n"), READ),
    Case("Host in capitals", get(headers=b"HOST: LOCALHOST\r\n"), READ),
    Case("Host with a port", get(headers=b"host: localhost:1\r\n"), READ),
    Case("Host with a bad port", get(headers=b"host: localhost:x\r\n"), NOT_ALLOWED),
    Case("Host with a user", get(headers=b"host: a@localhost\r\n"), NOT_ALLOWED),
    Case("Host with a path", get(headers=b"host: localhost/x\r\n"), NOT_ALLOWED),
    Case("Host of two names", get(headers=b"host: localhost, evil.example\r\n"), NOT_ALLOWED),
    Case("Host that only begins like ours", get(headers=b"host: localhost.evil.example\r\n"), NOT_ALLOWED),
    Case("Host that only ends like ours", get(headers=b"host: evil-localhost\r\n"), NOT_ALLOWED),
    Case("Host of the page's subdomain", get(headers=b"host: a.localhost\r\n"), READ),
    Case("Host with a dot at its end", get(headers=b"host: localhost.\r\n"), READ),
    Case("Host as IPv6", get(headers=b"host: [::1]:8700\r\n"), READ),
    Case("Host as half an IPv6", get(headers=b"host: [::1\r\n"), NOT_ALLOWED),
    Case("Host as a decimal address", get(headers=b"host: 2130706433\r\n"), NOT_ALLOWED),
    Case("Host with bytes over 127", get(headers=b"host: local\xc3\xb6st\r\n"), NOT_ALLOWED),
)

FIELDS = (
    Case("header without a value", get(headers=HOST + b"x:\r\n"), READ),
    Case("header without a colon", get(headers=HOST + b"x\r\n"), BAD),
    Case("header without a name", get(headers=HOST + b": x\r\n"), BAD),
    Case("white space before the colon", get(headers=HOST + b"x : a\r\n"), BAD),
    Case("tab before the colon", get(headers=HOST + b"x\t: a\r\n"), BAD),
    Case("white space before the name", get(headers=HOST + b" x: a\r\n"), BAD),
    Case("white space before the first name", get(headers=b" " + HOST), BAD),
    Case("folded line", get(headers=HOST + b"x: a\r\n b\r\n"), BAD),
    Case("folded line with a tab", get(headers=HOST + b"x: a\r\n\tb\r\n"), BAD),
    Case("NUL in a name", get(headers=HOST + b"x\0: a\r\n"), BAD),
    Case("NUL in a value", get(headers=HOST + b"x: a\0b\r\n"), BAD),
    Case("CR in a value", get(headers=HOST + b"x: a\rb\r\n"), BAD),
    Case("LF alone behind a value", get(headers=HOST + b"x: a\n"), BAD),
    Case("CR alone behind a value", get(headers=HOST + b"x: a\ry: b\r\n"), BAD),
    Case("LF CR behind a value", get(headers=HOST + b"x: a\n\ry: b\r\n"), BAD),
    Case("head ended by LF alone", get()[:-2] + b"\n", BAD),
    Case("control character in a value", get(headers=HOST + b"x: a\x01b\r\n"), BAD),
    Case("DEL in a value", get(headers=HOST + b"x: a\x7fb\r\n"), BAD),
    Case("tab in a value", get(headers=HOST + b"x: a\tb\r\n"), READ),
    Case("bytes over 127 in a value", get(headers=HOST + b"x: \xe9\r\n"), READ),
    Case("space in a name", get(headers=HOST + b"a b: c\r\n"), BAD),
    Case("bytes over 127 in a name", get(headers=HOST + b"\xe9: c\r\n"), BAD),
    Case("bracket in a name", get(headers=HOST + b"a(b): c\r\n"), BAD),
    Case("all characters a name may have", get(headers=HOST + b"!#$%&'*+-.^_`|~09azAZ: c\r\n"), READ),
    Case("129 headers", get(headers=HOST + b"".join(b"x%d: 1\r\n" % n for n in range(128))), (431, LAST_OK)),
    Case("128 headers", get(headers=HOST + b"".join(b"x%d: 1\r\n" % n for n in range(127))), READ),
    Case("headers over their bound", get(headers=HOST + b"x: %b\r\n" % (b"a" * 70_000)), (431, LAST_OK)),
    Case("a header without end", get(headers=HOST + b"x: %b" % (b"a" * 900_000)), (431,)),
    Case("a path without end", b"GET /" + b"a" * 900_000, (414,)),
    Case("expectation that is not known", get(headers=HOST + b"expect: cake\r\n"), READ),
)

LENGTHS = (
    Case("length", sized(), READ),
    Case("length zero", post(b"content-length: 0\r\n"), BAD_HOST),
    Case("no length is no body", post(b""), BAD_HOST),
    Case("length with zeros before it", post(b"content-length: 00%d\r\n" % len(CHAT), CHAT), READ),
    Case("length with white space", post(b"content-length:  %d \r\n" % len(CHAT), CHAT), READ),
    Case("length with a sign", post(b"content-length: +%d\r\n" % len(CHAT), CHAT), BAD),
    Case("negative length", post(b"content-length: -1\r\n", CHAT), BAD),
    Case("length with a fraction", post(b"content-length: 1.0\r\n", CHAT), BAD),
    Case("length in hex", post(b"content-length: 0x10\r\n", CHAT), BAD),
    Case("length with an underscore", post(b"content-length: 1_0\r\n", CHAT), BAD),
    Case("length with white space inside", post(b"content-length: 1 0\r\n", CHAT), BAD),
    Case("empty length", post(b"content-length:\r\n", CHAT), BAD),
    Case("length of 64 bits and more", post(b"content-length: 18446744073709551616\r\n", CHAT), BAD),
    Case("length over our bound", post(b"content-length: 99999999999\r\n"), (413,)),
    Case("length in Arabic digits", post("content-length: ٣\r\n".encode(), CHAT), BAD),
    Case("two equal lengths", post(b"content-length: %d\r\n" % len(CHAT) * 2, CHAT), BAD),
    Case("two different lengths", post(b"content-length: %d\r\ncontent-length: 0\r\n" % len(CHAT), CHAT), BAD),
    Case("list of equal lengths", post(b"content-length: %d, %d\r\n" % (len(CHAT), len(CHAT)), CHAT), BAD),
    Case("list of different lengths", post(b"content-length: %d, 0\r\n" % len(CHAT), CHAT), BAD),
    Case("folded length", post(b"content-length:\r\n 5\r\n", CHAT), BAD),
    Case("length of a get", get(headers=HOST + b"content-length: 5\r\n") + b"12345", READ),
    Case(
        "length of a get hides no request",
        get(headers=HOST + b"content-length: %d\r\n" % len(SMUGGLED)) + SMUGGLED,
        READ,
    ),
    Case("length of a head", get(method=b"HEAD", headers=HOST + b"content-length: 5\r\n") + b"12345", READ),
    Case("body shorter than what is sent", post(b"content-length: 2\r\n", b"{}") + SMUGGLED, (400, 404, LAST_OK)),
    Case("length that looks like another header", post(b"content_length: 5\r\n"), BAD_HOST),
    Case("length with a vertical tab", post(b"content-length: \x0b5\r\n", CHAT), BAD),
)

CODINGS = (
    Case("chunks", post(CHUNKED, chunks(*halves())), READ),
    Case("one chunk", post(CHUNKED, chunks(CHAT)), READ),
    Case("chunks of one byte", post(CHUNKED, chunks(*(CHAT[n : n + 1] for n in range(len(CHAT))))), READ),
    Case("coding in capitals", post(b"Transfer-Encoding: CHUNKED\r\n", chunks(CHAT)), READ),
    Case("white space around the coding", post(b"transfer-encoding:  chunked \r\n", chunks(CHAT)), READ),
    Case("length and chunks", post(b"content-length: %d\r\n%b" % (len(CHAT), CHUNKED), chunks(CHAT)), BAD),
    Case("chunks and length", post(b"%bcontent-length: %d\r\n" % (CHUNKED, len(CHAT)), chunks(CHAT)), BAD),
    Case("length for a smuggled request", post(b"content-length: 4\r\n" + CHUNKED, b"0\r\n\r\n" + SMUGGLED), BAD),
    Case("chunked twice", post(CHUNKED * 2, chunks(CHAT)), BAD),
    Case("list of chunked twice", post(b"transfer-encoding: chunked, chunked\r\n", chunks(CHAT)), BAD),
    Case("gzip before chunked", post(b"transfer-encoding: gzip, chunked\r\n", chunks(CHAT)), (501,)),
    Case("gzip and chunked apart", post(b"transfer-encoding: gzip\r\n" + CHUNKED, chunks(CHAT)), (501,)),
    Case("chunked before gzip", post(b"transfer-encoding: chunked, gzip\r\n", chunks(CHAT)), BAD),
    Case("identity", post(b"transfer-encoding: identity\r\ncontent-length: 5\r\n", CHAT), BAD),
    Case("identity before chunked", post(b"transfer-encoding: identity, chunked\r\n", chunks(CHAT)), (501,)),
    Case("unknown coding", post(b"transfer-encoding: cow\r\n", chunks(CHAT)), (501,)),
    Case("unknown coding and length", post(b"transfer-encoding: cow\r\ncontent-length: 5\r\n", CHAT), BAD),
    Case("empty coding", post(b"transfer-encoding:\r\n", chunks(CHAT)), BAD),
    Case("empty coding and length", post(b"transfer-encoding:\r\ncontent-length: %d\r\n" % len(CHAT), CHAT), BAD),
    Case("coding with a letter behind it", post(b"transfer-encoding: chunkedx\r\n", chunks(CHAT)), (501,)),
    Case("coding with a letter before it", post(b"transfer-encoding: xchunked\r\n", chunks(CHAT)), (501,)),
    Case("coding in quotes", post(b'transfer-encoding: "chunked"\r\n', chunks(CHAT)), (501,)),
    Case("coding with a parameter", post(b"transfer-encoding: chunked;q=1\r\n", chunks(CHAT)), (501,)),
    Case("coding with a vertical tab", post(b"transfer-encoding: \x0bchunked\r\n", chunks(CHAT)), BAD),
    Case("coding with white space before the colon", post(b"transfer-encoding : chunked\r\n", chunks(CHAT)), BAD),
    Case("folded coding", post(b"transfer-encoding:\r\n chunked\r\n", chunks(CHAT)), BAD),
    Case("coding under another name", post(b"transfer_encoding: chunked\r\n", b""), BAD_HOST),
    Case("chunks in HTTP/1.0", post(CHUNKED, chunks(CHAT), b"HTTP/1.0"), BAD),
    Case("chunks in HTTP/1.0 and a length", post(CHUNKED + b"content-length: 5\r\n", chunks(CHAT), b"HTTP/1.0"), BAD),
    Case("compressed body", sized(b"content-encoding: gzip\r\n"), (415, LAST_OK)),
    Case("content coding named chunked", sized(b"content-encoding: chunked\r\n"), (415, LAST_OK)),
)

CHUNKS = (
    Case("extension", post(CHUNKED, b"%x;a=b\r\n%b\r\n0\r\n\r\n" % (len(CHAT), CHAT)), READ),
    Case("quoted extension", post(CHUNKED, b'%x;a="b;c"\r\n%b\r\n0\r\n\r\n' % (len(CHAT), CHAT)), READ),
    Case("size with zeros before it", post(CHUNKED, b"000%x\r\n%b\r\n0\r\n\r\n" % (len(CHAT), CHAT)), READ),
    Case("size in capitals", post(CHUNKED, b"%X\r\n%b\r\n0\r\n\r\n" % (len(CHAT), CHAT)), READ),
    Case("last size of many zeros", post(CHUNKED, chunks(CHAT, end=b"0000\r\n\r\n")), READ),
    Case("no size", post(CHUNKED, b"\r\n%b\r\n0\r\n\r\n" % CHAT), BAD),
    Case("size of no digits", post(CHUNKED, b"zz\r\n"), BAD),
    Case("negative size", post(CHUNKED, b"-1\r\n"), BAD),
    Case("size with 0x", post(CHUNKED, b"0x%x\r\n%b\r\n0\r\n\r\n" % (len(CHAT), CHAT)), BAD),
    Case("size with an underscore", post(CHUNKED, b"1_0\r\n"), BAD),
    Case("size with a plus", post(CHUNKED, b"+5\r\n"), BAD),
    Case("size over 64 bits", post(CHUNKED, b"10000000000000000\r\n"), BAD),
    Case("white space before the size", post(CHUNKED, b" %x\r\n%b\r\n0\r\n\r\n" % (len(CHAT), CHAT)), BAD),
    Case("white space behind the size", post(CHUNKED, b"%x \r\n%b\r\n0\r\n\r\n" % (len(CHAT), CHAT)), BAD),
    Case("size ended by LF alone", post(CHUNKED, b"%x\n%b\r\n0\r\n\r\n" % (len(CHAT), CHAT)), BAD),
    Case("size ended by CR alone", post(CHUNKED, b"%x\r%b\r\n0\r\n\r\n" % (len(CHAT), CHAT)), BAD),
    Case("LF in an extension", post(CHUNKED, b"%x;a\n%b\r\n0\r\n\r\n" % (len(CHAT), CHAT)), BAD),
    Case("CR in an extension", post(CHUNKED, b"%x;a\rb\r\n%b\r\n0\r\n\r\n" % (len(CHAT), CHAT)), BAD),
    Case("NUL in an extension", post(CHUNKED, b"%x;a\0\r\n%b\r\n0\r\n\r\n" % (len(CHAT), CHAT)), BAD),
    Case("chunk longer than its size", post(CHUNKED, b"2\r\n%b\r\n0\r\n\r\n" % CHAT), BAD),
    Case("chunk without its line end", post(CHUNKED, b"%x\r\n%b0\r\n\r\n" % (len(CHAT), CHAT)), BAD),
    Case("chunk ended by LF alone", post(CHUNKED, b"%x\r\n%b\n0\r\n\r\n" % (len(CHAT), CHAT)), BAD),
    Case("chunk ended by two other bytes", post(CHUNKED, b"%x\r\n%bXX0\r\n\r\n" % (len(CHAT), CHAT)), BAD),
    Case("last chunk ended by LF alone", post(CHUNKED, chunks(CHAT, end=b"0\n\n")), BAD),
    Case("last line ended by LF alone", post(CHUNKED, chunks(CHAT, end=b"0\r\n\n")), BAD),
    Case("extension without end", post(CHUNKED, b"1;" + b"a" * 400_000), (431,)),
    Case("trailer", post(CHUNKED, chunks(CHAT, end=b"0\r\nx: a\r\n\r\n")), READ),
    Case("trailers without end", post(CHUNKED, chunks(CHAT, end=b"0\r\n" + b"x: a\r\n" * 80_000)), (431,)),
    Case("a trailer without end", post(CHUNKED, chunks(CHAT, end=b"0\r\nx: " + b"a" * 400_000)), (431,)),
    Case("trailer without a colon", post(CHUNKED, chunks(CHAT, end=b"0\r\nx\r\n\r\n")), BAD),
    Case("trailer with a length", post(CHUNKED, chunks(CHAT, end=b"0\r\ncontent-length: 5\r\n\r\n")), BAD),
    Case("trailer with a coding", post(CHUNKED, chunks(CHAT, end=b"0\r\ntransfer-encoding: chunked\r\n\r\n")), BAD),
    Case("trailer with a Host", post(CHUNKED, chunks(CHAT, end=b"0\r\nhost: evil.example\r\n\r\n")), READ),
    Case("trailer that closes", post(CHUNKED, chunks(CHAT, end=b"0\r\nconnection: close\r\n\r\n")), BAD),
    Case("request behind the last chunk", post(CHUNKED, chunks(CHAT)) + SMUGGLED, (200, 404, LAST_OK)),
)

CONNECTIONS = (
    Case("close", get(headers=HOST + b"connection: close\r\n"), (200,)),
    Case("Close in capitals", get(headers=HOST + b"connection: Close\r\n"), (200,)),
    Case("close among others", get(headers=HOST + b"connection: te, close\r\n"), (200,)),
    Case("keep-alive", get(headers=HOST + b"connection: keep-alive\r\n"), READ),
    Case("HTTP/1.0 closes", get(version=b"HTTP/1.0"), (200,)),
    Case("HTTP/1.0 without Host", get(version=b"HTTP/1.0", headers=b""), (400,)),
    Case(
        "upgrade to h2c",
        sized(b"connection: upgrade, http2-settings\r\nupgrade: h2c\r\nhttp2-settings: AAM\r\n"),
        READ,
    ),
    Case("upgrade to h2c in chunks", post(CHUNKED + H2C, chunks(CHAT)), READ),
    Case("upgrade to h2c of a get", get(headers=HOST + H2C), READ),
    Case(
        "upgrade of a request behind another",
        get() + sized(H2C),
        (200, 200, LAST_OK),
    ),
    Case("two upgrades", get(headers=HOST + H2C + b"upgrade: x\r\n"), READ),
    Case("upgrade that closes", get(headers=HOST + b"connection: upgrade, close\r\nupgrade: h2c\r\n"), (200,)),
    Case(
        "upgrade to a WebSocket",
        get(b"/v1/responses", HOST + WEBSOCKET),
        (426, LAST_OK),
    ),
    Case("upgrade without its connection", sized(b"upgrade: h2c\r\n"), READ),
    Case("upgrade hides no request", sized(H2C) + SMUGGLED, (200, 404, LAST_OK)),
    Case("upgrade with a bad length", post(H2C + b"content-length: x\r\n", CHAT), BAD),
    Case(
        "upgrade with a bad coding",
        post(H2C + b"transfer-encoding: gzip, chunked\r\n"),
        (501,),
    ),
    Case("continue is said", post(b"expect: 100-continue\r\ncontent-length: %d\r\n" % len(CHAT), CHAT), (200, LAST_OK)),
    Case("continue for a get", get(headers=HOST + b"expect: 100-continue\r\n"), READ),
    Case("key in a connection header", sized(b"connection: authorization\r\nauthorization: Bearer x\r\n"), READ),
)

CASES = (*REQUEST_LINE, *TARGET, *HOSTS, *FIELDS, *LENGTHS, *CODINGS, *CHUNKS, *CONNECTIONS)
