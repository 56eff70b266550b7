"""Define every configuration key with its type, bounds and default.

The configuration holds no secrets: `env` lists names of variables, not their values.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta

from phasegate.core.agents.harnesses import HARNESSES
from phasegate.core.forge.checks import CheckPolicy
from phasegate.core.paths.scope import LITTER_PATTERNS

PositiveInt = Annotated[int, Meta(ge=1, le=1_000_000_000)]
NonNegativeInt = Annotated[int, Meta(ge=0, le=1_000)]
# At most a week.
Seconds = Annotated[float, Meta(gt=0, le=604_800)]
Dollars = Annotated[float, Meta(gt=0, le=1_000_000_000)]
# Parallel attempts at one work package.
MAX_ATTEMPTS = 8
Attempts = Annotated[int, Meta(ge=1, le=MAX_ATTEMPTS)]
# The limit of a plan, core/plan/work_package.py
MAX_AGENTS = 16
AgentCount = Annotated[int, Meta(ge=1, le=MAX_AGENTS)]
Percent = Annotated[float, Meta(ge=0, le=100)]
NonEmptyText = Annotated[str, Meta(min_length=1, pattern=r"^[^\x00]*$")]
VariableName = Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
HostPattern = Annotated[str, Meta(pattern=r"^(\*|(\*\.)?[A-Za-z0-9_.:\[\]-]+)$")]
TemplatePrefix = Annotated[str, Meta(pattern=r"^[A-Z][A-Z0-9_]*$")]


if TYPE_CHECKING:
    HarnessKind = str
else:
    # One member for each row of the table of harnesses.
    HarnessKind = StrEnum("HarnessKind", {kind.upper(): kind for kind in HARNESSES})


class SandboxMode(StrEnum):
    AUTO = "auto"
    NONE = "none"
    WORKTREE = "worktree"
    OFFLINE = "offline"


class AlreadyFailingPolicy(StrEnum):
    """Policy for checks that already fail on the base."""

    # Only new failures reject a change.
    TOLERATE = "tolerate"
    # No agent is started until they pass.
    STOP = "stop"


class FinalReview(StrEnum):
    """Scope of the reviews of a package from the second round on."""

    FULL = "full"
    # Only the changes since the previous review, where that saves more than it costs.
    DELTA = "delta"


class CommitHookPolicy(StrEnum):
    """What to do at the merge into the base if the repository has its own commit hooks.

    Phasegate never runs these hooks for its own commits.
    """

    SKIP = "skip"
    # Stop before the merge: a user merges by hand, so that the hooks run.
    STOP = "stop"


class McpDecisionPolicy(StrEnum):
    """Who may make decisions through the MCP server."""

    # The user, whom the MCP client asks.
    ASK = "ask"
    NEVER = "never"
    # The user's agent, except for merging and cancelling a feature.
    AGENT = "agent"


class SettingsTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base class of the tables in the configuration file. Unknown keys are errors."""


class AgentSettings(SettingsTable, frozen=True):
    """An agent: `[agents.NAME]`."""

    harness: HarnessKind
    command: tuple[NonEmptyText, ...] = ()
    timeout_s: Seconds = 1800
    # Time limit for the first output of the model.
    first_output_timeout_s: Seconds = 300
    max_retries: NonNegativeInt = 3
    # None: the template of the harness.
    template: TemplatePrefix | None = None
    num_agents: AgentCount = 1
    # Parallel attempts at each package; the best one is used.
    attempts_per_package: Attempts = 1
    env: tuple[VariableName, ...] = ()
    # None: the default of the program.
    model: NonEmptyText | None = None
    # Offer the commands of a job as MCP tools. None: only where no sandbox is available, because
    # the agent has no shell there.
    mcp_tools: bool | None = None
    # Share the user's sign-in files with its jobs.
    share_sign_in: bool = True
    # The agent to use while this one is rate-limited.
    fallback: str | None = None
    # Hosts that its jobs may reach, in addition to those of its provider.
    allowed_hosts: tuple[HostPattern, ...] = ()
    # Scenario file of a scripted agent, relative to the root of the repository.
    scenario: NonEmptyText | None = None


class RunSettings(SettingsTable, frozen=True):
    """How workflows and work packages are run: `[run]`."""

    # The workflow of `phasegate run "SENTENCE"`.
    workflow: NonEmptyText = "feature"
    max_review_cycles: PositiveInt = 5
    max_revisions: PositiveInt = 3
    parallel: PositiveInt = 2
    # Agents that each attempt every package; the best attempt is used.
    competing_agents: tuple[str, ...] = ()
    final_review: FinalReview = FinalReview.DELTA
    # At most so many packages per feature; 1: one agent does all tasks. None: as planned.
    packages: PositiveInt | None = None
    # Skip what a small, low-risk change does not need: planning phases, a second review of one
    # package, reviewers of green commands. `run --full` runs everything once.
    fit_to_size: bool = True
    sandbox: SandboxMode = SandboxMode.AUTO
    # Hosts that setup commands may reach. Empty: every host, and none at `offline`.
    setup_allowed_hosts: tuple[HostPattern, ...] = ()
    # False: like `documents = "none"` in `[deliver]`.
    merge_feature_folder: bool = True
    # How long an agent waits for the answer to its question.
    question_timeout_s: Seconds = 300
    commit_hooks: CommitHookPolicy = CommitHookPolicy.SKIP
    # Caches of common tools: neither collected nor scope violations. Profiles add their own.
    ignored_tool_files: tuple[NonEmptyText, ...] = LITTER_PATTERNS


class LimitSettings(SettingsTable, frozen=True):
    """Hard caps on cost, tokens and the resources of a job: `[limits]`."""

    run_cost_usd: Dollars = 20
    total_cost_usd: Dollars = 200
    run_tokens: PositiveInt = 5_000_000
    # Memory of all processes of one agent or one check together.
    job_memory_mib: PositiveInt = 8_192
    # Processes and threads of a job.
    job_tasks: PositiveInt = 4_096
    # Size of the checkout and the private folders of a job.
    job_disk_mib: PositiveInt = 32_768
    # Per process.
    job_open_files: PositiveInt = 16_384
    # Cached setups of the repository; the least recently used ones are removed.
    setup_cache_mib: PositiveInt = 4_096


class CheckSettings(SettingsTable, frozen=True):
    """Check commands of a profile, or of one root in a monorepo: `[checks.NAME]`.

    None: use the detected command. An empty text disables the check.
    """

    # Folder in the repository, with forward slashes; "" is the root of the repository.
    root: str | None = None
    setup: str | None = None
    build: str | None = None
    test: str | None = None
    coverage: str | None = None
    lint: str | None = None
    typecheck: str | None = None
    # A security scan, whose findings are given to the reviewer of the whole feature
    scan: str | None = None
    coverage_min: Percent | None = None


class EvidenceSettings(SettingsTable, frozen=True):
    """How acceptance tests are written, and the strength of a package's tests is measured."""

    # Workflows in which acceptance tests are written and sealed before the code.
    acceptance: tuple[NonEmptyText, ...] = ("feature",)
    # Compare with the base's tests, revert the change, and look for weakened tests.
    enabled: bool = True
    # Change the changed lines and see whether a test notices.
    mutants: bool = True
    # Time for all of it, as a multiple of the time of one test run.
    max_suite_ratio: Annotated[float, Meta(ge=0, le=100)] = 2
    # Time that is always available, for test runs of a few seconds.
    min_time_s: Seconds = 20
    # Patterns of test files, in addition to the usual names.
    test_files: tuple[NonEmptyText, ...] = ()
    # How long a flaky test neither rejects nor proves anything.
    quarantine_days: PositiveInt = 14


class WorkflowSettings(SettingsTable, frozen=True):
    """A user-defined workflow: `[workflows.NAME]`."""

    phases: tuple[str, ...]
    noun: str | None = None


class PhaseSettings(SettingsTable, frozen=True):
    """Commands of a phase and the artifacts that its gate requires. None: the shipped default."""

    # Names of checks, or command lines.
    commands: tuple[NonEmptyText, ...] | None = None
    required_artifacts: tuple[NonEmptyText, ...] | None = None


class ProtectSettings(SettingsTable, frozen=True):
    """Paths that an agent may change only with an exception, in addition to the shipped list."""

    paths: tuple[NonEmptyText, ...] = ()


class PathSettings(SettingsTable, frozen=True):
    """Paths relative to the root of the repository.

    `.phasegate` and `.isdlc` are not configurable: `phasegate next` reads them without loading the
    configuration.
    """

    # If it has this default, an existing agentd/project.md takes precedence.
    project_file: NonEmptyText = ".agentd/project.md"
    templates: NonEmptyText = "templates/system"
    features: NonEmptyText = "kitty-specs"
    worktrees: NonEmptyText = ".worktrees"


class MergeMode(StrEnum):
    LOCAL = "local"
    PULL_REQUEST = "pull-request"


class MergePer(StrEnum):
    FEATURE = "feature"
    # One pull request for each package, and one for the feature at the end.
    PACKAGE = "package"


class MergeMethod(StrEnum):
    MERGE = "merge"
    SQUASH = "squash"
    REBASE = "rebase"


class MergeSettings(SettingsTable, frozen=True):
    """How a feature is merged into its base: `[merge]`."""

    mode: MergeMode = MergeMode.LOCAL
    per: MergePer = MergePer.FEATURE
    # Merge a pull request when it is approved and green; otherwise a user merges it on the forge.
    auto_merge: bool = True
    draft: bool = False
    reviewers: tuple[NonEmptyText, ...] = ()
    labels: tuple[NonEmptyText, ...] = ()
    method: MergeMethod = MergeMethod.MERGE
    use_merge_queue: bool = False
    # Checks on the forge that must exist and pass: names, "any" for at least one, or "none". Every
    # check that has registered must pass, and so must those that the forge's rules require.
    checks: tuple[NonEmptyText, ...] | CheckPolicy = CheckPolicy.ANY
    # Rounds that remarks on a pull request may cause before a user has to decide.
    max_remark_rounds: PositiveInt = 5


class DeliveredDocuments(StrEnum):
    """Which documents of a feature are merged; all of them stay in the record."""

    # The specification as built, with the decisions.
    ONE = "one"
    # The whole folder of the feature, with the history of the branch.
    ALL = "all"
    NONE = "none"


class DeliverSettings(SettingsTable, frozen=True):
    """What is merged besides code and tests: `[deliver]`."""

    documents: DeliveredDocuments = DeliveredDocuments.ONE
    # Path of the one document. `{slug}` is the feature, `{features}` is `[paths] features`.
    document: NonEmptyText = "{features}/{slug}/spec.md"
    # Folder of the current specifications, one document for each capability.
    specs: NonEmptyText = "specs"
    # Whether an entry is written to the changelog that the project keeps.
    changelog: bool = True


class ForgeKind(StrEnum):
    GITHUB = "github"
    GITLAB = "gitlab"
    GITEA = "gitea"


class ForgeSettings(SettingsTable, frozen=True):
    """The forge that hosts the pull requests: `[forge]`. Empty values are read from the remote."""

    remote: NonEmptyText = "origin"
    kind: ForgeKind | None = None
    url: str = ""
    repository: str = ""
    # Name of the variable that holds the token.
    token_env: str = ""
    # Name of the variable that holds the secret of the forge's webhook, for `sync --listen`.
    webhook_secret_env: VariableName | None = None
    # Initial poll interval of `run`; it backs off to ten times that.
    poll_interval_s: Seconds = 30
    # Label of an issue -> workflow that `sync` starts for it.
    issue_workflows: Mapping[str, NonEmptyText] = msgspec.field(default_factory=dict)


class McpSettings(SettingsTable, frozen=True):
    """The MCP server: `[mcp]`."""

    decisions: McpDecisionPolicy = McpDecisionPolicy.ASK


class NotifySettings(SettingsTable, frozen=True):
    """Receivers of notifications when a run ends or needs the user: `[notify]`."""

    # Program that gets the event as JSON on stdin.
    command: tuple[NonEmptyText, ...] = ()
    # Addresses, or $NAME for a variable that holds one.
    urls: tuple[NonEmptyText, ...] = ()
    # Name of the variable that holds the secret for signing webhooks.
    webhook_secret_env: VariableName | None = None
    # host:port of the mail server for mailto: addresses.
    smtp_server: NonEmptyText = "localhost:25"
    mail_from: NonEmptyText | None = None


class StorageSettings(SettingsTable, frozen=True):
    """The bucket for the record: `[storage]`. Unused unless `url` or `endpoint` is set."""

    # s3://BUCKET/PREFIX
    url: str = ""
    # Address of an S3 server other than AWS.
    endpoint: str = ""
    # Used if `url` names no bucket.
    bucket: NonEmptyText = "agileplus-artifacts"
    region: NonEmptyText = "us-east-1"
    # Names of variables; without them the default credential chain of AWS applies.
    access_key_env: VariableName | None = None
    secret_key_env: VariableName | None = None

    @property
    def is_set(self) -> bool:
        return bool(self.url or self.endpoint)


class FleetSettings(SettingsTable, frozen=True):
    """The Temporal server and its workers on several machines: `[fleet]`."""

    address: NonEmptyText = "127.0.0.1:7233"
    namespace: NonEmptyText = "default"
    # How many features one worker runs at once.
    features_per_worker: PositiveInt = 2
    # Upper bound for the open features of a repository; more are refused.
    max_open_features: PositiveInt = 200
    # A step whose worker sends no heartbeat for this long counts as lost.
    heartbeat_timeout_s: Seconds = 300
    # Encrypts the connection to the server; the other tls settings imply it.
    tls: bool = False
    # Files: certificates that sign the server's, and this machine's certificate and key (mTLS).
    tls_ca_file: str = ""
    tls_cert_file: str = ""
    tls_key_file: str = ""
    # The name in the server's certificate, if it is not that of `address`.
    tls_server_name: str = ""
    # HOST:PORT at which a worker answers /healthz and /metrics; none by default.
    health_address: str = ""
    # Variable with the API key for the server, for instance of Temporal Cloud.
    api_key_env: VariableName | None = None
    # A worker that does not claim a step of its feature in time loses the feature to another one.
    claim_timeout_s: Seconds = 60


class Config(SettingsTable, frozen=True):
    """The whole configuration."""

    agents: Mapping[str, AgentSettings] = msgspec.field(default_factory=dict)
    roles: Mapping[str, str] = msgspec.field(default_factory=dict)
    run: RunSettings = RunSettings()
    limits: LimitSettings = LimitSettings()
    checks: Mapping[str, CheckSettings] = msgspec.field(default_factory=dict)
    evidence: EvidenceSettings = EvidenceSettings()
    workflows: Mapping[str, WorkflowSettings] = msgspec.field(default_factory=dict)
    paths: PathSettings = PathSettings()
    protect: ProtectSettings = ProtectSettings()
    mcp: McpSettings = McpSettings()
    notify: NotifySettings = NotifySettings()
    merge: MergeSettings = MergeSettings()
    deliver: DeliverSettings = DeliverSettings()
    forge: ForgeSettings = ForgeSettings()
    storage: StorageSettings = StorageSettings()
    fleet: FleetSettings = FleetSettings()
    phases: Mapping[str, PhaseSettings] = msgspec.field(default_factory=dict)
    # Written in [checks], next to the tables of profiles (see `_KEY_ALIASES`).
    already_failing: AlreadyFailingPolicy = AlreadyFailingPolicy.TOLERATE
