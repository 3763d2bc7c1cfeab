"""Samplers: the sources that each one reads, and a pure parser of the text.

A sampler is an instance of a class that follows ``sampler.Sampler``. Its module exports it as ``SAMPLER``, or as one of ``SAMPLERS``.
``registry`` finds both.
"""
