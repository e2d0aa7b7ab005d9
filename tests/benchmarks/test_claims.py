"""``benchmarks/claims.py`` keeps what claims gave, and pages quote only figures that are there and not too old."""

import json
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from benchmarks import claims
from benchmarks.claims import Claims, UnknownFigureError
from benchmarks.figures import figure

CLAIMS = claims.read()
#: They import it at once.
NEED_TORCH = {"benchmarks.studies.rivals", "benchmarks.studies.minder"}
RELEASES = claims.releases((claims.ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))


def claim(code: str, **other: Any) -> dict[str, Any]:
    """A claim whose command runs this code."""
    return {"claim": "None", "command": f"{sys.executable} -c '{code}'", "minutes": 1, **other}


ABOUT = {
    "date": "2026-12-01",
    "commit": "abc",
    "release": "0.1.0",
    "code": "f00",
    "processor": "X, 2 cores",
    "seconds": 3,
    "others": 0.0,
}


def made(**figures: Any) -> Claims:
    """One claim, `path`, with one figure, `a million`."""
    one = {"figure": "a million", "value": 1.7, "spread": [1.6, 1_900], "unit": "s", "at_most": 2, "holds": True}
    last = {"result": "holds", **ABOUT, "figures": [one | figures]}
    return {"path": {"claim": "It is quick", "command": "python -m benchmarks.path", "minutes": 1, "last": last}}


# -- figures ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("goal", "holds"),
    [({"at_most": 2}, True), ({"at_most": 1.99}, False), ({"at_least": 2}, True), ({"at_least": 2.01}, False)],
)
def test_a_figure_is_the_median_with_its_spread_and_reaches_its_goal_or_misses_it(capsys, goal, holds):
    assert figure("a task", [3.0, 1.234, 2.0], "us", **goal) is holds
    printed = json.loads(capsys.readouterr().out)
    assert printed == {"figure": "a task", "value": 2, "spread": [1.2, 3], "unit": "us", **goal, "holds": holds}


def test_a_goal_is_judged_before_the_figure_is_rounded(capsys):
    assert not figure("a task", 2.04, at_most=2)
    assert json.loads(capsys.readouterr().out) == {"figure": "a task", "value": 2.0, "at_most": 2, "holds": False}


def test_a_count_keeps_all_digits_and_a_figure_without_a_goal_has_no_verdict(capsys):
    assert figure("events", 1_234, of=2_000)
    assert json.loads(capsys.readouterr().out) == {"figure": "events", "value": 1234, "of": 2000}


# -- running ---------------------------------------------------------------------------------------


@pytest.fixture
def run_here(monkeypatch):
    monkeypatch.setattr(claims, "wait_for_quiet", lambda: None)
    return claims.run


PRINTS = 'from benchmarks.figures import figure; import sys; print(1); figure("a", 3, at_most={most}); sys.exit({code})'


@pytest.mark.parametrize(
    ("most", "code", "said"),
    [(3, 0, "holds"), (2, 1, "missed"), (2, 0, "missed"), (None, 0, "measured"), (3, 5, "failed: exit code 5, after")],
)
def test_a_run_holds_is_missed_or_failed(run_here, most, code, said):
    found, why, how = run_here(claim(PRINTS.format(most=most, code=code)))
    assert [one["value"] for one in found] == [3]
    assert claims.result(found, why).startswith(said)
    assert how["others"] >= 0


def test_what_prints_no_figure_has_failed(run_here):
    found, why, _ = run_here(claim("print(4)"))
    assert claims.result(found, why) == "failed: no figure was printed"
    found, why, _ = run_here(claim("raise ValueError"))
    assert claims.result(found, why) == "failed: exit code 1, after ''"


def test_what_takes_too_long_is_ended(run_here, monkeypatch):
    monkeypatch.setattr(claims, "LEAST_MINUTES", 1 / 60)
    found, why, _ = run_here(
        claim(
            "import time; time.sleep(600)",
        )
        | {"minutes": 0}
    )
    assert claims.result(found, why) == "failed: it took too long"


def test_figures_stay_where_a_later_run_fails_and_go_on_with_one_that_does_not():
    (one,) = made().values()
    before = one["last"]
    assert claims.taken(one, [], "exit code 1", ABOUT).startswith("failed")
    assert one["last"] == before
    assert one["failed"]["why"] == "exit code 1"
    claims.taken(one, [{"figure": "a million", "value": 3, "holds": False}], "exit code 1", ABOUT)
    assert "failed" not in one
    assert one["last"]["result"] == "missed"


def test_a_claim_takes_as_long_as_it_last_took():
    (one,) = made().values()
    claims.taken(one, [{"figure": "a million", "value": 3}], "", ABOUT | {"seconds": 437})
    assert one["minutes"] == 7
    claims.taken(one, [], "it took too long", ABOUT | {"seconds": 4_000})
    assert one["minutes"] == 7


def test_a_claim_that_cannot_run_here_says_what_is_missing(monkeypatch):
    monkeypatch.delenv("NO_SUCH_DATA", raising=False)
    one = {"command": "python -m benchmarks.x $NO_SUCH_DATA $OUT", "needs": ["json", "no-such-program"]}
    assert claims.missing(one) == ["no-such-program", "$NO_SUCH_DATA"]


def test_the_shortest_claim_is_first():
    some: Claims = {"a": {"minutes": 3}, "b": {"minutes": 1}, "c": {"minutes": 2}}
    assert claims.in_order(some, ["a", "c", "b"]) == ["b", "c", "a"]


# -- the table and the pages -----------------------------------------------------------------------


def test_the_table_says_what_was_missed_and_what_failed():
    assert "holds, 2026-12-01, `abc`, machine 1: a million 1.7 s (1.6 to 1,900; at most 2)" in claims.table(made())
    missed = made(holds=False)
    missed["path"]["last"]["result"] = "missed"
    missed["path"]["failed"] = {"why": "exit code 1", **ABOUT}
    table = claims.table(missed)
    assert "**missed**, 2026-12-01" in table
    assert "a million **1.7 s (1.6 to 1,900; at most 2): missed**" in table
    assert "**failed on 2026-12-01 at `abc`: exit code 1**" in table
    assert table.startswith("Of 1 claims, 0 hold, 1 are missed, 0 have no goal, and 0 were not run yet.")


def test_a_quote_is_brought_up_to_date():
    text = "takes {}<!-- path: a million --> s ({}<!-- path: a million, least --> to {}<!-- path: a million, most -->)."
    assert claims.quoted(text.format("2.5", "1", "2"), made()) == text.format("1.7", "1.6", "1,900")
    assert claims.quoted("of 1<!-- path: a million, of -->", made(of=36)) == "of 36<!-- path: a million, of -->"


@pytest.mark.parametrize("name", ["path: a billion", "paths: a million", "path: a million, of"])
def test_a_quote_of_a_figure_that_is_not_there_is_refused(name):
    with pytest.raises(UnknownFigureError, match=name):
        claims.quoted(f"takes 2.5<!-- {name} --> s", made())


def test_figures_are_stale_where_code_has_changed_since_a_release_before_the_last(tmp_path: Path):
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "path.py").write_text("1")
    (one,) = made().values()
    one["code"] = []
    one["last"]["code"] = claims.digest(one, tmp_path)
    assert not claims.stale(one, ["0.3.0", "0.2.0", "0.1.0"], tmp_path)
    (tmp_path / "benchmarks" / "path.py").write_text("2")
    assert claims.stale(one, ["0.3.0", "0.2.0", "0.1.0"], tmp_path)
    assert claims.stale(one, ["0.3.0", "0.2.0"], tmp_path)
    assert not claims.stale(one, ["0.2.0", "0.1.0"], tmp_path)
    assert not claims.stale(one, ["0.1.0"], tmp_path)


def test_releases_are_the_headings_of_the_changelog():
    assert claims.releases("# Changelog\n\n## 0.2.0, unreleased\n\n## 0.1.0 (2026-12-24)\n") == ["0.2.0", "0.1.0"]
    assert RELEASES[0] == claims.__version__


@pytest.mark.parametrize("page", claims.pages(), ids=lambda page: page.name)
def test_a_page_quotes_figures_as_they_are_and_none_that_is_too_old(page: Path):
    text = page.read_text(encoding="utf-8")
    assert claims.quoted(text, CLAIMS) == text
    assert {
        found["claim"] for found in claims.QUOTE.finditer(text) if claims.stale(CLAIMS[found["claim"]], RELEASES)
    } == set()
    assert len(re.findall("<!-- ", text)) == len(claims.QUOTE.findall(text))


def test_the_table_is_that_of_the_file():
    assert claims.table(CLAIMS) in claims.TABLE.read_text(encoding="utf-8")


def test_each_claim_names_a_module_and_code_and_pages_that_there_are():
    for name, one in CLAIMS.items():
        assert {*one} <= {"claim", "command", "minutes", "needs", "code", "pages", "remark", "last", "failed"}, name
        files = claims.code_of(one)
        assert files, name
        assert all(file.exists() for file in files), name
        assert all((claims.ROOT / "docs" / f"{page}.md").exists() for page in one.get("pages", [])), name


def test_the_benchmark_of_each_claim_can_be_imported():
    """In one process of its own: what moves within the package is seen here, and not in the night."""
    modules = sorted({f"benchmarks.{claims.module_of(one).replace('/', '.')}" for one in CLAIMS.values()})
    here = [module for module in modules if find_spec("torch") or module not in NEED_TORCH]
    done = subprocess.run(
        [sys.executable, "-c", f"import {', '.join(here)}"], cwd=claims.ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
