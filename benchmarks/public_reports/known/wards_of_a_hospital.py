"""Readings from the monitors of the wards of a hospital, ward against ward, with every message encrypted.

source: dask/distributed issue 4443; of the same kind: dask/distributed issue 5284, coiled/feedback issue 100
date:   2021-01-19 (issue 5284: 2021-08-27)
seen:   with security switched on, scheduler and workers spend their time in the reading and writing of sockets, and
        large messages travel at a third of the speed.
cause:  all messages between workers go through TLS, though the workers are next to each other and nobody else is
        there.
cure:   no encryption among the workers of a machine or of a network of their own (only towards outside); or less to
        transfer.
"""

from __future__ import annotations

import subprocess
from typing import Any

import numpy as np
from distributed import Client
from distributed.security import Security

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    HOLDS_GIL,
    LOCK,
    LONGER_TASKS,
    MORE_MEMORY,
    SLEEP,
    TWO_BY_ONE,
    Expected,
    folder,
    function,
    marked,
    scaled,
)

PLACE = folder("wards")
CERTIFICATE, KEY = str(PLACE / "certificate.pem"), str(PLACE / "key.pem")
ROLES = ("client", "scheduler", "worker")
CLUSTER: dict[str, Any] = {
    **TWO_BY_ONE,
    "n_workers": 4,
    "security": Security(  # <- here
        require_encryption=True,
        tls_ca_file=CERTIFICATE,
        **{f"tls_{role}_cert": CERTIFICATE for role in ROLES},
        **{f"tls_{role}_key": KEY for role in ROLES},
    ),
}
GOOD_CLUSTER = {**TWO_BY_ONE, "n_workers": 4}
DAYS, WARDS, READINGS = scaled(7), 8, 3_000_000

EXPECTED = Expected(
    cause="workers send each other much, and slowly, as their connections are encrypted (TLS)",
    place="the security of the cluster, or the tasks that need readings of other workers",
    cure="no TLS among workers of the same machine or network; or transfer less",
    says=r"\btls\b|\bssl\b|encrypt|transfer|(sent|sends?|sending|receiv\w*|mov(e|ed|ing)|fetch\w*|network|communicat\w*"
    r"|copied)\b.{0,120}\b(workers?|bytes|[MGk]i?B|data|blocks?|arrays?|depend|inputs?)|between (the )?workers",
    places=(*marked(__file__), function("likeness"), function("readings"), function("compared"), r"\btls"),
    cures=r"\btls\b|\bssl\b|encrypt|security|transfer|mov(e|ed|ing) less|less data|float32|smaller|same worker"
    r"|one (worker|process)|fewer (workers|processes)|threads|(near|next to|where) (the|its|their) (data|inputs?)",
    never={
        COMPUTED_AGAIN: "each task runs once",
        HOLDS_GIL: "one thread a worker",
        LOCK: "there is none",
        LONGER_TASKS: "larger blocks would not be less to transfer",
        MORE_MEMORY: "there is enough",
        SLEEP: "nothing sleeps",
    },
)


def prepare() -> None:
    """Certificate that scheduler, workers and client trust."""
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "3", "-subj", "/CN=wards"]
    subprocess.run([*command, "-keyout", KEY, "-out", CERTIFICATE], check=True, capture_output=True)


def readings(day: int, ward: int) -> np.ndarray:
    return np.arange(READINGS, dtype=float) % (101.0 + ward) - day


def likeness(first: np.ndarray, second: np.ndarray) -> float:
    return float(np.dot(first[::64], second[::64])) / READINGS


def compared(client: Client) -> float:
    total = 0.0
    for day in range(DAYS):
        wards = [client.submit(readings, day, ward) for ward in range(WARDS)]
        pairs = [(i, j) for i in range(WARDS) for j in range(i)]
        futures = client.map(likeness, [wards[i] for i, _ in pairs], [wards[j] for _, j in pairs])  # <- here
        total += sum(client.gather(futures))  # <- here
    return total


bad = compared
good = compared
