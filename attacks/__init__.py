"""Hostile calls, files, folders and signals, each judged: `python -m attacks`, or `make attack`.

An attack is a function that yields cases. A case *holds* if it gives the right answer or one clear
sentence. A traceback of our own, a hang, a wrong number, a half-written file, and memory filled by
a small file do not hold. Cases are drawn with a seed, so that a failure can be repeated.
"""
