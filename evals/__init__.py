"""Judges, statistics, studies and reports."""
