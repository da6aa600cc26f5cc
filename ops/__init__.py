"""Operators of our own in C++ and CUDA, registered with torch; each has a file with its name."""
