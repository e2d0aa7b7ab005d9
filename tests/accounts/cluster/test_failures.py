"""Errors in a line, as they are counted."""

import pytest

from dask_efficiency.accounts.cluster.failures import MAX_ERROR, error_text


class Odd(Exception):
    def __str__(self) -> str:
        return str(self.args[1])  # there is none


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("no such file"), "ValueError: no such file"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (Odd("a"), "Odd: (Odd)"),
        (ValueError("\udcff"), "ValueError: \\udcff"),
        (SystemExit(3), ""),
        (None, ""),
    ],
)
def test_any_error_is_a_line_that_may_travel(error: BaseException | None, text: str) -> None:
    assert error_text(error) == text
    assert len(error_text(ValueError("x" * 1_000))) == MAX_ERROR
