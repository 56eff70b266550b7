"""Killed at any moment, the next one goes on: no lock is in the way, nothing is lost or done twice (F03-F05)."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from phasegate.git import GitFailed
from phasegate.workspace.checkout_lifecycle import (
    RemovedCheckout,
    ensure_feature_branch,
    remove_checkout,
)
from phasegate.workspace.repository.merge import AlreadyMerged, PreparedMerge, prepare_merge
from phasegate.workspace.repository.ref_log import RefMove
from phasegate.workspace.repository.refs import move_refs
from phasegate.workspace.repository.repository import Repository
from phasegate.workspace.repository.repository_locks import repository_lock
from phasegate.workspace.repository.user_checkout import Obstacle
from support.git_project import (
    SLUG,
    US,
    branch_of,
    finish_merge,
    git,
    make_checkout,
    make_repository,
    saved_work,
    seen_in,
    show,
    take_over,
    write,
)

FEATURE = f"feat/{SLUG}"
WORKER = """
import sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from support.git_project import *
from phasegate.workspace.repository.merge import AlreadyMerged, PreparedMerge, prepare_merge
from phasegate.workspace.repository.repository import open_repository
from phasegate.workspace.checkout_lifecycle import remove_checkout
repository = open_repository(Path({root!r}))
print("begins", flush=True)
checkout = make_checkout(repository)
write(checkout.folder, {{"src/login.py": "done\\n", "src/new.py": "new\\n"}})
git(checkout.folder, "add", "-A")
if git(checkout.folder, "status", "--porcelain"):
    git(checkout.folder, "commit", "-qm", "WP01: done")
take_over(checkout, ["src/login.py", "src/new.py"])
for source, target in ((checkout.assignment.branch, "feat/" + SLUG), ("feat/" + SLUG, "main")):
    prepared = prepare_merge(repository, source, target, "Merge into " + target, US)
    if isinstance(prepared, PreparedMerge):
        done = finish_merge(repository, prepared)
        assert isinstance(done, AlreadyMerged), done
remove_checkout(checkout, US)
print("ends", flush=True)
"""


def _worker(repository: Repository) -> subprocess.Popen[str]:
    tests = str(Path(__file__).parents[1])
    code = WORKER.format(tests=tests, root=str(repository.root))
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )


def _killed_after(repository: Repository, delay_s: float) -> bool:
    worker = _worker(repository)
    assert worker.stdout is not None
    worker.stdout.readline()
    try:
        worker.wait(delay_s)
    except subprocess.TimeoutExpired:
        os.kill(worker.pid, signal.SIGKILL)
        worker.communicate()
        return True
    worker.communicate()
    return False


def _survives(repository: Repository, delays_s: list[float]) -> None:
    killed = [_killed_after(repository, delay_s) for delay_s in delays_s]
    last = _worker(repository)
    said, errors = last.communicate(timeout=300)
    assert said.endswith("ends\n"), (killed, errors)
    assert show(repository, "main", "src/new.py") == b"new\n"
    assert (repository.root / "src/new.py").read_text() == "new\n"
    assert git(repository.root, "status", "--porcelain") == ""
    for branch in ("main", FEATURE):
        merges = git(
            repository.root, "log", "--first-parent", "--merges", "--format=%s", branch
        ).splitlines()
        assert merges.count(f"Merge into {branch}") == 1
    log = git(repository.root, "log", "--format=%s", "main").splitlines()
    assert log.count("WP01: done") == 1
    assert [*(repository.root / ".worktrees").iterdir()] == []
    assert [*repository.git_dir.rglob("*.lock")] == []
    git(repository.root, "fsck", "--strict")


@pytest.mark.demand("W5.a", "W5.b", "W5.c")
@pytest.mark.parametrize("seed", range(3))
def test_a_run_that_is_killed_again_and_again_ends_as_if_it_had_not_been(
    tmp_path: Path, seed: int
) -> None:
    draw = random.Random(seed)
    _survives(make_repository(tmp_path / "project"), [draw.uniform(0.0, 0.6) for _ in range(4)])


@pytest.mark.long
@pytest.mark.demand("W5.a", "W5.b", "W5.c")
@pytest.mark.parametrize("seed", range(100, 125))
def test_a_run_that_is_killed_fifty_times_over_ends_well(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    _survives(make_repository(tmp_path / "project"), [draw.uniform(0.0, 1.0) for _ in range(6)])


def _die_with_locks(repository: Repository, *lock_files: Path) -> None:
    """A holder of the repository's lock that is killed after it announced lock files and made them."""
    code = f"""
import os, signal
from pathlib import Path
from phasegate.workspace.repository.repository_locks import repository_lock
from phasegate.workspace.repository.repository import open_repository
files = [Path(path) for path in {[str(path) for path in lock_files]!r}]
with repository_lock(open_repository(Path({str(repository.root)!r}))) as lock:
    lock.announce_lock_files(files)
    for path in files:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", code]).returncode == -signal.SIGKILL


@pytest.mark.demand("W5.a")
def test_locks_of_a_dead_holder_are_removed(tmp_path: Path) -> None:
    """The control: plain git refuses to work with each of them."""
    repository = make_repository(tmp_path / "project")
    ensure_feature_branch(repository, SLUG, "main")
    common = repository.common_dir
    locks = (
        common / f"refs/heads/{FEATURE}.lock",
        common / "HEAD.lock",
        common / "packed-refs.lock",
    )
    _die_with_locks(repository, *locks)
    plain = git(
        repository.root, "update-ref", f"refs/heads/{FEATURE}", "main~0", "main~0", check=False
    )
    assert plain == ""
    assert all(path.exists() for path in locks)
    main = git(repository.root, "rev-parse", "main").strip()
    new = git(repository.root, "commit-tree", "-p", main, "-m", "x", f"{main}^{{tree}}").strip()
    with repository_lock(repository) as lock:
        assert (
            move_refs(repository, lock, [RefMove(f"refs/heads/{FEATURE}", main, new)], "test")
            is None
        )
    assert not any(path.exists() for path in locks)


@pytest.mark.demand("W5.a")
def test_a_lock_whose_owner_may_be_alive_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = make_repository(tmp_path / "project")
    main = git(repository.root, "rev-parse", "main").strip()
    stranger = repository.common_dir / "refs/heads/other.lock"
    stranger.touch()
    monkeypatch.setattr(
        "phasegate.git._SAFE_CONFIG_OPTIONS",
        ("-c", "core.filesRefLockTimeout=50", "-c", "core.hooksPath=/dev/null"),
    )
    with repository_lock(repository) as lock, pytest.raises(GitFailed, match=r"other\.lock"):
        move_refs(repository, lock, [RefMove("refs/heads/other", None, main)], "test")
    assert stranger.exists()


@pytest.mark.demand("W5.a", "W8.h")
def test_a_dead_movers_index_lock_is_removed_and_a_strangers_is_not(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "project")
    git(repository.root, "checkout", "-q", "-b", FEATURE)
    git(repository.root, "commit", "-q", "--allow-empty", "-m", "x")
    git(repository.root, "checkout", "-q", "main")
    index_lock = repository.git_dir / "index.lock"
    index_lock.touch()
    prepared = prepare_merge(repository, FEATURE, "main", "Merge", US)
    assert isinstance(prepared, PreparedMerge)
    assert isinstance(finish_merge(repository, prepared), Obstacle)
    assert index_lock.exists()
    index_lock.unlink()
    _die_with_locks(repository, index_lock)
    assert isinstance(finish_merge(repository, prepared), AlreadyMerged)


@pytest.mark.demand("W5.a")
def test_the_lock_is_held_until_the_git_of_a_dead_holder_has_ended(tmp_path: Path) -> None:
    """Our process is killed while its git still works: nobody gets the lock before that git is gone."""
    repository = make_repository(tmp_path / "project")
    real = subprocess.run(
        ["which", "git"], capture_output=True, text=True, check=True
    ).stdout.strip()
    slow = tmp_path / "bin/git"
    pipe = tmp_path / "go"
    os.mkfifo(pipe)
    write(
        tmp_path, {"bin/git": f'#!/bin/sh\ncase "$*" in *update-ref*) read line < {pipe};; esac\n'}
    )
    slow.write_text(slow.read_text() + f'exec {real} "$@"\n')
    slow.chmod(0o755)
    main = git(repository.root, "rev-parse", "main").strip()
    environment = {**os.environ, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    move = f'move_refs(repository, lock, [RefMove("refs/heads/new", None, "{main}")], "test")'
    holder = _lock_user(repository, move, environment)
    while "update-ref" not in _children_of(holder.pid):
        assert holder.poll() is None
    os.kill(holder.pid, signal.SIGKILL)
    holder.communicate()
    waiter = _lock_user(repository, 'print("has it", flush=True)', {**os.environ})
    with pytest.raises(subprocess.TimeoutExpired):
        waiter.wait(0.5)
    pipe.write_text("go\n")
    assert waiter.communicate(timeout=60)[0] == "has it\n"


def _lock_user(
    repository: Repository, action: str, environment: dict[str, str]
) -> subprocess.Popen[str]:
    """A process that is about to take the lock of the repository, and to do something under it."""
    code = f"""
from pathlib import Path
from phasegate.workspace.repository.repository_locks import repository_lock
from phasegate.workspace.repository.ref_log import RefMove
from phasegate.workspace.repository.refs import move_refs
from phasegate.workspace.repository.repository import open_repository
repository = open_repository(Path({str(repository.root)!r}))
print("asks", flush=True)
with repository_lock(repository) as lock:
    {action}
"""
    user = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, env=environment, text=True
    )
    assert user.stdout is not None
    assert user.stdout.readline() == "asks\n"
    return user


def _children_of(pid: int) -> str:
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return " ".join(Path(f"/proc/{child}/cmdline").read_text() for child in children)
    except OSError:
        return ""


@pytest.mark.demand("D7.h")
def test_work_is_kept_when_a_commit_failed_and_the_checkout_is_cleaned_up(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "project")
    checkout = make_checkout(repository)
    write(checkout.folder, {"src/login.py": "hours of work\n", "src/more.py": "more\n"})
    write(checkout.folder, {".git/hooks/pre-commit": "#!/bin/sh\nexit 1\n"})
    (checkout.folder / ".git/hooks/pre-commit").chmod(0o755)
    git(checkout.folder, "add", "-A")
    git(checkout.folder, "commit", "-qm", "WP01: work", check=False)
    assert (
        seen_in(checkout).history.commits == ()
    )  # the commit failed, and a careless clean-up would lose it all
    removed = remove_checkout(checkout, US)
    assert isinstance(removed, RemovedCheckout)
    assert removed.saved is not None
    assert [*saved_work(repository, checkout.assignment.name)] == [removed.saved.ref]
    assert show(repository, removed.saved.ref, "src/login.py") == b"hours of work\n"
    assert show(repository, removed.saved.ref, "src/more.py") == b"more\n"
    git(repository.root, "gc", "-q", "--prune=now")
    assert show(repository, removed.saved.ref, "src/more.py") == b"more\n"


@pytest.mark.demand("D4.b")
@pytest.mark.parametrize("left", ["staging", "record", "no record"])
def test_a_checkout_that_was_cut_off_while_it_was_made_is_made(tmp_path: Path, left: str) -> None:
    repository = make_repository(tmp_path / "project")
    checkout = make_checkout(repository)
    records = repository.own_folder / "checkouts" / checkout.assignment.name
    staging = checkout.folder.with_name(f".new-{checkout.folder.name}")
    if left == "staging":  # everything was written but the last rename
        checkout.folder.rename(staging)
    elif left == "record":  # the folder went first
        checkout.folder.rename(tmp_path / "gone")
    else:
        checkout.folder.rename(staging)
        (records / "record.json").unlink()
    again = make_checkout(repository)
    assert git(again.folder, "status", "--porcelain") == ""
    assert not staging.exists()
    write(again.folder, {"src/login.py": "done\n"})
    take_over(again, ["src/login.py"])
    assert show(repository, branch_of(again), "src/login.py") == b"done\n"
