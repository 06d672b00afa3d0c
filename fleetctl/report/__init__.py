"""Reports of agents and missions: as a document, and the document as Markdown or HTML.

Nothing here is loaded by another command.
"""
