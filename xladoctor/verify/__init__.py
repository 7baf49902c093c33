"""``xladoctor verify``: what the ways of one program have recorded, compared step by step.

``records``  what a way has left, as typed steps
``compare``  where two ways part, and what is too small to count
``explain``  why: which finding or known difference goes with it, and at which line
``result``   the answer
"""
