"""HttpConfig: passwords, tokens and certificates of an HTTP server, from the files that promtool takes.

Answers end at a deadline; a socket's own timeout begins anew with each byte.
"""

from __future__ import annotations

import base64
import http.client
import io
import ssl
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dask_efficiency.files.text_files import TextFileError, YamlSection, composed, line_of, read_text, text_of

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


_KEYS = {"basic_auth", "authorization", "bearer_token_file", "tls_config", "http_headers"}


@dataclass(frozen=True, slots=True)
class HttpConfig:
    """Passwords, tokens and certificates for an HTTP server."""

    #: Sent with each request.
    headers: dict[str, str] = field(default_factory=dict)
    #: Makes the header of that name; called for each request, as tokens in files are renewed.
    authorization: Callable[[], str] | None = None
    #: Certificates; None for those of the system.
    tls: ssl.SSLContext | None = None

    def opener(self) -> urllib.request.OpenerDirector:
        """Opener of URLs, with these certificates; an answer ends at a deadline, and a redirect is an error."""
        return urllib.request.build_opener(_NoRedirects, BoundedHTTP, BoundedHTTPS(self.tls))

    def sent_headers(self) -> dict[str, str]:
        """Headers of a request; raises OSError or ValueError if a file with a password or token cannot be used."""
        return self.headers if self.authorization is None else {**self.headers, "Authorization": self.authorization()}


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Refuses redirects: they would carry passwords elsewhere, and urllib makes a POST a GET."""

    def redirect_request(self, *_: object) -> None:
        """Follow nothing."""


def read_http_config(path: str) -> HttpConfig:
    """Read a file as ``promtool --http.config.file`` takes it; file names in it are relative to it."""
    given = YamlSection(composed(read_text(path), path), path, _KEYS)
    ways = [name for name in ("basic_auth", "authorization", "bearer_token_file") if name in given]
    if len(ways) > 1:
        raise given.error(ways[1], f"{ways[1]} is given along with {ways[0]}; expected one of them")
    folder = Path(path).parent
    authorization = _authorization(given, path, folder)
    if authorization is not None:
        authorization()  # a missing file is an error at once
    return HttpConfig(_headers(given, path), authorization, _tls(given, path, folder))


def _authorization(given: YamlSection, path: str, folder: Path) -> Callable[[], str] | None:
    if "basic_auth" in given:
        section = YamlSection(given.node("basic_auth"), path, {"username", "password", "password_file"})
        user, password = section.get("username", str, ""), _secret(section, "password", folder)
        return lambda: f"Basic {base64.b64encode(f'{user}:{password()}'.encode()).decode()}"
    if "authorization" in given:
        section = YamlSection(given.node("authorization"), path, {"type", "credentials", "credentials_file"})
        kind, secret = section.get("type", _one_line, "Bearer"), _secret(section, "credentials", folder)
        return lambda: f"{kind} {secret()}"
    if "bearer_token_file" in given:
        token = given.get("bearer_token_file", folder.joinpath, folder)
        return lambda: f"Bearer {_content(token)}"
    return None


def _secret(section: YamlSection, name: str, folder: Path) -> Callable[[], str]:
    """Password or token, given literally or in another file."""
    if (name in section) == (f"{name}_file" in section):
        raise section.error("", f"expected either {name} or {name}_file")
    written = section.get(name, _one_line, "")
    file = section.get(f"{name}_file", folder.joinpath, folder)
    return (lambda: written) if name in section else (lambda: _content(file))


def _content(path: Path) -> str:
    try:
        return _one_line(path.read_text(encoding="utf-8").strip())
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _one_line(secret: str) -> str:
    """Check that a secret fits a header; :mod:`http.client` would quote it in its error."""
    if "\n" in secret or "\r" in secret:
        raise ValueError("expected a password or token on one line")
    return secret


def _headers(given: YamlSection, path: str) -> dict[str, str]:
    """Headers; Prometheus gives each a list of values, of which a client sends several in one line."""
    headers = {}
    for key, node in given.pairs("http_headers"):
        values = [text_of(value, path) for value in YamlSection(node, path, {"values"}).items("values")]
        if any("\n" in value or "\r" in value for value in values):
            raise TextFileError(path, line_of(key), f"{text_of(key, path)[:80]!r} has a value of several lines")
        if not values:
            raise TextFileError(path, line_of(key), f"{text_of(key, path)[:80]!r} has no 'values'; expected a list")
        headers[text_of(key, path)] = ", ".join(values)
    return headers


def _tls(given: YamlSection, path: str, folder: Path) -> ssl.SSLContext | None:
    if "tls_config" not in given:
        return None
    section = YamlSection(given.node("tls_config"), path, {"ca_file", "cert_file", "key_file", "insecure_skip_verify"})
    files = {name: str(section.get(name, folder.joinpath, "")) for name in ("ca_file", "cert_file", "key_file")}
    if bool(files["cert_file"]) != bool(files["key_file"]):
        raise section.error("", "expected cert_file and key_file together")
    try:
        context = ssl.create_default_context(cafile=files["ca_file"] or None)
        if files["cert_file"]:
            context.load_cert_chain(files["cert_file"], files["key_file"])
    except ssl.SSLError as error:
        raise section.error("", f"these certificates cannot be used: {error}") from error
    if section.get("insecure_skip_verify", str, "false") == "true":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
