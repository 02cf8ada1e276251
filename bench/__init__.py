"""How fast is it, and beside what? `make bench` measures, prints a table and writes build/bench.json."""
