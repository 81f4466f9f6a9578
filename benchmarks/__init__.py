"""Measurements of salon itself, as ratios within one run."""
