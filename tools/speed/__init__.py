"""Parts of tools/figures.py: the environment of measurements, and the peers."""
