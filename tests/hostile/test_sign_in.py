"""A sign-in is lent to a job and nothing else of the home folder is; what comes back is a renewal or nothing.

The home folders here are made up. No real sign-in is read.
"""

from __future__ import annotations

import json
import os
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from phasegate.agents.run.secret_values import find_env_secrets, find_file_secrets
from phasegate.agents.run.sign_in_files import is_renewal, share_sign_in

NAME = ".claude/.credentials.json"
OLD = {
    "claudeAiOauth": {
        "accessToken": "a-old-token",
        "refreshToken": "r-old-token",
        "expiresAt": 1_000,
        "plan": "max",
    }
}
NEW = {
    "claudeAiOauth": {
        "accessToken": "a-new-token",
        "refreshToken": "r-new-token",
        "expiresAt": 2_000,
        "plan": "max",
    }
}


def encoded(value: object) -> bytes:
    return json.dumps(value).encode()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A person's home folder, with more in it than an agent may see."""
    folder = tmp_path / "person"
    for name in (
        NAME,
        ".claude/history.jsonl",
        ".claude.json",
        ".ssh/id_ed25519",
        ".codex/auth.json",
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(encoded(OLD))
    return folder


@pytest.fixture
def job(tmp_path: Path) -> Path:
    return tmp_path / "job/home"


def files_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_the_named_files_and_nothing_else_are_lent_and_gone_afterwards(
    home: Path, job: Path
) -> None:
    with share_sign_in((NAME, ".claude/absent.json"), home, job):
        assert files_in(job) == [NAME]
        assert (job / NAME).read_bytes() == encoded(OLD)
        assert (job / NAME).stat().st_mode & 0o077 == 0
    assert files_in(job) == []
    assert (home / NAME).read_bytes() == encoded(OLD)


def test_without_a_home_folder_nothing_is_lent(job: Path) -> None:
    with share_sign_in((NAME,), None, job) as sign_in:
        assert not sign_in.files
    assert not job.exists()


def test_a_renewed_token_is_not_lost(home: Path, job: Path) -> None:
    (home / NAME).chmod(0o644)
    with share_sign_in((NAME,), home, job):
        (job / NAME).write_bytes(encoded(NEW))
    assert (home / NAME).read_bytes() == encoded(NEW)
    assert (home / NAME).stat().st_mode & 0o077 == 0
    assert [path.name for path in (home / ".claude").iterdir() if path.name.startswith("..")] == []


def test_a_token_that_was_renewed_by_a_new_file_is_not_lost_either(home: Path, job: Path) -> None:
    with share_sign_in((NAME,), home, job):
        (job / ".claude/draft").write_bytes(encoded(NEW))
        (job / ".claude/draft").rename(job / NAME)
    assert (home / NAME).read_bytes() == encoded(NEW)


def test_a_token_is_brought_back_when_the_job_failed_too(home: Path, job: Path) -> None:
    with suppress(RuntimeError), share_sign_in((NAME,), home, job):
        (job / NAME).write_bytes(encoded(NEW))
        raise RuntimeError("the job could not be run")
    assert (home / NAME).read_bytes() == encoded(NEW)


def test_what_the_person_changed_meanwhile_stays(home: Path, job: Path) -> None:
    with share_sign_in((NAME,), home, job):
        (job / NAME).write_bytes(encoded(NEW))
        (home / NAME).write_bytes(b"signed in again")
    assert (home / NAME).read_bytes() == b"signed in again"


def test_a_person_who_signed_out_meanwhile_stays_signed_out(home: Path, job: Path) -> None:
    with share_sign_in((NAME,), home, job):
        (job / NAME).write_bytes(encoded(NEW))
        (home / NAME).unlink()
    assert not (home / NAME).exists()


def test_of_two_jobs_that_renew_at_once_one_wins_whole(home: Path, tmp_path: Path) -> None:
    both = threading.Barrier(2)

    def renew(number: int) -> None:
        with share_sign_in((NAME,), home, tmp_path / f"job{number}"):
            both.wait()
            renewed = {
                "claudeAiOauth": NEW["claudeAiOauth"] | {"accessToken": f"a-new-token-{number}"}
            }
            (tmp_path / f"job{number}" / NAME).write_bytes(encoded(renewed))
            both.wait()

    threads = [threading.Thread(target=renew, args=(number,)) for number in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    token = json.loads((home / NAME).read_bytes())["claudeAiOauth"]["accessToken"]
    assert token in ("a-new-token-1", "a-new-token-2")


def changed(**fields: object) -> dict[str, object]:
    return {"claudeAiOauth": {**NEW["claudeAiOauth"], **fields}}


FORGED = {
    "nothing": b"",
    "no JSON": b"{",
    "another kind": b"[]",
    "a part is gone": encoded({"claudeAiOauth": {"accessToken": "a-new-token"}}),
    "another account": encoded(changed(plan="somebody else's")),
    "another type": encoded(changed(accessToken=7)),
    "an older one": encoded(changed(expiresAt=500)),
    "too large": encoded(changed(accessToken="x" * 2_000_000)),
    "too deep": b'{"a":' * 50_000,
}


@pytest.mark.parametrize("name", FORGED)
def test_what_is_no_renewal_is_not_brought_back(home: Path, job: Path, name: str) -> None:
    with share_sign_in((NAME,), home, job):
        (job / NAME).write_bytes(FORGED[name])
    assert (home / NAME).read_bytes() == encoded(OLD)


def _link(job: Path, target: Path) -> None:
    (job / NAME).unlink()
    (job / NAME).symlink_to(target)


def _link_folder(job: Path, target: Path) -> None:
    (job / ".claude").rename(job / "moved")
    (job / ".claude").symlink_to(target.parent)


def _hard_link(job: Path, target: Path) -> None:
    (job / NAME).unlink()
    os.link(target, job / NAME)


@pytest.mark.parametrize(
    "trick", [_link, _link_folder, _hard_link], ids=lambda trick: trick.__name__
)
def test_a_link_in_the_copys_place_leads_nowhere(
    home: Path, job: Path, tmp_path: Path, trick: object
) -> None:
    """It would bring another file into the person's home, or remove one of theirs with the copy."""
    target = tmp_path / "elsewhere/.credentials.json"
    target.parent.mkdir()
    target.write_bytes(encoded(NEW))
    with share_sign_in((NAME,), home, job):
        trick(job, target)  # type: ignore[operator]
        assert (job / NAME).read_bytes() == encoded(NEW), "control: whoever follows it gets there"
    assert (home / NAME).read_bytes() == encoded(OLD)
    assert target.exists()


def test_a_pipe_in_the_copys_place_holds_up_nobody(home: Path, job: Path) -> None:
    with share_sign_in((NAME,), home, job):
        (job / NAME).unlink()
        os.mkfifo(job / NAME)
    assert (home / NAME).read_bytes() == encoded(OLD)


RENEWALS = {
    "codex": (
        {
            "OPENAI_API_KEY": None,
            "tokens": {"id_token": "i1", "access_token": "a1", "account_id": "me"},
        },
        {
            "OPENAI_API_KEY": None,
            "tokens": {"id_token": "i2", "access_token": "a2", "account_id": "me"},
        },
    ),
    "gemini": (
        {
            "access_token": "a1",
            "scope": "s",
            "expiry_date": 1_794_000_000_000,
            "token_type": "Bearer",
        },
        {
            "access_token": "a2",
            "scope": "s t",
            "expiry_date": 1_794_003_600_000,
            "token_type": "Bearer",
        },
    ),
    "opencode": (
        {"anthropic": {"type": "oauth", "refresh": "r1", "access": "a1", "expires": 1}},
        {"anthropic": {"type": "oauth", "refresh": "r2", "access": "a2", "expires": 2}},
    ),
}


@pytest.mark.parametrize("kind", RENEWALS)
def test_the_sign_ins_of_the_programs_can_be_renewed_but_not_go_back(kind: str) -> None:
    old, new = map(encoded, RENEWALS[kind])
    assert is_renewal(old, new)
    if b"expir" in old:
        assert not is_renewal(new, old)


ADDED = {
    "https://evil.test": {"type": "wellknown", "key": "KEY", "token": "t"},
    "endpoint": "https://evil.test",
    "token_uri": "https://evil.test",
    "tokenUrl": "evil.test",
    "resource_url": "evil.test",
    "idToken": {"type": "wellknown", "host": "evil.test"},
}


@pytest.mark.parametrize("name", ADDED)
def test_a_renewed_sign_in_brings_no_entry_that_is_not_a_token(
    home: Path, tmp_path: Path, name: str
) -> None:
    """The token is not lost, but no entry comes along that sends the person's own program somewhere else."""
    added = {"claudeAiOauth": {**NEW["claudeAiOauth"], name: ADDED[name]}, name: ADDED[name]}
    with share_sign_in([NAME], home, tmp_path / "job"):
        (tmp_path / "job" / NAME).write_bytes(encoded(added))
    assert b"evil" in encoded(added)
    assert json.loads((home / NAME).read_bytes()) == NEW


def test_an_address_or_an_impossible_time_in_place_of_a_token_is_no_renewal() -> None:
    before = {"access_token": "a", "token_uri": "https://good.test", "expires_at": 5}
    assert not is_renewal(encoded(before), encoded(before | {"token_uri": "https://evil.test"}))
    assert not is_renewal(
        encoded(before), encoded(before | {"access_token": "b", "expires_at": 10**400})
    )
    assert is_renewal(encoded(before), encoded(before | {"access_token": "b", "expires_at": 6}))


def test_an_api_key_is_no_token_that_is_renewed() -> None:
    before = {"OPENAI_API_KEY": "mine", "tokens": None}
    assert not is_renewal(encoded(before), encoded(before | {"OPENAI_API_KEY": "theirs"}))


def test_the_tokens_of_a_sign_in_are_secret_and_the_rest_is_not() -> None:
    assert set(find_file_secrets(encoded(OLD))) == {b"a-old-token", b"r-old-token"}
    assert find_file_secrets(
        encoded({"api_keys": ["key-in-a-list"], "models": ["a-plain-model"]})
    ) == (b"key-in-a-list",)
    assert find_file_secrets(b"no json") == ()


def test_which_variables_are_secret() -> None:
    env = {
        "MODEL_API_KEY": 'quoted"key',
        "MODEL_NAME": "a-plain-model-name",
        "HTTPS_PROXY": "http://me:pass%20word@proxy.test:8080",
        "CONFIG_CONTENT": '{"provider":{"x":{"options":{"apiKey":"key-in-json","baseURL":"http://host.test"}}}}',
        "OTHER_TOKEN": "not asked for",
        "SHORT_KEY": "1",
    }
    found = find_env_secrets(
        env,
        ("MODEL_API_KEY", "MODEL_NAME", "HTTPS_PROXY", "CONFIG_CONTENT", "SHORT_KEY", "UNSET_KEY"),
    )
    assert set(found) == {b'quoted"key', b"pass%20word", b"pass word", b"key-in-json"}
