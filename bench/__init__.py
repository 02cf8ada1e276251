"""Benchmarks: `make bench` measures each figure beside a bare engine in the same run, and writes build/bench.json."""
