"""What tools/figures.py stands on: a stage for both sides, and the peers that are compared with."""
