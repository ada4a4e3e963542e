"""From a run to its record."""
