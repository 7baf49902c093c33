"""What a program's step would cost on a TPU at other sizes: traced, compiled, never executed.

``choices`` makes commands from ``{32,64,128}``, ``traced`` reads what the dry run of one of them
left (see ``capture.dryrun``), ``rows`` puts that and the compiler's answers into the table's rows,
``advice`` says what follows from them.
"""
