"""Start-up, overview, relocation and the import of older stores."""
