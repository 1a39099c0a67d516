"""The four tasks, their toy models, constructed weights, training and checkpoints."""
