"""Fuzz targets of the core, run from Python."""
