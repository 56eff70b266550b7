"""What can be set, with types, bounds and defaults. No secrets: `env` holds names of variables, not their values."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta

from phasegate.core.agents.harnesses import ROWS
from phasegate.core.paths.scope import LITTER

AtLeastOne = Annotated[int, Meta(ge=1, le=1_000_000_000)]
NotNegative = Annotated[int, Meta(ge=0, le=1_000)]
Seconds = Annotated[float, Meta(gt=0, le=604_800)]  # a week
Dollars = Annotated[float, Meta(gt=0, le=1_000_000_000)]
MOST_ATTEMPTS = 8  # at one package
Attempts = Annotated[int, Meta(ge=1, le=MOST_ATTEMPTS)]
Percent = Annotated[float, Meta(ge=0, le=100)]
Text = Annotated[str, Meta(min_length=1, pattern=r"^[^\x00]*$")]
VariableName = Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
HostPattern = Annotated[str, Meta(pattern=r"^(\*|(\*\.)?[A-Za-z0-9_.:\[\]-]+)$")]
TemplatePrefix = Annotated[str, Meta(pattern=r"^[A-Z][A-Z0-9_]*$")]


if TYPE_CHECKING:
    HarnessKind = str
else:  # the words are those of the table
    HarnessKind = StrEnum("HarnessKind", {kind.upper(): kind for kind in ROWS})


class Sandbox(StrEnum):
    AUTO = "auto"
    NONE = "none"
    WORKTREE = "worktree"
    OFFLINE = "offline"


class AlreadyFailing(StrEnum):
    """What to do about checks that fail before the work begins."""

    TOLERATE = "tolerate"  # only new failures reject
    STOP = "stop"  # no agent begins on a red base


class FinalReview(StrEnum):
    """What the last review before a merge must have seen, in a later round."""

    FULL = "full"
    DELTA = "delta"  # what changed since the review before is enough


class CommitHooks(StrEnum):
    """What the repository's own commit hooks mean for the merge into the base. They are never run on our commits."""

    SKIP = "skip"
    STOP = "stop"  # a person merges by hand


class Decisions(StrEnum):
    """Who may decide through the MCP server."""

    ASK = "ask"  # the person, who is asked by their program
    NEVER = "never"
    AGENT = "agent"  # their agent, but for the merge and the end of a feature


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A table of the file."""


class Agent(Settings, frozen=True):
    harness: HarnessKind
    command: tuple[Text, ...] = ()
    timeout_s: Seconds = 1800
    first_sign_s: Seconds = 300  # how long to wait for the first sign of its model
    max_retries: NotNegative = 3
    template: TemplatePrefix | None = None  # None: from the harness
    num_agents: AtLeastOne = 1
    attempts: Attempts = 1  # at each package, of which the best is taken
    env: tuple[VariableName, ...] = ()
    model: Text | None = None  # None: the program's own choice
    mcp_tools: bool | None = None  # our commands as MCP tools; None: where no sandbox holds it, so its shell is closed
    sign_in: bool = True  # whether the files of the person's sign-in are lent to its jobs
    fallback: str | None = None  # the agent that steps in while this one rests at a limit of its provider
    hosts: tuple[HostPattern, ...] = ()  # that its jobs may reach besides those of its provider
    scenario: Text | None = None  # of a scripted agent, from the root of the repository


class RunSettings(Settings, frozen=True):
    max_review_cycles: AtLeastOne = 5
    max_revisions: AtLeastOne = 3
    parallel: AtLeastOne = 2
    contest: tuple[str, ...] = ()  # the agents that each try a package: the best attempt is taken
    final_review: FinalReview = FinalReview.FULL
    sandbox: Sandbox = Sandbox.AUTO
    setup_hosts: tuple[HostPattern, ...] = ()  # all that setups may reach; none: everything, and nothing at `offline`
    deliver_feature_folder: bool = True
    question_wait_s: Seconds = 300  # how long an agent waits for the answer to what it asks
    commit_hooks: CommitHooks = CommitHooks.SKIP
    tool_litter: tuple[Text, ...] = LITTER  # a profile knows more


class Limits(Settings, frozen=True):
    run_cost_usd: Dollars = 20
    total_cost_usd: Dollars = 200
    run_tokens: AtLeastOne = 5_000_000
    job_memory_mib: AtLeastOne = 8_192  # of all processes of an agent, or of a check
    job_tasks: AtLeastOne = 4_096  # processes and threads
    job_disk_mib: AtLeastOne = 32_768  # of what lies in its checkout and its own folders
    job_open_files: AtLeastOne = 16_384  # of each process


class Checks(Settings, frozen=True):
    """The commands of a profile, or of one root. None: what detection finds; an empty one is not asked for."""

    root: str | None = None  # a folder of the repository, with forward slashes; "": the repository's own
    setup: str | None = None
    build: str | None = None
    test: str | None = None
    coverage: str | None = None
    lint: str | None = None
    typecheck: str | None = None
    coverage_min: Percent | None = None


class OwnWorkflow(Settings, frozen=True):
    phases: tuple[str, ...]
    noun: str | None = None


class OwnPhase(Settings, frozen=True):
    """What a phase runs and what its gate demands. None: as shipped."""

    commands: tuple[Text, ...] | None = None  # names of checks, or command lines
    artifacts: tuple[Text, ...] | None = None


class Protect(Settings, frozen=True):
    """What only a person lets an agent change, besides the shipped list."""

    paths: tuple[Text, ...] = ()


class Paths(Settings, frozen=True):
    """Where things lie, below the root of the repository. What reads `.phasegate` and `.isdlc` may read no settings."""

    project: Text = "agentd/project.md"
    templates: Text = "templates/system"
    features: Text = "kitty-specs"
    worktrees: Text = ".worktrees"


class MergeMode(StrEnum):
    LOCAL = "local"
    PULL_REQUEST = "pull-request"


class MergePer(StrEnum):
    FEATURE = "feature"
    PACKAGE = "package"  # and the feature, in the end


class MergeMethod(StrEnum):
    MERGE = "merge"
    SQUASH = "squash"
    REBASE = "rebase"


class Merge(Settings, frozen=True):
    """How a feature gets into its base."""

    mode: MergeMode = MergeMode.LOCAL
    per: MergePer = MergePer.FEATURE  # what a pull request is opened for
    automatic: bool = True  # merge at the forge what is approved and green; else a person does it there
    draft: bool = False
    reviewers: tuple[Text, ...] = ()
    labels: tuple[Text, ...] = ()
    method: MergeMethod = MergeMethod.MERGE
    queue: bool = False


class ForgeKind(StrEnum):
    GITHUB = "github"
    GITLAB = "gitlab"
    GITEA = "gitea"


class ForgeSettings(Settings, frozen=True):
    """Where pull requests go. What is empty is told from the remote."""

    remote: Text = "origin"
    kind: ForgeKind | None = None
    url: str = ""
    repository: str = ""
    token_env: str = ""  # the name of the variable that holds the token
    poll_s: Seconds = 30  # how often `run` looks at first; it slows down to ten times that
    starts: Mapping[str, Text] = msgspec.field(default_factory=dict)  # the label of an issue -> a workflow, by `sync`


class Mcp(Settings, frozen=True):
    decisions: Decisions = Decisions.ASK


class Notify(Settings, frozen=True):
    """Who is told that a person is needed, or that a run has ended."""

    command: tuple[Text, ...] = ()  # gets the event as JSON on stdin
    urls: tuple[Text, ...] = ()  # addresses, or $NAME of a variable that holds one
    secret_env: VariableName | None = None  # of the variable with the secret that webhooks are signed with
    smtp: Text = "localhost:25"  # the server for mailto:
    mail_from: Text | None = None


class Storage(Settings, frozen=True):
    """The bucket that the record is copied to; none unless `url` or `endpoint` is set."""

    url: str = ""  # s3://BUCKET/PREFIX
    endpoint: str = ""  # of an S3 server other than AWS
    bucket: Text = "agileplus-artifacts"  # where `url` names none
    region: Text = "us-east-1"
    access_key_env: VariableName | None = None  # the names of variables; without them the usual chain holds
    secret_key_env: VariableName | None = None

    @property
    def is_set(self) -> bool:
        return bool(self.url or self.endpoint)


class Fleet(Settings, frozen=True):
    """The Temporal server that has features carried out by workers on several machines."""

    server: Text = "127.0.0.1:7233"
    namespace: Text = "default"
    features: AtLeastOne = 2  # that one worker carries on at once
    open_features: AtLeastOne = 200  # in work at once; more are refused
    lost_after_s: Seconds = 300  # without a sign of its worker a step counts as lost
    home_within_s: Seconds = 60  # a worker that does not come for a step of its feature loses it to another


class Config(Settings, frozen=True):
    agents: Mapping[str, Agent] = msgspec.field(default_factory=dict)
    roles: Mapping[str, str] = msgspec.field(default_factory=dict)
    run: RunSettings = RunSettings()
    limits: Limits = Limits()
    checks: Mapping[str, Checks] = msgspec.field(default_factory=dict)
    workflows: Mapping[str, OwnWorkflow] = msgspec.field(default_factory=dict)
    paths: Paths = Paths()
    protect: Protect = Protect()
    mcp: Mcp = Mcp()
    notify: Notify = Notify()
    merge: Merge = Merge()
    forge: ForgeSettings = ForgeSettings()
    storage: Storage = Storage()
    fleet: Fleet = Fleet()
    phases: Mapping[str, OwnPhase] = msgspec.field(default_factory=dict)
    already_failing: AlreadyFailing = AlreadyFailing.TOLERATE  # written in [checks], beside the tables of profiles
