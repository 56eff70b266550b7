"""A merge of the demo is verified with git, Python and one file; every change of note, tree or key is found."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import shutil
import subprocess
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from phasegate.verifier.verify_receipt import NAMESPACE, PAYLOAD_TYPE, encode_pae
from support.git_project import git

NOTES = "--ref=refs/notes/phasegate"
VERIFIED, FOUND, UNTRUSTED = 0, 1, 3
# Every field of a statement; a list stands for its first element.
FIELDS = """
_type predicateType subject.name subject.digest.gitCommit subject.digest.gitTree
phasegate feature workflow description signing.format signing.key
base.branch base.commit base.tree work.commit work.tree
requirements.id requirements.text requirements.packages requirements.commits
requirements.tests.path requirements.tests.gitBlob requirements.tests.names_it
acceptance.requirement acceptance.revision acceptance.tests acceptance.tree acceptance.outcome
packages.id packages.commit packages.passed packages.report_sha256
evidence.at evidence.check evidence.root evidence.command evidence.outcome evidence.exit_code
evidence.tests evidence.tests_failed evidence.commit evidence.report_sha256 evidence.tree
agents.name agents.model agents.harness agents.version
jobs.id jobs.agent jobs.role jobs.phase jobs.package jobs.round jobs.outcome jobs.prompt_sha256
jobs.template_sha256 jobs.output_sha256
gates.phase gates.round gates.outcome gates.at
decisions.at decisions.work decisions.what decisions.text decisions.by.person decisions.by.door
audit.entries audit.hash audit.merged_entry
""".split()  # noqa: SIM905 - a list of 65 names
# What the repository contradicts, even if the right key has signed it
CONTRADICTED = (
    *("_type", "predicateType", "subject.name", "subject.digest.gitCommit"),
    *("subject.digest.gitTree", "base.branch", "base.commit", "base.tree", "work.commit"),
    *("work.tree", "requirements.tests.path", "requirements.tests.gitBlob", "evidence.tree"),
    *("signing.key", "signing.format"),
)
BUNDLED = ("jobs.prompt_sha256", "audit.entries", "audit.hash", "audit.merged_entry")


class Merged(NamedTuple):
    """A clone of the merged demo, the verifier, two keys, and the exported bundle."""

    folder: Path

    @property
    def root(self) -> Path:
        return self.folder / "repository"

    @property
    def commit(self) -> str:
        return git(self.root, "rev-parse", "main").strip()

    def verify(
        self, *arguments: str, key: str | None = "key.pub"
    ) -> subprocess.CompletedProcess[str]:
        """Run the verifier as somebody without Phasegate does."""
        env = {"PATH": os.environ["PATH"], "HOME": str(self.folder), "PYTHONPATH": ""}
        trusted = ["--key", str(self.folder / key)] if key else []
        argv = [sys.executable, "-I", str(self.folder / "verify.py"), *trusted, *arguments]
        return subprocess.run(
            argv, cwd=self.root, env=env, capture_output=True, text=True, timeout=120
        )

    def note(self) -> dict[str, Any]:
        envelope: dict[str, Any] = json.loads(git(self.root, "notes", NOTES, "show", self.commit))
        return envelope

    def statement(self) -> dict[str, Any]:
        statement: dict[str, Any] = json.loads(base64.b64decode(self.note()["payload"]))
        return statement

    def check(self, envelope: dict[str, Any], *arguments: str) -> int:
        """Verify with this receipt instead of the note."""
        path = self.folder / "receipt.json"
        path.write_text(json.dumps(envelope), encoding="utf-8")
        return self.verify("--receipt", str(path), *arguments).returncode

    def write_note(self, envelope: dict[str, Any]) -> None:
        text = json.dumps(envelope)
        git(self.root, "notes", NOTES, "add", "-f", "-m", text, self.commit)

    def sign(
        self, statement: dict[str, Any], key: str = "key", namespace: str = NAMESPACE
    ) -> dict[str, Any]:
        payload = json.dumps(statement).encode()
        argv = ["ssh-keygen", "-q", "-Y", "sign", "-n", namespace, "-f", str(self.folder / key)]
        signed = subprocess.run(
            argv, input=encode_pae(PAYLOAD_TYPE, payload), capture_output=True, check=True
        )
        signature = {
            "keyid": statement["predicate"]["signing"]["key"],
            "sig": base64.b64encode(signed.stdout).decode(),
        }
        return {
            **self.note(),
            "payload": base64.b64encode(payload).decode(),
            "signatures": [signature],
        }

    def overwrite(self, kind: str, name: str, content: bytes) -> None:
        """Replace the content of a loose object, under its old name."""
        path = self.root / ".git/objects" / name[:2] / name[2:]
        path.chmod(0o644)
        path.write_bytes(zlib.compress(f"{kind} {len(content)}\0".encode() + content))


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """The demo, run once for all workers with a signing key in the user's git settings."""
    base = tmp_path_factory.getbasetemp()
    folder = (base if worker_id == "master" else base.parent) / "signed-demo"
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "verify.py").exists():
            make_demo(folder)
    return folder


def make_demo(folder: Path) -> None:
    folder.mkdir()
    for name in ("key", "other"):
        argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
        subprocess.run(argv, check=True)
    settings = f"[user]\n\tsigningkey = {folder / 'key'}\n[gpg]\n\tformat = ssh\n"
    (folder / "gitconfig").write_text(settings, encoding="utf-8")
    env = {
        **os.environ,
        "GIT_CONFIG_GLOBAL": str(folder / "gitconfig"),
        "XDG_STATE_HOME": str(folder / "run/state"),
    }

    def phasegate(*arguments: str, cwd: Path = folder) -> str:
        argv = [sys.executable, "-m", "phasegate", *arguments]
        done = subprocess.run(argv, cwd=cwd, env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    phasegate("demo", "--keep", str(folder / "run"))
    merged = folder / "run/repository"
    phasegate("receipt", "export", str(folder / "bundle"), cwd=merged)
    phasegate("receipt", "export", str(folder / "bundle"), cwd=merged)
    (folder / "verify.py").write_text(phasegate("receipt", "verifier"), encoding="utf-8")


@pytest.fixture
def merged(demo: Path, tmp_path: Path) -> Merged:
    """A clone of the demo as another user has it: no record, the note fetched by its ref."""
    return clone_demo(demo, tmp_path)


@pytest.fixture(scope="module")
def shared(demo: Path, tmp_path_factory: pytest.TempPathFactory) -> Merged:
    """A clone for tests that change nothing in it."""
    return clone_demo(demo, tmp_path_factory.mktemp("shared"))


def clone_demo(demo: Path, tmp_path: Path) -> Merged:
    source = demo / "run/repository"
    git(tmp_path, "clone", "-q", "--no-local", str(source), "repository")
    git(tmp_path / "repository", "fetch", "-q", "origin", "refs/notes/*:refs/notes/*")
    for name in ("key", "key.pub", "other", "other.pub", "verify.py"):
        shutil.copy2(demo / name, tmp_path / name)
    return Merged(tmp_path)


def leaves_of(value: Any, path: str = "") -> Iterator[str]:
    """The paths of all fields; of a list, those of its elements."""
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            yield from leaves_of(inner, f"{path}.{name}".removeprefix("."))
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        for inner in value:
            yield from leaves_of(inner, path)
    else:
        yield path


def change(statement: dict[str, Any], path: str) -> None:
    """Change the first value of a field."""
    *parents, last = path.split(".")
    place: Any = (
        statement
        if path.startswith(("_type", "predicateType", "subject"))
        else statement["predicate"]
    )
    candidates = [place]
    for name in parents:
        inner = [one[name] for one in candidates if isinstance(one, dict) and name in one]
        candidates = [
            one for found in inner for one in (found if isinstance(found, list) else [found])
        ]
    target = next(one for one in candidates if last in one)
    value = target[last]
    if isinstance(value, bool):
        target[last] = not value
    elif isinstance(value, str):
        target[last] = "0" * 64 if last.endswith("sha256") else f"{value}x"
    elif isinstance(value, list):
        target[last] = [*value, "x"]
    else:
        target[last] = (value or 0) + 1


@pytest.mark.demand("E4.a", "E4.e")
def test_a_merge_of_the_demo_is_verified_and_replayed_without_phasegate(
    merged: Merged, demo: Path
) -> None:
    done = merged.verify("--replay", "--bundle", str(demo / "bundle"))
    assert done.returncode == VERIFIED, done.stdout + done.stderr
    assert "replayed `python3 -m unittest`: exit status 0, 7 tests" in done.stdout
    assert "the checkpoint continues that of" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("VERIFIED: signed by signer (SHA256:")
    assert merged.verify(key=None).returncode == UNTRUSTED
    assert b"phasegate" not in b"".join(
        line
        for line in (merged.folder / "verify.py").read_bytes().splitlines()
        if b"import" in line
    )


@pytest.mark.demand("E4.a")
def test_the_verifier_runs_with_the_python_of_the_system_and_an_empty_environment(
    shared: Merged,
) -> None:
    python = shutil.which("python3", path=os.defpath)
    if python is None:
        pytest.skip("the system has no Python of its own")
    codes = {}
    for key in ("key.pub", "other.pub"):
        argv = [python, "-I", str(shared.folder / "verify.py"), "--key", str(shared.folder / key)]
        done = subprocess.run(argv, cwd=shared.root, env={}, capture_output=True, text=True)
        codes[key] = done.returncode
    assert codes["key.pub"] == VERIFIED, done.stdout + done.stderr
    assert codes["other.pub"] in (FOUND, UNTRUSTED)


def test_the_list_of_fields_covers_every_field_of_the_statement(merged: Merged) -> None:
    statement = merged.statement()
    found = {
        path
        for part in (statement["predicate"], {**statement, "predicate": {}})
        for path in leaves_of(part)
    }
    assert found - {"predicate", "decisions.by.agent"} == {*FIELDS}


@pytest.mark.demand("E4.b")
@pytest.mark.parametrize("path", FIELDS)
def test_a_changed_field_is_found(shared: Merged, path: str) -> None:
    statement = shared.statement()
    change(statement, path)
    payload = base64.b64encode(json.dumps(statement).encode()).decode()
    assert shared.check({**shared.note(), "payload": payload}) == FOUND


@pytest.mark.demand("E4.b")
@pytest.mark.parametrize("path", CONTRADICTED)
def test_a_signed_field_that_the_repository_contradicts_is_found(shared: Merged, path: str) -> None:
    statement = shared.statement()
    # A clone has the merge, but not the commits of the branch that the packages were checked on
    statement["predicate"]["evidence"].sort(key=lambda ran: ran["commit"] != shared.commit)
    change(statement, path)
    envelope = shared.sign(statement)
    if path.startswith("signing"):
        envelope["signatures"] = [] if path == "signing.format" else shared.note()["signatures"]
    assert shared.check(envelope) == FOUND


def test_control_an_unchanged_statement_that_is_signed_again_is_verified(shared: Merged) -> None:
    assert shared.check(shared.sign(shared.statement())) == VERIFIED


@pytest.mark.demand("E4.b")
@pytest.mark.parametrize("path", BUNDLED)
def test_a_signed_field_that_the_bundle_contradicts_is_found(
    shared: Merged, demo: Path, path: str
) -> None:
    statement = shared.statement()
    change(statement, path)
    assert shared.check(shared.sign(statement), "--bundle", str(demo / "bundle")) == FOUND


@pytest.mark.demand("E4.b")
@pytest.mark.parametrize("path", ["evidence.exit_code", "evidence.tests"])
def test_a_result_that_a_replay_does_not_reproduce_is_found(shared: Merged, path: str) -> None:
    statement = shared.statement()
    tree = statement["subject"][0]["digest"]["gitTree"]
    name = path.partition(".")[2]
    rows = [one for one in statement["predicate"]["evidence"] if one["tree"] == tree]
    last = [one for one in rows if one[name] is not None][-1]
    last[name] += 1
    envelope = shared.sign(statement)
    assert shared.check(envelope) == VERIFIED, "control: only a replay can find it"
    assert shared.check(envelope, "--replay") == FOUND


@pytest.mark.demand("E4.b")
@pytest.mark.parametrize(
    "damage",
    [
        "payloadType",
        "payload",
        "sig",
        "keyid",
        "no signatures",
        "an unknown field",
        "twice",
        "no note",
    ],
)
def test_a_changed_envelope_is_found(merged: Merged, damage: str) -> None:
    note = merged.note()
    signature = note["signatures"][0]
    match damage:
        case "payloadType" | "payload":
            note[damage] = note[damage][:-4] + "AAAA"
        case "sig":
            armored = base64.b64decode(signature["sig"])
            signature["sig"] = base64.b64encode(armored.replace(b"U1NIU0lH", b"U1NIU0lI")).decode()
        case "keyid":
            signature["keyid"] += "x"
        case "no signatures":
            note["signatures"] = []
        case "an unknown field":
            note["more"] = 1
    if damage == "twice":
        text = json.dumps(note)[:-1] + ', "payload": ""}'
        git(merged.root, "notes", NOTES, "add", "-f", "-m", text, merged.commit)
    elif damage == "no note":
        git(merged.root, "notes", NOTES, "remove", merged.commit)
    else:
        merged.write_note(note)
    assert merged.verify().returncode == FOUND


@pytest.mark.demand("E4.b")
@pytest.mark.parametrize("who", ["another key", "another namespace", "another trusted key"])
def test_a_receipt_that_another_key_signed_is_found(shared: Merged, who: str) -> None:
    key = "other" if who == "another key" else "key"
    namespace = "git" if who == "another namespace" else NAMESPACE
    envelope = shared.sign(shared.statement(), key, namespace)
    if who == "another trusted key":
        assert shared.verify(key="other.pub").returncode == FOUND
    else:
        assert shared.check(envelope) == FOUND


@pytest.mark.demand("E4.d")
def test_a_receipt_without_a_signature_is_never_accepted_as_signed(merged: Merged) -> None:
    statement = merged.statement()
    statement["predicate"]["signing"] = {"format": "", "key": ""}
    envelope = {**merged.sign(statement), "signatures": []}
    merged.write_note(envelope)
    done = merged.verify()
    assert (done.returncode, done.stdout.splitlines()[-1][:11]) == (UNTRUSTED, "NOT SIGNED:")


@pytest.mark.demand("E4.b")
@pytest.mark.parametrize(
    "what", ["blob", "tree", "commit", "replaced commit", "moved note", "test"]
)
def test_a_changed_tree_is_found(merged: Merged, what: str) -> None:
    root = merged.root
    pack = next((root / ".git/objects/pack").glob("*.pack"))
    moved = shutil.move(pack, merged.folder / "pack")
    for path in (root / ".git/objects/pack").iterdir():
        path.unlink()
    with Path(moved).open("rb") as stream:
        subprocess.run(["git", "unpack-objects", "-q"], cwd=root, stdin=stream, check=True)
    assert merged.verify().returncode == VERIFIED, "control: unpacked, unchanged"

    commit = merged.commit
    match what:
        case "blob" | "test":
            name = "words.py" if what == "blob" else "test_words.py"
            blob = git(root, "rev-parse", f"main:{name}").strip()
            merged.overwrite("blob", blob, b"changed\n")
        case "tree":
            tree = git(root, "rev-parse", "main^{tree}").strip()
            inner = git(root, "rev-parse", "main~1^{tree}").strip()
            content = subprocess.run(
                ["git", "cat-file", "tree", inner], cwd=root, capture_output=True, check=True
            ).stdout
            merged.overwrite("tree", tree, content)
        case "commit":
            content = git(root, "cat-file", "commit", commit).encode()
            merged.overwrite("commit", commit, content + b"changed\n")
        case "replaced commit":
            (root / "words.py").write_text("changed\n", encoding="utf-8")
            git(root, "commit", "-q", "-a", "--amend", "-m", "another")
            git(root, "notes", NOTES, "add", "-f", "-C", note_of(merged, commit), "HEAD")
        case "moved note":
            git(root, "notes", NOTES, "add", "-f", "-C", note_of(merged, commit), "main~1")
            git(root, "checkout", "-q", "main~1")
    assert merged.verify().returncode == FOUND


def note_of(merged: Merged, commit: str) -> str:
    return git(merged.root, "notes", NOTES, "list", commit).strip()


@pytest.mark.demand("E4.b")
@pytest.mark.parametrize(
    "name", ["document", "chain.jsonl", "checkpoint", "merge.tlog-proof", "consistency"]
)
def test_a_changed_file_of_the_bundle_is_found(
    shared: Merged, demo: Path, tmp_path: Path, name: str
) -> None:
    bundle = tmp_path / "bundle"
    shutil.copytree(demo / "bundle", bundle)
    path = next((bundle / "documents").iterdir()) if name == "document" else bundle / name
    data = bytearray(path.read_bytes())
    if name == "consistency":
        data = bytearray(base64.b64encode(b"0" * 32) + b"\n")
    position = data.index(b"001-say") if name == "chain.jsonl" else len(data) // 3
    data[position] = data[position] + 1 if data[position] != ord("z") else ord("a")
    path.write_bytes(data)
    assert shared.verify("--bundle", str(bundle)).returncode == FOUND
