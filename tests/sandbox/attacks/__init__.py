"""Attacks on the sandbox: what a file that has taken over its parser would try, each a real program.

Each names the promise that it breaks, what it would have done if it had worked, and its guards: everything that has to be
taken away before it does work.
"""

from __future__ import annotations

from .attack import Attack
from .on_files import READING, WRITING
from .on_limits import EXCEEDING
from .on_network import REACHING
from .on_processes import MEDDLING

ATTACKS: dict[str, Attack] = {attack.name: attack for attack in (*READING, *WRITING, *REACHING, *MEDDLING, *EXCEEDING)}
