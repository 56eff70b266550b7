"""What can be set, with types, bounds and defaults.

No secrets: `env` holds names of variables, not their values.
"""

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
# A week
Seconds = Annotated[float, Meta(gt=0, le=604_800)]
Dollars = Annotated[float, Meta(gt=0, le=1_000_000_000)]
# At one package
MAX_ATTEMPTS = 8
Attempts = Annotated[int, Meta(ge=1, le=MAX_ATTEMPTS)]
Percent = Annotated[float, Meta(ge=0, le=100)]
NonEmptyText = Annotated[str, Meta(min_length=1, pattern=r"^[^\x00]*$")]
VariableName = Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
HostPattern = Annotated[str, Meta(pattern=r"^(\*|(\*\.)?[A-Za-z0-9_.:\[\]-]+)$")]
TemplatePrefix = Annotated[str, Meta(pattern=r"^[A-Z][A-Z0-9_]*$")]


if TYPE_CHECKING:
    HarnessKind = str
else:
    # The words are those of the table
    HarnessKind = StrEnum("HarnessKind", {kind.upper(): kind for kind in HARNESSES})


class SandboxMode(StrEnum):
    AUTO = "auto"
    NONE = "none"
    WORKTREE = "worktree"
    OFFLINE = "offline"


class AlreadyFailingPolicy(StrEnum):
    """What to do about checks that fail before the work begins."""

    # Only new failures reject
    TOLERATE = "tolerate"
    # No agent begins on a red base
    STOP = "stop"


class FinalReview(StrEnum):
    """What the last review before a merge must have seen, in a later round."""

    FULL = "full"
    # What changed since the review before is enough
    DELTA = "delta"


class CommitHookPolicy(StrEnum):
    """What the repository's own commit hooks mean for the merge into the base.

    They are never run on our commits.
    """

    SKIP = "skip"
    # A person merges by hand
    STOP = "stop"


class McpDecisionPolicy(StrEnum):
    """Who may decide through the MCP server."""

    # The person, who is asked by their program
    ASK = "ask"
    NEVER = "never"
    # Their agent, but for the merge and the end of a feature
    AGENT = "agent"


class SettingsTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A table of the file."""


class AgentSettings(SettingsTable, frozen=True):
    harness: HarnessKind
    command: tuple[NonEmptyText, ...] = ()
    timeout_s: Seconds = 1800
    # How long to wait for the first sign of its model
    first_sign_s: Seconds = 300
    max_retries: NonNegativeInt = 3
    # None: from the harness
    template: TemplatePrefix | None = None
    num_agents: PositiveInt = 1
    # At each package, of which the best is taken
    attempts: Attempts = 1
    env: tuple[VariableName, ...] = ()
    # None: the program's own choice
    model: NonEmptyText | None = None
    # Our commands as MCP tools; None: where no sandbox holds it, so its shell is closed
    mcp_tools: bool | None = None
    # Whether the files of the person's sign-in are lent to its jobs
    sign_in: bool = True
    # The agent that steps in while this one rests at a limit of its provider
    fallback: str | None = None
    # That its jobs may reach besides those of its provider
    hosts: tuple[HostPattern, ...] = ()
    # Of a scripted agent, from the root of the repository
    scenario: NonEmptyText | None = None


class RunSettings(SettingsTable, frozen=True):
    max_review_cycles: PositiveInt = 5
    max_revisions: PositiveInt = 3
    parallel: PositiveInt = 2
    # The agents that each try a package: the best attempt is taken
    contest: tuple[str, ...] = ()
    final_review: FinalReview = FinalReview.FULL
    sandbox: SandboxMode = SandboxMode.AUTO
    # All that setups may reach; none: everything, and nothing at `offline`
    setup_hosts: tuple[HostPattern, ...] = ()
    deliver_feature_folder: bool = True
    # How long an agent waits for the answer to what it asks
    question_wait_s: Seconds = 300
    commit_hooks: CommitHookPolicy = CommitHookPolicy.SKIP
    # A profile knows more
    tool_litter: tuple[NonEmptyText, ...] = LITTER_PATTERNS


class LimitSettings(SettingsTable, frozen=True):
    run_cost_usd: Dollars = 20
    total_cost_usd: Dollars = 200
    run_tokens: PositiveInt = 5_000_000
    # Of all processes of an agent, or of a check
    job_memory_mib: PositiveInt = 8_192
    # Processes and threads
    job_tasks: PositiveInt = 4_096
    # Of what lies in its checkout and its own folders
    job_disk_mib: PositiveInt = 32_768
    # Of each process
    job_open_files: PositiveInt = 16_384


class CheckSettings(SettingsTable, frozen=True):
    """The commands of a profile, or of one root.

    None: what detection finds; an empty one is not asked for.
    """

    # A folder of the repository, with forward slashes; "": the repository's own
    root: str | None = None
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

    # Names of checks, or command lines
    commands: tuple[NonEmptyText, ...] | None = None
    artifacts: tuple[NonEmptyText, ...] | None = None


class ProtectSettings(SettingsTable, frozen=True):
    """What only a person lets an agent change, besides the shipped list."""

    paths: tuple[NonEmptyText, ...] = ()


class PathSettings(SettingsTable, frozen=True):
    """Where things lie, below the root of the repository.

    What reads `.phasegate` and `.isdlc` may read no settings.
    """

    project: NonEmptyText = "agentd/project.md"
    templates: NonEmptyText = "templates/system"
    features: NonEmptyText = "kitty-specs"
    worktrees: NonEmptyText = ".worktrees"


class MergeMode(StrEnum):
    LOCAL = "local"
    PULL_REQUEST = "pull-request"


class MergePer(StrEnum):
    FEATURE = "feature"
    # And the feature, in the end
    PACKAGE = "package"


class MergeMethod(StrEnum):
    MERGE = "merge"
    SQUASH = "squash"
    REBASE = "rebase"


class MergeSettings(SettingsTable, frozen=True):
    """How a feature gets into its base."""

    mode: MergeMode = MergeMode.LOCAL
    # What a pull request is opened for
    per: MergePer = MergePer.FEATURE
    # Merge at the forge what is approved and green; else a person does it there
    automatic: bool = True
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
    # The name of the variable that holds the token
    token_env: str = ""
    # How often `run` looks at first; it slows down to ten times that
    poll_s: Seconds = 30
    # The label of an issue -> a workflow, by `sync`
    starts: Mapping[str, NonEmptyText] = msgspec.field(default_factory=dict)


class McpSettings(SettingsTable, frozen=True):
    decisions: McpDecisionPolicy = McpDecisionPolicy.ASK


class NotifySettings(SettingsTable, frozen=True):
    """Who is told that a person is needed, or that a run has ended."""

    # Gets the event as JSON on stdin
    command: tuple[NonEmptyText, ...] = ()
    # Addresses, or $NAME of a variable that holds one
    urls: tuple[NonEmptyText, ...] = ()
    # Of the variable with the secret that webhooks are signed with
    secret_env: VariableName | None = None
    # The server for mailto:
    smtp: NonEmptyText = "localhost:25"
    mail_from: NonEmptyText | None = None


class StorageSettings(SettingsTable, frozen=True):
    """The bucket that the record is copied to; none unless `url` or `endpoint` is set."""

    # S3://BUCKET/PREFIX
    url: str = ""
    # Of an S3 server other than AWS
    endpoint: str = ""
    # Where `url` names none
    bucket: NonEmptyText = "agileplus-artifacts"
    region: NonEmptyText = "us-east-1"
    # The names of variables; without them the usual chain holds
    access_key_env: VariableName | None = None
    secret_key_env: VariableName | None = None

    @property
    def is_set(self) -> bool:
        return bool(self.url or self.endpoint)


class FleetSettings(SettingsTable, frozen=True):
    """The Temporal server that has features carried out by workers on several machines."""

    server: NonEmptyText = "127.0.0.1:7233"
    namespace: NonEmptyText = "default"
    # That one worker carries on at once
    features: PositiveInt = 2
    # In work at once; more are refused
    open_features: PositiveInt = 200
    # Without a sign of its worker a step counts as lost
    lost_after_s: Seconds = 300
    # A worker that does not come for a step of its feature loses it to another
    home_within_s: Seconds = 60


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
    # Written in [checks], beside the tables of profiles
    already_failing: AlreadyFailingPolicy = AlreadyFailingPolicy.TOLERATE
