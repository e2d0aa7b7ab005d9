"""A loop whose computations each need the one before is known by the text of the program, and no other one is."""

from __future__ import annotations

from textwrap import dedent

import pytest

from dask_efficiency.report.loops import needs_last


def at_the_mark(program: str) -> bool:
    """Ask of the line with a comment."""
    lines = dedent(program).splitlines()
    return needs_last("\n".join(lines), next(i for i, line in enumerate(lines, 1) if line.endswith("# here")))


@pytest.mark.parametrize(
    "program",
    [
        """
        for i in range(40):
            w = w - step * grad(X, w).compute()  # here
        """,
        """
        def fit(X, w):
            while error > 1e-3:
                gradient, error = dask.compute(grad(X, w), loss(X, w))  # here
                if i % 10 == 0:
                    print(error)
                w -= step * gradient
        """,
        """
        async def fit(self, client):
            for batch in self.batches:
                future = client.submit(step, self.model, batch)  # here
                loss, change = await future
                with lock:
                    for layer in change:
                        self.model = self.model + layer
        """,
        """
        for i in range(9):
            centres = kept
            near = (
                distances(points, centres)
                .argmin(axis=1)
                .compute()  # here
            )
            try:
                means = [points[near == k].mean() for k in range(3)]
            except ValueError:
                means = centres
            kept[:] = means
        """,
        """
        while (value := step(x).compute()) > 1:  # here
            x = other(value)
        """,
        """
        for i in range(9):
            done.append(client.submit(f, done[-1]).result())  # here
        """,
        """
        for i in range(9):
            match kind:
                case "a":
                    x = f(x).persist()  # here
                case _:
                    pass
        """,
        """
        for x.y in [1, 2]:
            if x:
                state = r
            else:
                state = 0
            r: float = f(state).compute()  # here
        """,
    ],
)
def test_a_computation_from_what_the_one_before_gave_needs_it(program: str) -> None:
    assert at_the_mark(program)


@pytest.mark.parametrize(
    "program",
    [
        """
        for i in range(40):
            found.append((X @ (w + i)).sum().compute())  # here
        """,
        """
        for path in paths:
            total = total + dd.read_csv(path).x.sum().compute()  # here
            count += 1
            print(path, total)
        """,
        """
        for i in range(40):
            w = start(i)
            w = w - step * grad(X, w).compute()  # here
        """,
        """
        for i in range(40):
            low, size = x[i:i + 9].min().compute(), size + 1  # here
            lows = np.append(lows, low)
            part = np.zeros(size)
            (part + da.ones(size)).sum()
        """,
        """
        for epoch in range(9):
            for batch in batches:
                gradients.append(grad(batch, w).compute())  # here
            w = w - sum(gradients)
        """,
        """
        for i in range(9):
            def step(w):
                w = w - grad(w).compute()  # here
                return w
            w = step(w)
        """,
        """
        for i in range(9):
            x = i
        else:
            x = f(x).compute()  # here
        """,
        """
        w = w - grad(w).compute()  # here
        """,
        """
        for i in range(9):
            if i:
                r = f(i).compute()  # here
                x = r
            x = 0
            for j in range(3):
                f(x).compute()
        """,
        """
        for i in range(9): x = !magic  # here
        """,
    ],
)
def test_others_may_be_asked_for_at_once_as_far_as_the_text_tells(program: str) -> None:
    assert not at_the_mark(program)
