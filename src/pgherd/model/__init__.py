"""The words of pgherd as immutable models. No I/O; imports nothing else of pgherd."""
