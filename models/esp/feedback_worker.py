"""One exact feedback arc set by igraph, as a program of its own: a solver that runs in another process can be killed.

Reads {"n", "arcs", "weights", "method", "limit"} as JSON from standard input, writes the indices of the arcs to
standard output. It imports nothing but igraph, so that it starts at once.
"""

import json
import math
import signal
import sys

import igraph


def solve(n: int, arcs: list[list[int]], weights: list[int], method: str) -> list[int]:
    """Indices of the arcs of a minimum-weight feedback arc set; method `ip_ti` or `ip_cg`, igraph's exact variants."""
    graph = igraph.Graph(n=n, edges=[tuple(arc) for arc in arcs], directed=True)
    return sorted(graph.feedback_arc_set(weights=weights, method=method))


if __name__ == "__main__":
    request = json.load(sys.stdin)
    if hasattr(signal, "alarm"):  # whoever started this may have been killed: then nobody else will end it
        signal.alarm(math.ceil(request.pop("limit")) + 5)
    else:
        request.pop("limit")
    json.dump(solve(**request), sys.stdout)
