"""The command line's arguments as dataclasses: nothing here imports torch, so that help answers at once."""
