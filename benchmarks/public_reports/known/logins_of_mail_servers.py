"""Failed logins are picked from the protocols of mail servers, with a regular expression, in a bag.

source: DigitalRuby/IPBan issue 87; of the same kind: Yelp/mrjob issue 388
date:   2020-04-01 (issue 388: 2012-03-07)
seen:   a search through 500 MB of protocols takes more than five hours, and less than two minutes with another pattern.
cause:  fields are matched by ".*?,", which may also run over commas: in a line without a match, all ways to divide the
        commas among the fields are tried, one after the other.
cure:   say what may not be in a field ("[^,]*,"), so that there is one way only.
"""

from __future__ import annotations

import re

import dask.bag as db
import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    HOLDS_GIL,
    LOCK,
    LONGER_TASKS,
    MORE_MEMORY,
    MORE_WORKERS,
    PROCESSES,
    TWO_BY_ONE,
    Expected,
    folder,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_ONE
SERVERS, LINES = 8, scaled(2_400)
#: As it was in the settings.
ANYTHING = re.compile(r".*?,.*?,.*?,.*?,(?P<address>.+?),(?P<user>.+?),.*?AuthFailed")  # <- here
#: Fields have no commas.
FIELDS = re.compile(r"[^,]*,[^,]*,[^,]*,[^,]*,(?P<address>[^,]+),(?P<user>[^,]+),.*?AuthFailed")

EXPECTED = Expected(
    cause="the regular expression goes back and tries again and again (backtracking), in lines that do not match",
    place="the pattern ANYTHING, or failed_login, which matches it",
    cure='fields that may not have a comma ("[^,]*,"), a test for the word before, or split the line at its commas',
    says=r"regular expressions?|\bregex(es|ps?|p)?\b|backtrack|lazy quantifier|ambiguous pattern",
    places=(*marked(__file__), function("failed_login"), function("ANYTHING")),
    cures=r"\[\^|negated|character class|specific|simpl|anchor|possessive|atomic|backtrack|\bsplit\b|\bcsv\b|substring"
    r"|str\.(split|find|partition)|(before|without|instead of) (the |a |matching|trying)|\btest\b|rewrite|tighten"
    r"|strict",
    never={
        HOLDS_GIL: "one thread a worker",
        PROCESSES: "they have one thread each",
        MORE_WORKERS: "both cores are busy",
        LONGER_TASKS: "tasks take seconds",
        MORE_MEMORY: "there is enough",
        COMPUTED_AGAIN: "each task runs once",
        LOCK: "there is none",
    },
)


def prepare() -> None:
    """Protocols, with a failed login now and then."""
    place = folder("logins_of_mail_servers")
    for server in range(SERVERS):
        rng = np.random.default_rng(server)
        sizes = rng.integers(100, 99_999, (LINES, 5))
        failed = rng.random(LINES) < 0.02
        hosts = rng.integers(1, 60, LINES)
        lines = [
            f"2020-04-01T{number % 24:02}:00:00Z,mx{server},in,{size[0]},10.0.0.{host},user{host},220,"
            f"{','.join(map(str, size))},{'AuthFailed' if fails else 'Ok'},closed\n"
            for number, (size, host, fails) in enumerate(zip(sizes, hosts, failed, strict=True))
        ]
        (place / f"mx{server}.log").write_text("".join(lines))


def failed_login(line: str, pattern: re.Pattern[str]) -> str:
    """Address and user of a failed login, or nothing."""
    found = pattern.match(line)  # <- here
    return f"{found['address']} {found['user']}" if found else ""


def weight(pattern: re.Pattern[str]) -> float:
    """How often which login failed, as a number."""
    protocols = db.read_text(str(folder("logins_of_mail_servers") / "*.log"))
    logins = protocols.map(failed_login, pattern=pattern).filter(bool)
    return float(sum(len(login) * count**2 for login, count in logins.frequencies().compute()))


def bad(client: Client) -> float:
    return weight(ANYTHING)


def good(client: Client) -> float:
    return weight(FIELDS)
