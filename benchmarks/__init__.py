"""The benchmarks and their tables; not part of the installed package."""
