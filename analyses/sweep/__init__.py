"""Sweeps: grids of trainings from a file, run on one machine or on a cluster, resumable, as a table and a chart."""
