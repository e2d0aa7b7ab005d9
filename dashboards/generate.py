"""Writes the Grafana dashboards: ``python -m dashboards.generate`` in the repository's root."""

from __future__ import annotations

from pathlib import Path

from dashboards.generator.boards import BOARDS, to_json

FOLDER = Path(__file__).parent / "grafana"


def files() -> dict[Path, str]:
    """What each file should hold."""
    return {FOLDER / f"{board.uid}.json": to_json(board) for board in BOARDS}


def main() -> None:
    """Write every dashboard, and say which changed."""
    for path, text in files().items():
        changed = not path.exists() or path.read_text() != text
        path.write_text(text)
        print(f"{path.relative_to(FOLDER.parent.parent)}: {'written' if changed else 'as it was'}")


if __name__ == "__main__":
    main()
