"""PreflightResult: findings, measurements and gaps of a preflight, and how it travels to the client."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, ClassVar

from dask_efficiency.accounts.checks import RefusedPayload
from dask_efficiency.accounts.intake import finite
from dask_efficiency.accounts.slow_worker import SlowWorker
from dask_efficiency.preflights.judge.alone import compare_alone
from dask_efficiency.preflights.judge.links import MeasuredPair, MeasuredPairs, SlowPath
from dask_efficiency.preflights.judge.readings import Component, Reading, Subject
from dask_efficiency.preflights.judge.verdict import judge
from dask_efficiency.show.figures import format_times, named
from dask_efficiency.show.finding import Finding
from dask_efficiency.show.shown import Printed
from dask_efficiency.straggler.peers import MIN_PEERS
from dask_efficiency.straggler.wording import as_finding

#: Title and advice by kind of path.
PATHS = {
    "slow-path": ("Slow path in the network", "Look at the switches and links between them, and what else they carry."),
    "broken-path": ("Broken path in the network", "Look at the routes and firewalls between them."),
}


@dataclass(frozen=True, repr=False)
class PreflightResult(Printed):
    """Slow workers before a job starts, and the measurements that show them.

    Parameters
    ----------
    subjects
        The workers, in the order of their names.
    links
        Measurements of pairs of workers.
    started
        Start in seconds since the epoch.
    seconds
        Duration.
    reason
        Reason why nothing was tested, such as a busy cluster; else empty.
    notes
        Remarks on how far the result can be trusted.
    retired, kept
        Names of the slow workers that were retired, and of those that were not, because too few would be left.
    """

    _sections_module: ClassVar[str] = "dask_efficiency.preflights.sections"

    subjects: tuple[Subject, ...] = ()
    links: tuple[MeasuredPair, ...] = ()
    started: float = math.nan
    seconds: float = 0.0
    reason: str = ""
    notes: tuple[str, ...] = ()
    retired: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()

    @property
    def tested(self) -> bool:
        """True if anything was tested."""
        return not self.reason and any(not subject.not_tested for subject in self.subjects)

    @property
    def not_tested(self) -> dict[str, str]:
        """Reasons by name, of the workers of which nothing was measured."""
        return {subject.name: subject.not_tested for subject in self.subjects if subject.not_tested}

    @cached_property
    def by_group(self) -> dict[str, MeasuredPairs]:
        """Measured pairs, by group of comparable workers."""
        group = {subject.address: subject.group for subject in self.subjects}
        links: dict[str, list[MeasuredPair]] = {}
        for link in self.links:
            links.setdefault(group.get(link.first, ""), []).append(link)
        return {name: MeasuredPairs(of_group) for name, of_group in links.items()}

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Costs of slow workers and hosts, and then of slow paths."""
        return (*map(as_finding, self.slow_workers), *map(_of_path, self.paths))

    @cached_property
    def slow_workers(self) -> tuple[SlowWorker, ...]:
        """Slow workers, and hosts of which all workers are slow, the most certain first."""
        return judge(self.subjects, self.by_group.values(), at=self.started)

    @cached_property
    def paths(self) -> tuple[SlowPath, ...]:
        """Slow paths between two groups of hosts, by the names of the hosts; there is none within a host."""
        host = {subject.address: subject.host for subject in self.subjects}

        def hosts(side: tuple[str, ...]) -> tuple[str, ...]:
            return tuple(sorted({host[worker] for worker in side}))

        paths = (path for links in self.by_group.values() for path in links.slow_paths())
        by_host = (SlowPath(hosts(path.first), hosts(path.second), path.ratio, path.pairs) for path in paths)
        return tuple(path for path in by_host if not {*path.first} & {*path.second})

    @property
    def passed(self) -> bool:
        """True if something was tested, and neither a worker nor a path is slow."""
        return self.tested and not self.findings

    @property
    def slow(self) -> tuple[str, ...]:
        """Names of slow workers, including each worker of a slow host, the most certain first."""
        slow = (
            subject.name
            for finding in self.slow_workers
            for subject in self.subjects
            if (subject.name == finding.worker if finding.worker else subject.host == finding.host)
        )
        return tuple(dict.fromkeys(slow))

    @cached_property
    def ratios(self) -> dict[str, dict[Component, float]]:
        """By name, ratio of a worker's time to the median of the fastest half of comparable workers."""
        compared = compare_alone(self.subjects)
        ratios: dict[str, dict[Component, float]] = {}
        for subject in self.subjects:
            own = ratios[subject.name] = {
                name: comparison.ratio for name, comparison in compared.get(subject.address, {}).items()
            }
            for links in self.by_group.values():
                own |= {name: links.ratio(name, took) for name, took in links.readings(subject.address).items()}
        return ratios

    @cached_property
    def too_few(self) -> tuple[tuple[str, ...], ...]:
        """Names of the workers of each group that is too small to tell who is slow in it."""
        groups: dict[str, list[str]] = {}
        for subject in self.subjects:
            if not (subject.not_tested or subject.broken):
                groups.setdefault(subject.group, []).append(subject.name)
        return tuple(tuple(names) for names in groups.values() if len(names) < MIN_PEERS)

    def reading(self, subject: Subject, component: Component) -> float:
        """Reading of a worker in a component, in its unit; NaN if unknown."""
        if component in subject.readings:
            return subject.readings[component].value
        known = [links.readings(subject.address).get(component, math.inf) for links in self.by_group.values()]
        best = min(known, default=math.inf)
        return math.nan if math.isinf(best) else component.seconds(best)

    def to_dict(self) -> dict[str, Any]:
        """All figures as values that JSON has; None for a figure that is not finite."""
        workers = [
            {
                **{name: getattr(subject, name) for name in ("name", "address", "host", "group")},
                "measured": {
                    str(component): {
                        "value": finite(self.reading(subject, component)),
                        "ratio": finite(self.ratios[subject.name][component]),
                    }
                    for component in Component
                    if component in self.ratios[subject.name]
                },
                "missing": {str(name): why for name, why in subject.missing.items()},
                "not_tested": subject.not_tested,
                "broken": subject.broken,
            }
            for subject in self.subjects
        ]
        paths = [
            {"hosts": [list(path.first), list(path.second)], "ratio": finite(path.ratio), "pairs": path.pairs}
            for path in self.paths
        ]
        return {
            "tested": self.tested,
            "reason": self.reason,
            "started": finite(self.started),
            "seconds": self.seconds,
            "slow": list(self.slow),
            "findings": [finding.to_dict() for finding in self.findings],
            "slow_workers": [finding.to_dict() for finding in self.slow_workers],
            "paths": paths,
            "too_few": [list(names) for names in self.too_few],
            "workers": workers,
            **{name: list(getattr(self, name)) for name in ("notes", "retired", "kept")},
        }


def _of_path(path: SlowPath) -> Finding:
    kind = "slow-path" if math.isfinite(path.ratio) else "broken-path"
    title, todo = PATHS[kind]
    times = f", {format_times(path.ratio)} as long as within each side" if kind == "slow-path" else ""
    return Finding(
        kind=kind,
        title=title,
        where=f"between {named(path.first)} and {named(path.second)}{times}",
        advice=todo,
        page="docs/preflight.md",
        evidence={"times": path.ratio, "pairs": path.pairs} if times else {"pairs": path.pairs},
    )


def encode(
    subjects: Iterable[Subject], links: Iterable[MeasuredPair], *, started: float, seconds: float, notes: Iterable[str]
) -> dict[str, Any]:
    """Measurements as plain data; :func:`decode` reads it."""
    lists = {"subjects": list(map(asdict, subjects)), "links": list(map(asdict, links)), "notes": list(notes)}
    return {**lists, "started": started, "seconds": seconds}


def decode(content: Mapping[str, Any]) -> PreflightResult:
    """Result of measurements; raises :class:`RefusedPayload` if they are not what :func:`encode` makes."""
    try:
        subjects = [
            Subject(
                **{
                    **subject,
                    "readings": {
                        Component(name): Reading(**{**reading, "beside": tuple(map(float, reading["beside"]))})
                        for name, reading in subject["readings"].items()
                    },
                    "missing": {Component(name): str(why) for name, why in subject["missing"].items()},
                }
            )
            for subject in content["subjects"]
        ]
        links = [
            MeasuredPair(
                **{**link, "seconds": {Component(name): float(took) for name, took in link["seconds"].items()}}
            )
            for link in content["links"]
        ]
        notes = tuple(map(str, content["notes"]))
        return PreflightResult(
            tuple(subjects), tuple(links), float(content["started"]), float(content["seconds"]), notes=notes
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise RefusedPayload(f"not what a preflight measured: {error!r:.200}") from error
