"""Data sets of personas, benchmarks and sessions, and their loaders."""

from .benchmarks import Benchmark, Task, load_benchmark
from .labels import load_labels
from .personas import load_personas
from .rubrics import RUBRICS, Dimension, Rubric, load_rubric
from .sessions import sessions_to_dataset
from .splits import split_of

__all__ = [
    "RUBRICS",
    "Benchmark",
    "Dimension",
    "Rubric",
    "Task",
    "load_benchmark",
    "load_labels",
    "load_personas",
    "load_rubric",
    "sessions_to_dataset",
    "split_of",
]
