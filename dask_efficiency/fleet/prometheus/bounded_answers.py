"""Handlers of HTTP whose answers end at a deadline; a socket's own timeout begins anew with each byte."""

from __future__ import annotations

import http.client
import io
import ssl
import time
import urllib.request
from typing import Any

#: Time from a request to the last byte of its answer, in multiples of the timeout, for which a server may send nothing:
#: once to evaluate, and once to send.
ANSWER_TIMEOUTS = 2.0


class AnswerTooSlowError(TimeoutError):
    """An answer was not complete at its deadline, though some of it arrived."""


class _UntilDeadline(io.RawIOBase):
    """Bytes that arrive on a socket until its deadline."""

    def __init__(self, arriving: io.RawIOBase, sock: Any) -> None:
        self._arriving, self._sock = arriving, sock
        self._timeout: float | None = sock.gettimeout()
        self._deadline = None if self._timeout is None else time.monotonic() + ANSWER_TIMEOUTS * self._timeout

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int | None:
        if self._timeout is None or self._deadline is None:
            return self._arriving.readinto(buffer)
        left = self._deadline - time.monotonic()
        try:
            if left <= 0:
                raise TimeoutError
            self._sock.settimeout(min(self._timeout, left))
            return self._arriving.readinto(buffer)
        except TimeoutError:
            if time.monotonic() < self._deadline:
                raise
            wrong = f"the answer was not complete after {ANSWER_TIMEOUTS * self._timeout:g} s"
            raise AnswerTooSlowError(wrong) from None

    def close(self) -> None:
        self._arriving.close()
        super().close()


class _Answer(http.client.HTTPResponse):
    def __init__(self, sock: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        self.fp = io.BufferedReader(_UntilDeadline(self.fp.detach(), sock))


class _Connection(http.client.HTTPConnection):
    response_class = _Answer


class _TLSConnection(http.client.HTTPSConnection):
    response_class = _Answer


class BoundedHTTP(urllib.request.HTTPHandler):
    """Opens URLs of HTTP."""

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:  # noqa: D102
        return self.do_open(_Connection, req)


class BoundedHTTPS(urllib.request.HTTPSHandler):
    """Opens URLs of HTTPS, with these certificates; None for those of the system."""

    def __init__(self, certificates: ssl.SSLContext | None) -> None:
        super().__init__()
        self._certificates = certificates

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:  # noqa: D102
        return self.do_open(_TLSConnection, req, context=self._certificates)
