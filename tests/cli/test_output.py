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


@pytest.mark.parametrize(
    ("what", "code", "stdout", "stderr"),
    [
        ("done", 0, "4 sheep\n", ""),
        ("nothing", 130, "", "Ctrl-C: stopped while counting: 4 of 9 sheep\n"),
        ("partial", 130, "4 sheep\n", "Ctrl-C: stopped after 4 of 9 sheep\n"),
        ("judged", 130, "4 sheep\n", "Ctrl-C: stopped after 4 of 9 sheep\n"),
        ("error", 130, "4 sheep\n", "Ctrl-C: stopped after 4 of 9 sheep\nError: no room for them\n"),
    ],
)
def test_ctrl_c_is_130_with_the_result_and_the_progress_so_far(what: str, code: int, stdout: str, stderr: str) -> None:
    result = asked(what)
    assert (result.exit_code, result.stdout, result.stderr) == (code, stdout, stderr)
