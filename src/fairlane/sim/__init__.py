"""The simulator: replays workloads under other policies, with the policy and dispatch code of production."""
