from __future__ import annotations

import base64
from pathlib import Path

import pytest

from dask_efficiency.files.text_files import TextFileError
from dask_efficiency.fleet.prometheus.http_config import read_http_config


def written(folder: Path, text: str) -> str:
    path = folder / "http.yaml"
    path.write_text(text)
    return str(path)


def test_a_password_is_sent_as_basic_auth_with_other_headers(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("open sesame\n")
    headers = "http_headers: {X-Scope-OrgID: {values: [a, b]}}"
    config = read_http_config(written(tmp_path, f"basic_auth: {{username: me, password_file: secret}}\n{headers}"))
    scheme, _, code = config.sent_headers()["Authorization"].partition(" ")
    assert (scheme, base64.b64decode(code)) == ("Basic", b"me:open sesame")
    assert config.sent_headers()["X-Scope-OrgID"] == "a, b"


@pytest.mark.parametrize(
    "text", ["bearer_token_file: token", "authorization: {credentials_file: token}", "authorization: {credentials: t1}"]
)
def test_a_token_is_sent_as_it_is_now(tmp_path: Path, text: str) -> None:
    (tmp_path / "token").write_text("t1")
    config = read_http_config(written(tmp_path, text))
    assert config.sent_headers() == {"Authorization": "Bearer t1"}
    if "file" in text:
        (tmp_path / "token").write_text("t2")
        assert config.sent_headers() == {"Authorization": "Bearer t2"}


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("bearer_token_file: token", "token: expected a password or token on one line"),
        ("basic_auth: {username: me, password_file: token}", "token: expected a password or token on one line"),
        (r'authorization: {credentials: "SECRET\nSECRET"}', "line 1: credentials: expected a password or token on one"),
        (r'http_headers: {X-Key: {values: ["SECRET\nSECRET"]}}', "line 1: 'X-Key' has a value of several lines"),
    ],
)
def test_a_secret_of_several_lines_is_refused_and_not_quoted(tmp_path: Path, text: str, wrong: str) -> None:
    (tmp_path / "token").write_text("SECRET\nSECRET\n")
    with pytest.raises(ValueError, match="line") as caught:
        read_http_config(written(tmp_path, text))
    assert wrong in str(caught.value)
    assert "SECRET" not in str(caught.value)


@pytest.mark.parametrize(("text", "checked"), [("{insecure_skip_verify: true}", False), ("{}", True)])
def test_certificates_are_checked_unless_that_is_switched_off(tmp_path: Path, text: str, checked: bool) -> None:
    config = read_http_config(written(tmp_path, f"tls_config: {text}"))
    assert config.tls is not None
    assert config.tls.check_hostname is checked


@pytest.mark.parametrize(
    ("text", "error", "wrong"),
    [
        (
            "basic_auth: {}\nbearer_token_file: x",
            TextFileError,
            "line 2: bearer_token_file is given along with ba",
        ),
        ("basic_auth: {username: me}", TextFileError, "expected either password or password_file"),
        (
            "authorization: {credentials: x, credentials_file: y}",
            TextFileError,
            "expected either credentials or c",
        ),
        ("tls_config: {cert_file: x}", TextFileError, "expected cert_file and key_file together"),
        ("proxy: x", TextFileError, "line 1: 'proxy' is unknown here"),
        ("http_headers: {X: {}}", TextFileError, "'X' has no 'values'"),
        *((text, FileNotFoundError, "gone") for text in ("bearer_token_file: gone", "tls_config: {ca_file: gone}")),
        ("basic_auth: {password_file: gone}", FileNotFoundError, "gone"),
    ],
)
def test_an_error_names_its_line_and_a_missing_file_is_one_at_once(tmp_path, text, error, wrong) -> None:
    with pytest.raises(error, match=None if wrong == "gone" else wrong):
        read_http_config(written(tmp_path, text))
