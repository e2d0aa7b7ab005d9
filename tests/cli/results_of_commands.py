"""What tests of the command line look at."""

from click.testing import Result


def fails_in_one_line(result: Result) -> str:
    """The line with which a command failed; before it there is at most the one on what it connects to."""
    assert (result.exit_code, result.stdout) == (1, "")
    *before, error = result.stderr.splitlines()
    assert error.startswith("Error: ")
    assert all(line.startswith("connecting to ") for line in before)
    assert len(before) <= 1
    return error
