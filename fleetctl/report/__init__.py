"""Reports of agents and missions: as a document, and the document as Markdown or HTML.

No other command loads this package.
"""
