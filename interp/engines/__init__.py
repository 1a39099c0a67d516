"""Two ways to compute the same patched logits: `expand` runs the model itself, `cone` computes what can change."""

from interp.engines.cells import Cells
from interp.engines.cone import Cone
from interp.engines.entry import ConeSweep
from interp.engines.expand import Expand
from interp.engines.support import Unsupported

__all__ = ["Cells", "Cone", "ConeSweep", "Expand", "Unsupported"]
