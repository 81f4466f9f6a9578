"""Data sets of personas and benchmarks, and their loaders."""

from .personas import load_personas

__all__ = ["load_personas"]
