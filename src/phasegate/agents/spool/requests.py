"""Parse the commands that an agent can send to the orchestrator from inside its job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

MAX_ARGUMENTS = 32


class NextRequest(NamedTuple):
    """The block of next steps: of an event, of a phase, or of the workflow's current phase."""

    phase: str | None = None
    event: str | None = None
    as_json: bool = False


class StatusRequest(NamedTuple):
    package: str | None
    as_json: bool = False
    feature_slug: str | None = None


class WorktreeListRequest(NamedTuple):
    include_all: bool
    as_json: bool = False
    feature_slug: str | None = None


class SpecCheckRequest(NamedTuple):
    """A document with its content; or a folder, with its documents as a JSON object."""

    path: str
    content: str
    as_json: bool = False
    documents: str | None = None


class CheckRequest(NamedTuple):
    as_json: bool = False


class ArtifactWriteRequest(NamedTuple):
    # None: the feature of the job
    feature_slug: str | None
    relative_path: str
    content: str


class ArtifactReadRequest(NamedTuple):
    feature_slug: str | None
    relative_path: str


class ArtifactListRequest(NamedTuple):
    feature_slug: str | None
    as_json: bool = False


class AskRequest(NamedTuple):
    """A question to the user; with `question_id`, a query whether that question was answered."""

    text: str
    options: tuple[str, ...] = ()
    question_id: str = ""


SpoolRequest = (
    NextRequest
    | StatusRequest
    | WorktreeListRequest
    | SpecCheckRequest
    | CheckRequest
    | ArtifactWriteRequest
    | ArtifactReadRequest
    | ArtifactListRequest
    | AskRequest
)


def describe_request(request: SpoolRequest, exit_status: int) -> str:
    """Return the command of a request, for the trail.

    It is empty while a question has no answer, and for artifacts, which have a separate entry.
    """
    match request:
        case AskRequest(question_id=""):
            words = f"ask {request.text}"
        case AskRequest() if exit_status == 0:
            words = f"ask (answer to {request.question_id})"
        case StatusRequest():
            words = f"status {request.package or ''}"
        case WorktreeListRequest():
            words = "worktree list"
        case SpecCheckRequest():
            words = f"spec check {request.path}"
        case ArtifactReadRequest():
            words = f"artifact read {request.relative_path}"
        case ArtifactListRequest():
            words = "artifact list"
        case NextRequest():
            words = "next"
        case _:
            return ""

    return f"phasegate {words}".rstrip()


class InvalidSpoolRequest(ValueError):
    """An invalid request; the message is shown to the agent."""


def parse_spool_request(arguments: Sequence[str]) -> SpoolRequest:
    """Parse the arguments of a command, or raise InvalidSpoolRequest.

    The handler of the request checks its values.
    """
    if len(arguments) > MAX_ARGUMENTS:
        raise InvalidSpoolRequest("too many arguments")
    if arguments[:1] == ["ask"]:
        return _parse_ask(arguments[1:])

    parser = _ArgumentParser(arguments)
    request = _parse_command(parser)
    if parser.words or parser.options:
        raise InvalidSpoolRequest(f"unexpected: {' '.join([*parser.words, *parser.options])[:200]}")

    return request


def _parse_command(parser: _ArgumentParser) -> SpoolRequest:
    """Build the request of a command and its subcommand."""
    command = parser.take_word()
    subcommand = None
    if parser.words and parser.words[0] in _SUBCOMMANDS:
        subcommand = parser.take_word()

    match command, subcommand:
        case "worktree", "list":
            return WorktreeListRequest(
                parser.take_flag("--all"),
                parser.take_flag("--json"),
                parser.take_option("--feature-slug"),
            )
        case "artifact", "write":
            return ArtifactWriteRequest(
                parser.take_option("--feature-slug"),
                *parser.take_required("--relative-path", "--content"),
            )
        case "artifact", "read":
            return ArtifactReadRequest(
                parser.take_option("--feature-slug"), *parser.take_required("--relative-path")
            )
        case "artifact", "list":
            return ArtifactListRequest(
                parser.take_option("--feature-slug"), parser.take_flag("--json")
            )
        case "check", None:
            return CheckRequest(parser.take_flag("--json"))
        case "spec", "check":
            documents = parser.take_option("--documents")
            return SpecCheckRequest(
                parser.take_word() or "",
                parser.take_required("--content")[0] if documents is None else "",
                parser.take_flag("--json"),
                documents,
            )
        case "status", None:
            # Everything is shown anyway.
            parser.take_flag("--all")
            return StatusRequest(
                parser.take_word(), parser.take_flag("--json"), parser.take_option("--feature-slug")
            )
        case "next", None:
            return NextRequest(
                parser.take_option("--phase"),
                parser.take_option("--event"),
                parser.take_flag("--json"),
            )

    raise InvalidSpoolRequest(
        "not available inside a job; `phasegate --help` lists the available commands"
    )


def _parse_ask(arguments: Sequence[str]) -> AskRequest:
    """Parse the words of `ask`: text, suggested answers and the id of an open question."""
    words: list[str] = []
    options: list[str] = []
    question_id = ""
    pending = [*arguments]

    while pending:
        word = pending.pop(0)
        name, equals, value = word.partition("=")

        if name in ("--option", "--known"):
            if not equals and not pending:
                raise InvalidSpoolRequest(f"{name} needs a value")

            if not equals:
                value = pending.pop(0)

            if name == "--known":
                question_id = value
            else:
                options.append(value)
        elif word.startswith("--"):
            raise InvalidSpoolRequest(f"unexpected: {word[:200]}")
        else:
            words.append(word)

    if bool(question_id) == bool(words) or len(words) > 1:
        raise InvalidSpoolRequest('expected one question: ask "..." [--option A --option B]')

    return AskRequest("".join(words), tuple(options), question_id)


_SUBCOMMANDS = ("list", "write", "read", "check")
_VALUE_OPTIONS = (
    "--feature-slug",
    "--relative-path",
    "--content",
    "--documents",
    "--phase",
    "--event",
)
_OPTION_ALIASES = {"--feature": "--feature-slug"}
_FLAGS = ("--json", "--all")


class _ArgumentParser:
    """A parser that splits arguments into words and options; each `take_` call removes one."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self.words: list[str] = []
        self.options: dict[str, str] = {}
        pending = [*arguments]
        while pending:
            self._sort_argument(pending.pop(0), pending)

    def _sort_argument(self, argument: str, following: list[str]) -> None:
        """Store one argument as a word, an option with its value, or a flag."""
        name, equals, value = argument.partition("=")
        name = _OPTION_ALIASES.get(name, name)

        if not argument.startswith("--"):
            self.words.append(argument)
        elif name in self.options:
            raise InvalidSpoolRequest(f"{name} is given twice")
        elif name in _VALUE_OPTIONS and (equals or following):
            if equals:
                self.options[name] = value
            else:
                self.options[name] = following.pop(0)
        elif argument in _FLAGS:
            self.options[argument] = ""
        else:
            raise InvalidSpoolRequest(f"{name[:100]} is unknown or needs a value")

    def take_word(self) -> str | None:
        if self.words:
            return self.words.pop(0)
        return None

    def take_option(self, name: str) -> str | None:
        return self.options.pop(name, None)

    def take_flag(self, name: str) -> bool:
        return self.options.pop(name, None) is not None

    def take_required(self, *names: str) -> list[str]:
        missing = [name for name in names if name not in self.options]
        if missing:
            raise InvalidSpoolRequest(f"missing: {', '.join(missing)}")
        return [self.options.pop(name) for name in names]
