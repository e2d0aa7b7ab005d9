"""Network namespaces as hosts, bridges as switches, and cables; all are gone with the stack that has them."""

from __future__ import annotations

import os
import subprocess
from contextlib import ExitStack


def sh(*command: str) -> str:
    """Run a program of the system."""
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def unlike_others() -> int:
    """A number for names and addresses, by which beds of several processes differ."""
    return os.getpid() % 200 + 20


def add_bridge(stack: ExitStack, name: str) -> None:
    """A switch."""
    sh("ip", "link", "add", name, "type", "bridge")
    stack.callback(sh, "ip", "link", "del", name)
    sh("ip", "link", "set", name, "up")


def add_cable(stack: ExitStack, name: str, *other_end: str) -> None:
    """Two cards that are joined, by the name of the one and what ``ip`` takes for the other."""
    sh("ip", "link", "add", name, "type", "veth", "peer", "name", *other_end)
    # Gone with its namespace, but only after a while: the next bed would find it.
    stack.callback(subprocess.run, ("ip", "link", "del", name), capture_output=True)


def add_host(stack: ExitStack, name: str, bridge: str, address: str) -> None:
    """A namespace whose card ``eth0`` has this address, on a cable of the namespace's name to a bridge."""
    sh("ip", "netns", "add", name)
    stack.callback(sh, "ip", "netns", "del", name)
    add_cable(stack, name, "eth0", "netns", name)
    sh("ip", "link", "set", name, "master", bridge, "up")
    sh("ip", "-n", name, "addr", "add", f"{address}/24", "dev", "eth0")
    sh("ip", "-n", name, "link", "set", "eth0", "up")
    sh("ip", "-n", name, "link", "set", "lo", "up")
