"""Options of `RayExecutor`, and Ray where there is none."""

from __future__ import annotations

from typing import Any

import pytest

from fairlane import BadValue, Mistake
from fairlane.contrib.ray import RayExecutor, actor_state


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "one of both, as in RayExecutor\\(tasks=8\\)"),
        ({"tasks": 2, "actors": 2}, "one of both"),
        ({"tasks": 0}, "tasks is 0; it must be a whole number from 1 to 256"),
        ({"actors": 1.5}, "actors is 1.5; it must be a whole number"),
        ({"tasks": 2, "setup": dict}, "a function without arguments, for actors"),
        ({"actors": 2, "setup": "load"}, "a function without arguments, for actors"),
        ({"tasks": 2, "num_gpus": -1}, "num_gpus is -1; it must be a number, 0 or more"),
        ({"tasks": 2, "num_cpus": "all"}, "num_cpus is 'all'; it must be a number, 0 or more"),
        ({"tasks": 2, "resources": ["tpu"]}, "numbers by the name of a Ray resource"),
        ({"tasks": 2, "resources": {"tpu": True}}, "resources\\['tpu'\\] is True"),
        ({"tasks": 2, "init": "auto"}, "arguments of ray.init\\(\\) by name"),
    ],
)
def test_wrong_values_are_refused_with_what_to_do(options: dict[str, Any], words: str) -> None:
    with pytest.raises(BadValue, match=words):
        RayExecutor(**options)


def test_no_cluster_is_a_sentence_and_none_is_started() -> None:
    with pytest.raises(Mistake, match=r"Ray could not be joined .* run the worker on a machine of the cluster"):
        RayExecutor(tasks=2)


def test_ray_client_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Mistake, match="run the worker on a machine of the cluster"):
        RayExecutor(tasks=2, init={"address": "ray://head:10001"})
    monkeypatch.setenv("RAY_ADDRESS", "ray://head:10001")
    with pytest.raises(Mistake, match="ray://"):
        RayExecutor(tasks=2)


def test_without_an_actor_there_is_no_state() -> None:
    with pytest.raises(Mistake, match="only handlers on actors have one"):
        actor_state()
