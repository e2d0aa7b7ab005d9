"""Tests that run on an event loop, within what they need there."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any


def within(context: Callable[..., AbstractAsyncContextManager[Any]], *args: Any) -> Callable[..., Callable[..., None]]:
    """Make a test of a coroutine, whose first arguments are what the context gives; the others are fixtures."""

    def decorate(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
        @functools.wraps(test)
        def run(**fixtures: Any) -> None:
            async def inside() -> None:
                async with context(*args) as given:
                    await test(*(given if isinstance(given, tuple) else (given,)), **fixtures)

            asyncio.run(inside())

        _, *rest = inspect.signature(test).parameters.values()
        named = [parameter for parameter in rest if parameter.kind is parameter.KEYWORD_ONLY]
        run.__signature__ = inspect.Signature(named)  # type: ignore[attr-defined]  # what pytest reads
        return run

    return decorate
