"""Data sets of personas and benchmarks, and their loaders."""
