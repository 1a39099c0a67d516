"""Questions asked of the models: studies, comparisons, claims, sweeps, the report and the command line."""
