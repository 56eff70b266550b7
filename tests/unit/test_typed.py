"""Types that several threads use for the first time at once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Without `phasegate.typed`, this program ends with a segmentation fault more often than not.
PROGRAM = """
import sys, types
from threading import Barrier, Thread
import msgspec
from phasegate.typed import read_json, read_value

CLASSES = "import msgspec\\nclass T0(msgspec.Struct):\\n    a: 'int'\\n" + "".join(
    f"class T{n}(msgspec.Struct):\\n    a: 'int'\\n    inner: 'T{n - 1} | None' = None\\n" for n in range(1, 20)
)
DATA = b'{"a": 1, "inner": ' * 18 + b'{"a": 2}' + b"}" * 18
PLAIN = msgspec.json.decode(DATA)
sys.setswitchinterval(1e-6)
count = 0
for number in range(100):
    module = sys.modules[f"m{number}"] = types.ModuleType(f"m{number}")
    exec(CLASSES, module.__dict__)
    barrier, read = Barrier(4), []

    def first_use(way, data, type_):
        barrier.wait()
        read.append(way(data, type_))

    ways = [(read_json, DATA, module.T19), (read_value, PLAIN, module.T18), (read_json, DATA, module.T19 | None)]
    threads = [Thread(target=first_use, args=one) for one in [*ways, (read_json, DATA, list[module.T19] | module.T18)]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    count += len(read)
print(count)
"""


def test_threads_that_use_a_type_for_the_first_time_at_once_all_read_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "400\n", "")


@pytest.mark.parametrize(
    "code",
    [
        "import msgspec\n\nX = msgspec.json.decode(b'1', type=int)\n",
        "import msgspec\n\nX = msgspec.json.Decoder(int)\n",
        "import msgspec as m\n\nX = m.convert(1, int)\n",
        "from msgspec import convert\n\nX = convert(1, int)\n",
        "from msgspec.json import decode\n\nX = decode(b'1', type=int)\n",
        "from msgspec import msgpack\n\nX = msgpack.decode(b'', type=int)\n",
        "import msgspec\n\nX = msgspec.toml.decode('', type=dict)\n",
    ],
)
def test_nothing_else_in_the_product_may_read_into_types(code: str) -> None:
    command = [
        sys.executable,
        "-m",
        "ruff",
        "check",
        "--no-cache",
        "--stdin-filename",
        "src/phasegate/engine/x.py",
        "-",
    ]
    done = subprocess.run(command, cwd=ROOT, input=code, capture_output=True, text=True, timeout=60)
    assert (done.returncode, "TID251" in done.stdout, "phasegate.typed" in done.stdout) == (
        1,
        True,
        True,
    )
