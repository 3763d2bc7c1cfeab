"""One module per sampler: what to read, and a pure parse of what was read.

A sampler is a module with an instance ``SAMPLER`` of a class that follows ``sampler.Sampler``; ``registry`` finds it.
"""
