"""The commands against a scheduler and a worker that take TLS only, all started by Dask's command line."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from distributed import Client, Security

from dask_efficiency import EfficiencyPlugin
from tests.plugin.watch import eventually, process, scheduler_process

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl, which makes the certificates, is not here"),
]

COMMAND = [sys.executable, "-c", "from dask_efficiency.cli import main; main()"]


def certificates(folder: Path) -> Security:
    """A certificate that is its own authority, by which all sides know each other."""
    key, certificate = str(folder / "key.pem"), str(folder / "certificate.pem")
    made = ["-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", certificate, "-days", "2", "-subj", "/CN=test"]
    subprocess.run(["openssl", "req", "-x509", *made], check=True, capture_output=True)
    return Security(tls_ca_file=certificate, tls_client_cert=certificate, tls_client_key=key, require_encryption=True)


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, list[str]]]:
    """The file of a scheduler that records and has run twenty tasks, and the options by which it is reached."""
    folder = tmp_path_factory.mktemp("tls")
    security = certificates(folder)
    names = {"--tls-ca-file": "tls_ca_file", "--tls-cert": "tls_client_cert", "--tls-key": "tls_client_key"}
    options = [item for option, name in names.items() for item in (option, str(getattr(security, name)))]
    with scheduler_process(folder, "--protocol", "tls", *options) as (_, file):
        address = json.loads(Path(file).read_text())["address"]
        assert address.startswith("tls://")
        worker = ["--scheduler-file", file, "--nthreads", "2", "--dashboard-address", ":0", *options]
        with (
            process("distributed.cli.dask_worker", *worker, folder=folder),
            Client(address, security=security, set_as_default=False) as client,
        ):
            client.wait_for_workers(1, timeout=60)
            client.register_plugin(EfficiencyPlugin(trace=True))
            client.gather(client.map(abs, range(-20, 0), pure=False))
            yield address, options


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=100, check=False)


def output(*arguments: str) -> str:
    result = run(*arguments)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_each_command_is_answered_over_tls(tls: tuple[str, list[str]]) -> None:
    address, options = tls
    # The past reaches to the last heartbeat.
    assert eventually(
        lambda: sum(json.loads(output("report", address, "--json", *options))["report"]["facts"]["value"])
    )
    assert "abs" in json.loads(output("critical-path", address, "--json", *options))["seconds_by_prefix"]
    assert "Stragglers of" in output("stragglers", address, *options)
    (line,) = output("top", address, "--once", "--json", "--interval", "1s", *options).splitlines()
    assert len(json.loads(line)["workers"]) == 1
    assert json.loads(output("stacks", address, "--json", *options))["workers"] == 1


def test_a_worker_whose_event_loop_is_blocked_tells_its_call_over_tls(
    tls: tuple[str, list[str]], tmp_path: Path
) -> None:
    address, options = tls
    security = Security(
        **dict(zip(("tls_ca_file", "tls_client_cert", "tls_client_key"), options[1::2], strict=True)),
        require_encryption=True,
    )
    go_on = tmp_path / "go on"

    async def block(path: str) -> None:  # by value: the worker has no tests
        import os
        import time

        until = time.monotonic() + 600
        while not os.path.exists(path) and time.monotonic() < until:  # noqa: ASYNC240
            time.sleep(0.02)  # noqa: ASYNC251

    def names_its_call() -> bool:
        found = output("stacks", address, *options)
        return Path(__file__).name in found and "did not answer" not in found

    with Client(address, security=security, set_as_default=False) as client:
        client.run(block, str(go_on), wait=False)
        try:
            assert eventually(names_its_call)
        finally:
            go_on.touch()
        eventually(lambda: not names_its_call())


@pytest.mark.parametrize("command", [["report"], ["top", "--once"]])
def test_without_certificates_the_options_are_named(tls: tuple[str, list[str]], command: list[str]) -> None:
    address, _ = tls
    result = run(*command, address)
    assert (result.returncode, result.stdout) == (1, "")
    assert "--tls-ca-file, --tls-cert and --tls-key" in result.stderr
    assert "Traceback" not in result.stderr
    # nor does a scheduler that takes TLS only answer in plain
    result = run(*command, address.replace("tls://", "tcp://"), "--timeout", "1s")
    assert (result.returncode, result.stdout) == (1, "")
    assert "no scheduler answered" in result.stderr
