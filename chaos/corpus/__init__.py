"""Corpus of the extractors: files of every format in five languages, made with the standard library and Pillow.

Nothing in here is taken from anywhere: a test that fails can be read down to the byte.
"""
