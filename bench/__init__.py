"""Benchmarks against stock vLLM; ``python -m bench`` runs them all.

Each measures the same work on both sides in one run, on one thread, and checks that the
answers are equal before it looks at a clock. Times are CPU time of the measuring
thread, so that what else the machine does counts as little as it can.

A module of this folder with a function ``measure() -> Section`` is a part of
``docs/performance.md``; ``bench/__main__.py`` lists them.
"""
