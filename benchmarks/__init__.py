"""Benchmarks: `python -m benchmarks`. Plain scripts; nothing here is part of the package."""
