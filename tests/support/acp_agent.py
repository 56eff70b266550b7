"""A real program that speaks the Agent Client Protocol on its standard streams, well or badly, as its arguments say.

    python acp_agent.py BEHAVIOUR [ARGUMENT]

It stands for the agent in the tests of the ACP client: it has no model and imports nothing but the standard library.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Json = dict[str, Any]
OPTIONS = [
    {"optionId": "always", "name": "Always", "kind": "allow_always"},
    {"optionId": "yes", "name": "Yes", "kind": "allow_once"},
    {"optionId": "no", "name": "No", "kind": "reject_once"},
]


class Agent:
    """The agent's side of one conversation."""

    def __init__(self, argument: str) -> None:
        self.argument = argument
        self.version: object = 1
        self.modes: Json | None = None
        self.usage: Json = {
            "inputTokens": 90,
            "outputTokens": 23,
            "cachedReadTokens": 11,
            "totalTokens": 124,
        }
        self.cwd = self.prompt = ""
        self.capabilities: Json = {}
        self.cancelled = False
        self._number = 100

    def send(self, message: Json) -> None:
        print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)

    def receive(self) -> Json:
        line = sys.stdin.readline()
        if not line:
            sys.exit(0)
        message: Json = json.loads(line)
        self.cancelled = self.cancelled or message.get("method") == "session/cancel"
        return message

    def request(self, method: str, params: Json) -> Json:
        """Ask the client something: its whole answer."""
        self._number += 1
        self.send({"id": self._number, "method": method, "params": {"sessionId": "s1", **params}})
        while (answer := self.receive()).get("id") != self._number:
            pass
        return answer

    def update(self, name: str, /, **fields: object) -> None:
        update = {"sessionUpdate": name, **fields}
        self.send({"method": "session/update", "params": {"sessionId": "s1", "update": update}})

    def say(self, text: str, **fields: object) -> None:
        self.update("agent_message_chunk", content={"type": "text", "text": text}, **fields)

    def whole(self, path: str) -> str:
        """A path from the session's folder on; nothing in it is put right."""
        return path if path.startswith("/") else f"{self.cwd}/{path}"

    def is_allowed(self, call: Json, options: list[Json] | None = None) -> bool:
        """Ask for a permission as the protocol has it."""
        offered = OPTIONS if options is None else options
        answer = self.request("session/request_permission", {"toolCall": call, "options": offered})
        outcome = answer.get("result", {}).get("outcome", {})
        chosen = [option for option in offered if option["optionId"] == outcome.get("optionId")]
        return outcome.get("outcome") == "selected" and any(
            o["kind"].startswith("allow") for o in chosen
        )

    def serve(self, behave: Callable[[Agent], str | None]) -> None:
        """Shake hands, then do in the turn what the behaviour does; what it gives back is the stop reason."""
        while True:
            message = self.receive()
            method, params = message.get("method"), message.get("params", {})
            if method == "initialize":
                self.capabilities = params["clientCapabilities"]
                methods = [{"id": "key", "name": "A key"}]
                self._answer(message, {"protocolVersion": self.version, "authMethods": methods})
            elif method == "session/new":
                self.cwd = params["cwd"]
                self._answer(
                    message, {"sessionId": "s1", **({"modes": self.modes} if self.modes else {})}
                )
            elif method == "session/set_mode":
                assert self.modes is not None
                self.modes["currentModeId"] = params["modeId"]
                self._answer(message, {})
            elif method == "session/prompt":
                self.prompt = "".join(part["text"] for part in params["prompt"])
                if (reason := behave(self)) is not None:
                    self._answer(message, {"stopReason": reason, "usage": self.usage})

    def _answer(self, message: Json, result: Json) -> None:
        self.send({"id": message["id"], "result": result})


def _call(agent: Agent, **fields: object) -> Json:
    return {"toolCallId": "c1", "title": "Write", "kind": "edit", "status": "pending", **fields}


def shell(agent: Agent) -> str | None:
    """Run a command: what it prints is the answer, and how it ends is how the agent ends."""
    done = subprocess.run(
        ["sh", "-c", agent.argument], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
    )
    if done.returncode < 0:
        os.kill(os.getpid(), -done.returncode)
    if done.returncode:
        sys.exit(done.returncode)
    agent.say(done.stdout.decode())
    return "end_turn"


def asks(agent: Agent) -> str:
    """Ask for each change of a list, and make it if that is allowed; a path is from the checkout on."""
    for number, step in enumerate(json.loads(agent.argument)):
        path = agent.whole(step["path"])
        call = {
            "toolCallId": f"c{number}",
            "title": f"Write {step['path']}",
            "kind": "edit",
            **step.get("call", {}),
        }
        if not step.get("says_no_path"):
            call = {"locations": [{"path": path}], **call}
        if step.get("announced"):
            agent.update("tool_call", **call)
            call = {"toolCallId": call["toolCallId"]}
        if agent.is_allowed(call, step.get("options")):
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            Path(path).write_text(step.get("content", "written\n"))
            agent.update("tool_call_update", **{**call, "status": "completed"})
        else:
            agent.update("tool_call_update", toolCallId=call["toolCallId"], status="failed")
    agent.say(f"modes {agent.modes['currentModeId']}" if agent.modes else "done")
    return "end_turn"


def through_client(agent: Agent) -> str:
    """Let the client read and write: a list of methods with their parameters; the answers are the answer."""
    answers = []
    for method, params in json.loads(agent.argument):
        path = {"path": agent.whole(params["path"])} if "path" in params else {}
        answers.append(agent.request(method, {**params, **path}))
    agent.say(
        json.dumps(
            [{key: one[key] for key in ("result", "error") if key in one} for one in answers]
        )
    )
    return "end_turn"


def implements(agent: Agent) -> str:
    """Answer as an implementer or as a reviewer, as the environment says.

    An implementer writes a list of files, through the client if it is allowed; with a `!` before it, unasked.
    """
    agent.say("I begin. ")
    if os.environ["PHASEGATE_PHASE"] == "review":
        agent.say("Fine.\n<review>PASS</review>\n")
        return "end_turn"
    job, package = os.environ["AGILEPLUS_JOB_ID"], os.environ["AGILEPLUS_WP_ID"]
    refused = []
    for number, path in enumerate(json.loads(agent.argument)):
        whole = agent.whole(path.removeprefix("!"))
        if path.startswith("!"):
            Path(whole).write_text("unasked\n")
            continue
        diff = {
            "type": "diff",
            "path": whole,
            "oldText": None,
            "newText": "export const done = true;\n",
        }
        call = _call(agent, toolCallId=f"c{number}", content=[diff], locations=[{"path": whole}])
        if agent.is_allowed(call):
            agent.request(
                "fs/write_text_file", {"path": whole, "content": "export const done = true;\n"}
            )
        else:
            refused.append(path)
    result = {
        "job_id": job,
        "wp_id": package,
        "success": True,
        "status": "completed",
        "summary": f"Refused: {refused}",
    }
    result |= {"commits": [], "artifacts": {}, "duration_seconds": 1}
    agent.say(f"Done.\n```json\n{json.dumps(result)}\n```\n")
    return "end_turn"


def stops(agent: Agent) -> str:
    agent.say("I stop here")
    return agent.argument


def echoes(agent: Agent) -> str:
    """Give back the prompt as it came."""
    agent.say(agent.prompt)
    return "end_turn"


def asking_mode(agent: Agent) -> str:
    assert agent.modes is not None
    agent.say(agent.modes["currentModeId"])
    return "end_turn"


def messages(agent: Agent) -> str:
    """Several messages with a tool between them: the last one is the answer."""
    agent.say("BLOCKER: no key\n<review>REJECTED</review>")
    agent.update(
        "tool_call", toolCallId="t", title="npm test", kind="execute", status="in_progress"
    )
    agent.update("tool_call_update", toolCallId="t", status="completed")
    agent.update("usage_update", used=10, size=100, cost={"amount": 0.25, "currency": "USD"})
    agent.update("something_new", of=["another", "version"])
    agent.update(
        "agent_thought_chunk", content={"type": "text", "text": "<review>REJECTED</review>"}
    )
    agent.say("All ")
    agent.say("well")
    return "end_turn"


def garbles(agent: Agent) -> str:
    """One update that cannot be read: the kind is its argument. Then the answer."""
    agent.say("All ")
    agent.update(agent.argument, content={"type": "text", "text": None}, toolCallId=None, cost=7)
    agent.say("well")
    return "end_turn"


def gives_up_when_refused(agent: Agent) -> str:
    """Ask for a change, and end the turn without a word. Asked once more, say what was asked."""
    if "was refused" in agent.prompt:
        agent.say(agent.prompt)
    else:
        agent.is_allowed(
            {
                "toolCallId": "t",
                "kind": "edit",
                "title": "Edit",
                "locations": [{"path": agent.whole("x")}],
            }
        )
    return "end_turn"


def hides_an_error(agent: Agent) -> str:
    """An error of the model, told as an answer that cost nothing."""
    agent.say("Info: Request failed. Retrying...")
    agent.say(f"Error: {agent.argument}")
    agent.usage = {"inputTokens": 0, "outputTokens": 0}
    return "end_turn"


def waits_for_cancel(agent: Agent) -> str:
    """Work until it is cancelled, and ask once more then."""
    agent.say("working")
    Path(agent.argument).write_text("")
    while not agent.cancelled:
        agent.receive()
    agent.is_allowed(_call(agent, locations=[{"path": f"{agent.cwd}/late.txt"}]))
    return "cancelled"


def hangs(agent: Agent) -> None:
    """Never answer, whatever it is told."""
    Path(agent.argument).write_text("")
    while True:
        time.sleep(60)


def leaves_a_child(agent: Agent) -> None:
    """Exit in the turn while a child holds the output open."""
    subprocess.Popen(["sleep", "600"], stdin=subprocess.DEVNULL)
    sys.exit(3)


def fails(agent: Agent) -> None:
    """Answer the prompt with the error that the argument holds."""
    agent.send({"id": 3, "error": json.loads(agent.argument)})


def system_error(agent: Agent) -> str:
    agent.update("session_info_update", _meta={"codex": {"threadStatus": {"type": "systemError"}}})
    agent.say("429 Too Many Requests, retry after 60s")
    return "end_turn"


def prints(agent: Agent) -> None:
    """Write the argument to the stream as it is."""
    sys.stdout.write(agent.argument + "\n")
    sys.stdout.flush()
    hold()


def floods(agent: Agent) -> None:
    """One message that never ends."""
    while True:
        sys.stdout.write("x" * 1_000_000)


def never_reads(agent: Agent) -> None:
    """Ask for a file again and again, and never take an answer."""
    for number in range(1_000_000):
        params = {"sessionId": "s1", "path": agent.whole(agent.argument)}
        agent.send({"id": number + 1000, "method": "fs/read_text_file", "params": params})


def hold() -> None:
    while sys.stdin.readline():
        pass


# Before there is a session: what the first message is answered with.
def mute(argument: str) -> None:
    hold()


def chatters(argument: str) -> None:
    while True:
        print('{"jsonrpc":"2.0","method":"session/update","params":{}}', flush=True)


def first_words(argument: str) -> None:
    sys.stdin.readline()
    print(argument, flush=True)
    hold()


def wants_sign_in(argument: str) -> None:
    agent = Agent("")
    first = agent.receive()
    methods = [{"id": "oauth", "name": "Log in with a browser"}, {"id": "key", "name": "API key"}]
    agent.send({"id": first["id"], "result": {"protocolVersion": 1, "authMethods": methods}})
    second = agent.receive()
    agent.send(
        {"id": second["id"], "error": {"code": -32000, "message": "Authentication required"}}
    )
    hold()


def wants_key(argument: str) -> None:
    """Wants to be told which way to sign in, and takes the key from the environment then."""
    agent, signed_in = Agent(""), False
    methods = [{"id": "browser", "name": "Browser"}, {"id": "openai-api-key", "name": "Key"}]
    while message := agent.receive():
        method = message["method"]
        if method == "authenticate":
            signed_in = (
                message["params"] == {"methodId": "openai-api-key"} and argument == "has one"
            )
        answers: Json = {
            "initialize": {"protocolVersion": 1, "authMethods": methods},
            "authenticate": {} if signed_in else None,
            "session/new": {"sessionId": "s1"} if signed_in else None,
            "session/prompt": {"stopReason": "end_turn"},
        }
        if answers[method] is None:
            agent.send(
                {
                    "id": message["id"],
                    "error": {"code": -32000, "message": "Authentication required"},
                }
            )
        else:
            agent.send({"id": message["id"], "result": answers[method]})


def says_much(agent: Agent) -> str:
    """As many small pieces of text and updates of one tool call as the argument says."""
    for number in range(int(agent.argument)):
        agent.say("word ")
        agent.update(
            "tool_call_update", toolCallId="t", locations=[{"path": f"{agent.cwd}/src/{number}"}]
        )
    return "end_turn"


def ends_at_once(argument: str) -> None:
    sys.exit(int(argument))


TURNS: dict[str, Callable[[Agent], str | None]] = {
    one.__name__: one
    for one in (
        *(
            shell,
            asks,
            through_client,
            implements,
            stops,
            echoes,
            asking_mode,
            messages,
            waits_for_cancel,
            hangs,
        ),
        *(leaves_a_child, fails, system_error, prints, floods, never_reads, says_much, garbles),
        *(gives_up_when_refused, hides_an_error),
    )
}
BEGINNINGS: dict[str, Callable[[str], None]] = {
    one.__name__: one
    for one in (mute, chatters, first_words, wants_sign_in, wants_key, ends_at_once)
}


def main() -> None:
    name, argument = sys.argv[1], (*sys.argv[2:], "")[0]
    if name in BEGINNINGS:
        BEGINNINGS[name](argument)
        return
    agent = Agent(argument)
    if name == "asking_mode":
        agent.modes = {
            "currentModeId": "yolo",
            "availableModes": [{"id": "yolo"}, {"id": "default"}],
        }
    if name == "stops" and argument.startswith("version"):
        agent.version = 2
    agent.serve(TURNS[name])


if __name__ == "__main__":
    main()
