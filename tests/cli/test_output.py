from __future__ import annotations

import warnings

import click
import pytest
from click.testing import CliRunner, Result

from dask_efficiency.cli.output import stoppable
from dask_efficiency.show.progress import StoppedWarning, progress


def asked(what: str) -> Result:
    @click.command()
    def command() -> None:
        with stoppable(), progress("counting", unit="sheep", of=9) as report:
            report(4)
            if what == "nothing":
                raise KeyboardInterrupt
            warnings.warn("another", UserWarning, stacklevel=1)
            if what != "done":
                warnings.warn("stopped after 4 of 9 sheep", StoppedWarning, stacklevel=1)
            click.echo("4 sheep")
            if what == "error":
                raise click.ClickException("no room for them")
            if what == "judged":
                raise SystemExit(1)

    with pytest.warns(UserWarning, match="another") if what != "nothing" else warnings.catch_warnings():
        return CliRunner().invoke(command)


def test_ctrl_c_is_130_with_the_progress_so_far() -> None:
    result = asked("nothing")
    assert (result.exit_code, result.stdout) == (130, "")
    assert result.stderr == "Ctrl-C: stopped while counting: 4 of 9 sheep\n"


@pytest.mark.parametrize("what", ["partial", "judged"])
def test_the_result_so_far_is_printed_and_130_marks_it_as_incomplete(what: str) -> None:
    result = asked(what)
    assert (result.exit_code, result.stdout) == (130, "4 sheep\n")
    assert result.stderr == "Ctrl-C: stopped after 4 of 9 sheep\n"


def test_an_error_after_ctrl_c_is_printed() -> None:
    result = asked("error")
    assert result.exit_code == 130
    assert result.stderr.endswith("Error: no room for them\n")


def test_a_command_that_is_not_stopped_ends_well() -> None:
    assert (asked("done").exit_code, asked("done").stderr) == (0, "")
