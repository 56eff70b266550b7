"""The harnesses: all data about agent programs, one row each.

Configuration, templates, hooks, `init`, `agents` and the sandbox use these rows. How a program is
driven is in `agents/programs/`, in a module of the same name as its row. Commands with a short
start-up time load this module: it imports only `light_tuple`.
"""

from __future__ import annotations

from phasegate.core.text.light_tuple import Light

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

ACP = "acp"
COMMAND = "command"
SCRIPTED = "scripted"
# Headers in which providers expect their key
KEY_HEADERS = ("authorization", "x-api-key", "api-key", "x-goog-api-key")
NEXT_CONTEXT_COMMAND = "phasegate next --as context"


class HookFile(Light):
    """The hook settings file of a program in a repository, and its format."""

    file: str
    event: str
    command: str = "phasegate next --as message"
    # Handlers are in groups, each with its own `matcher`
    grouped: bool = True
    # Entries that a new file must start with
    initial_entries: tuple[tuple[str, int], ...] = ()
    remark: str = ""


class McpConfigFile(Light):
    """The file of a repository from which a program reads MCP servers: a table by name."""

    file: str
    table: str = "mcpServers"
    # The program and its arguments are one list
    command_is_list: bool = False
    remark: str = ""


class HarnessRow(Light):
    """One kind of agent program. CONTRIBUTING.md explains each field."""

    # The value of `harness = "..."`, and the name of its module in `agents/programs/`
    kind: str
    # Prefix of its system templates
    template: str
    # Agent name in the configuration that `init` writes; empty: none is written
    default_agent: str = ""
    # Default program; empty: a command must be configured
    program: str = ""
    # Arguments of the default program, if another module drives it
    arguments: tuple[str, ...] = ()
    # Module that drives it, such as `acp`; empty: the one of the same name
    driver: str = ""
    # Other names of the program
    aliases: tuple[str, ...] = ()
    # npm package
    npm_package: str = ""
    # How to install it if there is no npm package
    install_hint: str = ""
    # Oldest version that is known to work
    min_version: str = ""
    # Version that tests/agents runs; empty: never tested
    tested_version: str = ""
    # Arguments that print its version
    version_arguments: tuple[str, ...] = ()
    # Environment variables with a key; one of them is enough
    key_variables: tuple[str, ...] = ()
    # Headers that authorize its requests: the egress proxy inserts the key there only
    key_headers: tuple[str, ...] = KEY_HEADERS
    # Environment variables with the endpoint, model and similar
    setting_variables: tuple[str, ...] = ()
    # Credential files in the home folder, shared with a job
    sign_in_files: tuple[str, ...] = ()
    # Hint for users without key and credential file
    sign_in_hint: str = ""
    # Hosts of its provider: reachable by its jobs if the network is restricted
    hosts: tuple[str, ...] = ()
    # Variable of the base URL, its default, and the variable of the key sent there
    base_url: tuple[str, str, str] = ("", "", "")
    # Paths in the home folder that no job may see
    private_paths: tuple[str, ...] = ()
    # None: its settings files have no hooks
    hooks: HookFile | None = None
    # None: it reads no MCP servers from the repository
    mcp: McpConfigFile | None = None
    # Programs that are this harness when driven by ACP
    acp_programs: tuple[str, ...] = ()
    # Environment variables that make it ask for permission when driven by ACP
    acp_env: tuple[tuple[str, str], ...] = ()
    # Paths in a repository with programs that it would run with access to its key, and that cannot
    # be disabled
    repository_programs: tuple[str, ...] = ()

    @property
    def install_instruction(self) -> str:
        if self.npm_package:
            return f"npm install -g {self.npm_package}@latest"
        return self.install_hint

    @property
    def variables(self) -> tuple[str, ...]:
        return (*self.key_variables, *self.setting_variables)

    @property
    def command(self) -> tuple[str, ...]:
        if self.program:
            return (self.program, *self.arguments)
        return ()


# In order of preference: of those that `init` finds, the first one writes, the second criticises.
_ROWS = (
    HarnessRow(
        kind="claude_code",
        template="CLAUDE",
        default_agent="claude",
        program="claude",
        aliases=("claude-code",),
        npm_package="@anthropic-ai/claude-code",
        min_version="2.1.52",
        tested_version="2.1.326",
        version_arguments=("--version",),
        key_variables=("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"),
        key_headers=("x-api-key", "authorization"),
        setting_variables=("ANTHROPIC_BASE_URL",),
        sign_in_files=(".claude/.credentials.json",),
        sign_in_hint="sign in with `claude` and `/login`, or set ANTHROPIC_API_KEY",
        hosts=("*.anthropic.com", "*.claude.com", "claude.ai"),
        base_url=("ANTHROPIC_BASE_URL", "https://api.anthropic.com", "ANTHROPIC_API_KEY"),
        private_paths=(".claude", ".claude.json"),
        hooks=HookFile(".claude/settings.json", "Stop"),
        mcp=McpConfigFile(".mcp.json", remark="Claude Code asks once whether it may start it"),
        acp_programs=("claude-agent-acp", "claude-code-acp"),
    ),
    HarnessRow(
        kind="codex",
        template="CODEX",
        default_agent="codex",
        program="codex",
        npm_package="@openai/codex",
        min_version="0.164.0",
        tested_version="0.169.0",
        version_arguments=("--version",),
        key_variables=("CODEX_API_KEY", "OPENAI_API_KEY"),
        key_headers=("authorization",),
        sign_in_files=(".codex/auth.json",),
        sign_in_hint="sign in with `codex login`, or set CODEX_API_KEY",
        hosts=("*.openai.com", "chatgpt.com", "*.chatgpt.com"),
        private_paths=(".codex",),
        hooks=HookFile(
            ".codex/hooks.json",
            "Stop",
            remark="Codex asks once whether it may run it: see /hooks there",
        ),
        mcp=McpConfigFile(
            ".codex/config.toml", "mcp_servers", remark="Codex reads it in a project that it trusts"
        ),
    ),
    HarnessRow(
        kind="gemini",
        template="GEMINI",
        default_agent="gemini",
        program="gemini",
        npm_package="@google/gemini-cli",
        min_version="0.27.0",
        tested_version="0.61.0",
        version_arguments=("--version",),
        key_variables=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        key_headers=("x-goog-api-key", "authorization"),
        setting_variables=(
            "GOOGLE_GENAI_USE_VERTEXAI",
            "GOOGLE_GENAI_USE_GCA",
            "GOOGLE_CLOUD_PROJECT",
            "GOOGLE_CLOUD_LOCATION",
            "GOOGLE_GEMINI_BASE_URL",
            "GOOGLE_VERTEX_BASE_URL",
        ),
        sign_in_files=(".gemini/oauth_creds.json", ".gemini/google_accounts.json"),
        sign_in_hint="sign in with `gemini`, or set GEMINI_API_KEY",
        # Not all of googleapis.com: anyone can have a bucket there
        hosts=(
            "generativelanguage.googleapis.com",
            "cloudcode-pa.googleapis.com",
            "oauth2.googleapis.com",
            "aiplatform.googleapis.com",
            "accounts.google.com",
        ),
        base_url=(
            "GOOGLE_GEMINI_BASE_URL",
            "https://generativelanguage.googleapis.com",
            "GEMINI_API_KEY",
        ),
        private_paths=(".gemini",),
        hooks=HookFile(
            ".gemini/settings.json", "AfterAgent", remark="Gemini CLI 0.26 or later runs it"
        ),
        mcp=McpConfigFile(".gemini/settings.json"),
        acp_programs=("gemini",),
    ),
    HarnessRow(
        kind="cursor",
        template="CURSOR",
        default_agent="cursor",
        program="cursor-agent",
        install_hint="see the documentation of the Cursor CLI: it has no package",
        version_arguments=("--version",),
        key_variables=("CURSOR_API_KEY",),
        sign_in_files=(".config/cursor/auth.json",),
        sign_in_hint="sign in with `cursor-agent login`, or set CURSOR_API_KEY",
        hosts=("*.cursor.sh", "*.cursor.com"),
        private_paths=(".cursor",),
        # Its `stop` hook would send the message to the agent and so start the next turn: the steps
        # are shown at the start of a session instead (from its documentation; not tested).
        hooks=HookFile(
            ".cursor/hooks.json",
            "sessionStart",
            NEXT_CONTEXT_COMMAND,
            grouped=False,
            initial_entries=(("version", 1),),
        ),
        mcp=McpConfigFile(".cursor/mcp.json"),
    ),
    HarnessRow(
        kind="opencode",
        template="OPENCODE",
        default_agent="opencode",
        program="opencode",
        npm_package="opencode-ai",
        min_version="1.17.18",
        tested_version="1.18.33",
        version_arguments=("--version",),
        key_variables=(
            "OPENCODE_CONFIG_CONTENT",
            "OPENCODE_API_KEY",
            "ANTHROPIC_API_KEY",
            "OPENAI_API_KEY",
            "GEMINI_API_KEY",
            "GOOGLE_GENERATIVE_AI_API_KEY",
            "OPENROUTER_API_KEY",
            "GROQ_API_KEY",
            "MISTRAL_API_KEY",
            "DEEPSEEK_API_KEY",
        ),
        sign_in_files=(".local/share/opencode/auth.json",),
        sign_in_hint=(
            "sign in with `opencode auth login`, "
            "or set the key of your provider, such as OPENAI_API_KEY"
        ),
        hosts=(
            "opencode.ai",
            "*.anthropic.com",
            "*.openai.com",
            "generativelanguage.googleapis.com",
            "openrouter.ai",
            "api.groq.com",
            "api.mistral.ai",
            "api.deepseek.com",
        ),
        private_paths=(".local/share/opencode",),
        mcp=McpConfigFile("opencode.json", "mcp", command_is_list=True),
        acp_programs=("opencode",),
        acp_env=(("OPENCODE_PERMISSION", '{"edit":"ask","bash":"ask","webfetch":"deny"}'),),
    ),
    HarnessRow(
        kind="qwen",
        template="QWEN",
        default_agent="qwen",
        program="qwen",
        npm_package="@qwen-code/qwen-code",
        min_version="0.21.2",
        tested_version="0.24.4",
        version_arguments=("--version",),
        key_variables=("OPENAI_API_KEY",),
        key_headers=("authorization",),
        setting_variables=("OPENAI_BASE_URL", "OPENAI_MODEL"),
        sign_in_files=(".qwen/oauth_creds.json",),
        sign_in_hint=(
            "set OPENAI_API_KEY (and OPENAI_BASE_URL for another service); "
            'to sign in with Qwen, set `command = ["qwen", "--auth-type", "qwen-oauth"]`'
        ),
        hosts=(
            "api.openai.com",
            "dashscope.aliyuncs.com",
            "dashscope-intl.aliyuncs.com",
            "chat.qwen.ai",
            "portal.qwen.ai",
        ),
        private_paths=(".qwen",),
        hooks=HookFile(".qwen/settings.json", "Stop"),
        mcp=McpConfigFile(".qwen/settings.json"),
        acp_programs=("qwen",),
    ),
    HarnessRow(
        kind="copilot",
        template="COPILOT",
        default_agent="copilot",
        program="copilot",
        arguments=("--acp", "--no-auto-update"),
        driver=ACP,
        npm_package="@github/copilot",
        tested_version="1.0.102",
        version_arguments=("--version",),
        key_variables=(
            "COPILOT_GITHUB_TOKEN",
            "COPILOT_PROVIDER_API_KEY",
            "COPILOT_PROVIDER_BASE_URL",
        ),
        setting_variables=(
            "COPILOT_MODEL",
            "COPILOT_PROVIDER_TYPE",
            "COPILOT_PROVIDER_WIRE_API",
            "COPILOT_PROVIDER_MODEL_ID",
            "COPILOT_PROVIDER_WIRE_MODEL",
            "COPILOT_OFFLINE",
            "COPILOT_GH_HOST",
        ),
        sign_in_hint=(
            "set COPILOT_GITHUB_TOKEN; "
            "or COPILOT_PROVIDER_BASE_URL and COPILOT_MODEL for a model of your own"
        ),
        hosts=("api.github.com", "*.githubcopilot.com"),
        private_paths=(".copilot",),
        # `disableAllHooks` in its settings does not disable them
        repository_programs=(".github/hooks",),
        acp_programs=("copilot",),
    ),
    HarnessRow(kind=ACP, template="ACP"),
    HarnessRow(kind=COMMAND, template="COMMAND"),
    HarnessRow(kind=SCRIPTED, template="SCRIPTED"),
)
HARNESSES: dict[str, HarnessRow] = {row.kind: row for row in _ROWS}
# Programs that users install
INSTALLABLE_HARNESSES: dict[str, HarnessRow] = {row.kind: row for row in _ROWS if row.program}


def find_harness_kind(name: str) -> str | None:
    """Return the harness kind for a name given by the user: kind, agent, program or alias."""
    return next(
        (
            row.kind
            for row in _ROWS
            if name in (row.kind, row.default_agent, row.program, *row.aliases)
        ),
        None,
    )


def find_harness_row(kind: str, command: Sequence[str]) -> HarnessRow | None:
    """Return the row of an agent's program, or None if unknown.

    A program driven by ACP has the row of the harness that it is.
    """
    if kind != ACP:
        return INSTALLABLE_HARNESSES.get(kind)

    if not command:
        return None

    program = command[0].rpartition("/")[2]
    return next((row for row in _ROWS if program in row.acp_programs), None)
