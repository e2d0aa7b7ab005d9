"""Every title and cure of every kind of finding, of core and wings, in one text that an editor can go through."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from dask_efficiency.preflights.judge.result import PATHS
from dask_efficiency.report.kinds import BESIDE, KINDS, FindingKind
from dask_efficiency.runs.path import findings as path
from dask_efficiency.simulation.sections import ladder
from dask_efficiency.straggler.causes import MEANINGS
from dask_efficiency.straggler.wording import LONG_TASK
from dask_efficiency.torch_traces.path import findings as torch_path
from dask_efficiency.torch_traces.summaries import findings as torch_summary


def test_the_titles_and_cures_are_these() -> None:
    """An editor's copy: whoever changes a word changes it here, and reads the others."""
    golden = (Path(__file__).parent / "findings.txt").read_text()
    assert _golden() == golden


def _golden() -> str:
    titles = path.TITLES | torch_path.TITLES | torch_summary.TITLES | {torch_summary.LATE_RANK: torch_summary.LATE}
    rows = [(kind, *texts) for kind, texts in titles.items()]
    rows += [*(("slow-rank", *texts) for texts in torch_path.SLOW_RANKS.values()), *ladder.FINDINGS.values()]
    rows += [(f"slow-worker, slow-host ({cause})", meaning.words, meaning.look) for cause, meaning in MEANINGS.items()]
    rows += [(kind, *texts) for kind, texts in {"long-task": LONG_TASK, **PATHS}.items()]
    paths = [f"{kind}: {title}\n  {advice}".rstrip() + "\n" for kind, title, advice in rows]
    better = [f"torch, {where}:\n  {advice}\n" for where, advice in torch_path.BETTER.items()]
    return "\n".join([*_written(KINDS), *_written(BESIDE), *paths, *better])


def _written(kinds: Mapping[str, FindingKind]) -> list[str]:
    return [
        "\n  ".join((f"{name}: {kind.title}", kind.advice, *(f"or: {words}" for _, words in kind.cures))) + "\n"
        for name, kind in kinds.items()
    ]
