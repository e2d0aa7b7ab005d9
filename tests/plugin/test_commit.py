import shutil
import subprocess
from pathlib import Path

import pytest

from dask_efficiency.plugin.commit import commit_of

HASH = "0123456789abcdef0123456789abcdef01234567"


def repository(folder: Path, head: str = HASH) -> Path:
    git = folder / ".git"
    git.mkdir(parents=True)
    (git / "HEAD").write_text(f"{head}\n")
    return git


def test_a_commit_is_found_from_folders_below(tmp_path: Path) -> None:
    repository(tmp_path)
    (tmp_path / "a" / "b").mkdir(parents=True)
    assert commit_of(str(tmp_path / "a" / "b")) == HASH


def test_a_branch_is_followed_loose_or_packed(tmp_path: Path) -> None:
    git = repository(tmp_path, "ref: refs/heads/main")
    (git / "packed-refs").write_text(f"# pack-refs with: peeled\n{'f' * 40} refs/heads/other\n{HASH} refs/heads/main\n")
    assert commit_of(str(tmp_path)) == HASH
    (git / "refs" / "heads").mkdir(parents=True)
    (git / "refs" / "heads" / "main").write_text(f"{'a' * 40}\n")
    assert commit_of(str(tmp_path)) == "a" * 40


def test_a_folder_outside_of_git_has_none_and_the_next_is_asked(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    repository(tmp_path / "in")
    # the tests may lie in a repository themselves
    outside = commit_of(str(tmp_path / "out"))
    assert commit_of(str(tmp_path / "out"), str(tmp_path / "in")) == (outside or HASH)


@pytest.mark.parametrize("head", ["", "ref: refs/heads/nowhere", "x" * 40, "ref: ../../secret"])
def test_a_repository_without_a_commit_is_passed_over(tmp_path: Path, head: str) -> None:
    repository(tmp_path / "outer")
    git = repository(tmp_path / "outer" / "inner", head)
    (git.parent.parent / "secret").write_text("no hash")
    assert commit_of(str(tmp_path / "outer" / "inner")) == HASH


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_it_is_what_git_says_in_a_worktree_too(tmp_path: Path) -> None:
    def git(*words: str, cwd: Path = tmp_path / "main") -> str:
        identity = ("-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false")
        return subprocess.run(["git", *identity, *words], cwd=cwd, check=True, capture_output=True, text=True).stdout

    (tmp_path / "main").mkdir()
    git("init", "-q")
    git("commit", "-q", "--allow-empty", "-m", "first")
    git("worktree", "add", "-q", str(tmp_path / "other"), "-b", "other")
    git("commit", "-q", "--allow-empty", "-m", "second", cwd=tmp_path / "other")
    for folder in (tmp_path / "main", tmp_path / "other"):
        assert commit_of(str(folder)) == git("rev-parse", "HEAD", cwd=folder).strip()
