"""A stand-in for a model on loopback: the real agent programs run against it, as a scenario says.

with Standin(Write("a.txt", "text"), Say("done")) as model:
    ...  # an agent whose base URL is model.url
assert prompt in model.seen[0].text
"""

from support.standin.server import Seen, Standin
from support.standin.turns import Cut, Fail, Garble, Hang, Say, Script, Shell, Tool, Turn, Write

__all__ = [
    "Cut",
    "Fail",
    "Garble",
    "Hang",
    "Say",
    "Script",
    "Seen",
    "Shell",
    "Standin",
    "Tool",
    "Turn",
    "Write",
]
