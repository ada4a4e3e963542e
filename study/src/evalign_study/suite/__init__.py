"""The suite of our own recipe."""
