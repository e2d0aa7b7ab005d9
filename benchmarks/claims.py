"""Claims of the documentation, run one after the other, and their figures: the file, the table and the pages.

``make claims`` runs all that this machine can run, the shortest first and nothing beside, which takes a night, and
``make claims CLAIM="NAME ..."`` some. ``benchmarks/claims.json`` has each claim with its command, and what it gave
last: figures, date, commit, processor, and cores that other programs used meanwhile. A benchmark prints its figures by
:func:`benchmarks.figures.figure`. From that file come the table in ``benchmarks/README.md`` and each figure of a page
that has a name behind it, such as ``1.7<!-- critical_path: a million tasks -->``; ``python -m benchmarks.claims
--write`` writes both anew.

A claim says what it needs: root, a program or a module, or a variable of the environment that its command has. Where
that is missing it is skipped by name, and what it gave last is kept, as it is where its command fails, which the table
says then. Words about figures from before this file are kept as ``remark``.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil

from benchmarks.figures import MARK
from dask_efficiency import __version__

ROOT = Path(__file__).parents[1]
FILE = ROOT / "benchmarks" / "claims.json"
TABLE = ROOT / "benchmarks" / "README.md"
BEGIN, END = "<!-- claims -->", "<!-- end of claims -->"

#: A number of a page, and whose it is: "CLAIM: FIGURE", or with ", least", ", most" or ", of" what is beside it.
QUOTE = re.compile(r"(?P<text>[-+]?\d[\d,.]*)<!-- (?P<claim>\w+): (?P<figure>[^>]+?)(?P<end>, (?:least|most|of))? -->")
#: A variable of the environment in a command; OUT is a folder that is removed afterwards.
VARIABLE = re.compile(r"\$(\w+)")
#: Cores that others may use while a claim begins, and seconds that it waits for that.
QUIET_CORES, QUIET_SECONDS = 0.1, 60.0
#: How many times as long as it says a command may take, and how many minutes at least.
PATIENCE, LEAST_MINUTES = 4.0, 10.0

Claims = dict[str, dict[str, Any]]


# -- the file --------------------------------------------------------------------------------------


def read(file: Path = FILE) -> Claims:
    found: Claims = json.loads(file.read_text(encoding="utf-8"))
    return found


def write(claims: Claims, file: Path = FILE) -> None:
    file.write_text(json.dumps(claims, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def digest(claim: Mapping[str, Any], root: Path = ROOT) -> str:
    """Digest of the code that a claim is about, and of its benchmark."""
    found = hashlib.sha256()
    for file in code_of(claim, root):
        found.update(file.read_bytes())
    return found.hexdigest()[:12]


def code_of(claim: Mapping[str, Any], root: Path = ROOT) -> list[Path]:
    """Files of the code that a claim is about, and of its benchmark."""
    files: list[Path] = []
    for name in (f"benchmarks/{module_of(claim)}", *claim.get("code", ["dask_efficiency"])):
        path = root / name
        files += sorted(path.rglob("*.py")) if path.is_dir() else [path.with_suffix(".py")]
    return files


def module_of(claim: Mapping[str, Any]) -> str:
    """Path in ``benchmarks`` of a claim's module, without its suffix."""
    (name,) = re.findall(r"-m benchmarks\.([\w.]+)", claim["command"])
    return str(name).replace(".", "/")


# -- running ---------------------------------------------------------------------------------------

#: How what a claim needs is found; a name that is not here is a program, or else a module.
NEEDS: dict[str, Callable[[], object]] = {"root": lambda: os.geteuid() == 0, "GPU": lambda: shutil.which("nvidia-smi")}


def missing(claim: Mapping[str, Any]) -> list[str]:
    """Names of what a claim needs and is not there."""
    variables = [name for name in VARIABLE.findall(claim["command"]) if name != "OUT"]
    lacking = [name for name in claim.get("needs", []) if not NEEDS.get(name, lambda name=name: _installed(name))()]
    return lacking + [f"${name}" for name in variables if name not in os.environ]


def _installed(name: str) -> bool:
    return bool(shutil.which(name) or find_spec(name))


def in_order(claims: Claims, names: Sequence[str]) -> list[str]:
    """Claims with the shortest first: one that is ended by the morning has let most others run."""
    return sorted(names, key=lambda name: (claims[name]["minutes"], name))


def run(claim: Mapping[str, Any]) -> tuple[list[dict[str, Any]], str, dict[str, Any]]:
    """Figures that a claim's command printed, why it failed if it did, and how the machine was."""
    with tempfile.TemporaryDirectory() as out:
        variables = {**os.environ, "OUT": out}
        command = VARIABLE.sub(lambda found: variables[found[1]], claim["command"])
        command = re.sub(r"^python\b", sys.executable, command)
        wait_for_quiet()
        began, busy, own = time.monotonic(), _busy(), _own()
        process = subprocess.Popen(
            command, shell=True, cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        assert process.stdout is not None
        found, last, late = [], "", False
        until = began + 60 * max(LEAST_MINUTES, PATIENCE * claim["minutes"])
        signal.signal(signal.SIGALRM, lambda *_: os.killpg(process.pid, signal.SIGKILL))
        signal.alarm(int(until - began))
        try:
            for line in process.stdout:
                print(line, end="", flush=True)
                last = line.strip() or last
                if line.startswith(MARK):
                    found.append(json.loads(line))
            process.wait()
        finally:
            late = not signal.alarm(0)
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    seconds = time.monotonic() - began
    others = max(0.0, (_busy() - busy) - (_own() - own)) / seconds
    why = "" if not process.returncode else f"exit code {process.returncode}, after {last[:200]!r}"
    why = "it took too long" if late and process.returncode else why
    return found, why, {"seconds": round(seconds), "others": round(others, 1)}


def result(found: Sequence[Mapping[str, Any]], why: str) -> str:
    """What a run says of its claim: "holds", "missed", "measured" where there is no goal, or why it failed."""
    judged = [one["holds"] for one in found if "holds" in one]
    if not found:
        return f"failed: {why or 'no figure was printed'}"
    if False in judged:
        return "missed"
    return f"failed: {why}" if why else "holds" if judged else "measured"


def taken(claim: dict[str, Any], found: Sequence[Mapping[str, Any]], why: str, about: Mapping[str, Any]) -> str:
    """Keep what a run gave in its claim, and how long it took. Figures of before stay where there are none."""
    said = result(found, why)
    if said.startswith("failed"):
        claim["failed"] = {"why": said.removeprefix("failed: "), **about}
    else:
        claim.pop("failed", None)
        claim["last"] = {"result": said, **about, "figures": [dict(one) for one in found]}
        claim["minutes"] = max(1, round(about["seconds"] / 60))
    return said


def about_here(claim: Mapping[str, Any]) -> dict[str, Any]:
    """Date, commit, release, processor, and digest of the code."""
    commit = subprocess.run(["git", "rev-parse", "--short=8", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    changed = subprocess.run(["git", "diff", "--quiet", "HEAD", "--", "*.py"], cwd=ROOT).returncode
    return {
        "date": time.strftime("%Y-%m-%d"),
        "commit": commit.stdout.strip() + " and changes" * bool(changed),
        "release": __version__,
        "code": digest(claim),
        "processor": processor(),
    }


def processor() -> str:
    """Name of the processor, and how many cores there are."""
    file = Path("/proc/cpuinfo")
    names = re.findall(r"model name\s*: (.*)", file.read_text()) if file.exists() else []
    return f"{names[0] if names else os.uname().machine}, {os.cpu_count()} cores"


def wait_for_quiet(seconds: float = QUIET_SECONDS) -> None:
    """Wait until other programs let the machine alone, or for so long."""
    until = time.monotonic() + seconds
    while time.monotonic() < until and psutil.cpu_percent(2.0) / 100 * (os.cpu_count() or 1) > QUIET_CORES:
        pass


def _busy() -> float:
    """CPU seconds of all programs since the machine started."""
    times = psutil.cpu_times()
    return sum(times) - times.idle - getattr(times, "iowait", 0.0)


def _own() -> float:
    """CPU seconds of this process and of those that it started and that ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


# -- the table -------------------------------------------------------------------------------------


def number(value: float) -> str:
    return f"{value:,}"


def said(figure: Mapping[str, Any]) -> str:
    """A figure in words, such as ``a million tasks 1.7 s (1.6 to 1.9; at most 2)``."""
    unit = f" {figure['unit']}" if "unit" in figure else ""
    of = f" of {number(figure['of'])}" if "of" in figure else ""
    beside = [" to ".join(map(number, figure["spread"]))] if "spread" in figure else []
    beside += [f"at {goal} {number(figure[f'at_{goal}'])}" for goal in ("most", "least") if f"at_{goal}" in figure]
    text = f"{number(figure['value'])}{of}{unit}" + (f" ({'; '.join(beside)})" if beside else "")
    return f"{figure['figure']} **{text}: missed**" if figure.get("holds") is False else f"{figure['figure']} {text}"


def machines(claims: Claims) -> list[str]:
    """Processors of the last runs; the table has their positions."""
    return sorted({claim["last"]["processor"] for claim in claims.values() if "last" in claim})


def table(claims: Claims) -> str:
    """The table in Markdown, and the machines."""
    known = machines(claims)
    rows = ["| name | claim | command | last figures | minutes |", "| --- | --- | --- | --- | --- |"]
    for name in sorted(claims):
        claim, parts = claims[name], []
        if "failed" in claim:
            why, date, commit = (claim["failed"][key] for key in ("why", "date", "commit"))
            parts.append(f"**failed on {date} at `{commit}`: {why}**")
        if "last" in claim:
            last = claim["last"]
            beside = f", beside {last['others']} cores of others" if last["others"] > QUIET_CORES else ""
            where = f"machine {known.index(last['processor']) + 1}{beside}"
            result = f"**{last['result']}**" if last["result"] == "missed" else last["result"]
            figures = "; ".join(map(said, last["figures"]))
            parts.append(f"{result}, {last['date']}, `{last['commit']}`, {where}: {figures}")
        else:
            parts.append("not run yet")
        parts += [f"Earlier: {claim['remark']}"] if "remark" in claim else []
        parts += [", ".join(f"[{page}](../docs/{page}.md)" for page in claim.get("pages", []))]
        needs = [*claim.get("needs", []), *(f"`${name}`" for name in VARIABLE.findall(claim["command"]))]
        needs = [need for need in needs if need != "`$OUT`"]
        command = f"`{claim['command']}`" + (f" (needs {', '.join(needs)})" if needs else "")
        row = [f"`{name}`", claim["claim"], command, ". ".join(filter(None, parts)), f"{claim['minutes']:g}"]
        rows.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |")
    counts = dict.fromkeys(("holds", "missed", "measured"), 0)
    for claim in claims.values():
        if "last" in claim:
            counts[claim["last"]["result"]] += 1
    summary = f"Of {len(claims)} claims, {counts['holds']} hold, {counts['missed']} are missed, {counts['measured']}"
    summary += f" have no goal, and {len(claims) - sum(counts.values())} were not run yet."
    listed = [f"{position}. {name}" for position, name in enumerate(known, 1)]
    return "\n".join([summary, "", *rows, "", "Machines:", "", *listed])


# -- quotes ----------------------------------------------------------------------------------------


class UnknownFigureError(KeyError):
    """A page quotes a figure that no claim has."""


def pages(root: Path = ROOT) -> list[Path]:
    """Files that may quote figures."""
    return [root / "README.md", *sorted((root / "docs").rglob("*.md"))]


def quoted(text: str, claims: Claims) -> str:
    """A page with the figures that claims have now."""

    def replaced(found: re.Match[str]) -> str:
        by_name = {one["figure"]: one for one in claims.get(found["claim"], {}).get("last", {}).get("figures", [])}
        if found["figure"] not in by_name:
            raise UnknownFigureError(f"{found['claim']}: {found['figure']}")
        figure, end = by_name[found["figure"]], found["end"]
        low, high = figure.get("spread", (None, None))
        value = {None: figure["value"], ", least": low, ", most": high, ", of": figure.get("of")}[end]
        if value is None:
            raise UnknownFigureError(f"{found['claim']}: {found['figure']}{end}")
        return f"{number(value)}{found[0].removeprefix(found['text'])}"

    return QUOTE.sub(replaced, text)


def releases(changelog: str) -> list[str]:
    """Releases, the newest first."""
    return re.findall(r"^## (\S+?),? ", changelog, re.MULTILINE)


def stale(claim: Mapping[str, Any], known: Sequence[str], root: Path = ROOT) -> bool:
    """True if a claim's figures are of more than a release ago, and its code has changed since."""
    last = claim["last"]
    age = known.index(last["release"]) if last["release"] in known else len(known)
    return age > 1 and last["code"] != digest(claim, root)


def write_table(claims: Claims) -> None:
    """Write the file and the table."""
    write(claims)
    text = TABLE.read_text(encoding="utf-8")
    before, after = text.partition(BEGIN)[0], text.partition(END)[2]
    TABLE.write_text(f"{before}{BEGIN}\n{table(claims)}\n{END}{after}", encoding="utf-8")


def write_pages(claims: Claims) -> None:
    """Write what pages quote."""
    for page in pages():
        text = page.read_text(encoding="utf-8")
        if (new := quoted(text, claims)) != text:
            page.write_text(new, encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    claims = read()
    parser.add_argument("names", nargs="*", metavar="NAME", help="claims; without any, all")
    parser.add_argument("--list", action="store_true", help="say what would be run and skipped, and run nothing")
    parser.add_argument("--write", action="store_true", help="only write the table and the pages anew")
    options = parser.parse_args()
    if unknown := [name for name in options.names if name not in claims]:
        parser.error(f"unknown: {', '.join(unknown)}")
    said_of: dict[str, str] = {}
    for name in [] if options.write else in_order(claims, options.names or [*claims]):
        if lacking := missing(claims[name]):
            said_of[name] = f"skipped: there is no {', '.join(lacking)}"
        elif options.list:
            said_of[name] = f"to be run, {claims[name]['minutes']:g} minutes"
        else:
            print(f"== {name}: {claims[name]['command']}", flush=True)
            about = about_here(claims[name])
            found, why, how = run(claims[name])
            claims = read()
            said_of[name] = taken(claims[name], found, why, about | how)
            write_table(claims)
    if options.write:
        write_table(claims)
    if not options.list:
        write_pages(claims)
    print(*(f"{name}: {what}" for name, what in said_of.items()), sep="\n")
    return int(any(what.startswith(("missed", "failed")) for what in said_of.values()))


if __name__ == "__main__":
    sys.exit(main())
