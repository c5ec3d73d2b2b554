"""Every error that Treadle raises on purpose, as one tree with codes and HTTP statuses.

    TreadleError                      stable code, HTTP status, message, hint
      RequestError              400   the client sent something wrong
        ProtocolError           400     the body does not follow the protocol; names the field
        UnsupportedFeature      400     the protocol allows it, Treadle (or the route) does not
        LimitExceeded           413     a bound on the request itself
        NoAnswer                422     a limit of the run came before its answer, which had to be JSON
        Unauthorised            401     no key, or a wrong one
        Forbidden               403     a Host, Origin or scope that is not allowed
        NotFound                404     no such model, response, run or path
        Conflict                409     the thing is in another state than the request assumes
        Exhausted               429     more than a rate or a budget allows
      UpstreamError             502   the provider failed; retryable or not
        UpstreamStatus          *       it answered with an error status (mapped by _STATUS_OUT)
        UpstreamTimeout         504     it did not answer, or went silent (503 if it was not called: CROWDED)
        BrokenStream            502     it ended without a finish, or was malformed
        CircuitOpen             503     Treadle does not call it for a while
      ToolError                 -     becomes a result the model can read, never a 5xx
        UnknownTool · InvalidArguments · ToolTimeout · ToolFailed · OutputTooLarge · NotApproved · ToolInterrupted
      StoreError                503   the journal cannot be written or read
      WorkspaceConflict         409   facts or draft have changed
      ConfigError               -     the configuration is wrong; names the key

An error is shown to the model (ToolError) or to the client (the others), or it is a bug (assert).
"""

from typing import ClassVar

import msgspec


class ErrorInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An error as data: what is journalled, streamed and rendered into an envelope."""

    code: str
    message: str
    status: int = 500
    param: str | None = None
    hint: str | None = None
    retryable: bool = False
    retry_after_s: float | None = None


class TreadleError(Exception):
    """The root: a stable code for programs, a message for people, a hint what to do."""

    code: ClassVar[str] = "treadle_error"
    status: ClassVar[int] = 500
    retryable: ClassVar[bool] = False

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.hint = hint
        self._code = code

    @property
    def info(self) -> ErrorInfo:
        """Return this error as data."""
        return ErrorInfo(
            code=self._code or self.code,
            message=self.message,
            status=self.http_status,
            param=self.param,
            hint=self.hint,
            retryable=self.is_retryable,
            retry_after_s=self.retry_after,
        )

    @property
    def operator_info(self) -> ErrorInfo:
        """Return this error as data for the operator, on the command line: clients may get less detail."""
        return self.info

    @property
    def http_status(self) -> int:
        """Return the HTTP status of this error."""
        return self.status

    @property
    def is_retryable(self) -> bool:
        """Return whether a retry may help."""
        return self.retryable

    @property
    def retry_after(self) -> float | None:
        """Return after how many seconds to retry, if known."""
        return None


class RequestError(TreadleError):
    """The client sent something wrong."""

    code = "invalid_request"
    status = 400


class ProtocolError(RequestError):
    """The body does not follow the protocol; `param` names the field."""

    code = "invalid_value"


class UnsupportedFeature(RequestError):
    """The protocol allows it; Treadle or this route does not."""

    code = "unsupported_feature"


class LimitExceeded(RequestError):
    """The request itself is over a bound."""

    code = "request_too_large"
    status = 413


class NoAnswer(RequestError):
    """A limit ended the run before the model answered, and Treadle cannot answer in the required form."""

    code = "limit_reached"
    status = 422


class Unauthorised(RequestError):
    """No key, or a wrong one."""

    code = "invalid_api_key"
    status = 401


class Forbidden(RequestError):
    """A Host, Origin or scope that is not allowed here."""

    code = "forbidden"
    status = 403


class NotFound(RequestError):
    """No such model, response, run or path."""

    code = "not_found"
    status = 404


class Conflict(RequestError):
    """The thing is in another state than the request assumes."""

    code = "conflict"
    status = 409


class Exhausted(RequestError):
    """More than a rate or a budget allows."""

    code = "rate_limit_exceeded"
    status = 429

    def __init__(self, message: str, *, code: str | None = None, retry_after_s: float | None = None) -> None:
        super().__init__(message, code=code)
        self._retry_after_s = retry_after_s

    @property
    def is_retryable(self) -> bool:
        """Return whether a retry may help: only if the limit resets by itself."""
        return self._retry_after_s is not None

    @property
    def retry_after(self) -> float | None:
        """Return when the limit resets."""
        return self._retry_after_s


class UpstreamError(TreadleError):
    """The provider failed."""

    code = "upstream_error"
    status = 502
    retryable = True


class UpstreamStatus(UpstreamError):
    """The provider answered with an error status, before any of the stream was sent."""

    code = "upstream_status"

    def __init__(
        self,
        message: str,
        *,
        status: int,
        code: str | None = None,
        hint: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message, code=code, hint=hint)
        self.upstream_status = status
        self._retry_after_s = retry_after_s

    @property
    def http_status(self) -> int:
        """Map the provider's status to ours: its 401 is our key, so it must not look like the client's."""
        return _STATUS_OUT.get(self.upstream_status, 502 if self.upstream_status >= 500 else 400)

    @property
    def is_retryable(self) -> bool:
        """Return whether a retry may help."""
        return self.upstream_status in (408, 409, 429) or self.upstream_status >= 500

    @property
    def retry_after(self) -> float | None:
        """Return the provider's Retry-After."""
        return self._retry_after_s


_STATUS_OUT = {
    400: 400,
    401: 502,
    403: 502,
    404: 404,
    408: 504,
    413: 413,
    422: 400,
    429: 429,
    503: 503,
    504: 504,
    529: 503,
}


class UpstreamTimeout(UpstreamError):
    """The provider did not answer in time, or went silent in the middle."""

    code = "upstream_timeout"
    status = 504

    @property
    def http_status(self) -> int:
        """Return the status: 503 if the provider was not called because of too many concurrent calls."""
        return 503 if self._code == CROWDED else self.status


CROWDED = "upstream_crowded"
"""The code of an UpstreamTimeout where the provider was not called, since too many calls were in progress."""


class BrokenStream(UpstreamError):
    """The provider's stream ended without a finish, or is not what the protocol says."""

    code = "upstream_broken_stream"


class CircuitOpen(UpstreamError):
    """The endpoint failed so often that it is not called for a while."""

    code = "upstream_circuit_open"
    status = 503

    def __init__(self, message: str, *, hint: str | None = None, retry_after_s: float | None = None) -> None:
        super().__init__(message, hint=hint)
        self._retry_after_s = retry_after_s

    @property
    def retry_after(self) -> float | None:
        """Return when it will be called again."""
        return self._retry_after_s


class ToolError(TreadleError):
    """Becomes a result that the model can read."""

    code = "failed"
    status = 200


class UnknownTool(ToolError):
    """No tool of that name is offered in this run."""

    code = "unknown_tool"


class InvalidArguments(ToolError):
    """The arguments are not JSON, or do not fit the schema; the message lists every error with its path."""

    code = "invalid_arguments"


class ToolTimeout(ToolError):
    """The tool took longer than its timeout."""

    code = "timeout"


class ToolFailed(ToolError):
    """The tool raised an exception, or reported a failure."""

    code = "failed"


class OutputTooLarge(ToolError):
    """The tool's output is over the limit."""

    code = "too_large"


class NotApproved(ToolError):
    """The call was not approved."""

    code = "denied"


class ToolInterrupted(ToolError):
    """The call was interrupted and its outcome is not known."""

    code = "interrupted"


class StoreError(TreadleError):
    """The journal cannot be written or read.

    Its message may contain a database, a file or the driver's error, for logs and the command line only. `info`, which
    clients see and which is journalled, has a fixed message for each code.
    """

    code = "store_unavailable"
    status = 503
    retryable = True

    @property
    def info(self) -> ErrorInfo:
        """Return this error as data, without the location of the journal."""
        if type(self) is not StoreError:
            return super().info
        code = self._code or self.code
        return ErrorInfo(
            code=code,
            message=STORE_MESSAGES.get(code, STORE_MESSAGES[StoreError.code]),
            status=self.http_status,
            param=self.param,
            hint=_STORE_RETRY if self.is_retryable else _STORE_LASTS,
            retryable=self.is_retryable,
            retry_after_s=self.retry_after,
        )

    @property
    def operator_info(self) -> ErrorInfo:
        """Return this error as data, with the location of the journal and a hint."""
        return msgspec.structs.replace(self.info, message=self.message, hint=self.hint, retry_after_s=None)

    @property
    def is_retryable(self) -> bool:
        """Return whether a retry may help: not if a person must repair something first."""
        return (self._code or self.code) not in _STORE_LASTING

    @property
    def retry_after(self) -> float | None:
        """Return when to retry: the end of an outage is unknown, so every second."""
        return STORE_RETRY_S if self.is_retryable else None


STORE_RETRY_S = 1.0
STORE_MESSAGES = {
    "store_unavailable": "The journal cannot be reached just now.",
    "store_full": "The disk of the journal is full.",
    "store_busy": "Another process holds the journal.",
    "store_read_only": "The journal cannot be written.",
    "store_cannot_open": "The journal cannot be opened.",
    "store_not_a_database": "The journal is not a database.",
    "store_corrupt": "The journal is damaged.",
    "store_replaced": "The files of the journal were deleted or replaced under this server.",
    "store_schema_missing": "The tables of the journal are gone.",
    "store_io": "Reading or writing the journal failed.",
    "store_refused": "The journal's database does not let this server in.",
    "store_closed": "The journal is closed.",
    "store_pooled": "The connections to the journal are shared in a way that it does not allow.",
    "store_secret": "This server has another secret than the others of the same journal.",
    "lease_lost": "Another process has taken the run over.",
    "server_stopping": "The server is stopping, and begins no more runs.",
}
"""The messages that clients get, by code. Codes that only occur at start are not here and get the first."""

_STORE_LASTING = frozenset({"store_corrupt", "store_replaced", "store_not_a_database", "store_pooled"})
_STORE_RETRY = "Try again in a moment; the log of the server says more."
_STORE_LASTS = "Ask whoever runs the server; its log says more."


class WorkspaceConflict(TreadleError):
    """Facts or draft have changed since they were read."""

    code = "workspace_conflict"
    status = 409


class ConfigError(TreadleError):
    """The configuration is wrong; `param` names the key."""

    code = "invalid_config"
