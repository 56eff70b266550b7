"""One typed configuration: every value has one meaning and one known source; every mistake is said where it stands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phasegate.config.layers import MAX_FILE_BYTES, locate_config
from phasegate.config.load import EffectiveConfig, load_config
from phasegate.config.settings import MAX_AGENTS, Config, SandboxMode
from phasegate.core.plan import work_package
from phasegate.errors import ConfigError

EXAMPLE = """\
[agents.claude]                      # any number; the name is what --agent and [roles] use
harness = "claude_code"              # claude_code codex gemini cursor opencode qwen acp command scripted
command = ["claude"]                 # optional for known programs; required for command and acp
timeout_s = 1800
max_retries = 3
template = "CLAUDE"                  # optional; by default from the harness
num_agents = 1
env = ["ANTHROPIC_API_KEY"]          # names passed through, nothing else
[agents.gemini]
harness = "gemini"
[agents.codex]
harness = "codex"
[roles]                              # which agent does what; phases of the workflow can be named too
plan = "gemini"
challenge = "codex"
implement = "claude"
review = "codex"
archive = "gemini"
03-architecture = "claude"
[run]
max_review_cycles = 5
max_revisions = 3
parallel = 2
sandbox = "auto"                     # auto none worktree offline
[limits]                             # hard caps: over one run, and over all of them
run_cost_usd = 20
total_cost_usd = 200
run_tokens = 5_000_000
[checks.python]                      # a profile's commands, overridable; an empty one is not asked for
setup = "python -m venv .venv && .venv/bin/pip install -e .[test]"
test = "python -m pytest -q"
lint = ""
coverage_min = 80
[workflows.quick]                    # a workflow of one's own
phases = ["01-requirements", "06-implementation", "08-code-review"]
noun = "feature"
[phases.12-remote-build]
commands = ["make remote"]
required_artifacts = ["REVIEW-12.md", "logs/"]
[paths]
features = "specs"
"""
AGENT = '[agents.a]\nharness = "codex"\n'


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    (tmp_path / ".git").mkdir()
    return tmp_path


TRUSTED = {"PHASEGATE_TRUST": "1"}


def loaded(
    folder: Path, text: str, environ: dict[str, str] | None = None, **flags: str
) -> EffectiveConfig:
    (folder / "phasegate.toml").write_text(text)
    return load_config(
        folder,
        TRUSTED | (environ or {}),
        {key.replace("__", "."): value for key, value in flags.items()},
    )


def mistake(folder: Path, text: str, environ: dict[str, str] | None = None, **flags: str) -> str:
    with pytest.raises(ConfigError) as caught:
        loaded(folder, text, environ, **flags)
    return f"{caught.value.message} | {caught.value.hint}"


def test_an_agent_cannot_share_a_package_with_more_than_a_plan_allows(repository: Path) -> None:
    assert MAX_AGENTS == work_package.MAX_AGENTS
    settings = loaded(repository, AGENT + f"num_agents = {MAX_AGENTS}\n").config
    assert settings.agents["a"].num_agents == MAX_AGENTS
    assert "num_agents" in mistake(repository, AGENT + f"num_agents = {MAX_AGENTS + 1}\n")


def test_the_documented_example_is_read_whole(repository: Path) -> None:
    config = loaded(repository, EXAMPLE).config
    assert config.agents["claude"].harness == "claude_code"
    assert config.agents["claude"].env == ("ANTHROPIC_API_KEY",)
    assert config.roles["03-architecture"] == "claude"
    assert config.run.sandbox is SandboxMode.AUTO
    assert config.checks["python"].coverage_min == 80
    assert config.checks["python"].lint == ""
    assert config.checks["python"].typecheck is None
    assert config.phases["12-remote-build"].commands == ("make remote",)
    assert config.paths.features == "specs"


@pytest.mark.demand("W3.d", "D10.c")
def test_without_a_file_the_defaults_hold(repository: Path) -> None:
    effective = load_config(repository, TRUSTED)
    assert effective.config == Config()
    assert not effective.has_file
    assert (effective.config.run.max_revisions, effective.config.run.max_review_cycles) == (3, 5)
    agent = loaded(repository, AGENT).config.agents["a"]
    assert (agent.timeout_s, agent.max_retries, agent.num_agents) == (1800, 3, 1)


@pytest.mark.demand("W1.i")
def test_a_workflow_of_ones_own_has_phases_and_a_noun(repository: Path) -> None:
    text = '[workflows.spike]\nphases = ["01-requirements", "R1-behavior-extraction"]\nnoun = "question"\n'
    workflow = loaded(repository, text).config.workflows["spike"]
    assert workflow.phases == ("01-requirements", "R1-behavior-extraction")
    assert workflow.noun == "question"


@pytest.mark.demand("W1.i")
def test_a_slip_in_the_key_of_a_shipped_phase_is_told(repository: Path) -> None:
    with pytest.raises(ConfigError) as error:
        loaded(repository, '[workflows.spike]\nphases = ["06-implementaton"]\n')
    assert "there is no phase 06-implementaton" in error.value.message
    assert "`06-implementation`" in error.value.hint


@pytest.mark.demand("D10.d")
def test_a_flag_wins_over_the_environment_over_the_file_over_the_default(repository: Path) -> None:
    file, variable = "[run]\nparallel = 3\n", {"PHASEGATE_RUN__PARALLEL": "4"}
    key = ("run", "parallel")
    layers = [
        loaded(repository, ""),
        loaded(repository, file),
        loaded(repository, file, variable),
        loaded(repository, file, variable, run__parallel="5"),
    ]
    assert [layer.config.run.parallel for layer in layers] == [2, 3, 4, 5]
    assert key not in layers[0].sources
    assert [layer.sources[key] for layer in layers[1:]] == [
        ("file", "phasegate.toml:2"),
        ("environment", "PHASEGATE_RUN__PARALLEL"),
        ("flag", "run.parallel"),
    ]


@pytest.mark.demand("D10.c", "D10.d")
def test_the_seeds_variables_concern_all_agents_and_a_variable_for_one_wins_over_them(
    repository: Path,
) -> None:
    text = '[agents.a]\nharness = "codex"\ntimeout_s = 5\n[agents.my-b]\nharness = "gemini"\nmax_retries = 0\n'
    seeds = {"AGILEPLUS_AGENT_TIMEOUT": "60.5", "AGILEPLUS_AGENT_MAX_RETRIES": "7"}
    agents = loaded(repository, text, seeds).config.agents
    assert [(agent.timeout_s, agent.max_retries) for agent in agents.values()] == [
        (60.5, 7),
        (60.5, 7),
    ]
    one = {**seeds, "PHASEGATE_AGENTS__MY_B__TIMEOUT_S": "70"}
    assert [agent.timeout_s for agent in loaded(repository, text, one).config.agents.values()] == [
        60.5,
        70,
    ]
    flag = {"agents.*.timeout_s": "80"}
    assert [
        agent.timeout_s
        for agent in load_config(repository, TRUSTED | one, flag).config.agents.values()
    ] == [80, 80]


def test_variables_can_name_what_has_hyphens_and_make_what_is_new(repository: Path) -> None:
    environ = {
        "PHASEGATE_AGENTS__NEW__HARNESS": "command",
        "PHASEGATE_AGENTS__NEW__COMMAND": '["./agent", "--fast"]',
        "PHASEGATE_ROLES__06_IMPLEMENTATION": "new",
        "PHASEGATE_PHASES__12_REMOTE_BUILD__COMMANDS": '["make"]',
        "PHASEGATE_RUN__MERGE_FEATURE_FOLDER": "false",
        "AGILEPLUS_AGENT_TIMEOUT": "9",
    }
    config = load_config(repository, environ).config
    assert config.agents["new"].command == ("./agent", "--fast")
    assert config.agents["new"].timeout_s == 9
    assert config.roles == {"06-implementation": "new"}
    assert config.phases["12-remote-build"].commands == ("make",)
    assert config.run.merge_feature_folder is False


def test_what_the_product_gives_to_its_agents_is_no_configuration(repository: Path) -> None:
    job = {
        "PHASEGATE_JOB": "x",
        "PHASEGATE_PHASE": "plan",
        "AGILEPLUS_JOB_ID": "x",
        "AGILEPLUS_PROMPT": "/p",
    }
    assert load_config(repository, job).config == Config()


# What is written, and what the message and the hint say.
MISTAKES = {
    '[notify]\nurls = ["$HOOK", "foo"]': r"address 2 has no scheme",
    "[run]\nparalel = 3\n": r"phasegate.toml:2: unknown key `paralel` in \[run\] \| did you mean `parallel`",
    "\n[agent.a]\n": r"phasegate.toml:2: unknown key `agent` \| did you mean `agents`",
    '[agents.a]\nharness = "codex"\ntimeout = 5\n': r":3: unknown key `timeout` in \[agents.a\] .* `timeout_s`",
    '[agents.a]\nharness = "claude-code"\n': r":2: agents.a.harness: .*'claude-code' \| did you mean `claude_code`",
    '[agents.a]\nharness = "chatgpt"\n': r":2: .* \| available: claude_code, codex, gemini, .*scripted",
    "[agents.a]\ntimeout_s = 5\n": r":2: agents.a: `harness` is missing \| set one of: claude_code",
    "[agents.a]\n": r":1: agents.a: `harness` is missing \| set one of: claude_code",
    "[agents]\na = {}\n": r":2: agents.a: `harness` is missing \| set one of: claude_code",
    "[workflows.w]\n": r":1: workflows.w: `phases` is missing \| set phases = ",
    "agents = 3\n": r":1: agents: expected a table, got an integer",
    '[agents.a]\nharness = "command"\n': r":2: agents.a.harness: the harness `command` needs a command",
    '[agents.a]\nharness = "acp"\ncommand = []\n': r"needs a command",
    '[agents.a]\nharness = "command"\ncommand = "x"\n': r":3: agents.a.command: expected a list, got text",
    '[agents.a]\nharness = "command"\ncommand = ["x\\u0000"]\n': r":3: agents.a.command: ",
    f"{AGENT}timeout_s = 0\n": r":3: agents.a.timeout_s: expected a number > 0",
    f"{AGENT}timeout_s = -1\n": r":3: agents.a.timeout_s: expected a number > 0",
    f"{AGENT}timeout_s = inf\n": r":3: agents.a.timeout_s: expected a number <=",
    f"{AGENT}timeout_s = nan\n": r":3: agents.a.timeout_s: expected a number > 0",
    f'{AGENT}timeout_s = "5"\n': r":3: agents.a.timeout_s: expected a number, got text",
    f"{AGENT}max_retries = -1\n": r":3: agents.a.max_retries: expected an integer >= 0",
    f"{AGENT}num_agents = 0\n": r":3: agents.a.num_agents: expected an integer >= 1",
    f"{AGENT}num_agents = true\n": r":3: agents.a.num_agents: expected an integer, got true or false",
    f'{AGENT}env = ["KEY=value"]\n': r":3: agents.a.env: .* \| list the names of variables, never their values",
    f'{AGENT}env = ["1X"]\n': r":3: agents.a.env: ",
    f'{AGENT}template = "claude"\n': r":3: agents.a.template: .* \| write it in upper case",
    f'{AGENT}template = "../X"\n': r":3: agents.a.template: ",
    '[agents."a b"]\nharness = "codex"\n': r"'a b' is not a valid name",
    '[agents.a__b]\nharness = "codex"\n': r"'a__b' is not a valid name",
    '[agents.a-b]\nharness = "codex"\n[agents.a_b]\nharness = "codex"\n': r":2: .*same environment variable",
    f'{AGENT}[roles]\nplan = "b"\n': r":4: roles.plan: no agent `b` is configured \| .*a",
    f'{AGENT}[roles]\nreveiw = "a"\n': r":4: roles.reveiw: unknown role .* \| did you mean `review`",
    f'{AGENT}[roles]\n03-architectur = "a"\n': r"did you mean `03-architecture`",
    "[run]\nmax_revisions = 0\n": r":2: run.max_revisions: expected an integer >= 1",
    "[run]\nmax_review_cycles = 0\n": r":2: run.max_review_cycles: expected an integer >= 1",
    "[run]\nparallel = 0\n": r":2: run.parallel: expected an integer >= 1",
    "[run]\nparallel = 1.5\n": r":2: run.parallel: expected an integer",
    '[run]\nsandbox = "ofline"\n': r":2: run.sandbox: .* \| did you mean `offline`",
    "[run.parallel]\nx = 1\n": r":2: run.parallel is a single value, not a table",
    "[limits]\nrun_cost_usd = 0\n": r":2: limits.run_cost_usd: expected a number > 0",
    "[limits]\nrun_tokens = -5\n": r":2: limits.run_tokens: expected an integer >= 1",
    "[limits]\ntotal_cost_usd = inf\n": r":2: limits.total_cost_usd: expected a number <=",
    "[checks.python]\ncoverage_min = 101\n": r":2: checks.python.coverage_min: expected a number <= 100",
    '[checks.python]\ntests = "x"\n': r":2: unknown key `tests` .* did you mean `test`",
    "[workflows.x]\nphases = []\n": r":2: workflows.x.phases: a workflow needs at least one phase",
    '[workflows.x]\nphases = ["implementation"]\n': r":2: workflows.x.phases: 'implementation' is not a phase key",
    '[workflows.x]\nphases = ["06-a", "06-a"]\n': r":2: workflows.x.phases: .*twice",
    '[workflows.x]\nnoun = "thing"\n': r":2: workflows.x: `phases` is missing",
    '[workflows.x]\nphases = ["06-a"]\nnoun = "caf\u00e9"\n': r":3: workflows.x.noun: ",
    '[workflows.fix]\nphases = ["06-a"]\nnoun = "thing"\n': r":3: workflows.fix.noun: the shipped workflow `fix` already has a noun",
    '[phases.12-remote-buidl]\ncommands = ["x"]\n': r":2: phases.12-remote-buidl: .*did you mean `12-remote-build`",
    '[phases.12-remote-build]\nrequired_artifacts = ["../x"]\n': r":2: phases.12-remote-build.required_artifacts: ",
    '[phases.12-remote-build]\ncommands = [""]\n': r":2: phases.12-remote-build.commands: ",
    '[checks.pyton]\ntest = "x"\n': r":2: checks.pyton: there is no profile .*did you mean `python`",
    '[paths]\nfeatures = "/abs"\n': r":2: paths.features: .*not below",
    '[paths]\nfeatures = "a/../../b"\n': r":2: paths.features: .*not below",
    '[paths]\nworktrees = ".git/x"\n': r":2: paths.worktrees: .*not below",
    '[paths]\nworktrees = "~/x"\n': r":2: paths.worktrees: .*not below",
    '[paths]\nproject_file = "kitty-specs"\n': r":2: paths.project_file: two settings have the path",
    '[paths]\nstore = ".elsewhere"\n': r":2: unknown key `store` in \[paths\]",
    "[run\n": r"phasegate.toml is not valid TOML: .*line 1",
    "[run]\nparallel = 1\nparallel = 2\n": r"phasegate.toml is not valid TOML: .*line 3",
    "a = " + "[" * 5_000: r"phasegate.toml is not valid TOML",
    ".".join("a" * 5_000) + " = 1\n": r":1: unknown key `a`",
}


@pytest.mark.parametrize("text", MISTAKES, ids=[text[:40] for text in MISTAKES])
def test_a_mistake_is_an_error_that_says_where_and_what_to_do(text: str, repository: Path) -> None:
    assert re.search(MISTAKES[text], mistake(repository, text))


WRONG_VARIABLES = {
    (
        "PHASEGATE_RUN_PARALLEL",
        "3",
    ): r"PHASEGATE_RUN_PARALLEL is not a setting \| did you mean `PHASEGATE_RUN__PARALLEL`",
    ("PHASEGATE_RUN__PARALEL", "3"): r"PHASEGATE_RUN__PARALEL: unknown key `paralel` in \[run\]",
    (
        "PHASEGATE_RUN__PARALLEL",
        "many",
    ): r"PHASEGATE_RUN__PARALLEL: run.parallel: expected an integer",
    ("PHASEGATE_RUN__PARALLEL", "0"): r"expected an integer >= 1",
    ("PHASEGATE_RUN__PARALLEL", ""): r"expected an integer",
    ("PHASEGATE_RUN", "x"): r"PHASEGATE_RUN: run: expected a table",
    ("PHASEGATE_", "x"): r"PHASEGATE_ is not a setting",
    (
        "PHASEGATE_RUN__IGNORED_TOOL_FILES",
        "a, b",
    ): r"PHASEGATE_RUN__IGNORED_TOOL_FILES: run.ignored_tool_files: ",
    ("PHASEGATE_AGENTS__A__HARNESS", "codx"): r"did you mean `codex`",
    (
        "AGILEPLUS_AGENT_TIMEOUT",
        "soon",
    ): r"AGILEPLUS_AGENT_TIMEOUT: agents.\*.timeout_s: expected a number",
}


@pytest.mark.parametrize(("name", "value"), WRONG_VARIABLES)
def test_a_wrong_variable_is_an_error_that_names_it(
    name: str, value: str, repository: Path
) -> None:
    assert re.search(WRONG_VARIABLES[name, value], mistake(repository, "", {name: value}))


def test_bytes_that_are_no_text_are_an_error_that_names_the_variable(repository: Path) -> None:
    assert "PHASEGATE_RUN__SANDBOX: run.sandbox: not valid UTF-8" in mistake(
        repository, "", {"PHASEGATE_RUN__SANDBOX": "\udcff"}
    )


def test_a_wrong_flag_is_an_error_that_names_it(repository: Path) -> None:
    assert mistake(repository, "", run__parallel="x").startswith(
        "run.parallel: expected an integer"
    )
    assert "did you mean `parallel`" in mistake(repository, "", run__paralel="3")


def test_an_error_never_shows_what_stands_where_a_variables_name_is_due(repository: Path) -> None:
    assert "s3cret" not in mistake(repository, f'{AGENT}env = ["KEY=s3cret"]\n')


def test_the_file_is_found_from_any_folder_of_the_repository(repository: Path) -> None:
    deep = repository / "a/b"
    deep.mkdir(parents=True)
    (repository / "phasegate.toml").write_text("[run]\nparallel = 7\n")
    assert load_config(deep, TRUSTED).config.run.parallel == 7
    assert locate_config(deep) == (repository, repository / "phasegate.toml")


def test_a_repository_has_one_file_wherever_a_run_is_begun(repository: Path) -> None:
    deep = repository / "a"
    deep.mkdir()
    (deep / "phasegate.toml").write_text("[run]\nparallel = 7\n")
    assert load_config(deep, TRUSTED).config.run.parallel == 2


def test_a_file_above_the_repository_does_not_count(repository: Path) -> None:
    inner = repository / "inner"
    (inner / ".git").mkdir(parents=True)
    (repository / "phasegate.toml").write_text("[run]\nparallel = 7\n")
    assert load_config(inner, TRUSTED).config.run.parallel == 2


def test_outside_of_a_repository_only_the_folders_own_file_counts(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / "phasegate.toml").write_text("[run]\nparallel = 7\n")
    assert load_config(tmp_path / "x", {}).config.run.parallel == 2
    assert load_config(tmp_path, TRUSTED).config.run.parallel == 7


def test_odd_files_are_refused_without_a_hang(repository: Path) -> None:
    file = repository / "phasegate.toml"
    for make in (file.mkdir, lambda: os.mkfifo(file), lambda: file.symlink_to("/dev/zero")):
        make()
        with pytest.raises(ConfigError, match=r"phasegate.toml"):
            load_config(repository, TRUSTED)
        file.rmdir() if file.is_dir() else file.unlink()
    for raw in (b"\xff", b"#" * (MAX_FILE_BYTES + 1)):
        file.write_bytes(raw)
        with pytest.raises(ConfigError, match=r"not UTF-8|larger than"):
            load_config(repository, TRUSTED)
    file.write_bytes(b"\xef\xbb\xbf[run]\r\nparallel = 3\r\n")
    assert load_config(repository, TRUSTED).config.run.parallel == 3


KEYS = st.sampled_from(
    [
        "agents",
        "roles",
        "run",
        "limits",
        "paths",
        "a",
        "parallel",
        "harness",
        "env",
        "06-x",
        "phases",
    ]
)
VALUES = st.sampled_from(
    ['"codex"', "1", "-1", "true", "[]", '["a"]', "{}", "inf", '""', "1979-05-27", "{a = {b = 1}}"]
)
LINES = st.one_of(
    st.lists(KEYS, min_size=1, max_size=4).map(lambda keys: f"[{'.'.join(keys)}]"),
    st.tuples(st.lists(KEYS, min_size=1, max_size=3), VALUES).map(
        lambda pair: f"{'.'.join(pair[0])} = {pair[1]}"
    ),
)


@given(
    lines=st.lists(LINES, max_size=6),
    variables=st.dictionaries(st.text("ABNRU_", max_size=12), st.text(max_size=5)),
)
def test_any_file_and_any_variables_give_a_configuration_or_a_config_error(
    lines: list[str], variables: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.getbasetemp() / "any"
    folder.mkdir(exist_ok=True)
    (folder / "phasegate.toml").write_text("\n".join(lines))
    with suppress(ConfigError):
        load_config(folder, {f"PHASEGATE_{name}": value for name, value in variables.items()})


def test_the_configuration_loads_neither_click_nor_rich() -> None:
    code = (
        "import sys, phasegate.config; sys.exit(bool({'click', 'rich', 'yaml'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_an_unknown_name_of_the_seeds_family_is_a_warning_with_the_nearest_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    given = {
        "AGILEPLUS_AGENT_TIMEOUTS": "5",
        "AGILEPLUS_JOB_ID": "of a job",
        "AGILEPLUS_AGENT_MAX_RETRIES": "1",
    }
    load_config(tmp_path, given)
    assert [record.getMessage() for record in caplog.records] == [
        "AGILEPLUS_AGENT_TIMEOUTS is not a Phasegate variable; did you mean `AGILEPLUS_AGENT_TIMEOUT`?"
    ]


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ('url = "https://s3.example.org/b"', "is not s3://BUCKET/PREFIX"),
        ('url = "s3://team-records/../other"', "is not s3://BUCKET/PREFIX"),
        ('endpoint = "s3.example.org"', "is not a server address"),
        ('access_key_env = "RECORD_KEY"', "an access key and its secret must be set"),
        (
            'access_key_env = "ANTHROPIC_API_KEY"\nsecret_key_env = "B"',
            "ANTHROPIC_API_KEY is the key of an agent",
        ),
        ('access_key_env = "A"\nsecret_key_env = "GH_TOKEN"', "GH_TOKEN is the key of a forge"),
        ('[fleet]\napi_key_env = "GITLAB_TOKEN"', "GITLAB_TOKEN is the key of a forge"),
    ],
)
def test_a_bucket_that_cannot_be_meant_is_refused(tmp_path: Path, text: str, wrong: str) -> None:
    (tmp_path / "phasegate.toml").write_text(f"[storage]\n{text}\n")
    with pytest.raises(ConfigError, match=re.escape(wrong)):
        load_config(tmp_path, TRUSTED)


def test_a_bucket_is_used_only_where_one_is_set(tmp_path: Path) -> None:
    assert not load_config(tmp_path, TRUSTED).config.storage.is_set
    (tmp_path / "phasegate.toml").write_text('[storage]\nurl = "s3://team-records/shop/"\n')
    assert load_config(tmp_path, TRUSTED).config.storage.is_set
    assert load_config(tmp_path, TRUSTED).config.storage.bucket == "agileplus-artifacts"
