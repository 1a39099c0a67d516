"""One module a command: `run(options)` returns what `--json` prints, `show(result)` prints it for a reader."""
