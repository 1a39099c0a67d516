"""Two ways to compute the same patched logits: `expand` runs the model itself, `cone` computes what can change."""

from headlab.interp.engines.cells import Cells, HeadGroups
from headlab.interp.engines.cone import Cone
from headlab.interp.engines.entry import ConeSweep
from headlab.interp.engines.expand import Expand
from headlab.interp.engines.support import Unsupported

__all__ = ["Cells", "Cone", "ConeSweep", "Expand", "HeadGroups", "Unsupported"]
