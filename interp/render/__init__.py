"""Figures for any page or notebook: plain data in, SVG and offline HTML out, in one look. They know no task."""

from headlab.interp.render.arcs import arc_diagram
from headlab.interp.render.attention import AttentionTile, attention_tiles
from headlab.interp.render.axis import Axis
from headlab.interp.render.circuit import CircuitPanel, Link, Node, circuit_diagram, token_head_logit
from headlab.interp.render.claims import VERDICTS, ClaimRow, claims_table
from headlab.interp.render.curves import CurvePanel, Level, curve_chart
from headlab.interp.render.figure import Figure
from headlab.interp.render.grid import effect_grid
from headlab.interp.render.matrices import HeadMatrices, RowGroup, weight_matrices
from headlab.interp.render.page import Beside, Details, Section, report_page
from headlab.interp.render.patterns import attention_patterns
from headlab.interp.render.phases import Phase
from headlab.interp.render.series import Curve
from headlab.interp.render.strip import Limit, StripRow, strip_chart
from headlab.interp.render.text import Rich, Span, bold, coloured, italic, mono, number, percent, signed, token
from headlab.interp.render.theme import Head
from headlab.interp.render.usage import ScoreStrip, usage_chart
from headlab.interp.render.viewer import attention_viewer

__all__ = [
    "VERDICTS",
    "AttentionTile",
    "Axis",
    "Beside",
    "CircuitPanel",
    "ClaimRow",
    "Curve",
    "CurvePanel",
    "Details",
    "Figure",
    "Head",
    "HeadMatrices",
    "Level",
    "Limit",
    "Link",
    "Node",
    "Phase",
    "Rich",
    "RowGroup",
    "ScoreStrip",
    "Section",
    "Span",
    "StripRow",
    "arc_diagram",
    "attention_patterns",
    "attention_tiles",
    "attention_viewer",
    "bold",
    "circuit_diagram",
    "claims_table",
    "coloured",
    "curve_chart",
    "effect_grid",
    "italic",
    "mono",
    "number",
    "percent",
    "report_page",
    "signed",
    "strip_chart",
    "token",
    "token_head_logit",
    "usage_chart",
    "weight_matrices",
]
