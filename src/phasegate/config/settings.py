"""What can be set, with types, bounds and defaults. No secrets: `env` holds names of variables, not their values."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta

from phasegate.core.agents.harnesses import HARNESSES
from phasegate.core.paths.scope import LITTER_PATTERNS

PositiveInt = Annotated[int, Meta(ge=1, le=1_000_000_000)]
NonNegativeInt = Annotated[int, Meta(ge=0, le=1_000)]
Seconds = Annotated[float, Meta(gt=0, le=604_800)]  # a week
Dollars = Annotated[float, Meta(gt=0, le=1_000_000_000)]
MAX_ATTEMPTS = 8  # at one package
Attempts = Annotated[int, Meta(ge=1, le=MAX_ATTEMPTS)]
Percent = Annotated[float, Meta(ge=0, le=100)]
NonEmptyText = Annotated[str, Meta(min_length=1, pattern=r"^[^\x00]*$")]
VariableName = Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
HostPattern = Annotated[str, Meta(pattern=r"^(\*|(\*\.)?[A-Za-z0-9_.:\[\]-]+)$")]
TemplatePrefix = Annotated[str, Meta(pattern=r"^[A-Z][A-Z0-9_]*$")]


if TYPE_CHECKING:
    HarnessKind = str
else:  # the words are those of the table
    HarnessKind = StrEnum("HarnessKind", {kind.upper(): kind for kind in HARNESSES})


class SandboxMode(StrEnum):
    AUTO = "auto"
    NONE = "none"
    WORKTREE = "worktree"
    OFFLINE = "offline"


class AlreadyFailingPolicy(StrEnum):
    """What to do about checks that fail before the work begins."""

    TOLERATE = "tolerate"  # only new failures reject
    STOP = "stop"  # no agent begins on a red base


class FinalReview(StrEnum):
    """What the last review before a merge must have seen, in a later round."""

    FULL = "full"
    DELTA = "delta"  # what changed since the review before is enough


class CommitHookPolicy(StrEnum):
    """What the repository's own commit hooks mean for the merge into the base. They are never run on our commits."""

    SKIP = "skip"
    STOP = "stop"  # a person merges by hand


class McpDecisionPolicy(StrEnum):
    """Who may decide through the MCP server."""

    ASK = "ask"  # the person, who is asked by their program
    NEVER = "never"
    AGENT = "agent"  # their agent, but for the merge and the end of a feature


class SettingsTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A table of the file."""


class AgentSettings(SettingsTable, frozen=True):
    harness: HarnessKind
    command: tuple[NonEmptyText, ...] = ()
    timeout_s: Seconds = 1800
    first_sign_s: Seconds = 300  # how long to wait for the first sign of its model
    max_retries: NonNegativeInt = 3
    template: TemplatePrefix | None = None  # None: from the harness
    num_agents: PositiveInt = 1
    attempts: Attempts = 1  # at each package, of which the best is taken
    env: tuple[VariableName, ...] = ()
    model: NonEmptyText | None = None  # None: the program's own choice
    mcp_tools: bool | None = None  # our commands as MCP tools; None: where no sandbox holds it, so its shell is closed
    sign_in: bool = True  # whether the files of the person's sign-in are lent to its jobs
    fallback: str | None = None  # the agent that steps in while this one rests at a limit of its provider
    hosts: tuple[HostPattern, ...] = ()  # that its jobs may reach besides those of its provider
    scenario: NonEmptyText | None = None  # of a scripted agent, from the root of the repository


class RunSettings(SettingsTable, frozen=True):
    max_review_cycles: PositiveInt = 5
    max_revisions: PositiveInt = 3
    parallel: PositiveInt = 2
    contest: tuple[str, ...] = ()  # the agents that each try a package: the best attempt is taken
    final_review: FinalReview = FinalReview.FULL
    sandbox: SandboxMode = SandboxMode.AUTO
    setup_hosts: tuple[HostPattern, ...] = ()  # all that setups may reach; none: everything, and nothing at `offline`
    deliver_feature_folder: bool = True
    question_wait_s: Seconds = 300  # how long an agent waits for the answer to what it asks
    commit_hooks: CommitHookPolicy = CommitHookPolicy.SKIP
    tool_litter: tuple[NonEmptyText, ...] = LITTER_PATTERNS  # a profile knows more


class LimitSettings(SettingsTable, frozen=True):
    run_cost_usd: Dollars = 20
    total_cost_usd: Dollars = 200
    run_tokens: PositiveInt = 5_000_000
    job_memory_mib: PositiveInt = 8_192  # of all processes of an agent, or of a check
    job_tasks: PositiveInt = 4_096  # processes and threads
    job_disk_mib: PositiveInt = 32_768  # of what lies in its checkout and its own folders
    job_open_files: PositiveInt = 16_384  # of each process


class CheckSettings(SettingsTable, frozen=True):
    """The commands of a profile, or of one root. None: what detection finds; an empty one is not asked for."""

    root: str | None = None  # a folder of the repository, with forward slashes; "": the repository's own
    setup: str | None = None
    build: str | None = None
    test: str | None = None
    coverage: str | None = None
    lint: str | None = None
    typecheck: str | None = None
    coverage_min: Percent | None = None


class WorkflowSettings(SettingsTable, frozen=True):
    phases: tuple[str, ...]
    noun: str | None = None


class PhaseSettings(SettingsTable, frozen=True):
    """What a phase runs and what its gate demands. None: as shipped."""

    commands: tuple[NonEmptyText, ...] | None = None  # names of checks, or command lines
    artifacts: tuple[NonEmptyText, ...] | None = None


class ProtectSettings(SettingsTable, frozen=True):
    """What only a person lets an agent change, besides the shipped list."""

    paths: tuple[NonEmptyText, ...] = ()


class PathSettings(SettingsTable, frozen=True):
    """Where things lie, below the root of the repository. What reads `.phasegate` and `.isdlc` may read no settings."""

    project: NonEmptyText = "agentd/project.md"
    templates: NonEmptyText = "templates/system"
    features: NonEmptyText = "kitty-specs"
    worktrees: NonEmptyText = ".worktrees"


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


class MergeSettings(SettingsTable, frozen=True):
    """How a feature gets into its base."""

    mode: MergeMode = MergeMode.LOCAL
    per: MergePer = MergePer.FEATURE  # what a pull request is opened for
    automatic: bool = True  # merge at the forge what is approved and green; else a person does it there
    draft: bool = False
    reviewers: tuple[NonEmptyText, ...] = ()
    labels: tuple[NonEmptyText, ...] = ()
    method: MergeMethod = MergeMethod.MERGE
    queue: bool = False


class ForgeKind(StrEnum):
    GITHUB = "github"
    GITLAB = "gitlab"
    GITEA = "gitea"


class ForgeSettings(SettingsTable, frozen=True):
    """Where pull requests go. What is empty is told from the remote."""

    remote: NonEmptyText = "origin"
    kind: ForgeKind | None = None
    url: str = ""
    repository: str = ""
    token_env: str = ""  # the name of the variable that holds the token
    poll_s: Seconds = 30  # how often `run` looks at first; it slows down to ten times that
    starts: Mapping[str, NonEmptyText] = msgspec.field(
        default_factory=dict
    )  # the label of an issue -> a workflow, by `sync`


class McpSettings(SettingsTable, frozen=True):
    decisions: McpDecisionPolicy = McpDecisionPolicy.ASK


class NotifySettings(SettingsTable, frozen=True):
    """Who is told that a person is needed, or that a run has ended."""

    command: tuple[NonEmptyText, ...] = ()  # gets the event as JSON on stdin
    urls: tuple[NonEmptyText, ...] = ()  # addresses, or $NAME of a variable that holds one
    secret_env: VariableName | None = None  # of the variable with the secret that webhooks are signed with
    smtp: NonEmptyText = "localhost:25"  # the server for mailto:
    mail_from: NonEmptyText | None = None


class StorageSettings(SettingsTable, frozen=True):
    """The bucket that the record is copied to; none unless `url` or `endpoint` is set."""

    url: str = ""  # s3://BUCKET/PREFIX
    endpoint: str = ""  # of an S3 server other than AWS
    bucket: NonEmptyText = "agileplus-artifacts"  # where `url` names none
    region: NonEmptyText = "us-east-1"
    access_key_env: VariableName | None = None  # the names of variables; without them the usual chain holds
    secret_key_env: VariableName | None = None

    @property
    def is_set(self) -> bool:
        return bool(self.url or self.endpoint)


class FleetSettings(SettingsTable, frozen=True):
    """The Temporal server that has features carried out by workers on several machines."""

    server: NonEmptyText = "127.0.0.1:7233"
    namespace: NonEmptyText = "default"
    features: PositiveInt = 2  # that one worker carries on at once
    open_features: PositiveInt = 200  # in work at once; more are refused
    lost_after_s: Seconds = 300  # without a sign of its worker a step counts as lost
    home_within_s: Seconds = 60  # a worker that does not come for a step of its feature loses it to another


class Config(SettingsTable, frozen=True):
    agents: Mapping[str, AgentSettings] = msgspec.field(default_factory=dict)
    roles: Mapping[str, str] = msgspec.field(default_factory=dict)
    run: RunSettings = RunSettings()
    limits: LimitSettings = LimitSettings()
    checks: Mapping[str, CheckSettings] = msgspec.field(default_factory=dict)
    workflows: Mapping[str, WorkflowSettings] = msgspec.field(default_factory=dict)
    paths: PathSettings = PathSettings()
    protect: ProtectSettings = ProtectSettings()
    mcp: McpSettings = McpSettings()
    notify: NotifySettings = NotifySettings()
    merge: MergeSettings = MergeSettings()
    forge: ForgeSettings = ForgeSettings()
    storage: StorageSettings = StorageSettings()
    fleet: FleetSettings = FleetSettings()
    phases: Mapping[str, PhaseSettings] = msgspec.field(default_factory=dict)
    already_failing: AlreadyFailingPolicy = (
        AlreadyFailingPolicy.TOLERATE
    )  # written in [checks], beside the tables of profiles
