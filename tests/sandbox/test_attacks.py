"""Every attack, by root and by an ordinary user, with each layer taken away: it fails, or nothing is run at all."""

from __future__ import annotations

import os
import signal
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest

from fairlane import sandbox
from fairlane.core.errors import Mistake
from fairlane.sandbox import landlock, seccomp
from fairlane.sandbox.attempt import run_attempt
from fairlane.sandbox.confine import AttemptSpec
from fairlane.sandbox.plan import LAYERS

from .attacks import ATTACKS
from .attacks.attack import NUMBERS, Attack, Outcome, Scene, open_scene
from .harness import (
    NOBODY_UID,
    Caller,
    call_in_fork,
    is_refused,
    offered_layers,
    open_folder,
    refusal,
    wait_until_gone,
)

USERS = {"root": 0, "ordinary user": NOBODY_UID} if os.geteuid() == 0 else {"ordinary user": os.geteuid()}
FILES = frozenset({"landlock", "mount namespace"})
REMOVED: dict[str, frozenset[str]] = {
    "nothing": frozenset(),
    **{layer: frozenset({layer}) for layer in LAYERS},
    "all namespaces": sandbox.NAMESPACES,
    "all but what decides on files": frozenset(sandbox.NAMESPACES - {"mount namespace", "user namespace"}),
    "all but the mount namespace": frozenset(sandbox.NAMESPACES - {"mount namespace", "user namespace"}) | {"landlock"},
    "what decides on files": FILES,
    "user namespace and landlock": frozenset({"user namespace", "landlock"}),
    "everything but limits and seccomp": sandbox.NAMESPACES | {"landlock"},
}
OLD_LANDLOCK = (1, 3, 5)  # versions: what they do not know yet is no network, and no signals to others


def run_program(attack: Attack, scene: Scene) -> object:
    """In the confined process: what the program returns, or the error that it ends with."""
    try:
        return attack.program(scene)
    except (OSError, MemoryError, RuntimeError) as error:  # the last: Python's error for a thread that cannot start
        return f"{type(error).__name__}: {error}"


def attempt(attack: Attack, scene: Scene, without: frozenset[str], may_read_everything: bool = False) -> Outcome:
    """Run the program as a user of the sandbox does."""
    try:
        output = os.open(scene.output, os.O_RDWR | os.O_CREAT)
        program = partial(run_program, attack, scene)
        response = sandbox.run(
            program,
            attack.limits,
            [scene.input],
            output=output,
            without=without,
            may_read_everything=may_read_everything,
        )
    except Mistake as mistake:
        return Outcome("refused", str(mistake))
    except sandbox.AttemptFailed as failure:
        return Outcome(failure.code, None)
    return Outcome("value", response.value)


def play_all(without: frozenset[str], may_read_everything: bool = False) -> dict[str, list[Any]]:
    """Play every attack, in the caller's process; return for each how it ended, and whether it did harm."""
    ended: dict[str, list[Any]] = {}
    for name, attack in ATTACKS.items():
        with open_folder() as folder, open_scene(folder, is_to_hold=True) as scene:
            outcome = attempt(attack, scene, without, may_read_everything)
            is_harmed = outcome.code != "refused" and attack.is_harmed(scene, outcome)
            ended[name] = [outcome.code, str(outcome.value), is_harmed]
    return ended


def harmful(ended: dict[str, list[Any]]) -> dict[str, list[Any]]:
    return {name: outcome for name, outcome in ended.items() if outcome[2]}


@pytest.mark.parametrize("removed", REMOVED)
@pytest.mark.parametrize("user", USERS)
def test_no_attack_works_whatever_layer_is_missing(user: str, removed: str) -> None:
    caller = Caller(USERS[user], REMOVED[removed])
    ended = call_in_fork(caller, lambda: play_all(caller.without))
    assert ended.keys() == ATTACKS.keys()
    assert harmful(ended) == {}
    is_refusal = is_refused(caller.user, caller.without)
    assert {name for name, outcome in ended.items() if outcome[0] == "refused"} == (ATTACKS.keys() if is_refusal else set())
    if is_refusal:
        assert all("the sandbox cannot keep what it promises" in outcome[1] for outcome in ended.values())


@pytest.mark.parametrize("version", OLD_LANDLOCK)
def test_no_attack_works_on_an_old_landlock_alone(version: int) -> None:
    """Without namespaces, on kernels whose Landlock does not know all that today's knows."""
    if "landlock" not in offered_layers(USERS["ordinary user"]) or version > landlock.version():
        pytest.skip(f"this kernel has no Landlock of version {version}")

    def call() -> object:
        landlock.version = lambda: version
        return play_all(sandbox.NAMESPACES)

    ended = call_in_fork(Caller(USERS["ordinary user"], sandbox.NAMESPACES), call)
    assert harmful(ended) == {}
    assert "refused" not in {outcome[0] for outcome in ended.values()}


@pytest.mark.parametrize("user", USERS)
def test_whoever_gives_up_that_nothing_else_is_read_gives_up_nothing_more(user: str) -> None:
    caller = Caller(USERS[user], sandbox.NAMESPACES | FILES)
    ended = call_in_fork(caller, lambda: play_all(caller.without, may_read_everything=True))
    assert "refused" not in {outcome[0] for outcome in ended.values()}
    assert "read the database" in harmful(ended)
    assert {ATTACKS[name].promise for name in harmful(ended)} == {"reads nothing else"}


# -- the attacks are real: each works as soon as its guards are gone


def take_guards_away(attack: Attack) -> None:
    """In the caller's process, for all attempts that it starts."""
    column = 0 if os.uname().machine == "x86_64" else 1
    seccomp.ALLOWED.update({name: NUMBERS[name] for name in attack.calls if NUMBERS[name][column] is not None})
    for name in attack.rules:
        seccomp.ONLY_WITH.pop(name, None)
        seccomp.NOT_WITH.pop(name, None)
    seccomp.program.cache_clear()
    for path, value in attack.patches.items():
        owner, _, name = path.rpartition(".")
        setattr(resolve_name(owner), name, value)


def play_unguarded(attack: Attack) -> list[Any]:
    """Play an attack without its guards; return how it ended, and whether it did harm."""
    layers = sandbox.require().layers - attack.layers
    take_guards_away(attack)
    with open_folder() as folder, open_scene(folder, is_to_hold=False) as scene:
        limits = attack.limits_without or attack.limits
        spec = AttemptSpec(layers, partial(run_program, attack, scene), [os.path.realpath(scene.input)], (), limits)
        try:
            outcome = Outcome("value", run_attempt(spec, os.open(scene.output, os.O_RDWR | os.O_CREAT)).value)
        except sandbox.AttemptFailed as failure:
            outcome = Outcome(failure.code, failure.detail)
        is_harmed = attack.is_harmed(scene, outcome)
        for survivor in scene.survivors():
            os.kill(survivor, signal.SIGKILL)
        assert wait_until_gone(scene.token)
        return [outcome.code, str(outcome.value), is_harmed]


def play_outside(attack: Attack) -> list[Any]:
    """Play an attack outside of any sandbox, in a fork; return what its program returns, and whether it did harm."""
    with open_folder() as folder, open_scene(folder, is_to_hold=False) as scene:
        ended = call_in_fork(Caller(os.geteuid(), frozenset()), lambda: run_program(attack, scene))
        return [str(ended), attack.is_harmed(scene, Outcome("value", ended))]


@pytest.mark.parametrize("name", [name for name, attack in ATTACKS.items() if os.geteuid() == 0 or not attack.is_roots])
def test_every_attack_works_without_its_guards(name: str) -> None:
    """Unless this machine does not let anybody do that at all: its kernel is older, or it is a container."""
    attack = ATTACKS[name]
    caller = Caller(USERS["root"] if attack.is_roots else USERS["ordinary user"], frozenset())
    if is_refused(caller.user, caller.without):
        pytest.skip(refusal(caller))
    ended = call_in_fork(caller, lambda: play_unguarded(attack))
    if not ended[2] and (attack.calls or attack.promise != "limits"):
        value, is_harmed = call_in_fork(caller, lambda: play_outside(attack))
        if not is_harmed:
            pytest.skip(f"this machine refuses it without a sandbox too: {value}")
    assert ended[2], ended


def test_every_promise_is_attacked(tmp_path: Path) -> None:
    from fairlane.sandbox.plan import PROMISES

    assert {attack.promise for attack in ATTACKS.values()} == set(PROMISES)
