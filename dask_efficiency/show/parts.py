"""Time by bucket in the order in which it is shown, with shares that add up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dask_efficiency.accounts.buckets import GOOD, Breakdown, Bucket
from dask_efficiency.show.figures import apportion, format_percent


@dataclass(frozen=True, slots=True)
class Part:
    """A bucket's part of the finalized time."""

    bucket: Bucket
    nanoseconds: int
    #: Rounded so that all parts make 1000.
    tenths_of_percent: int


def finalized_parts(breakdown: Breakdown) -> tuple[Part, ...]:
    """Useful and lost time by bucket, good time first and then the losses from the largest down."""
    return parts_of({bucket: ns for bucket, ns in in_order(breakdown).items() if bucket is not Bucket.RUNNING})


def parts_of(parts: Mapping[Bucket, int]) -> tuple[Part, ...]:
    """Nanoseconds by bucket with their shares of the whole."""
    tenths = apportion(list(parts.values()), 1000)
    return tuple(Part(bucket, ns, share) for (bucket, ns), share in zip(parts.items(), tenths, strict=True))


def percent_of(part: Part) -> str:
    """A part's per cent as shown; what is there but rounds to nothing is ``<0.1``."""
    return format_percent(part.tenths_of_percent) if part.tenths_of_percent else "<0.1"


def in_order(breakdown: Breakdown) -> dict[Bucket, int]:
    """Nanoseconds by bucket but ``no-work``: good time, losses from the largest down, ``running``."""
    parts = {Bucket(name): ns for name, ns in breakdown.to_nanoseconds().items()}
    lost = [bucket for bucket in parts if bucket not in (*GOOD, Bucket.NO_WORK, Bucket.RUNNING)]
    lost.sort(key=lambda bucket: -parts[bucket])
    good = [bucket for bucket in GOOD if bucket in parts]
    last = [Bucket.RUNNING] if Bucket.RUNNING in parts else []
    return {bucket: parts[bucket] for bucket in (*good, *lost, *last)}
