"""What an agent may ask of the orchestrator from inside its job: read from arguments, into types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

MOST_ARGUMENTS = 32


class Next(NamedTuple):
    """The block of next steps: of an emission point, of a phase, or of where the workflow stands."""

    phase: str | None = None
    event: str | None = None
    as_json: bool = False


class Status(NamedTuple):
    package: str | None
    as_json: bool = False
    feature_slug: str | None = None


class WorktreeList(NamedTuple):
    everything: bool
    as_json: bool = False
    feature_slug: str | None = None


class SpecCheck(NamedTuple):
    path: str
    content: str
    as_json: bool = False


class ArtifactWrite(NamedTuple):
    feature_slug: str | None  # None: the job's own
    relative_path: str
    content: str


class ArtifactRead(NamedTuple):
    feature_slug: str | None
    relative_path: str


class ArtifactList(NamedTuple):
    feature_slug: str | None
    as_json: bool = False


class Ask(NamedTuple):
    """A question to a person; with `known`, whether that one was answered."""

    text: str
    options: tuple[str, ...] = ()
    known: str = ""


SpoolRequest = Next | Status | WorktreeList | SpecCheck | ArtifactWrite | ArtifactRead | ArtifactList | Ask


class Unanswerable(ValueError):
    """Not one of the requests above; the message is for the agent."""


def read_request(arguments: Sequence[str]) -> SpoolRequest:
    """The request that these arguments mean, or Unanswerable. Values are for whoever answers to check."""
    if len(arguments) > MOST_ARGUMENTS:
        raise Unanswerable("too many arguments")
    if arguments[:1] == ["ask"]:
        return _ask(arguments[1:])
    taken = _Taken(arguments)
    request = _request(taken)
    if taken.words or taken.options:
        raise Unanswerable(f"unexpected: {' '.join([*taken.words, *taken.options])[:200]}")
    return request


def _request(taken: _Taken) -> SpoolRequest:
    match taken.word(), taken.word() if taken.words and taken.words[0] in _SECOND_WORDS else None:
        case "worktree", "list":
            return WorktreeList(taken.flag("--all"), taken.flag("--json"), taken.option("--feature-slug"))
        case "artifact", "write":
            return ArtifactWrite(taken.option("--feature-slug"), *taken.needed("--relative-path", "--content"))
        case "artifact", "read":
            return ArtifactRead(taken.option("--feature-slug"), *taken.needed("--relative-path"))
        case "artifact", "list":
            return ArtifactList(taken.option("--feature-slug"), taken.flag("--json"))
        case "spec", "check":
            return SpecCheck(taken.word() or "", taken.needed("--content")[0], taken.flag("--json"))
        case "status", None:
            taken.flag("--all")  # all of it is shown anyway
            return Status(taken.word(), taken.flag("--json"), taken.option("--feature-slug"))
        case "next", None:
            return Next(taken.option("--phase"), taken.option("--event"), taken.flag("--json"))
    raise Unanswerable("not available inside a job; `phasegate --help` lists what is")


def _ask(arguments: Sequence[str]) -> Ask:
    words: list[str] = []
    options: list[str] = []
    known, pending = "", [*arguments]
    while pending:
        word = pending.pop(0)
        name, equals, value = word.partition("=")
        if name in ("--option", "--known"):
            if not equals and not pending:
                raise Unanswerable(f"{name} needs a value")
            value = value if equals else pending.pop(0)
            known = value if name == "--known" else known
            options += [value] if name == "--option" else []
        elif word.startswith("--"):
            raise Unanswerable(f"unexpected: {word[:200]}")
        else:
            words.append(word)
    if bool(known) == bool(words) or len(words) > 1:
        raise Unanswerable('one question: ask "..." [--option A --option B]')
    return Ask("".join(words), tuple(options), known)


_SECOND_WORDS = ("list", "write", "read", "check")
_WITH_VALUE = ("--feature-slug", "--relative-path", "--content", "--phase", "--event")
_OTHER_NAMES = {"--feature": "--feature-slug"}
_FLAGS = ("--json", "--all")


class _Taken:
    """Arguments sorted into words and options, to be taken one by one."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self.words: list[str] = []
        self.options: dict[str, str] = {}
        pending = [*arguments]
        while pending:
            self._sort(pending.pop(0), pending)

    def _sort(self, argument: str, following: list[str]) -> None:
        name, equals, value = argument.partition("=")
        name = _OTHER_NAMES.get(name, name)
        if not argument.startswith("--"):
            self.words.append(argument)
        elif name in self.options:
            raise Unanswerable(f"{name} is given twice")
        elif name in _WITH_VALUE and (equals or following):
            self.options[name] = value if equals else following.pop(0)
        elif argument in _FLAGS:
            self.options[argument] = ""
        else:
            raise Unanswerable(f"{name[:100]} is unknown or needs a value")

    def word(self) -> str | None:
        return self.words.pop(0) if self.words else None

    def option(self, name: str) -> str | None:
        return self.options.pop(name, None)

    def flag(self, name: str) -> bool:
        return self.options.pop(name, None) is not None

    def needed(self, *names: str) -> list[str]:
        missing = [name for name in names if name not in self.options]
        if missing:
            raise Unanswerable(f"missing: {', '.join(missing)}")
        return [self.options.pop(name) for name in names]
