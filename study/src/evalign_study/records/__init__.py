"""What a run is, what is kept of it, and how it is asked for."""
