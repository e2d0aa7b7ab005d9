from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from dask_efficiency.cli import main
from dask_efficiency.cli.options import Connection
from dask_efficiency.fleet import assembly, cli
from dask_efficiency.fleet.minder import train
from dask_efficiency.fleet.minder.detector import Minder, load_minder
from tests.fleet.minder.test_network import random_autoencoder
from tests.fleet.prometheus.answering import Answer, answering

START = 1_700_000_000

FILE = """step: 10s
metrics:
  heat:
    query: heat
    worse: more
    cause: gpu
"""


def run(*arguments: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(main, ["fleet", *map(str, arguments)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
    return result.exit_code, result.stdout, result.stderr


def machines(path: str, body: bytes) -> Answer:
    """Eight machines, of which m3 is hot from a time on."""
    form = {name: float(parse_qs(body.decode())[name][0]) for name in ("start", "end")}
    at = np.arange(form["start"], form["end"] + 1, 10)
    result = []
    for machine in range(8):
        noise = np.random.default_rng(machine).normal(60, 1, 10_000)[((at - START) // 10).astype(int) % 10_000]
        hot = (machine == 3) & (at >= START + 5400) & (at < START + 7200)
        values = [[t, f"{value:.4f}"] for t, value in zip(at.tolist(), noise + 25 * hot, strict=True)]
        result.append({"metric": {"instance": f"m{machine}", "job": "x"}, "values": values})
    return 200, json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}}).encode()


@pytest.fixture
def metrics(tmp_path: Path) -> Path:
    path = tmp_path / "metrics.yaml"
    path.write_text(FILE)
    return path


def test_a_replay_shows_one_line_when_a_finding_begins_and_one_when_it_ended(metrics: Path) -> None:
    with answering(machines) as server:
        (metrics.parent / "watch.yaml").write_text("history: 30m")
        given = ("watch", server.url, "--metrics", metrics, "--settings", metrics.parent / "watch.yaml")
        code, out, err = run(*given, "--between", START + 3600, START + 10_800)
        assert (code, err) == (0, "")
        begins, ends = out.splitlines()
        assert "begins m3: Slow worker, its GPU is slow; heat" in begins
        assert "ends   m3: Slow worker, its GPU is slow; since" in ends
        code, out, _ = run(*given, "--between", START + 3600, START + 6300, "--json", "--fail")
        assert run(*given, "--between", START + 1800, START + 5000, "--fail") == (0, "", "")
    assert code == 1
    assert [json.loads(line)["slow_worker"]["worker"] for line in out.splitlines()] == ["m3"]


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [
        ("watch", "Missing argument 'SOURCE'"),
        ("watch http://x", "a Prometheus is asked for --metrics FILE"),
        ("watch host:1 --between 1 2", "--between is for a Prometheus; a scheduler has no past"),
        ("watch http://x --metrics node --once --between 1 2", "--once is now"),
        ("watch http://x --metrics node --between 5 4", "4 is earlier than 5"),
        ("watch http://x --metrics node --fail", "--fail is for --once and --between"),
        ("watch http://x --metrics node --retire", "--retire is for the workers of a scheduler"),
        ("watch host:1 --once --retire", "--retire is for a watch that goes on"),
        ("watch http://x --metrics node --between now 4", "'now' is not a time such as 2026-03-01T12:00:00Z"),
        ("train --save x.model", "Missing argument 'SOURCES...'"),
        ("train a.csv", "Missing option '--save'"),
        ("train http://x --metrics node --save x.model", "the URL of a Prometheus with --metrics and --between"),
        ("train a.csv http://x --metrics node --between 1 2 --save x.model", "expected files, or the URL of a Prom"),
        ("train http://x --metrics node --between 10 20 --save x.model", "expected a window of 900 s at least"),
    ],
)
def test_options_that_do_not_go_together_are_refused(arguments: str, wrong: str) -> None:
    code, _, err = run(*arguments.split())
    assert code == 2
    assert wrong in " ".join(err.split())


@pytest.mark.parametrize(
    ("arguments", "settings", "wrong"),
    [
        ("host:9090 --metrics node", "", "no URL of a Prometheus: expected http://"),
        ("http://x --metrics nod", "", "there is no file 'nod'"),
        (f"{__file__}", "", "is of no kind that is known here; expected a scheduler, or a Prometheus with --metrics"),
        ("http://x --metrics node", "window: 1m", "a window of 60 s has 4 samples, one in 15 s"),
        ("http://x --metrics node", "webhook: host", "watch.yaml, line 1: webhook: no URL of a webhook: expected h"),
        ("http://x --metrics node", "model: no.model", "no.model"),
        ("http://127.0.0.1:1 --metrics node --timeout 5s", "", "no Prometheus answers at http://127.0.0.1:1"),
    ],
)
def test_an_error_is_one_line(arguments, settings, wrong, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("dask_efficiency.fleet.prometheus.prometheus_query.BACKOFF_SECONDS", 0)
    (tmp_path / "watch.yaml").write_text(settings)
    given = ("watch", *arguments.split(), "--settings", tmp_path / "watch.yaml", "--once")
    code, _, err = run(*given)
    assert code == 1
    assert wrong in err
    assert len(err.splitlines()) == 1
    assert run(*given, "--fail")[0] == 2


def test_a_clock_that_is_set_back_delays_no_round_for_longer_than_usual(monkeypatch) -> None:
    clock, slept = [10_000.0], []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        clock[0] += seconds

    monkeypatch.setattr(cli, "time", SimpleNamespace(time=lambda: clock[0], sleep=sleep))
    rounds = cli._round_instants(None, False, 60.0)
    assert next(rounds) == 10_000
    clock[0] += 20  # for a round
    assert next(rounds) == 10_060
    clock[0] -= 3_600
    assert next(rounds) == 6_520
    assert slept == [40, 60]


def test_one_round_shows_if_any_machine_could_have_been_found(metrics: Path) -> None:
    with answering(machines) as server:
        given = ("watch", server.url, "--metrics", metrics, "--once", "--fail")
        code, out, err = run(*given)
        assert (code, out) == (0, "")
        assert err.endswith("nobody of 8 is unlike the others\n")
        (metrics.parent / "watch.yaml").write_text("window: 4m")
        code, out, err = run(*given, "--settings", metrics.parent / "watch.yaml")
        assert (code, out) == (2, "")
        assert "not judged yet: what was reported covers 2" in err


def test_a_watch_of_a_scheduler_asks_it_with_the_timeout_of_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dask_efficiency.cli.options.Connection.reply", lambda self, where, question: (where, question))
    source = assembly.scheduler_source("host:1", Connection(3.5))
    assert source.timeout_seconds == 3.5
    assert source.asking("question") == ("host:1", "question")  # type: ignore[arg-type]


def test_a_watch_that_nobody_reads_ends() -> None:
    rounds = iter([BrokenPipeError(), AssertionError("it went on")])

    def one(at: float) -> None:
        raise next(rounds)

    stub: Any = SimpleNamespace(round=one)
    with pytest.raises(BrokenPipeError):
        cli._watched(stub, iter([1.0, 2.0]), ends=False)


@pytest.mark.parametrize("error", [KeyError("wrong"), OSError("wrong"), ValueError("wrong"), MemoryError("wrong")])
def test_a_watch_that_goes_on_does_so_after_any_error_of_a_round(error: Exception, capsys) -> None:
    rounds: list[float] = []

    def one(at: float) -> list[Any]:
        rounds.append(at)
        if at == 2:
            raise error
        return []

    stub: Any = SimpleNamespace(round=one, unjudged="")
    assert cli._watched(stub, iter([1.0, 2.0, 3.0]), ends=False) == (False, True)
    assert rounds == [1, 2, 3]
    assert capsys.readouterr().err.count("wrong") == 1


def test_a_model_of_other_metrics_is_refused(metrics: Path, tmp_path: Path) -> None:
    model = tmp_path / "m.model"
    Minder({"cold": random_autoencoder()}).save(model)
    (tmp_path / "watch.yaml").write_text("model: m.model")
    code, _, err = run("watch", "http://x", "--metrics", metrics, "--once", "--settings", tmp_path / "watch.yaml")
    assert code == 1
    assert f"m.model was trained on 'cold', which {metrics} does not have; there is: 'heat'" in err


@pytest.mark.needs("torch")
def test_a_detector_is_trained_on_a_fleets_past_and_watches(metrics: Path, tmp_path: Path) -> None:
    model = tmp_path / "minder.model"
    with answering(machines) as server:
        asked = (server.url, "--metrics", metrics)
        period = ("--between", START, START + 5000)
        code, out, err = run("train", *asked, *period, "--windows", 3, "--steps", 5, "--save", model)
        assert (code, err) == (0, "")
        assert out == f"{model}: heat, of 3 runs or windows.\n"
        assert len(server.asked) == 3
        (tmp_path / "watch.yaml").write_text("model: minder.model")
        given = ("--between", START + 6300, START + 6300, "--settings", tmp_path / "watch.yaml")
        assert run("watch", *asked, *given)[0] == 0
    assert load_minder(model).metrics == ("heat",)


@pytest.mark.needs("torch")
def test_a_detector_is_trained_on_tables(tmp_path: Path) -> None:
    at = np.repeat(np.arange(0.0, 600.0, 10.0), 4)
    heat = np.random.default_rng(0).normal(60, 1, len(at))
    table = pd.DataFrame({"at": at, "worker": np.tile(list("abcd"), 60), "heat": heat})
    table.to_csv(tmp_path / "quiet.csv")  # with its index
    table.to_parquet(tmp_path / "quiet.parquet")
    model = tmp_path / "minder.model"
    code, _, err = run("train", tmp_path / "quiet.csv", tmp_path / "quiet.parquet", "--steps", 2, "--save", model)
    assert code == 0, err
    assert load_minder(model).metrics == ("heat",)


@pytest.mark.parametrize("before", [None, b"the old one"])
def test_ctrl_c_keeps_the_metrics_that_were_learnt_and_an_older_whole_detector(before, tmp_path, monkeypatch) -> None:
    """It is pressed while the second of three metrics is learnt."""
    monkeypatch.chdir(tmp_path)
    rows = {"at": np.repeat(np.arange(60.0), 4), "worker": np.tile(list("abcd"), 60)}
    noise = {name: np.random.default_rng(0).random(240) for name in ("cpu", "net", "disk")}
    pd.DataFrame({**rows, **noise}).to_csv("all-well.csv", index=False)
    learnt = []

    def fit(windows: Any, *, steps: int, seed: int, report: Any) -> Any:
        report(0.5)
        if learnt:
            raise KeyboardInterrupt
        learnt.append(windows)
        return random_autoencoder(seed=1)

    monkeypatch.setattr(train, "fit", fit)
    detector = Path("minder.model")
    if before is not None:
        detector.write_bytes(before)
    code, out, err = run("train", "all-well.csv", "--save", detector)
    assert code == 130
    assert err.startswith("Ctrl-C: stopped after 1 of 3 metrics\n")
    if before is None:
        assert out == "minder.model: cpu, of 1 runs or windows.\n"
        assert load_minder(detector).metrics == ("cpu",)
    else:
        assert "minder.model stays as it was; of the new detector only cpu was learnt" in err
        assert detector.read_bytes() == before


def test_a_table_of_metrics_is_judged_by_the_command_for_stragglers(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    at, random = np.arange(0.0, 900.0, 5.0), np.random.default_rng(0)
    table = pd.DataFrame({"at": np.repeat(at, 8), "worker": np.tile([f"w{i}" for i in range(8)], len(at))})
    table["load"] = random.normal(10, 0.5, len(table))
    table.to_csv("past.csv", index=False)
    table.loc[(table["worker"] == "w3") & (table["at"] > 300), "load"] += 8
    table.to_csv("now.csv", index=False)
    (tmp_path / "tasks.csv").write_text("worker,prefix,start,stop\nw3,p,0,1\n")

    def output(*arguments: str) -> str:
        return CliRunner().invoke(main, ["stragglers", *arguments]).output

    for options in ([], ["--history", "past.csv"]):
        shown = output("now.csv", *options).split()
        assert shown[shown.index("Worker") + 1] == "w3"
        assert shown[shown.index("readings") + 1 :][:3] == ["load", "18", "9.99"]
    assert "None of 8 workers is slow." in output("past.csv")
    assert "--history is no table of metrics" in output("now.csv", "--history", "tasks.csv")
    assert "this is one of metrics" in output("now.csv", "--factor", "2")
