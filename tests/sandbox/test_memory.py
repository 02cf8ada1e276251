"""What is made after a template has put its memory in order lies together, whatever holes there were before."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from fairlane.sandbox import memory

OBJECTS = """
held = [bytes(number % 480) for number in range(200_000)]
del held[::20]

def make():
    return [id(one) for one in [bytes(2 + number % 470) for number in range(2_000)]]
"""
PIECES = """
library = ctypes.CDLL(None)
library.malloc.restype = ctypes.c_void_p
held = [library.malloc(ctypes.c_size_t(520 + 16 * (number % 100))) for number in range(20_000)]
for place in held[::20]:
    library.free(ctypes.c_void_p(place))

def make():
    return [library.malloc(ctypes.c_size_t(520 + 16 * (number % 100))) for number in range(500)]
"""
SCRIPT = """
import ctypes, json
from fairlane.sandbox import memory
{holes}
def pages():
    return len({{place >> 12 for place in make()}})

before = pages()
memory.leave_in_order()
print(json.dumps([before, pages()]))
"""


@pytest.mark.parametrize(("holes", "least"), [(OBJECTS, 120), (PIECES, 150)])
def test_what_is_made_next_lies_together(holes: str, least: int) -> None:
    """Of what was made before, one in twenty is gone: in each page there is a little room."""
    variables = {**os.environ, "GLIBC_TUNABLES": memory.settings(), "PYTHONMALLOC": "pymalloc"}
    command = [sys.executable, "-c", SCRIPT.format(holes=holes)]
    told = subprocess.run(command, env=variables, capture_output=True, text=True, check=True).stdout
    before, after = json.loads(told)
    assert least < after < before / 2
    assert after < 1.6 * least
