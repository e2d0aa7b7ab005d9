"""How the command line reaches a scheduler: a line at once, and an error when none answers in time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from dask_efficiency.cli.output import tell

if TYPE_CHECKING:
    from distributed import Security

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Connection:
    """How long a scheduler has to answer, and the files with which to talk to it by TLS."""

    timeout_seconds: float
    tls_ca_file: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None

    def secured(self, address: str) -> tuple[str, Security]:
        """The address with its scheme, and how to talk to it."""
        from distributed import Security

        files = {"tls_ca_file": self.tls_ca_file, "tls_client_cert": self.tls_cert, "tls_client_key": self.tls_key}
        given = {name: path for name, path in files.items() if path is not None}
        if given and "://" not in address:
            address = f"tls://{address}"
        security = Security(**given)
        if address.startswith("tls://") and security.get_connection_args("client")["ssl_context"] is None:
            raise click.ClickException(
                f"{address} takes --tls-ca-file, --tls-cert and --tls-key, or distributed.comm.tls in Dask's "
                "configuration"
            )
        return address, security

    def ask(self, address: str, question: Callable[[Any], Awaitable[Answer]]) -> Answer:
        """What a scheduler answers to a question of :mod:`dask_efficiency.plugin.client`.

        Raises
        ------
        OSError
            If no scheduler answers in time.
        click.ClickException
            If the plugin is not on it, or it cannot answer.
        """
        self.announce(self.secured(address)[0])
        return self.reply(address, question)

    def reply(self, address: str, question: Callable[[Any], Awaitable[Answer]]) -> Answer:
        """The same, without a line; for what asks again and again."""
        address, security = self.secured(address)
        try:
            return asyncio.run(self._asked(address, security, question))
        except RuntimeError as error:  # NotRegisteredError, or raised over there
            raise click.ClickException(" ".join(str(error).split())) from error

    def announce(self, address: str) -> None:
        """Say at once what is waited for."""
        tell(f"connecting to {address}, up to {self.timeout_seconds:g} s", err=True)

    async def _asked(self, address: str, security: Security, question: Callable[[Any], Awaitable[Answer]]) -> Answer:
        from distributed.core import rpc

        from dask_efficiency.plugin.client import Server, check_answers

        with_security = security.get_connection_args("client")
        async with rpc(address, timeout=self.timeout_seconds, connection_args=with_security) as scheduler:
            caller = Server(scheduler)
            await check_answers(caller, address, seconds=self.timeout_seconds)
            return await question(caller)
