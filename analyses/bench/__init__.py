"""The benchmarks: ratios of CPU time against a peer, both measured in one run."""
