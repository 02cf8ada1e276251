"""Handlers on a Ray cluster: `RayExecutor` runs the documents of a worker as Ray tasks, or on actors that keep a loaded model.

from fairlane import Worker
from fairlane.contrib.ray import RayExecutor

worker = Worker("postgresql://fairlane@db/fairlane", executor=RayExecutor(actors=4, num_gpus=1, setup=load_model))
"""

try:
    import ray as _ray  # noqa: F401
except ImportError as error:
    raise ImportError(
        'fairlane.contrib.ray needs Ray, which is not installed here; run in the clone: pip install ".[ray]"'
    ) from error

from .executor import RayExecutor
from .remote import actor_state

__all__ = ["RayExecutor", "actor_state"]
