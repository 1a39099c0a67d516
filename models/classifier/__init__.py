"""Small transformer encoders that classify real data: one model, or many seeds of one trained together."""
