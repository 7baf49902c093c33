"""The language server: ``documents`` lints what an editor has open, ``serve`` speaks to the editor.

Only ``serve`` and ``spoken`` know the protocol (pygls, lsprotocol: extra ``[server]``).
"""
