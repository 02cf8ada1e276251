"""What would another policy have done? Workloads, replay and answers, with the policy and dispatch of production."""
