"""Benchmarks: `make bench` measures, each figure beside a bare engine in the same run, prints a table and writes build/bench.json."""
