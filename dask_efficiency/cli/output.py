"""What commands print: lines for people, and what they found as JSON, as a sentence or as a screen."""

from __future__ import annotations

import json
from typing import Any

import click

from dask_efficiency.show.figures import harmless


def tell(*lines: str, err: bool = False, **style: Any) -> None:
    """Print lines for people, without what would steer their terminal or begin another line."""
    for text in map(harmless, lines):
        click.secho(text, err=err, **style)


def say(found: Any, *, as_json: bool, written: bool = False, everything: bool = True) -> None:
    """Print a result: all of it, or its first screen; of one that was written to a file, the sentence at its top."""
    if as_json:
        click.echo(json.dumps(found.to_dict(), indent=1))
    elif written:
        tell(f"{found.document.headline}.")
    else:
        from dask_efficiency.show.terminal.coloured import show

        show(found.document if everything else found.first_screen)
