"""What a test measured, as it travels from the scheduler to a client."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from dask_efficiency.accounts.checks import RefusedPayload
from dask_efficiency.preflights.judge.components import Component
from dask_efficiency.preflights.judge.links import Link
from dask_efficiency.preflights.judge.result import PreflightResult
from dask_efficiency.preflights.judge.subjects import Reading, Subject


def encode(
    subjects: Iterable[Subject], links: Iterable[Link], *, started: float, seconds: float, notes: Iterable[str] = ()
) -> dict[str, Any]:
    """Plain data of what was measured; :func:`decode` reads it."""
    return {
        "subjects": [
            {
                **asdict(one),
                "readings": {str(name): asdict(reading) for name, reading in one.readings.items()},
                "missing": {str(name): why for name, why in one.missing.items()},
            }
            for one in subjects
        ],
        "links": [
            (link.first, link.second, {str(name): value for name, value in link.seconds.items()}, link.range)
            for link in links
        ],
        "started": started,
        "seconds": seconds,
        "notes": list(notes),
    }


def decode(content: Mapping[str, Any]) -> PreflightResult:
    """What was measured, and what follows from it.

    Raises
    ------
    RefusedPayload
        If it is not what :func:`encode` makes.
    """
    try:
        return PreflightResult(
            subjects=tuple(map(_subject, content["subjects"])),
            links=tuple(
                Link(first, second, {Component(name): float(value) for name, value in seconds.items()}, float(extent))
                for first, second, seconds, extent in content["links"]
            ),
            started=float(content["started"]),
            seconds=float(content["seconds"]),
            notes=tuple(map(str, content["notes"])),
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise RefusedPayload(f"not what a preflight measured: {error!r:.200}") from error


def _subject(content: Mapping[str, Any]) -> Subject:
    readings = {
        Component(name): Reading(**{**reading, "beside": tuple(map(float, reading["beside"]))})
        for name, reading in content["readings"].items()
    }
    missing = {Component(name): str(why) for name, why in content["missing"].items()}
    return Subject(**{**content, "readings": readings, "missing": missing})
