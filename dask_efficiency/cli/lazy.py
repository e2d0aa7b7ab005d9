"""LazyGroup: commands that are found by name in a table, and imported when they are asked for."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import click

from dask_efficiency.cli.errors import stoppable
from dask_efficiency.show.figures import harmless


class LazyGroup(click.Group):
    """A group whose commands stand in a table; those whose folder is not installed are not listed.

    Parameters
    ----------
    table
        By name: where the command is, as ``module:attribute``, and its line of help. A name of two words is a command
        of a group.
    groups
        The line of help of each of these groups.
    """

    def __init__(
        self, *args: Any, table: Mapping[str, tuple[str, str]], groups: Mapping[str, str] | None = None, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self._table = table
        self._groups = groups or {}

    def list_commands(self, context: click.Context) -> list[str]:
        """The names that are installed, in the order of the table."""
        return list(dict.fromkeys(name.split()[0] for name, (home, _) in self._table.items() if _is_installed(home)))

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        """The command or group of a name; None where there is none.

        Raises
        ------
        ClickException
            If its folder is not installed.
        """
        homes = {known: home for known, (home, _) in self._table.items() if known.split()[0] == name}
        if not homes:
            return None
        if not any(map(_is_installed, homes.values())):
            folder = ".".join(next(iter(homes.values())).partition(":")[0].split(".")[:2])
            raise click.ClickException(f"{name!r} is not installed here: there is no {folder}")
        if name not in self._groups:
            module, _, attribute = self._table[name][0].partition(":")
            found: click.Command = getattr(import_module(module), attribute)
            return found
        table = {known.removeprefix(f"{name} "): self._table[known] for known in homes}
        return LazyGroup(name, table=table, help=self._groups[name])

    def invoke(self, context: click.Context) -> Any:
        """Run the command: Ctrl-C ends it in order, and the message of an error is harmless, whoever wrote it."""
        try:
            with stoppable():
                return super().invoke(context)
        except click.ClickException as error:
            error.message = harmless(error.message)  # type: ignore[misc]  # what is shown, by whichever class
            raise

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """A whole line for each command, which is not imported for it."""
        rows = [(name, self._groups.get(name) or self._table[name][1]) for name in self.list_commands(context)]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def _is_installed(home: str) -> bool:
    try:
        return find_spec(home.partition(":")[0]) is not None
    except ModuleNotFoundError:
        return False
