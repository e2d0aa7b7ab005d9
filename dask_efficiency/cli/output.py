"""What a command says of what it found: all of it as JSON, a sentence where it is in a file, or on the screen."""

from __future__ import annotations

import json
from typing import Any

import click


def say(found: Any, *, as_json: bool, written: bool = False, everything: bool = True) -> None:
    """Print a result: all of it, or its first screen; of one that was written to a file, the sentence at its top."""
    if as_json:
        click.echo(json.dumps(found.to_dict(), indent=1))
    elif written:
        click.echo(f"{found.document.headline}.")
    else:
        from dask_efficiency.show.terminal.coloured import show

        show(found.document if everything else found.first_screen)
