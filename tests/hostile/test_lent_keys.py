"""A key that was lent to an agent gets into nothing that is stored or printed, however the agent writes it down."""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from phasegate.core.agents.secrets import SecretMatcher
from phasegate.sandbox.redact import REDACTION_MARK, Redactor
from support.dispatch_project import FEATURE, SLUG, DispatchProject, Done, make_project, package
from support.quick_dispatch import ECHO

KEY = "lent/key+0123456789.abcdef=="
NOTE = "mere/note+0123456789.abcdef="  # as long, of a variable whose name tells of no secret: the control
FORMS = {
    "plain": lambda value: value,
    "base64": lambda value: base64.b64encode(f"x{value}y".encode()).decode(),
    "base64 for addresses": lambda value: base64.urlsafe_b64encode(f"xy{value}".encode()).decode(),
    "hex": lambda value: value.encode().hex(),
    "HEX": lambda value: value.encode().hex().upper(),
    "address": lambda value: quote(value, safe=""),
    "lines": lambda value: "\n".join(value[at : at + 5] for at in range(0, len(value), 5)),
    "JSON lines": lambda value: json.dumps(
        "\n".join(value[at : at + 6] for at in range(0, len(value), 6))
    ),
}
# Only in what is taken over or refused as a whole: output has its lines to keep.
SPLIT_BY_SIGNS = {
    "code": lambda value: (
        "const k = " + " +\n ".join(f"'{value[at : at + 4]}'" for at in range(0, len(value), 4))
    ),
    "escapes": lambda value: "".join(f"\\x{byte:02x}" for byte in value.encode()),
    "percents": lambda value: "".join(f"%{byte:02X}" for byte in value.encode()),
    "comment": lambda value: "\n".join(f"# {value[at : at + 7]}" for at in range(0, len(value), 7)),
}


@pytest.mark.parametrize("form", [*FORMS, *SPLIT_BY_SIGNS])
def test_every_form_of_a_lent_value_is_found_and_no_other_value(form: str) -> None:
    written = {**FORMS, **SPLIT_BY_SIGNS}[form]
    lent = SecretMatcher([KEY.encode()])
    assert lent.has_secret(f"before\n{written(KEY)}\nafter".encode())
    assert not lent.has_secret(f"before\n{written(NOTE)}\nafter".encode())


@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_taken_out_of_a_stream_wherever_it_is_cut(form: str) -> None:
    text = f"before {FORMS[form](KEY)} after\n".encode()
    for cut in range(len(text)):
        redactor = Redactor([KEY.encode()])
        shown = redactor.feed(text[:cut]) + redactor.feed(text[cut:]) + redactor.flush()
        assert REDACTION_MARK in shown
        assert not SecretMatcher([KEY.encode()]).has_secret(shown)
        assert shown.startswith(b"before ")
        assert shown.endswith(b" after\n")


def test_words_and_short_values_refuse_nobody() -> None:
    assert not SecretMatcher([b"disabled"]).has_secret(b"the check is disabled")
    assert not SecretMatcher([])


AGENT = """
cat > /dev/null
if [ "$PHASEGATE_PHASE" = review ]; then echo "<review>PASS</review>"; exit 0; fi
hex=$(printf %s "$LEAKED" | od -An -tx1 | tr -d " \\n")
lines=$(printf %s "$LEAKED" | fold -w 6)
message="WP01: Write it"
mkdir -p src
LEAK
echo "export const done = true;" > src/login.ts
git add src
git commit -q -m "$message"
AFTER
echo '{"job_id": "'$AGILEPLUS_JOB_ID'", "wp_id": "WP01", "success": true, "status": "completed"}'
"""
IN_WORK = """
printf %s "$LEAKED" | base64 -w0 > src/file.ts
echo "$LEAKED" > src/login.ts
git add src
git commit -q -m "WP01: Earlier"
message="WP01: $lines"
git config user.name "$hex"
echo x > "src/$hex"
"""
IN_WORDS = """
printf %s "$LEAKED" | phasegate artifact write --feature-slug SLUG --relative-path WP01/note.md -
echo "it is $lines"
echo "$LEAKED" >&2
"""


def test_the_control_another_value_gets_into_all_of_it(tmp_path: Path) -> None:
    made = project_with(tmp_path, "LEAKED_NOTE", IN_WORK, IN_WORDS)
    done = made.program("dispatch", "WP01", env={"LEAKED_NOTE": NOTE})
    assert done.code == 0, done
    places = " ".join(found_in(made, done, NOTE))
    for place in ("git objects", "stdout.log", "stderr.log", "answer.txt", ".phasegate/papers/"):
        assert place in places


@pytest.mark.demand("X6.a")
def test_work_that_holds_a_lent_key_is_refused_and_begins_again_without_it(tmp_path: Path) -> None:
    made = project_with(tmp_path, "LEAKED_KEY", IN_WORK, "echo draft > src/draft.ts")
    env = {"LEAKED_KEY": KEY}
    refused = made.program("dispatch", "WP01", env=env)
    row = made.rows()["WP01"]
    assert (refused.code, row.state) == (1, "BLOCKED"), refused
    for place in (
        "src/file.ts",
        "src/login.ts",
        "the message or the author of commit",
        "the name of a file",
    ):
        assert place in row.reason
    assert "src/login.ts" not in made.files_of(FEATURE)
    assert not found_in(made, refused, KEY)
    saved = "".join(
        made.git("show", f"{ref}:src/file.ts", f"{ref}:src/draft.ts") for ref in made.saved()
    )
    assert "contains a secret of an agent" in saved
    assert "draft" in saved
    made.scenario.write_text(
        made.scenario.read_text().replace(IN_WORK.replace("$LEAKED", "$LEAKED_KEY"), "")
    )
    done = made.program("dispatch", "WP01", env=env)
    assert done.code == 0, done
    assert not found_in(made, done, KEY)
    assert made.audit_problems() == []


@pytest.mark.demand("X6.a")
def test_a_lent_key_in_output_answer_and_artifact_is_not_kept(tmp_path: Path) -> None:
    made = project_with(tmp_path, "LEAKED_KEY", "", IN_WORDS)
    done = made.program("dispatch", "WP01", env={"LEAKED_KEY": KEY})
    assert done.code == 0, done
    assert not found_in(made, done, KEY)
    assert any(
        REDACTION_MARK in path.read_bytes() for path in made.project.jobs_folder.rglob("stdout.log")
    )
    assert not [*(made.root / "kitty-specs").rglob("note.md")]


def project_with(folder: Path, variable: str, leak: str, after: str) -> DispatchProject:
    program = folder / "agent.sh"
    text = AGENT.replace("LEAK\n", f"{leak}\n").replace("AFTER", after.replace("SLUG", SLUG))
    program.write_text(text.replace("$LEAKED", f"${variable}"))
    command = json.dumps(["/bin/sh", str(program)])
    harness = f'harness = "command"\ncommand = {command}\nenv = ["{variable}"]\ntimeout_s = 60'
    made = make_project(folder, {"WP01": package(test=ECHO, file_scope=["src/"])}, harness=harness)
    return made._replace(scenario=program)


def found_in(made: DispatchProject, done: Done, value: str) -> list[str]:
    """Where the value is, in any form: all that is stored but the agent's own checkout, and what was printed."""
    wanted = SecretMatcher([value.encode()])
    return [where for where, data in stored(made, done) if wanted.has_secret(data)]


def stored(made: DispatchProject, done: Done) -> Iterator[tuple[str, bytes]]:
    yield "printed", (done.stdout + done.stderr).encode()
    for arguments in (("show", "WP01"), ("audit", "show")):
        shown = made.command(*arguments)
        yield " ".join(arguments), (shown.stdout + shown.stderr).encode()
    argv = ["git", "cat-file", "--batch-all-objects", "--batch"]
    yield "git objects", subprocess.run(argv, cwd=made.root, capture_output=True, check=True).stdout
    for folder in (
        made.root / ".phasegate",
        made.root / "kitty-specs",
        made.project.location.state_home,
    ):
        for path in folder.rglob("*"):
            yield f"the name {path.name}", path.name.encode()
            if path.is_file():
                yield str(path), path.read_bytes()
