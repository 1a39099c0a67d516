"""Calibration: any instrument, held to models whose circuit is certain, per kind of ablation."""

from headlab.analyses.calibrate.protocol import Calibration, Cell, calibrate
from headlab.analyses.calibrate.view import View

__all__ = ["Calibration", "Cell", "View", "calibrate"]
