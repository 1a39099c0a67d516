"""Instruments for any hooked transformer: patching, ablation, attribution, roles, circuits. They know no task."""
