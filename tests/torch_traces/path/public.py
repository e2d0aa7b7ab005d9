"""Small traces after public ones; ``tests/data/kineto/public/README.md`` says what each is of."""

from pathlib import Path

from dask_efficiency.torch_traces import TorchCriticalPath, load_kineto
from dask_efficiency.torch_traces import critical_path as torch_critical_path

FOLDER = Path(__file__).parents[2] / "data" / "kineto" / "public"
#: An execution trace is none of its own.
NAMES = sorted(path.stem for path in FOLDER.glob("*.json") if "execution" not in path.name)


def path_of(*names: str) -> TorchCriticalPath:
    return torch_critical_path(load_kineto([FOLDER / f"{name}.json" for name in names]))


def shares(path: TorchCriticalPath) -> dict[str, float]:
    """Percent of the window by kind."""
    return {kind: 100 * seconds / path.window_seconds for kind, seconds in path.seconds().items()}


def kinds_of_findings(path: TorchCriticalPath) -> list[str]:
    return [one.kind for one in path.findings]
