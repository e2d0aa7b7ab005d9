"""A daemon of SSH of its own on the loopback interface, with keys made for it."""

from __future__ import annotations

import getpass
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from dashboards.monitor.prometheus import free_port
from tests.deployments.programs import HOST, eventually, program, python_path

SSHD = "/usr/sbin/sshd"


@contextmanager
def daemon(folder: Path) -> Iterator[dict[str, Any]]:
    """A daemon that lets one key in; how asyncssh is to connect."""
    host_key, user_key = (_key(folder / name) for name in ("host_key", "user_key"))
    known, port = folder / "known_hosts", free_port()
    known.write_text(f"[{HOST}]:{port} {host_key.with_suffix('.pub').read_text()}")
    settings = {
        "ListenAddress": HOST,
        "Port": port,
        "HostKey": host_key,
        "AuthorizedKeysFile": user_key.with_suffix(".pub"),
        "PidFile": folder / "sshd.pid",
        # The keys lie in a temporary folder, and no password or account is asked for.
        "StrictModes": "no",
        "UsePAM": "no",
        "PasswordAuthentication": "no",
        "PermitRootLogin": "prohibit-password",
        "SetEnv": f"PYTHONPATH={python_path()}",
    }
    config = folder / "sshd_config"
    config.write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
    with _privilege_separation(), program([SSHD, "-D", "-e", "-f", str(config)], folder / "sshd.log"):
        eventually(lambda: listens(port), what="sshd")
        yield {"username": getpass.getuser(), "port": port, "client_keys": [str(user_key)], "known_hosts": str(known)}


def _key(path: Path) -> Path:
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    return path


@contextmanager
def _privilege_separation() -> Iterator[None]:
    """The empty folder that the daemon wants of a machine on which none has started yet; of root only."""
    place = Path("/run/sshd")
    made = False
    with suppress(PermissionError, FileExistsError):
        place.mkdir(mode=0o755)
        made = True
    try:
        yield
    finally:
        if made:
            shutil.rmtree(place)


def listens(port: int) -> bool:
    with socket.socket() as found:
        return found.connect_ex((HOST, port)) == 0
