"""Which files do the extractors have to read? Made here, with the standard library and Pillow: every format, five languages.

Nothing in here is taken from anywhere: a test that fails can be read down to the byte.
"""
