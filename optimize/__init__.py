"""Tuning of session programs: prompts, thresholds and k."""
